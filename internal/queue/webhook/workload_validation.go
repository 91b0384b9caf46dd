package webhook

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

var (
	specPath   = field.NewPath("spec")
	statusPath = field.NewPath("status")
	boostPath  = field.NewPath("metadata", "annotations").Key(workload.PriorityBoostAnnotation)
)

// Workload checks a workload; old is nil for a new one.
func Workload(wl, old *kueue.Workload) field.ErrorList {
	errs := podSets(wl)
	if reserved(wl) {
		errs = append(errs, assigned(wl, old)...)
	}
	errs = append(errs, metavalidation.ValidateConditions(wl.Status.Conditions, statusPath.Child("conditions"))...)
	errs = append(errs, reclaimable(wl, old)...)
	errs = append(errs, checkUpdates(wl)...)
	errs = append(errs, boost(wl)...)
	if old == nil || !equality.Semantic.DeepEqual(wl.Spec.PodSets, old.Spec.PodSets) {
		for i := range wl.Spec.PodSets { // one from before this check can still be changed, and deleted
			errs = append(errs, workload.ValidateCount(&wl.Spec.PodSets[i], specPath.Child("podSets").Index(i))...)
		}
	}
	if old == nil {
		return append(errs, workload.ValidateGates(wl, nil)...)
	}
	if reserved(old) {
		errs = append(errs, samePodSets(wl, old)...)
	}
	if reserved(old) && reserved(wl) {
		errs = append(errs, reclaimedMore(wl, old)...)
	}
	errs = append(errs, sameAdmission(wl.Status.Admission, old.Status.Admission)...)
	errs = append(errs, sameCheckUpdates(wl, old)...)
	errs = append(errs, clusterName(wl, old)...)
	return append(errs, workload.ValidateGates(wl, old)...)
}

// warnings are about what a later release will reject.
func warnings(wl *kueue.Workload) admission.Warnings {
	var out admission.Warnings
	for i, set := range wl.Spec.PodSets {
		if r := set.TopologyRequest; r != nil && r.SubGroupCount != nil && *r.SubGroupCount < 0 {
			path := specPath.Child("podSets").Index(i).Child("topologyRequest", "subGroupCount")
			out = append(out, fmt.Sprintf("%s: negative value %d is deprecated and will be rejected in a future release", path, *r.SubGroupCount))
		}
	}
	return out
}

func reserved(wl *kueue.Workload) bool {
	return apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
}

func elastic(wl *kueue.Workload) bool { return wl.Annotations[kueuelabels.ElasticJob] == "true" }

func podSets(wl *kueue.Workload) field.ErrorList {
	var errs field.ErrorList
	path, partial := specPath.Child("podSets"), 0
	for i := range wl.Spec.PodSets {
		errs = append(errs, podSet(&wl.Spec.PodSets[i], path.Index(i))...)
		if wl.Spec.PodSets[i].MinCount != nil {
			partial++
		}
	}
	if partial > 1 {
		errs = append(errs, field.Invalid(path, partial, "at most one podSet can use minCount"))
	}
	if partial > 0 && elastic(wl) {
		errs = append(errs, field.Invalid(path, partial, "partial admission and elastic job cannot be used together"))
	}
	return errs
}

func podSet(set *kueue.PodSet, path *field.Path) field.ErrorList {
	template, spec := path.Child("template"), path.Child("template", "spec")
	errs := metavalidation.ValidateLabels(set.Template.Labels, template.Child("metadata", "labels"))
	errs = append(errs, validation.ValidateAnnotations(set.Template.Annotations, template.Child("metadata", "annotations"))...)
	for _, containers := range []struct {
		list []corev1.Container
		path *field.Path
	}{
		{set.Template.Spec.InitContainers, spec.Child("initContainers")},
		{set.Template.Spec.Containers, spec.Child("containers")},
	} {
		for i := range containers.list {
			errs = append(errs, requirements(&containers.list[i].Resources, containers.path.Index(i).Child("resources"))...)
		}
	}
	if set.Template.Spec.Resources != nil {
		errs = append(errs, requirements(set.Template.Spec.Resources, spec.Child("resources"))...)
	}
	return append(errs, topologySlices(set.TopologyRequest, path.Child("topologyRequest"))...)
}

func requirements(r *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	return append(resourceList(r.Requests, path.Child("requests")), resourceList(r.Limits, path.Child("limits"))...)
}

func resourceList(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range sets.List(sets.KeySet(list)) {
		if name == corev1.ResourcePods {
			errs = append(errs, field.Invalid(path.Key(string(name)), corev1.ResourcePods, "the key is reserved for internal kueue use"))
		}
		errs = append(errs, notNegative(list[name], path.Key(string(name)))...)
	}
	return errs
}

