package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// guard keeps a job in its queue: one that runs cannot slip out of it, where
// nobody could stop it any more, nor change what it was admitted with. The words
// are Kueue's.
type guard struct {
	scope *scope
	kinds *kinds
	// loose lets the groups of an object change in size.
	loose bool
}

// guardedLabels and guardedAnnotations are what a job says of its queue; a
// change of one of them comes by here.
var (
	guardedLabels      = []string{QueueNameLabel, PrebuiltLabel, MaxExecTimeLabel, PriorityClassLabel}
	guardedAnnotations = []string{QueueNameLabel, ElasticAnnotation}
)

// changesGuarded is true of new objects, and of those of which something guarded
// has changed, in CEL.
func changesGuarded() string {
	return "oldObject == null || " + differs("labels", guardedLabels) + " || " + differs("annotations", guardedAnnotations)
}

func differs(field string, keys []string) string {
	value := func(root string) string {
		at := root + ".metadata." + field
		return fmt.Sprintf("(has(%[1]s) && key in %[1]s ? %[1]s[key] : '')", at)
	}
	return fmt.Sprintf("['%s'].exists(key, %s != %s)", strings.Join(keys, "', '"), value("object"), value("oldObject"))
}

// Handle answers a request that may be refused, and changes nothing.
func (g *guard) Handle(ctx context.Context, request admission.Request) admission.Response {
	kind := g.kinds.byGVK(schema.GroupVersionKind(request.Kind))
	if kind == nil || !kind.suspends() && kind.group == nil || request.SubResource != "" || request.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	before, errBefore := decode(kind, request.Namespace, request.OldObject.Raw)
	after, errAfter := decode(kind, request.Namespace, request.Object.Raw)
	if err := errors.Join(errBefore, errAfter); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	was, err := g.scope.manages(ctx, kind, before.Unstructured)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	is, err := g.scope.manages(ctx, kind, after.Unstructured)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if !was && !is {
		return admission.Allowed("")
	}
	if !kind.suspends() {
		if !is {
			return admission.Allowed("")
		}
		return verdict(append(g.resized(before, after), changedPods(before, after)...))
	}
	if joins, err := g.joins(ctx, before, after); joins || err != nil {
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		return admission.Allowed("")
	}
	fallback, err := g.scope.defaultQueue(ctx, request.Namespace)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return verdict(refusals(before, after, fallback != ""))
}

// decode reads a job as a request shows it, before its namespace is filled in.
func decode(kind *Kind, namespace string, raw []byte) (object, error) {
	obj := &unstructured.Unstructured{}
	err := json.Unmarshal(raw, obj)
	obj.SetNamespace(namespace)
	return object{obj, kind}, err
}

func verdict(errs field.ErrorList) admission.Response {
	if len(errs) > 0 {
		return admission.Denied(errs.ToAggregate().Error())
	}
	return admission.Allowed("")
}

// resized are the fields that changed although the groups of a queued object were
// admitted with them: nobody has quota for what would be more.
func (g *guard) resized(before, after object) field.ErrorList {
	var errs field.ErrorList
	for _, p := range after.kind.group.fixed {
		was, _ := p.get(before.Object)
		now, _ := p.get(after.Object)
		if !g.loose {
			errs = append(errs, apivalidation.ValidateImmutableField(now, was, field.NewPath(p.String()))...)
		}
	}
	return errs
}

// changedPods are the changes of what a queued object's pods ask for: those that
// replace the ones that were admitted would run with more. Of an object that cannot
// be read its controller tells.
func changedPods(before, after object) field.ErrorList {
	was, err := before.places()
	if err != nil {
		return nil
	}
	now, err := after.places()
	if err != nil {
		return nil
	}
	var errs field.ErrorList
	for _, p := range now {
		i := slices.IndexFunc(was, func(other place) bool { return other.name == p.name })
		if i < 0 {
			continue
		}
		had, err := was[i].podTemplate()
		if err != nil {
			return nil
		}
		has, err := p.podTemplate()
		if err != nil {
			return nil
		}
		errs = append(errs, changedSpec(&had.Spec, &has.Spec, field.NewPath(p.template.String(), "spec"))...)
	}
	return errs
}

