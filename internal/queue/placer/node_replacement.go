package placer

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/gpu/inventory"
	"github.com/elastic-ai/elastic/internal/placement"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// nodeLost marks the workloads with pods or reservations on a node that is gone or
// takes no pods now.
func (p *Placer) nodeLost(node string) {
	for gang, r := range p.reservations {
		for _, set := range r.answer.PodSets {
			if slices.ContainsFunc(set.Placed, func(at placement.Placed) bool { return at.Node == node }) {
				p.affected[gang] = true
			}
		}
	}
	for _, b := range p.pods {
		if gang := p.gangOfPod(b); b.node == node && gang != "" {
			p.affected[gang] = true
		}
	}
}

// gangOfPod is the gang that a pod is of, or was before it was deleted.
func (p *Placer) gangOfPod(b bound) string {
	if b.pod.Gang != "" {
		return b.pod.Gang
	}
	if follower, followed := p.followers[b.gang]; followed {
		return follower
	}
	return b.gang
}

// podLeft marks the workload of a pod that ended, or is about to, on a node that
// would not take it again.
func (p *Placer) podLeft(b bound) {
	if b.pod.Gang != "" && !takesPods(p.nodes.Get(b.node)) {
		p.affected[b.pod.Gang] = true
	}
}

// AffectedWorkloads may have lost a node since they were last asked for.
func (p *Placer) AffectedWorkloads() []admission.Key {
	if len(p.affected) == 0 {
		return nil
	}
	var keys []admission.Key
	for _, gang := range slices.Sorted(maps.Keys(p.affected)) {
		namespace, name, _ := strings.Cut(gang, "/")
		keys = append(keys, admission.Key{Namespace: namespace, Name: name})
	}
	clear(p.affected)
	return keys
}

// Node is the node with a hostname; nil if there is none.
func (p *Placer) Node(hostname string) *corev1.Node {
	if entry := p.host(hostname); entry != nil {
		return entry.Node
	}
	return nil
}

// Runs says that pods of a workload are on a node, not counting those that are ending.
func (p *Placer) Runs(workload admission.Key, node string) bool {
	gang := gangKey(workload)
	for key, b := range p.pods {
		if _, leaves := p.leaving[key]; !leaves && b.node == node && b.pod.Gang == gang {
			return true
		}
	}
	return false
}

// Has says that there is a node of this name.
func (p *Placer) Has(node string) bool {
	return p.nodes.Get(node) != nil && p.nodes.Get(node).Node != nil
}

// On lists the workloads that have pods on a node, or are to have some there.
func (p *Placer) On(node string) []admission.Key {
	gangs := map[string]bool{}
	for at := range p.reservations {
		for set, n := range p.reservations[at].places() {
			gangs[at] = gangs[at] || set.node == node && n > 0
		}
	}
	for _, b := range p.pods {
		gangs[b.pod.Gang] = gangs[b.pod.Gang] || b.node == node && b.pod.Gang != ""
	}
	var keys []admission.Key
	for _, gang := range slices.Sorted(maps.Keys(gangs)) {
		if gangs[gang] {
			keys = append(keys, workloadKey(gang))
		}
	}
	return keys
}

// host is the node with a hostname, which mostly is its name; nil if there is
// none.
func (p *Placer) host(hostname string) *inventory.Entry {
	is := func(e *inventory.Entry) bool {
		return e != nil && e.Node != nil && e.Node.Labels[corev1.LabelHostname] == hostname
	}
	if e := p.nodes.Get(hostname); is(e) {
		return e
	}
	for e := range p.nodes.All() {
		if is(e) {
			return e
		}
	}
	return nil
}

func takesPods(e *inventory.Entry) bool {
	return e != nil && e.Applied != nil && e.Applied.Takes(nil)
}

// Replace finds other hosts for the pods that an admission puts on a lost one, as
// close to the rest as the workload's topology request says. It returns the
// admission's assignments with the new hosts, in the topology's order; nil where
// the pods do not fit.
func (p *Placer) Replace(r admission.PlaceRequest, named map[string]*kueue.TopologyAssignment, lost string) map[string]*kueue.TopologyAssignment {
	gang, refusal := p.gangOf(r)
	if refusal != nil {
		return nil
	}
	defer p.Rollback(p.Checkpoint())
	out := maps.Clone(named)
	for _, set := range gang.PodSets {
		a := named[set.Name]
		if a == nil || !namesHosts(a.Levels) {
			continue
		}
		domains := workload.Domains(a)
		at := slices.IndexFunc(domains, func(d workload.Domain) bool { return d.Values[len(d.Values)-1] == lost })
		if at < 0 {
			continue
		}
		found := p.instead(&gang, set, named, lost, domains[at].Count)
		if found == nil {
			return nil
		}
		var levels []string
		if set.Topology != nil {
			levels = p.topologies[set.Topology.Topology]
		}
		out[set.Name] = p.options.Encoding.Assignment(a.Levels[len(a.Levels)-1:], p.swap(domains, at, found, levels))
	}
	return out
}

// swap one host for others, in the order of a topology; one that is there already gets more pods.
func (p *Placer) swap(domains []workload.Domain, at int, found []workload.Domain, levels []string) []workload.Domain {
	hosts := slices.Concat(domains[:at], domains[at+1:], found)
	for i := range hosts {
		hosts[i].Values = hosts[i].Values[len(hosts[i].Values)-1:]
	}
	return p.merge(hosts, levels)
}