// topologySlices checks how a pod set is divided into slices of its topology.
func topologySlices(r *kueue.PodSetTopologyRequest, path *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	size := path.Child("podSetSliceSize")
	switch {
	case r.PodSetSliceRequiredTopology == nil && r.PodSetSliceSize != nil:
		errs = append(errs, field.Forbidden(size, "may not be set when podSetSliceRequiredTopology is not specified"))
	case r.PodSetSliceRequiredTopology != nil && r.PodSetSliceSize == nil:
		errs = append(errs, field.Required(size, "must be set when podSetSliceRequiredTopology is specified"))
	case r.PodSetSliceRequiredTopology != nil && *r.PodSetSliceSize <= 0:
		errs = append(errs, field.Invalid(size, *r.PodSetSliceSize, "must be greater than 0"))
	}
	for i, constraint := range r.PodsetSliceRequiredTopologyConstraints {
		if constraint.Size <= 0 {
			errs = append(errs, field.Invalid(path.Child("podsetSliceRequiredTopologyConstraints").Index(i).Child("size"),
				constraint.Size, "must be greater than 0"))
		}
	}
	return errs
}

// assigned checks that an admission belongs to the workload. One that is already lost is allowed,
// so that the workload can leave that state.
func assigned(wl, old *kueue.Workload) field.ErrorList {
	path := statusPath.Child("admission")
	if wl.Status.Admission == nil {
		if old != nil && reserved(old) && old.Status.Admission == nil {
			return nil
		}
		return field.ErrorList{field.Required(path, "must be set while the QuotaReserved condition is true")}
	}
	var errs field.ErrorList
	for i, set := range wl.Status.Admission.PodSetAssignments {
		at := path.Child("podSetAssignments").Index(i)
		if !slices.ContainsFunc(wl.Spec.PodSets, func(s kueue.PodSet) bool { return s.Name == set.Name }) {
			errs = append(errs, field.NotFound(at.Child("name"), set.Name))
		}
		count := int64(ptr.Deref(set.Count, 0))
		for _, name := range sets.List(sets.KeySet(set.ResourceUsage)) {
			if usage := set.ResourceUsage[name]; count > 0 && workload.Amount(name, usage)%count != 0 {
				errs = append(errs, field.Invalid(at.Child("resourceUsage").Key(string(name)), usage, fmt.Sprintf("is not a multiple of %d", count)))
			}
		}
	}
	return errs
}

// sameAdmission makes an admission immutable, but for topology assignments that are still missing.
func sameAdmission(now, was *kueue.Admission) field.ErrorList {
	if now == nil || was == nil {
		return nil
	}
	if len(now.PodSetAssignments) == len(was.PodSetAssignments) {
		was = was.DeepCopy()
		for i := range now.PodSetAssignments {
			was.PodSetAssignments[i].TopologyAssignment = now.PodSetAssignments[i].TopologyAssignment
			was.PodSetAssignments[i].DelayedTopologyRequest = now.PodSetAssignments[i].DelayedTopologyRequest
		}
	}
	return validation.ValidateImmutableField(now, was, statusPath.Child("admission"))
}

// samePodSets makes what quota was reserved for immutable. An elastic job may shrink.
func samePodSets(wl, old *kueue.Workload) field.ErrorList {
	path := specPath.Child("podSets")
	if len(wl.Spec.PodSets) != len(old.Spec.PodSets) {
		return field.ErrorList{field.Invalid(path, wl.Spec.PodSets, validation.FieldImmutableErrorMsg)}
	}
	var errs field.ErrorList
	for i := range wl.Spec.PodSets {
		now, was := wl.Spec.PodSets[i], old.Spec.PodSets[i]
		if now.Count < was.Count {
			now.Count = was.Count
		}
		errs = append(errs, validation.ValidateImmutableField(now, was, path.Child(strconv.Itoa(i)))...)
	}
	return errs
}

func reclaimable(wl, old *kueue.Workload) field.ErrorList {
	var errs field.ErrorList
	names := make([]kueue.PodSetReference, len(wl.Spec.PodSets))
	counts := map[kueue.PodSetReference]int32{}
	for i, set := range wl.Spec.PodSets {
		names[i], counts[set.Name] = set.Name, set.Count
	}
	for _, r := range wl.Status.ReclaimablePods {
		at := statusPath.Child("reclaimablePods").Key(string(r.Name))
		count, found := counts[r.Name]
		// A count from before an elastic job shrank will be corrected.
		stale := old != nil && elastic(wl) && slices.Contains(old.Status.ReclaimablePods, r)
		switch {
		case !found:
			errs = append(errs, field.NotSupported(at.Child("name"), r.Name, names))
		case r.Count > count && !stale:
			errs = append(errs, field.Invalid(at.Child("count"), r.Count, fmt.Sprintf("should be less or equal to %d", count)))
		}
	}
	return errs
}

