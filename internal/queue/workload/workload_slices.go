package workload

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
)

// Replaces is the workload slice that wl replaces; the zero key is none.
func Replaces(wl *kueue.Workload) admission.Key {
	namespace, name, _ := strings.Cut(wl.Annotations[ReplacesAnnotation], "/")
	if namespace != wl.Namespace {
		return admission.Key{} // another tenant's workload cannot be replaced
	}
	return admission.Key{Namespace: namespace, Name: name}
}

// PodsNamedAfter is the workload whose name the pods of wl carry: the first slice of the job.
func PodsNamedAfter(wl *kueue.Workload) admission.Key {
	if name := wl.Annotations[kueue.WorkloadSliceNameAnnotation]; name != "" {
		return admission.Key{Namespace: wl.Namespace, Name: name}
	}
	return KeyOf(wl)
}

// UsesQuota says that the workload counts against quota.
func UsesQuota(wl *kueue.Workload) bool {
	return HoldsReservation(wl) && !IsFinished(wl) && !IsGone(wl)
}

// HoldsReservation says that reserved quota is the workload's. One that was deactivated has lost it as soon as it is
// evicted, as in Kueue, although its status has it until its pods are gone.
func HoldsReservation(wl *kueue.Workload) bool {
	deactivated := IsEvicted(wl) && strings.HasPrefix(condition(wl, kueue.WorkloadEvicted).Reason, kueue.WorkloadDeactivated)
	return HasReservation(wl) && !deactivated
}

// ReservedEarlier says that a had its quota reserved before b.
func ReservedEarlier(a, b *kueue.Workload) bool {
	x, y := condition(a, kueue.WorkloadQuotaReserved), condition(b, kueue.WorkloadQuotaReserved)
	if !x.LastTransitionTime.Equal(&y.LastTransitionTime) {
		return x.LastTransitionTime.Before(&y.LastTransitionTime)
	}
	return a.Name < b.Name
}

// SubtractReplaced leaves of w what it needs beyond what old, which it replaces, uses: the
// additional pods, on the same flavors.
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
		w.Unready = "Workload " + old.Name + ", which it replaces, is being evicted"
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
			joinReplaced(set, assigned.TopologyAssignment)
		}
	}
	w.PodSets = slices.DeleteFunc(w.PodSets, func(set admission.PodSet) bool { return set.Count == 0 })
}

// joinReplaced has the pods that are added to a set join those that are there, where it requires that all are in one domain.
func joinReplaced(set *admission.PodSet, had *kueue.TopologyAssignment) {
	if set.Topology == nil || set.Topology.Mode != admission.TopologyRequired || had == nil {
		return
	}
	if there := Domains(had); len(there) > 0 {
		request := *set.Topology
		request.Beside = &admission.TopologyDomain{Levels: had.Levels, Values: there[0].Values}
		set.Topology = &request
	}
}

// AddReplaced is the whole admission of w once it replaces old, when the engine admitted it with
// what it needs beyond old.
func AddReplaced(additional *admission.Admission, w admission.Workload, old *kueue.Workload) *admission.Admission {
	whole := &admission.Admission{Queue: additional.Queue, ReservedAt: additional.ReservedAt, Placement: additional.Placement}
	for _, set := range w.PodSets {
		assigned := admission.PodSetAssignment{Name: set.Name, Count: set.Count, Flavors: map[string]string{}, Usage: admission.Requests{}}
		if i := slices.IndexFunc(additional.PodSets, func(a admission.PodSetAssignment) bool { return a.Name == set.Name }); i >= 0 {
			assigned.Flavors = additional.PodSets[i].Flavors
		} else if had := assignmentOf(old, set.Name); had != nil {
			for name, flavor := range had.Flavors {
				assigned.Flavors[string(name)] = string(flavor)
			}
			assigned.Elsewhere = cardsElsewhere(old)[set.Name]
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

// ReplacedBy finishes a workload that another one replaces.
func ReplacedBy(wl *kueue.Workload) Step {
	return Step{
		Action: FinishNow, Reason: kueue.WorkloadSliceReplaced,
		Message: fmt.Sprintf("Replaced to accommodate a workload (UID: %s, JobUID: %s) due to workload slice aggregation", wl.UID, wl.Labels[kueuelabels.JobUID]),
	}
}

func assignmentOf(wl *kueue.Workload, podSet string) *kueue.PodSetAssignment {
	for i := range wl.Status.Admission.PodSetAssignments {
		if assigned := &wl.Status.Admission.PodSetAssignments[i]; string(assigned.Name) == podSet {
			return assigned
		}
	}
	return nil
}

// podsWithQuota is the number of pods of a set that a workload uses quota for: an elastic job may have shrunk
// since it was admitted.
func podsWithQuota(wl *kueue.Workload, podSet string) int32 {
	assigned := assignmentOf(wl, podSet)
	if assigned == nil {
		return 0
	}
	return max(0, min(ptr.Deref(assigned.Count, 0), PodsLeft(wl, assigned.Name)))
}
