package placer

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/placement"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Assignments says where in its topology each pod set of a placement goes, as
// status.admission writes it; pod sets that asked for no topology, or have no pods
// left, are left out.
func (p *Placer) Assignments(placed any) map[string]*kueue.TopologyAssignment {
	r, ok := placed.(*reservation)
	if !ok {
		return nil
	}
	out := map[string]*kueue.TopologyAssignment{}
	for i, set := range r.gang.PodSets {
		if set.Topology == nil || i >= len(r.answer.PodSets) || len(r.answer.PodSets[i].Placed) == 0 {
			continue
		}
		out[set.Name] = p.assignment(p.topologies[set.Topology.Topology], r.answer.PodSets[i].Placed)
	}
	return out
}

// assignment writes placements in the order of their names, which is the order of
// the pods' ranks: neighbours in rank are neighbours in the topology. Where the
// narrowest level is the host, its name says all.
func (p *Placer) assignment(levels []string, placed []placement.Placed) *kueue.TopologyAssignment {
	first := 0
	if namesHosts(levels) {
		first = len(levels) - 1
	}
	sorted := slices.Clone(placed)
	slices.SortStableFunc(sorted, func(a, b placement.Placed) int { return slices.Compare(a.Domain, b.Domain) })
	var domains []workload.Domain
	for _, at := range sorted {
		values := at.Domain[first:]
		if n := len(domains); n > 0 && slices.Equal(domains[n-1].Values, values) {
			domains[n-1].Count += at.Count
			continue
		}
		domains = append(domains, workload.Domain{Values: values, Count: at.Count})
	}
	return p.options.Encoding.Assignment(levels[first:], domains)
}

// Extend adds pods to those that an assignment of a pod set places already, which stay where they are; of fewer pods
// than it places the first ones stay.
func (p *Placer) Extend(topology string, had, more *kueue.TopologyAssignment, count int) *kueue.TopologyAssignment {
	domains := workload.Domains(had)
	if more != nil {
		domains = append(domains, workload.Domains(more)...)
	}
	domains = p.merge(domains, p.topologies[topology])
	for i := range domains {
		domains[i].Count = min(domains[i].Count, count)
		count -= domains[i].Count
	}
	domains = slices.DeleteFunc(domains, func(d workload.Domain) bool { return d.Count == 0 })
	return p.options.Encoding.Assignment(had.Levels, domains)
}

// beside is the node labels of the domain in which the pods of a set are to join others.
func (p *Placer) beside(spec *admission.PodSet, request *placement.TopologyRequest) map[string]string {
	if request == nil || spec.Topology.Beside == nil {
		return nil
	}
	at := spec.Topology.Beside
	if n := slices.Index(at.Levels, request.Level); n >= 0 {
		labels := map[string]string{}
		for i := range n + 1 {
			labels[at.Levels[i]] = at.Values[i]
		}
		return labels
	}
	if entry := p.host(at.Values[len(at.Values)-1]); entry != nil {
		return domainOf(entry.Node, p.topologies[request.Topology], request.Level)
	}
	return nil
}

// namesHosts says that the narrowest of levels is the host.
func namesHosts(levels []string) bool {
	return len(levels) > 0 && levels[len(levels)-1] == corev1.LabelHostname
}
