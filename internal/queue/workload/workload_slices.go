package workload

import (
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
)

// Replaces is the workload that wl is to take the place of; the zero key is none.
func Replaces(wl *kueue.Workload) admission.Key {
	namespace, name, _ := strings.Cut(wl.Annotations[ReplacesAnnotation], "/")
	if namespace != wl.Namespace {
		return admission.Key{} // nobody takes what is another tenant's
	}
	return admission.Key{Namespace: namespace, Name: name}
}

// PodsOf is the workload whose name the pods of wl carry: they keep it when
// another workload takes its place.
func PodsNamedAfter(wl *kueue.Workload) admission.Key {
	if name := wl.Annotations[kueue.WorkloadSliceNameAnnotation]; name != "" {
		return admission.Key{Namespace: wl.Namespace, Name: name}
	}
	return KeyOf(wl)
}

// Holds says the workload counts against quota.
func UsesQuota(wl *kueue.Workload) bool { return HasReservation(wl) && !IsFinished(wl) }

// HeldLonger says a has held its quota longer than b.
func ReservedEarlier(a, b *kueue.Workload) bool {
	x, y := condition(a, kueue.WorkloadQuotaReserved), condition(b, kueue.WorkloadQuotaReserved)
	if !x.LastTransitionTime.Equal(&y.LastTransitionTime) {
		return x.LastTransitionTime.Before(&y.LastTransitionTime)
	}
	return a.Name < b.Name
}

// Beyond leaves of w what it needs beside what old holds, whose place it is to
// take: the additional pods, on the same flavors.
func SubtractReplaced(w *admission.Workload, old *kueue.Workload) {
	if w.Admission != nil {
		for i := range w.Admission.PodSets {
			set := &w.Admission.PodSets[i]
			left := max(0, set.Count-podsWithQuota(old, set.Name))
			for name, amount := range set.Usage {
				set.Usage[name] = amount / int64(max(1, set.Count)) * int64(left)
			}
			set.Count = left
		}
		return
	}
	if IsEvicted(old) {
		w.Unready = "Workload " + old.Name + ", whose place it is to take, is being evicted"
	}
	for i := range w.PodSets {
		set := &w.PodSets[i]
		set.Count = max(0, set.Count-podsWithQuota(old, set.Name))
		if assigned := assignmentOf(old, set.Name); assigned != nil {
			for _, flavor := range assigned.Flavors {
				set.Flavors = append(set.Flavors, string(flavor))
			}
			slices.Sort(set.Flavors)
			set.Flavors = slices.Compact(set.Flavors)
		}
	}
	w.PodSets = slices.DeleteFunc(w.PodSets, func(set admission.PodSet) bool { return set.Count == 0 })
}

// Whole is what w holds in all once it takes the place of old, when it was
// admitted with no more than it needed beyond that.
func AddReplaced(beyond *admission.Admission, w admission.Workload, old *kueue.Workload) *admission.Admission {
	whole := &admission.Admission{Queue: beyond.Queue, ReservedAt: beyond.ReservedAt, Placement: beyond.Placement}
	for _, set := range w.PodSets {
		assigned := admission.PodSetAssignment{Name: set.Name, Count: set.Count, Flavors: map[string]string{}, Usage: admission.Requests{}}
		if i := slices.IndexFunc(beyond.PodSets, func(a admission.PodSetAssignment) bool { return a.Name == set.Name }); i >= 0 {
			assigned.Flavors = beyond.PodSets[i].Flavors
		} else if had := assignmentOf(old, set.Name); had != nil {
			for name, flavor := range had.Flavors {
				assigned.Flavors[string(name)] = string(flavor)
			}
		}
		for name := range assigned.Flavors {
			perPod := set.Requests[name]
			if name == admission.Pods {
				perPod = 1
			}
			assigned.Usage[name] = perPod * int64(set.Count)
		}
		whole.PodSets = append(whole.PodSets, assigned)
	}
	return whole
}

func assignmentOf(wl *kueue.Workload, podSet string) *kueue.PodSetAssignment {
	for i := range wl.Status.Admission.PodSetAssignments {
		if assigned := &wl.Status.Admission.PodSetAssignments[i]; string(assigned.Name) == podSet {
			return assigned
		}
	}
	return nil
}

// holding is the number of pods of a set that a workload holds quota for.
func podsWithQuota(wl *kueue.Workload, podSet string) int32 {
	assigned := assignmentOf(wl, podSet)
	if assigned == nil {
		return 0
	}
	count := ptr.Deref(assigned.Count, 0)
	for _, done := range wl.Status.ReclaimablePods {
		for _, set := range wl.Spec.PodSets {
			if done.Name == set.Name && string(set.Name) == podSet {
				count = min(count, set.Count-done.Count)
			}
		}
	}
	return max(0, count)
}
