package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// defaulter suspends jobs as they are created, before their operators see them.
type defaulter struct {
	*validator
	multiKueue, noSliceLayers bool
}

// Handle answers one admission request.
func (d *defaulter) Handle(ctx context.Context, request admission.Request) admission.Response {
	kind := d.kinds.ByGVK(schema.GroupVersionKind(request.Kind))
	if kind == nil || request.SubResource != "" {
		return admission.Allowed("")
	}
	if request.Operation != admissionv1.Create {
		if answer := d.validator.Handle(ctx, request); kind.Suspends() || !answer.Allowed {
			return answer
		}
	}
	var changed client.Object
	var err error
	if kind.IsPod() {
		changed, err = d.defaultPod(ctx, request)
	} else {
		changed, err = d.defaultObject(ctx, kind, request)
	}
	if err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("queueing the %s: %w", kind.GVK.Kind, err))
	}
	if changed == nil {
		return admission.Allowed("")
	}
	data, err := json.Marshal(changed)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, data)
}

// defaultObject suspends a job, or labels the pods it will make; nil means there is nothing to do.
func (d *defaulter) defaultObject(ctx context.Context, kind *kinds.Kind, request admission.Request) (client.Object, error) {
	job, err := decode(kind, request.Namespace, request.Object.Raw)
	if err != nil {
		return nil, err
	}
	obj := job.Unstructured
	creating := request.Operation == admissionv1.Create
	if kinds.QueueName(obj) == "" && creating {
		if err := d.setDefaultQueue(ctx, obj); err != nil {
			return nil, err
		}
	}
	managed, err := d.filter.Manages(ctx, kind, obj)
	if err != nil || !managed {
		return nil, err
	}
	if name := string(kinds.QueueName(obj)); name != "" {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return nil, fmt.Errorf("%s: %q: %s", kinds.QueueNameLabel, name, strings.Join(problems, "; "))
		}
	}
	if creating {
		if err := d.validateSliceLayers(ctx, job, request.Object.Raw); err != nil {
			return nil, err
		}
	}
	if kind.Suspends() {
		if err := d.setManagedBy(ctx, job); err != nil {
			return nil, err
		}
		return obj, job.Suspend(true)
	}
	return obj, labelPods(kind, obj)
}

// validateSliceLayers refuses slices of slices that no topology can provide. A job that cannot be
// read yet is left to its controller, which reports the problem as an event.
func (d *defaulter) validateSliceLayers(ctx context.Context, j kinds.Object, raw []byte) error {
	if !bytes.Contains(raw, []byte(kueue.PodSetSliceRequiredTopologyConstraintsAnnotation)) {
		return nil
	}
	sets, err := j.PodSets(ctx, d.filter.Cached)
	if err != nil {
		return nil
	}
	return kinds.ValidateSliceLayers(sets, d.noSliceLayers).ToAggregate()
}

// setManagedBy hands a job over to MultiKueue if its queue sends jobs to other clusters and the
// user has not chosen another controller.
func (d *defaulter) setManagedBy(ctx context.Context, j kinds.Object) error {
	by := j.ManagedBy()
	if !d.multiKueue || !j.Row().HasManagedBy() || by != "" && by != j.Row().Spec.ManagedByDefault {
		return nil
	}
	leaves, err := d.filter.UsesMultiKueue(ctx, j.GetNamespace(), kinds.QueueName(j))
	if err != nil || !leaves {
		return err
	}
	return j.SetManagedBy(kueue.MultiKueueControllerName)
}

func (d *defaulter) setDefaultQueue(ctx context.Context, obj *unstructured.Unstructured) error {
	queue, err := d.filter.DefaultQueue(ctx, obj.GetNamespace())
	if err != nil || queue == "" {
		return err
	}
	independent, err := d.filter.IsIndependent(ctx, obj, obj.GetNamespace())
	if err != nil || !independent {
		return err
	}
	kinds.SetLabel(obj, kinds.QueueNameLabel, queue)
	return nil
}

// labelPods writes onto an object's pod templates the labels and annotations by which its pods are
// gated.
func labelPods(kind *kinds.Kind, obj *unstructured.Unstructured) error {
	labels := map[string]string{kinds.QueueNameLabel: string(kinds.QueueName(obj))}
	if class := obj.GetLabels()[kinds.PriorityClassLabel]; class != "" {
		labels[kinds.PriorityClassLabel] = class
	}
	annotations := map[string]string{kinds.ParentAnnotation: kind.Name}
	if name := kinds.PrebuiltName(obj); name != "" && kind.GroupsPods() {
		annotations[kinds.PrebuiltLabel] = name
	}
	return kind.MarkPods(obj, labels, annotations)
}
