package workload

import (
	"maps"
	"slices"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Domain is a topology domain and how many pods are assigned to it.
type Domain struct {
	Values []string
	Count  int
}

// Domains lists the domains of a topology assignment, in the order of ranks. A part of it that is not as it says it is
// has none: the pods there get no node rather than a wrong one.
func Domains(a *kueue.TopologyAssignment) []Domain {
	var out []Domain
	for i := range a.Slices {
		if part := &a.Slices[i]; wellFormed(part, len(a.Levels)) {
			out = append(out, domainsOf(part)...)
		}
	}
	return out
}

func domainsOf(part *kueue.TopologyAssignmentSlice) []Domain {
	out := make([]Domain, part.DomainCount)
	for i := range out {
		d := &out[i]
		d.Count = int(ptr.Deref(part.PodCounts.Universal, 0))
		if part.PodCounts.Universal == nil {
			d.Count = int(part.PodCounts.Individual[i])
		}
		for _, level := range part.ValuesPerLevel {
			value := ptr.Deref(level.Universal, "")
			if v := level.Individual; v != nil {
				value = ptr.Deref(v.Prefix, "") + v.Roots[i] + ptr.Deref(v.Suffix, "")
			}
			d.Values = append(d.Values, value)
		}
	}
	return out
}

// wellFormed says that a part of an assignment has a value at each level and a number of pods for each of its domains.
// Several domains differ in some value, so that there are no more of them than the object lists.
func wellFormed(part *kueue.TopologyAssignmentSlice, levels int) bool {
	count := int(part.DomainCount)
	if count < 0 || len(part.ValuesPerLevel) != levels {
		return false
	}
	differ := count <= 1
	for _, level := range part.ValuesPerLevel {
		if level.Individual != nil {
			if differ = true; len(level.Individual.Roots) != count {
				return false
			}
		}
	}
	pods := part.PodCounts.Individual
	if universal := part.PodCounts.Universal; universal != nil {
		pods = []int32{*universal}
	} else if len(pods) != count {
		return false
	}
	return differ && !slices.ContainsFunc(pods, func(n int32) bool { return n < 0 })
}

// DelayTopologyRequests leaves the topology assignment of pod sets to the second pass.
func DelayTopologyRequests(wl *kueue.Workload, names []kueue.PodSetReference) {
	for i := range wl.Status.Admission.PodSetAssignments {
		if set := &wl.Status.Admission.PodSetAssignments[i]; slices.Contains(names, set.Name) {
			set.DelayedTopologyRequest = ptr.To(kueue.DelayedTopologyRequestStatePending)
		}
	}
}

// PlacedElsewhere says of pod sets that were left to a later pass that another cluster has placed them.
func PlacedElsewhere(wl *kueue.Workload) {
	if wl.Status.Admission != nil && hasDelayedTopologyRequest(wl) {
		placeDelayedTopologyRequests(wl, nil)
	}
}

func hasDelayedTopologyRequest(wl *kueue.Workload) bool {
	return slices.ContainsFunc(wl.Status.Admission.PodSetAssignments, func(set kueue.PodSetAssignment) bool {
		return set.TopologyAssignment == nil && ptr.Deref(set.DelayedTopologyRequest, "") == kueue.DelayedTopologyRequestStatePending
	})
}

func placeDelayedTopologyRequests(wl *kueue.Workload, assignments map[string]*kueue.TopologyAssignment) {
	for i := range wl.Status.Admission.PodSetAssignments {
		if set := &wl.Status.Admission.PodSetAssignments[i]; set.DelayedTopologyRequest != nil {
			set.TopologyAssignment = assignments[string(set.Name)]
			set.DelayedTopologyRequest = ptr.To(kueue.DelayedTopologyRequestStateReady)
		}
	}
}

// NodeSelector is a pod set's node selector with what ready checks add to it.
func NodeSelector(wl *kueue.Workload, podSet string, own map[string]string) map[string]string {
	var all map[string]string
	for _, check := range wl.Status.AdmissionChecks {
		for _, update := range check.PodSetUpdates {
			if check.State != kueue.CheckStateReady || string(update.Name) != podSet || len(update.NodeSelector) == 0 {
				continue
			}
			if all == nil {
				all = maps.Clone(own)
			}
			if all == nil {
				all = map[string]string{}
			}
			maps.Copy(all, update.NodeSelector)
		}
	}
	if all == nil {
		return own
	}
	return all
}

// Labels are those of the domain's nodes.
func (d Domain) Labels(levels []string) map[string]string {
	labels := make(map[string]string, len(levels))
	for i, key := range levels {
		labels[key] = d.Values[i]
	}
	return labels
}

// Matches says that labels, a node's or those of a pod's node selector, are the domain's.
func (d Domain) Matches(labels map[string]string, levels []string) bool {
	for i, key := range levels {
		if labels[key] != d.Values[i] {
			return false
		}
	}
	return true
}