// reclaimedMore: a pod that has finished for good does not come back while quota is reserved,
// unless an elastic job shrank around it.
func reclaimedMore(wl, old *kueue.Workload) field.ErrorList {
	var errs field.ErrorList
	path := statusPath.Child("reclaimablePods")
	shrank := shrunk(wl)
	for _, was := range old.Status.ReclaimablePods {
		i := slices.IndexFunc(wl.Status.ReclaimablePods, func(r kueue.ReclaimablePod) bool { return r.Name == was.Name })
		switch {
		case shrank.Has(was.Name):
		case i < 0:
			errs = append(errs, field.Required(path.Key(string(was.Name)), "cannot be removed"))
		case wl.Status.ReclaimablePods[i].Count < was.Count:
			errs = append(errs, field.Invalid(path.Key(string(was.Name)).Child("count"), wl.Status.ReclaimablePods[i].Count,
				fmt.Sprintf("cannot be less than %d", was.Count)))
		}
	}
	return errs
}

// shrunk are the pod sets of an elastic job that have fewer pods than admitted.
func shrunk(wl *kueue.Workload) sets.Set[kueue.PodSetReference] {
	names := sets.New[kueue.PodSetReference]()
	if !elastic(wl) || wl.Status.Admission == nil {
		return names
	}
	for _, given := range wl.Status.Admission.PodSetAssignments {
		for _, set := range wl.Spec.PodSets {
			if set.Name == given.Name && ptr.Deref(given.Count, 0) > set.Count {
				names.Insert(set.Name)
			}
		}
	}
	return names
}

// checkUpdates checks what admission checks add to pods.
func checkUpdates(wl *kueue.Workload) field.ErrorList {
	known := sets.New[kueue.PodSetReference]()
	for _, set := range wl.Spec.PodSets {
		known.Insert(set.Name)
	}
	var errs field.ErrorList
	for i, check := range wl.Status.AdmissionChecks {
		for j, update := range check.PodSetUpdates {
			at := statusPath.Child("admissionChecks").Index(i).Child("podSetUpdates").Index(j)
			if !known.Has(update.Name) {
				errs = append(errs, field.NotSupported(at.Child("name"), update.Name, sets.List(known)))
			}
			errs = append(errs, tolerations(update.Tolerations, at.Child("tolerations"))...)
			errs = append(errs, validation.ValidateAnnotations(update.Annotations, at.Child("annotations"))...)
			errs = append(errs, metavalidation.ValidateLabels(update.NodeSelector, at.Child("nodeSelector"))...)
			errs = append(errs, metavalidation.ValidateLabels(update.Labels, at.Child("labels"))...)
		}
	}
	return errs
}

// sameCheckUpdates makes the pod updates of a check that is ready immutable.
func sameCheckUpdates(wl, old *kueue.Workload) field.ErrorList {
	var errs field.ErrorList
	for i, was := range old.Status.AdmissionChecks {
		for _, now := range wl.Status.AdmissionChecks {
			if now.Name == was.Name && now.State == kueue.CheckStateReady && was.State == kueue.CheckStateReady {
				errs = append(errs, validation.ValidateImmutableField(now.PodSetUpdates, was.PodSetUpdates,
					statusPath.Child("admissionChecks").Index(i).Child("podSetUpdates"))...)
			}
		}
	}
	return errs
}

func clusterName(wl, old *kueue.Workload) field.ErrorList {
	name := wl.Status.ClusterName
	if name == nil || old.Status.ClusterName != nil || wl.Annotations[workload.ReplacesAnnotation] != "" ||
		slices.Contains(old.Status.NominatedClusterNames, *name) {
		return nil
	}
	return field.ErrorList{field.Invalid(statusPath.Child("clusterName"), name, "when setting clusterName it must be one of the nominatedClusterNames")}
}

func boost(wl *kueue.Workload) field.ErrorList {
	value, found := wl.Annotations[workload.PriorityBoostAnnotation]
	if !found {
		return nil
	}
	if value == "" {
		return field.ErrorList{field.Invalid(boostPath, value, `must be a valid signed integer; use "0" explicitly, empty string is not allowed`)}
	}
	if _, err := strconv.ParseInt(value, 10, 32); err != nil {
		return field.ErrorList{field.Invalid(boostPath, value, "must be a valid signed integer")}
	}
	return nil
}
