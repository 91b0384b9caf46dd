package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// defaulter suspends jobs as they are created, before their operators see them.
type defaulter struct {
	*validator
	multiKueue, defaultPriorityClass bool
}

// Handle answers one admission request.
func (d *defaulter) Handle(ctx context.Context, request admission.Request) admission.Response {
	kind := d.kinds.ByGVK(schema.GroupVersionKind(request.Kind))
	if kind == nil || request.SubResource != "" {
		return admission.Allowed("")
	}
	if request.Operation != admissionv1.Create {
		answer := d.validator.Handle(ctx, request)
		if answer.Allowed && kind.Suspends() {
			answer = restoreSubmitter(kind, request)
		}
		if kind.Suspends() || !answer.Allowed {
			return answer
		}
	}
	var changed client.Object
	var err error
	if kind.IsPod() {
		changed, err = d.defaultPod(ctx, kind, request)
	} else {
		changed, err = d.defaultObject(ctx, kind, request)
	}
	if refused := (refusal{}); errors.As(err, &refused) {
		return respond(refused.ErrorList)
	}
	if apierrors.IsBadRequest(err) {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("queueing the %s: %w", kind.GVK.Kind, err))
	}
	if changed == nil {
		return admission.Allowed("")
	}
	data, err := json.Marshal(changed)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, data).WithWarnings(purchaseWarnings(request.Operation, changed)...)
}

// purchaseWarnings report what does not count, or counts otherwise than one may think, of what a new job says of its nodes. It runs all
// the same.
func purchaseWarnings(operation admissionv1.Operation, obj client.Object) (warnings []string) {
	if operation != admissionv1.Create {
		return nil
	}
	if _, err := workload.InputOf(obj.GetAnnotations()); err != nil {
		warnings = append(warnings, "its input does not count: "+err.Error())
	}
	_, limited := obj.GetLabels()[kinds.MaxExecTimeLabel]
	if terms, _ := workload.PurchaseTermsOf(obj.GetAnnotations()); !terms.Deadline.IsZero() && !limited {
		warnings = append(warnings, "it does not say how long it runs (label "+kinds.MaxExecTimeLabel+"): its deadline is reckoned with what its queue has learned of jobs like it, or with an hour")
	}
	return warnings
}

// defaultObject suspends a job, or labels the pods it will make; nil means there is nothing to do.
func (d *defaulter) defaultObject(ctx context.Context, kind *kinds.Kind, request admission.Request) (client.Object, error) {
	job, err := decode(kind, request.Namespace, request.Object.Raw)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	obj := job.Unstructured
	creating := request.Operation == admissionv1.Create
	if creating {
		if err := d.setDefaults(ctx, obj); err != nil {
			return nil, err
		}
	}
	managed, err := d.filter.Manages(ctx, kind, obj)
	if err == nil && !managed && creating {
		err = d.validateSkipped(ctx, nil, job)
	}
	if err != nil {
		return nil, err
	}
	if !managed {
		return submittedAlone(kind, request)
	}
	if creating {
		recordSubmitter(kind, request, obj)
		if err := refuse(append(d.validateCreate(ctx, job, request.Object.Raw), job.Validate(nil)...)); err != nil {
			return nil, err
		}
	}
	if d.topology {
		if err := job.SetPodIndexOffsets(); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if kind.Suspends() {
		if err := d.setManagedBy(ctx, job); err != nil {
			return nil, err
		}
		return obj, job.Hold()
	}
	if err := labelPods(kind, obj); err != nil || !kind.OwnsGroup() {
		return obj, err
	}
	elsewhere := false // where its pods are one group
	if d.multiKueue && obj.GetAnnotations()[v1alpha1.PodsAnnotation] != "" {
		if elsewhere, err = d.filter.UsesMultiKueue(ctx, obj.GetNamespace(), kinds.QueueName(obj)); err != nil {
			return nil, err
		}
	}
	return obj, job.MarkRange(!elsewhere)
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

// setDefaults gives an object of no owner that is managed in its place the namespace's default queue and
// the default WorkloadPriorityClass, where there are such and it names none.
func (d *defaulter) setDefaults(ctx context.Context, obj client.Object) error {
	queue, class := "", ""
	var err error
	if kinds.QueueName(obj) == "" {
		if queue, err = d.filter.DefaultQueue(ctx, obj.GetNamespace()); err != nil {
			return err
		}
	}
	if d.defaultPriorityClass && obj.GetLabels()[kinds.PriorityClassLabel] == "" {
		if class, err = d.filter.DefaultPriorityClass(ctx); err != nil {
			return err
		}
	}
	if queue == "" && class == "" {
		return nil
	}
	independent, err := d.filter.IsIndependent(ctx, obj, obj.GetNamespace())
	if err != nil || !independent {
		return err
	}
	for key, value := range map[string]string{kinds.QueueNameLabel: queue, kinds.PriorityClassLabel: class} {
		if value != "" {
			kinds.SetLabel(obj, key, value)
		}
	}
	return nil
}

// labelPods writes onto an object's pod templates the labels and annotations by which its pods are
// gated.
func labelPods(kind *kinds.Kind, obj *unstructured.Unstructured) error {
	labels := map[string]string{}
	if queue := kinds.QueueName(obj); queue != "" {
		labels[kinds.QueueNameLabel] = string(queue)
	}
	if class := obj.GetLabels()[kinds.PriorityClassLabel]; class != "" {
		labels[kinds.PriorityClassLabel] = class
	}
	annotations := map[string]string{kinds.ParentAnnotation: kind.Name}
	if name := kinds.PrebuiltName(obj); name != "" && kind.GroupsPods() {
		annotations[kinds.PrebuiltLabel] = name
	}
	return kind.MarkPods(obj, labels, annotations)
}
