package admission

import (
	"slices"
	"strings"
)

// flavor is a ResourceFlavor as last described.
type flavor struct {
	spec          Flavor
	exists        bool
	version       uint32
	awaitingNodes []*equivClass // inadmissible because this flavor's nodes had no capacity
	price         *FlavorPrice  // nil: its nodes cost nothing more
}

// accepts says whether the flavor's nodes may run the pod set: "" or why not.
// Only labels the flavor names are looked at; the rest is for the scheduler. A flavor
// that has quota for nothing the pods ask of nodes needs no topology.
func (f *flavor) accepts(ps *PodSet, quotaOnly bool) string {
	name := f.spec.Name
	if !f.exists {
		return "flavor " + name + " not found"
	}
	if len(ps.Flavors) > 0 && !slices.Contains(ps.Flavors, name) {
		return "flavor " + name + " is not one of " + strings.Join(ps.Flavors, ", ")
	}
	if ps.Topology != nil && f.spec.Topology == "" && !quotaOnly {
		return "flavor " + name + " does not support TopologyAwareScheduling"
	}
	for i := range f.spec.NodeTaints {
		t := &f.spec.NodeTaints[i]
		if t.Binds() && !t.ToleratedBy(ps.Tolerations) && !t.ToleratedBy(f.spec.Tolerations) {
			return "untolerated taint " + t.String() + " in flavor " + name
		}
	}
	labels := f.spec.NodeLabels
	for k, v := range ps.NodeSelector {
		if has, ok := labels[k]; ok && has != v {
			return "flavor " + name + " doesn't match node affinity"
		}
	}
	if len(ps.Affinity) > 0 && !slices.ContainsFunc(ps.Affinity, func(t Term) bool { return t.MatchesKnown(labels) }) {
		return "flavor " + name + " doesn't match node affinity"
	}
	return f.price.holds(ps.OnNode())
}