func changedSpec(had, has *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := append(changedContainers(had.InitContainers, has.InitContainers, path.Child("initContainers")),
		changedContainers(had.Containers, has.Containers, path.Child("containers"))...)
	for _, part := range []struct {
		name     string
		had, has any
	}{
		{"nodeSelector", had.NodeSelector, has.NodeSelector}, {"affinity", had.Affinity, has.Affinity},
		{"tolerations", had.Tolerations, has.Tolerations}, {"runtimeClassName", had.RuntimeClassName, has.RuntimeClassName},
		{"priority", had.Priority, has.Priority}, {"topologySpreadConstraints", had.TopologySpreadConstraints, has.TopologySpreadConstraints},
		{"overhead", had.Overhead, has.Overhead}, {"resourceClaims", had.ResourceClaims, has.ResourceClaims}, {"resources", had.Resources, has.Resources},
	} {
		errs = append(errs, apivalidation.ValidateImmutableField(part.has, part.had, path.Child(part.name))...)
	}
	return errs
}

func changedContainers(had, has []corev1.Container, path *field.Path) field.ErrorList {
	if len(had) != len(has) {
		return field.ErrorList{field.Invalid(path, len(has), apivalidation.FieldImmutableErrorMsg)}
	}
	var errs field.ErrorList
	for i := range has {
		errs = append(errs, apivalidation.ValidateImmutableField(has[i].Resources, had[i].Resources, path.Index(i).Child("resources"))...)
		errs = append(errs, apivalidation.ValidateImmutableField(has[i].Ports, had[i].Ports, path.Index(i).Child("ports"))...)
	}
	return errs
}

// joins says a running job comes into a queue that has taken it in already, as
// those do that ran before there were queues.
func (g *guard) joins(ctx context.Context, before, after object) (bool, error) {
	if queueName(before) != "" || after.held() {
		return false, nil
	}
	wl := &kueue.Workload{}
	err := g.scope.cached.Get(ctx, types.NamespacedName{Namespace: after.GetNamespace(), Name: after.workloadName()}, wl)
	return err == nil && workload.HasReservation(wl), client.IgnoreNotFound(err)
}

var (
	labelsPath      = field.NewPath("metadata", "labels")
	annotationsPath = field.NewPath("metadata", "annotations")
)

// refusals are what speaks against a change of a job.
func refusals(before, after object, hasDefaultQueue bool) field.ErrorList {
	var errs field.ErrorList
	runs := !after.held()
	fixed := func(key string) {
		errs = append(errs, apivalidation.ValidateImmutableField(after.GetLabels()[key], before.GetLabels()[key], labelsPath.Key(key))...)
	}
	if runs {
		errs = append(errs, apivalidation.ValidateImmutableField(queueName(after), queueName(before), labelsPath.Key(QueueNameLabel))...)
	}
	if queueName(after) == "" && queueName(before) != "" && hasDefaultQueue {
		errs = append(errs, field.Invalid(labelsPath.Key(QueueNameLabel), "", "queue-name must not be empty in namespace with default queue"))
	}
	if runs && !isElastic(before) {
		fixed(PrebuiltLabel)
	}
	if runs || !before.held() {
		fixed(MaxExecTimeLabel)
	}
	errs = append(errs, priorityRefusal(before, after, runs)...)
	if isElastic(before) != isElastic(after) {
		errs = append(errs, field.Invalid(annotationsPath.Key(ElasticAnnotation), isElastic(after), apivalidation.FieldImmutableErrorMsg))
	}
	return errs
}

func priorityRefusal(before, after client.Object, runs bool) field.ErrorList {
	path, had, has := labelsPath.Key(PriorityClassLabel), before.GetLabels()[PriorityClassLabel], after.GetLabels()[PriorityClassLabel]
	switch {
	case runs && had == "" && has != "":
		return field.ErrorList{field.Invalid(path, has, "WorkloadPriorityClass cannot be added to a non-suspended workload")}
	case had != "" && has == "":
		return field.ErrorList{field.Invalid(path, has, "WorkloadPriorityClass cannot be removed from a workload")}
	}
	return nil
}

func isElastic(obj client.Object) bool { return obj.GetAnnotations()[ElasticAnnotation] == "true" }
