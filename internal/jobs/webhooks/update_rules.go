package webhooks

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

func validatePodSpec(had, has *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := append(validateContainers(had.InitContainers, has.InitContainers, path.Child("initContainers")),
		validateContainers(had.Containers, has.Containers, path.Child("containers"))...)
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

func validateContainers(had, has []corev1.Container, path *field.Path) field.ErrorList {
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

// alreadyAdmitted: a running job gets a queue name after its workload was admitted there, as jobs
// do that ran before there were queues.
func (v *validator) alreadyAdmitted(ctx context.Context, before, after kinds.Object) (bool, error) {
	if kinds.QueueName(before) != "" || after.IsSuspended() {
		return false, nil
	}
	wl := &kueue.Workload{}
	err := v.filter.Cached.Get(ctx, types.NamespacedName{Namespace: after.GetNamespace(), Name: after.WorkloadName()}, wl)
	return err == nil && workload.HasReservation(wl), client.IgnoreNotFound(err)
}

var (
	labelsPath      = field.NewPath("metadata", "labels")
	annotationsPath = field.NewPath("metadata", "annotations")
)

// validateUpdate finds what makes a change of a job invalid.
func validateUpdate(before, after kinds.Object, hasDefaultQueue bool) field.ErrorList {
	var errs field.ErrorList
	runs := !after.IsSuspended()
	fixed := func(key string) {
		errs = append(errs, apivalidation.ValidateImmutableField(after.GetLabels()[key], before.GetLabels()[key], labelsPath.Key(key))...)
	}
	if runs {
		errs = append(errs, apivalidation.ValidateImmutableField(kinds.QueueName(after), kinds.QueueName(before), labelsPath.Key(kinds.QueueNameLabel))...)
	}
	if kinds.QueueName(after) == "" && kinds.QueueName(before) != "" && hasDefaultQueue {
		errs = append(errs, field.Invalid(labelsPath.Key(kinds.QueueNameLabel), "", "queue-name must not be empty in namespace with default queue"))
	}
	if runs && !hasElasticAnnotation(before) {
		fixed(kinds.PrebuiltLabel)
	}
	if runs || !before.IsSuspended() {
		fixed(kinds.MaxExecTimeLabel)
	}
	errs = append(errs, validatePriorityClass(before, after, runs)...)
	if hasElasticAnnotation(before) != hasElasticAnnotation(after) {
		errs = append(errs, field.Invalid(annotationsPath.Key(kinds.ElasticAnnotation), hasElasticAnnotation(after), apivalidation.FieldImmutableErrorMsg))
	}
	return errs
}

// validateGatedUpdate finds what makes a change of an object invalid whose pods are gated: they stay in
// the queue whose quota they use.
func validateGatedUpdate(before, after kinds.Object) field.ErrorList {
	runs, err := before.IsActive()
	if err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("status"), err)}
	}
	var errs field.ErrorList
	if runs || kinds.QueueName(after) == "" {
		errs = append(errs, apivalidation.ValidateImmutableField(kinds.QueueName(after), kinds.QueueName(before), labelsPath.Key(kinds.QueueNameLabel))...)
	}
	return append(errs, validatePriorityClass(before, after, runs)...)
}

func validatePriorityClass(before, after client.Object, runs bool) field.ErrorList {
	path, had, has := labelsPath.Key(kinds.PriorityClassLabel), before.GetLabels()[kinds.PriorityClassLabel], after.GetLabels()[kinds.PriorityClassLabel]
	switch {
	case runs && had == "" && has != "":
		return field.ErrorList{field.Invalid(path, has, "WorkloadPriorityClass cannot be added to a non-suspended workload")}
	case had != "" && has == "":
		return field.ErrorList{field.Invalid(path, has, "WorkloadPriorityClass cannot be removed from a workload")}
	}
	return nil
}

func hasElasticAnnotation(obj client.Object) bool {
	return obj.GetAnnotations()[kinds.ElasticAnnotation] == "true"
}