// merge adds up the pods of each domain, in the order of a topology with these levels.
func (p *Placer) merge(domains []workload.Domain, levels []string) []workload.Domain {
	var out []workload.Domain
	for _, d := range domains {
		if i := slices.IndexFunc(out, func(o workload.Domain) bool { return slices.Equal(o.Values, d.Values) }); i >= 0 {
			out[i].Count += d.Count
		} else {
			out = append(out, d)
		}
	}
	if !namesHosts(levels) {
		slices.SortStableFunc(out, func(a, b workload.Domain) int { return slices.Compare(a.Values, b.Values) })
		return out
	}
	paths := map[string][]string{}
	for _, d := range out {
		host := d.Values[len(d.Values)-1]
		if node := p.Node(host); node != nil {
			for _, key := range levels {
				paths[host] = append(paths[host], node.Labels[key])
			}
		}
	}
	path := func(d workload.Domain) []string { return paths[d.Values[len(d.Values)-1]] }
	slices.SortStableFunc(out, func(a, b workload.Domain) int { return slices.Compare(path(a), path(b)) })
	return out
}

// instead looks for n placements of a set without the lost host: first in the domain of the set's other pods, unless
// Options.ReplaceAnywhere says otherwise, and then anywhere unless the topology is required.
func (p *Placer) instead(gang *placement.Gang, set placement.PodSet, named map[string]*kueue.TopologyAssignment, lost string, n int) []workload.Domain {
	near, must := map[string]string{}, false
	if set.Topology != nil {
		request := *set.Topology
		near, must = p.near(gang, set.Name, &request, named, lost)
		set.Topology = &request
	}
	set.Count, set.Pod.Affinity = n, avoid(set.Pod.Affinity, placement.Requirement{Key: corev1.LabelHostname, Operator: "NotIn", Values: []string{lost}})
	selector, searches := set.Pod.Selector, []map[string]string{near, nil}
	switch {
	case must:
		searches = searches[:1]
	case p.options.ReplaceAnywhere:
		searches = searches[1:]
	}
	for _, labels := range searches {
		set.Pod.Selector = maps.Clone(selector)
		maps.Copy(set.Pod.Selector, labels)
		txn := p.engine.Begin()
		answer := txn.Place(&placement.Gang{Key: gang.Key + "/" + set.Name, PodSets: []placement.PodSet{set}}) // beside its own reservation
		if answer.Fits {
			p.open = append(p.open, txn)
			return p.hosts(answer.PodSets[0].Placed)
		}
		txn.Rollback()
	}
	return nil
}

func (p *Placer) hosts(placed []placement.Placed) []workload.Domain {
	var out []workload.Domain
	for _, at := range placed {
		out = append(out, workload.Domain{Values: []string{p.nodes.Object(at.Node).Labels[corev1.LabelHostname]}, Count: at.Count})
	}
	return out
}

// avoid adds to every affinity term that the node is another one.
func avoid(terms []placement.Term, other placement.Requirement) []placement.Term {
	if len(terms) == 0 {
		return []placement.Term{{other}}
	}
	out := make([]placement.Term, len(terms))
	for i, term := range terms {
		out[i] = append(slices.Clone(term), other)
	}
	return out
}

// near returns the node labels of the domain in which the pods of a lost host belong,
// by where the other pods of their group and slice are, and whether they must be
// there. A part of a slice must join the rest of its slice, whatever the request
// says; then only the slices within that one are left of the request.
func (p *Placer) near(gang *placement.Gang, podSet string, request *placement.TopologyRequest, named map[string]*kueue.TopologyAssignment, lost string) (labels map[string]string, must bool) {
	labels, there := map[string]string{}, make([]tally, len(request.Slices))
	levels := p.topologies[request.Topology]
	for _, other := range gang.PodSets {
		grouped := request.Group != "" && other.Topology != nil && other.Topology.Group == request.Group
		a := named[other.Name]
		if a == nil || other.Name != podSet && !grouped {
			continue
		}
		for _, d := range workload.Domains(a) {
			entry := p.host(d.Values[len(d.Values)-1])
			if entry == nil || entry.Node.Labels[corev1.LabelHostname] == lost {
				continue
			}
			if request.Mode != placement.Unconstrained {
				labels = domainOf(entry.Node, levels, request.Level)
			}
			if other.Name != podSet {
				continue
			}
			for i, slice := range request.Slices {
				there[i].add(domainOf(entry.Node, levels, slice.Level), d.Count)
			}
		}
	}
	for i, slice := range slices.Backward(request.Slices) {
		for _, part := range there[i] {
			if part.pods%slice.Size != 0 {
				maps.Copy(labels, part.domain)
				request.Slices = request.Slices[i+1:]
				return labels, true
			}
		}
	}
	return labels, request.Mode == placement.Required
}

// domainOf is the labels of a node's domain at a level and at all wider ones: racks
// in different halls may have one name.
func domainOf(node *corev1.Node, levels []string, level string) map[string]string {
	labels := map[string]string{}
	for _, key := range levels {
		labels[key] = node.Labels[key]
		if key == level {
			break
		}
	}
	return labels
}

// tally counts pods by domain.
type tally []counted

type counted struct {
	domain map[string]string
	pods   int
}

func (t *tally) add(domain map[string]string, pods int) {
	for i := range *t {
		if maps.Equal((*t)[i].domain, domain) {
			(*t)[i].pods += pods
			return
		}
	}
	*t = append(*t, counted{domain, pods})
}
