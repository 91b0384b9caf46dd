package dependencies

import (
	"slices"
	"strings"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// mostSteps bounds the search for cycles through one workload. In larger ones all wait as they would otherwise, and are
// not told why.
const mostSteps = 10_000

// review looks for cycles through workloads that changed, and through those that were in a cycle with them. It returns
// all whom the changes concern, each once, in the order of their names.
func (x *Index) review(touched []admission.Key, changed ...admission.Key) []admission.Key {
	for _, key := range slices.Concat(changed, touched) {
		if n := x.nodes[key]; n != nil && len(n.unmet) > 0 && x.cycles[key] == nil {
			members := x.cycleOf(n)
			for _, member := range members {
				x.cycles[member] = members
			}
			touched = append(touched, members...)
		}
	}
	slices.SortFunc(touched, func(a, b admission.Key) int { return strings.Compare(a.String(), b.String()) })
	return slices.DeleteFunc(slices.Compact(touched), func(key admission.Key) bool { return x.nodes[key] == nil })
}

// dissolve forgets the cycle that a workload is in, and returns its members.
func (x *Index) dissolve(key admission.Key) []admission.Key {
	members := x.cycles[key]
	for _, member := range members {
		delete(x.cycles, member)
	}
	return slices.Clone(members)
}

// cycleOf are all who wait for a workload and for whom it waits, directly or not, with itself; nil: nobody.
func (x *Index) cycleOf(start *node) []admission.Key {
	before := map[*node][]*node{} // who waits for each that the workload waits for
	reached := map[*node]bool{start: true}
	steps := 0
	for next := []*node{start}; len(next) > 0; next = next[1:] {
		n := next[0]
		for _, u := range n.unmet {
			if u.forbidden {
				continue
			}
			for _, m := range x.named[u.name()] {
				if steps++; steps > mostSteps {
					return nil
				}
				if m == n || len(m.unmet) == 0 || m.seen.outcome != workload.NotEnded {
					continue
				}
				before[m] = append(before[m], n)
				if !reached[m] {
					reached[m] = true
					next = append(next, m)
				}
			}
		}
	}
	if len(before[start]) == 0 {
		return nil
	}
	members, back := []admission.Key{start.key}, map[*node]bool{start: true}
	for next := []*node{start}; len(next) > 0; next = next[1:] {
		for _, n := range before[next[0]] {
			if !back[n] {
				back[n] = true
				members, next = append(members, n.key), append(next, n)
			}
		}
	}
	return members
}
