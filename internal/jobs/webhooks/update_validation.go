package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/managed"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// validator refuses changes by which a running job would leave its queue, where nobody could stop
// it any more, or ask for more than it was admitted with. The messages are Kueue's.
type validator struct {
	filter *managed.Filter
	kinds  *kinds.InUse
	// resizableGroups allows the groups of an object to change in size.
	resizableGroups bool
	// rayAndSparkMayLeave leaves updates by which jobs of these kinds give up their queue name alone.
	rayAndSparkMayLeave bool
	// gatedBy, topology: the annotations of admission gates, and of topologies, are looked at.
	gatedBy, topology, noSliceLayers bool
}

// validatedLabels and validatedAnnotations tie a job to its queue; a change of one of them is sent
// to the webhook.
var (
	validatedLabels      = []string{kinds.QueueNameLabel, kinds.PrebuiltLabel, kinds.MaxExecTimeLabel, kinds.PriorityClassLabel}
	validatedAnnotations = []string{kinds.QueueNameLabel, kinds.PrebuiltLabel, kinds.ElasticAnnotation, workload.GatedByAnnotation, kinds.MinParallelismAnnotation, kinds.SyncCompletionsAnnotation, v1alpha1.AfterAnnotation, v1alpha1.PodsAnnotation, v1alpha1.SubmittedByAnnotation, cloudv1.DeadlineAnnotation, cloudv1.DelayPriceAnnotation, cloudv1.CheckpointAnnotation}
)

// changesValidated is the webhook's match condition in CEL: true of new objects, of those whose
// validated labels or annotations changed, and of specs that somebody else than the program changed.
func changesValidated() string {
	return "oldObject == null || " + differs("labels", validatedLabels) + " || " + differs("annotations", validatedAnnotations) +
		" || object.spec != oldObject.spec && request.userInfo.username != 'system:serviceaccount:" + program + ":" + program + "'"
}

func differs(field string, keys []string) string {
	value := func(root string) string {
		at := root + ".metadata." + field
		return fmt.Sprintf("(has(%[1]s) && key in %[1]s ? %[1]s[key] : '')", at)
	}
	return fmt.Sprintf("['%s'].exists(key, %s != %s)", strings.Join(keys, "', '"), value("object"), value("oldObject"))
}

// Handle allows or refuses an update and changes nothing.
func (v *validator) Handle(ctx context.Context, request admission.Request) admission.Response {
	kind := v.kinds.ByGVK(schema.GroupVersionKind(request.Kind))
	if kind == nil || kind.IsPod() || request.SubResource != "" || request.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	before, errBefore := decode(kind, request.Namespace, request.OldObject.Raw)
	after, errAfter := decode(kind, request.Namespace, request.Object.Raw)
	if err := errors.Join(errBefore, errAfter); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	was, errBefore := v.filter.Manages(ctx, kind, before.Unstructured)
	is, errAfter := v.filter.Manages(ctx, kind, after.Unstructured)
	if err := errors.Join(errBefore, errAfter); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if !was && !is {
		return respondTo(v.validateSkipped(ctx, &before, after))
	}
	if v.rayAndSparkMayLeave && !is && slices.Contains([]string{"ray.io", "sparkoperator.k8s.io"}, kind.GVK.Group) {
		return admission.Allowed("")
	}
	validate := v.validateJob
	if !kind.Suspends() {
		validate = v.validateGated
	}
	errs, err := validate(ctx, request, before, after)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return respond(errs)
}

// validateChangedMeta finds what is wrong with the labels and annotations that was not wrong before.
func (v *validator) validateChangedMeta(before, after kinds.Object) field.ErrorList {
	errs := added(v.validateMeta(after.Row(), after), v.validateMeta(before.Row(), before))
	if v.gatedBy {
		errs = added(append(errs, workload.ValidateGates(after, before)...), workload.ValidateGates(before, nil))
	}
	return errs
}

// validateGated is for objects whose pods are gated.
func (v *validator) validateGated(_ context.Context, _ admission.Request, before, after kinds.Object) (field.ErrorList, error) {
	errs := append(v.validateChangedMeta(before, after), validateGatedUpdate(before, after)...)
	if (kinds.QueueName(after) != "" || v.filter.WithoutQueueName) && after.Row().GroupsPods() {
		errs = append(append(errs, v.validateGroupSize(before, after)...), validatePodTemplates(before, after)...)
	}
	return errs, nil
}

// validateJob is for jobs with a suspend flag.
func (v *validator) validateJob(ctx context.Context, request admission.Request, before, after kinds.Object) (field.ErrorList, error) {
	if admitted, err := v.alreadyAdmitted(ctx, before, after); admitted || err != nil {
		return nil, err
	}
	fallback, err := v.filter.DefaultQueue(ctx, request.Namespace)
	if err != nil {
		return nil, err
	}
	errs := append(v.validateChangedMeta(before, after), validateUpdate(before, after, fallback != "")...)
	errs = append(errs, after.Validate(&before)...)
	if after.IsSuspended() { // the pods of a running job are those that were admitted
		errs = append(errs, added(v.validateTopology(ctx, after, request.Object.Raw), v.validateTopology(ctx, before, request.OldObject.Raw))...)
	}
	return errs, nil
}

// decode reads a job from a request, which may leave its namespace out.
func decode(kind *kinds.Kind, namespace string, raw []byte) (kinds.Object, error) {
	obj := &unstructured.Unstructured{}
	err := json.Unmarshal(raw, obj)
	obj.SetNamespace(namespace)
	return kind.Object(obj), err
}

// respondTo answers with an error that may be a refusal.
func respondTo(err error) admission.Response {
	if refused := (refusal{}); errors.As(err, &refused) {
		return respond(refused.ErrorList)
	}
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.Allowed("")
}

func respond(errs field.ErrorList) admission.Response {
	if len(errs) > 0 {
		return admission.Denied(errs.ToAggregate().Error())
	}
	return admission.Allowed("")
}

// validateGroupSize refuses changes of the fields with which the groups of an object were admitted:
// there is no quota for larger groups.
func (v *validator) validateGroupSize(before, after kinds.Object) field.ErrorList {
	var errs field.ErrorList
	for _, p := range after.Row().FixedGroupFields() {
		was, _ := p.Get(before.Object)
		now, _ := p.Get(after.Object)
		if !v.resizableGroups {
			errs = append(errs, apivalidation.ValidateImmutableField(now, was, field.NewPath(p.String()))...)
		}
	}
	return errs
}

// validatePodTemplates refuses changes of what a queued object's pods request: pods that replace
// the admitted ones would run with more. An object that cannot be read is left to its controller.
func validatePodTemplates(before, after kinds.Object) field.ErrorList {
	was, err := before.PodSetSources()
	if err != nil {
		return nil
	}
	now, err := after.PodSetSources()
	if err != nil {
		return nil
	}
	var errs field.ErrorList
	for _, p := range now {
		i := slices.IndexFunc(was, func(other kinds.PodSetSource) bool { return other.Name == p.Name })
		if i < 0 {
			continue
		}
		had, err := was[i].PodTemplate()
		if err != nil {
			return nil
		}
		has, err := p.PodTemplate()
		if err != nil {
			return nil
		}
		errs = append(errs, validatePodSpec(&had.Spec, &has.Spec, field.NewPath(p.TemplatePath(), "spec"))...)
	}
	return errs
}
