package placer

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/placement"
)

// Assignments tells where in its topology each pod set of a placement goes, as
// status.admission writes it; pod sets that asked for no topology are left out.
func (p *Placer) Assignments(placed any) map[string]*kueue.TopologyAssignment {
	r, ok := placed.(*room)
	if !ok {
		return nil
	}
	out := map[string]*kueue.TopologyAssignment{}
	for i, set := range r.gang.PodSets {
		if set.Topology == nil || i >= len(r.answer.PodSets) {
			continue
		}
		out[set.Name] = assignment(p.topologies[set.Topology.Topology], r.answer.PodSets[i].Placed)
	}
	return out
}

// domainPods is a number of pods in one domain.
type domainPods struct {
	values []string
	count  int32
}

// assignment writes places in the order of their names, which is the order of
// the pods' ranks: neighbours in rank are neighbours in the topology. Where the
// narrowest level is the host, its name says all.
func assignment(levels []string, placed []placement.Placed) *kueue.TopologyAssignment {
	first := 0
	if n := len(levels); n > 0 && levels[n-1] == corev1.LabelHostname {
		first = n - 1
	}
	sorted := slices.Clone(placed)
	slices.SortStableFunc(sorted, func(a, b placement.Placed) int { return slices.Compare(a.Domain, b.Domain) })
	var domains []domainPods
	for _, at := range sorted {
		values := at.Domain[first:]
		if n := len(domains); n > 0 && slices.Equal(domains[n-1].values, values) {
			domains[n-1].count += int32(at.Count)
			continue
		}
		domains = append(domains, domainPods{values, int32(at.Count)})
	}
	part := kueue.TopologyAssignmentSlice{DomainCount: int32(len(domains))}
	for level := range levels[first:] {
		part.ValuesPerLevel = append(part.ValuesPerLevel, valuesAt(domains, level))
	}
	same := !slices.ContainsFunc(domains, func(d domainPods) bool { return d.count != domains[0].count })
	if same {
		part.PodCounts.Universal = ptr.To(domains[0].count)
	} else {
		for _, d := range domains {
			part.PodCounts.Individual = append(part.PodCounts.Individual, d.count)
		}
	}
	return &kueue.TopologyAssignment{Levels: levels[first:], Slices: []kueue.TopologyAssignmentSlice{part}}
}

// valuesAt are the domains' values at a level, said once where they are equal.
func valuesAt(domains []domainPods, level int) kueue.TopologyAssignmentSliceLevelValues {
	same := !slices.ContainsFunc(domains, func(d domainPods) bool { return d.values[level] != domains[0].values[level] })
	if same {
		return kueue.TopologyAssignmentSliceLevelValues{Universal: ptr.To(domains[0].values[level])}
	}
	roots := make([]string, len(domains))
	for i, d := range domains {
		roots[i] = d.values[level]
	}
	return kueue.TopologyAssignmentSliceLevelValues{Individual: &kueue.TopologyAssignmentSliceLevelIndividualValues{Roots: roots}}
}
