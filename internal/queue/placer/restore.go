package placer

import (
	"slices"
	"sort"
	"strconv"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/placement"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Bound is which pods of each workload are where.
type Bound map[string]map[place][]string

// Bound lists the pods that are on nodes.
func (p *Placer) Bound() Bound {
	bound := Bound{}
	for key, b := range p.pods {
		at := bound[b.pod.Gang]
		if at == nil {
			at = map[place][]string{}
			bound[b.pod.Gang] = at
		}
		is := place{b.pod.PodSet, b.node}
		at[is] = append(at[is], key)
	}
	return bound
}

// Restore returns the placement of a workload that was admitted before this placer
// started, for Hold: bound pods where they are, missing ones in the domains that the
// admission names for their pod set, else wherever they fit. Where not all of them
// fit any more, it covers as many as do. It is nil where quota alone decides.
func (p *Placer) Restore(r admission.PlaceRequest, bound Bound, named map[string]*kueue.TopologyAssignment) any {
	if p.quotaDecides(r) {
		return nil
	}
	gang, refusal := p.gangOf(r)
	if refusal != nil {
		return nil
	}
	there := p.staying(bound[gang.Key], named)
	p.countAllAsAdmitted(gang, bound[gang.Key])
	mark := p.Checkpoint()
	p.dropReservation(gang.Key)
	var answer placement.Answer
	for i := range gang.PodSets {
		set := &gang.PodSets[i]
		answer.PodSets = append(answer.PodSets, p.restoreSet(gang.Key, set, there, named[set.Name]))
	}
	p.Rollback(mark)
	restored := newReservation(gang, answer)
	restored.countLacking()
	for at, n := range there {
		for range n {
			restored.take(at.podSet, at.node)
		}
	}
	return restored
}

// staying counts the pods that are where their admission puts them; the others are
// on a node that was replaced, and will end.
func (p *Placer) staying(there map[place][]string, named map[string]*kueue.TopologyAssignment) map[place]int {
	out := map[place]int{}
	for at, pods := range there {
		a, node := named[at.podSet], p.nodes.Object(at.node)
		if a == nil || node != nil && slices.ContainsFunc(workload.Domains(a), func(d workload.Domain) bool { return d.Matches(node.Labels, a.Levels) }) {
			out[at] = len(pods)
		}
	}
	return out
}

// countAllAsAdmitted does so with pods that were on nodes before their workload was known.
func (p *Placer) countAllAsAdmitted(gang placement.Gang, there map[place][]string) {
	if !p.options.AsAdmitted || len(p.open) > 0 {
		return
	}
	given := &reservation{gang: gang}
	for _, pods := range there {
		for _, key := range pods {
			b := p.pods[key]
			p.countAsAdmitted(&b.pod, given)
			p.pods[key] = b
			p.apply(placement.PodBound{Pod: b.pod, Node: b.node, Grants: b.grants})
		}
	}
}

// dropReservation frees what is reserved for a gang's pods to come, within the
// what-if under way.
func (p *Placer) dropReservation(gang string) {
	txn := p.engine.Begin()
	_ = txn.Hold(&placement.Gang{Key: gang}, &placement.Answer{}) // holding nothing cannot fail
	p.open = append(p.open, txn)
}

// restoreSet lists the pods that are there first: Hold leaves them where they are,
// and reserves for the rest.
func (p *Placer) restoreSet(gang string, set *placement.PodSet, there map[place]int, named *kueue.TopologyAssignment) placement.PodSetAnswer {
	answer := placement.PodSetAnswer{Name: set.Name, Count: set.Count}
	left := set.Count
	for at, n := range there {
		if at.podSet == set.Name {
			answer.Placed = append(answer.Placed, placement.Placed{Node: at.node, Count: n})
			left -= n
		}
	}
	slices.SortFunc(answer.Placed, func(a, b placement.Placed) int { return strings.Compare(a.Node, b.Node) })
	if named == nil {
		placed := p.tryPlaces(gang+"/"+set.Name, set, left, nil)
		answer.Placed = append(answer.Placed, placed...)
		return answer
	}
	for i, d := range workload.Domains(named) {
		want := d.Count
		for at, n := range there {
			if node := p.nodes.Object(at.node); at.podSet == set.Name && node != nil && d.Matches(node.Labels, named.Levels) {
				want -= n
			}
		}
		want = min(want, left)
		left -= max(0, want)
		placed := p.tryPlaces(gang+"/"+set.Name+"/"+strconv.Itoa(i), set, want, d.Labels(named.Levels))
		answer.Placed = append(answer.Placed, placed...)
	}
	return answer
}

// tryPlaces looks for n placements on nodes with labels, within the what-if under
// way, or for as many as there are.
func (p *Placer) tryPlaces(key string, set *placement.PodSet, n int, labels map[string]string) []placement.Placed {
	if n <= 0 {
		return nil
	}
	pod := set.Pod
	pod.Selector = make(map[string]string, len(set.Pod.Selector)+len(labels))
	for _, more := range []map[string]string{set.Pod.Selector, labels} {
		for name, value := range more {
			pod.Selector[name] = value
		}
	}
	try := func(n int) (*placement.Txn, placement.Answer) {
		txn := p.engine.Begin()
		return txn, txn.Place(&placement.Gang{Key: key, PodSets: []placement.PodSet{{Name: set.Name, Count: n, Pod: pod}}})
	}
	txn, answer := try(n)
	if !answer.Fits {
		txn.Rollback()
		n = sort.Search(n-1, func(fewer int) bool {
			txn, answer := try(fewer + 1)
			txn.Rollback()
			return !answer.Fits
		})
		if n == 0 {
			return nil
		}
		txn, answer = try(n)
	}
	p.open = append(p.open, txn)
	return answer.PodSets[0].Placed
}
