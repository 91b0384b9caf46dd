package engineview

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
)

// ImpliedTopology is what the flavors of a ClusterQueue mean for a pod set that asks for no
// topology. It gets one of the flavors without a topology; where every flavor has one, any place in
// the topology is good enough, but the assignment still names it.
type ImpliedTopology struct {
	plain []string // the flavors without a topology
	all   bool     // every flavor has a topology
	some  bool     // some flavors have one
}

// ImpliedTopology of a ClusterQueue's flavors.
func (o *Objects) ImpliedTopology(cq *kueue.ClusterQueue) ImpliedTopology {
	var t ImpliedTopology
	for _, group := range cq.Spec.ResourceGroups {
		for _, quotas := range group.Flavors {
			flavor := o.Flavors[string(quotas.Name)]
			if flavor == nil || flavor.Spec.TopologyName == nil {
				t.plain = append(t.plain, string(quotas.Name))
			} else {
				t.some = true
			}
		}
	}
	t.all = t.some && len(t.plain) == 0
	t.some = t.some && !t.all
	return t
}

// Applies says that some flavor has a topology, so that Apply may change a pod set.
func (t ImpliedTopology) Applies() bool { return t.all || t.some }

// Equal says that both mean the same for a pod set.
func (t ImpliedTopology) Equal(other ImpliedTopology) bool {
	return t.all == other.all && t.some == other.some && slices.Equal(t.plain, other.plain)
}

// Apply changes a pod set that asks for no topology.
func (t ImpliedTopology) Apply(set *admission.PodSet) {
	switch {
	case set.Topology != nil:
	case t.all:
		set.Topology = &admission.TopologyRequest{Mode: admission.TopologyUnconstrained}
	case t.some:
		set.Flavors = t.plain
	}
}
