package admission

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// testPlacer puts pods on nodes with a number of cards each ("gpu" per pod, one pod on
// one node), with topology levels named by node labels. Small, but it never lies.
type testPlacer struct {
	nodes map[string]*testNode
	held  map[Key]testPlacement
	log   []testUndo
}

type testNode struct {
	name  string
	cards int
	used  int
	// leaving cards are those of pods that are about to end, of workloads that hold nothing any more.
	leaving int
	labels  map[string]string
}

// testPlacement maps node to cards taken.
type testPlacement map[string]int

func (p testPlacement) String() string {
	var parts []string
	for _, n := range slices.Sorted(maps.Keys(p)) {
		parts = append(parts, fmt.Sprintf("%s:%d", n, p[n]))
	}
	return strings.Join(parts, ",")
}

type testUndo struct {
	key  Key
	held testPlacement  // what was there before; nil: nothing
	left map[string]int // instead: cards of leaving pods, by node
}

var _ Placer = (*testPlacer)(nil)

func newTestPlacer() *testPlacer {
	return &testPlacer{nodes: map[string]*testNode{}, held: map[Key]testPlacement{}}
}

func (p *testPlacer) node(name string, cards int, labels map[string]string) {
	n := p.nodes[name]
	if n == nil {
		n = &testNode{name: name}
		p.nodes[name] = n
	}
	n.cards, n.labels = cards, labels
}

// empty has the same nodes, and nothing on them.
func (p *testPlacer) empty() *testPlacer {
	o := newTestPlacer()
	for _, n := range p.nodes {
		o.node(n.name, n.cards, n.labels)
	}
	return o
}

func (p *testPlacer) set(k Key, pl testPlacement) {
	for n, c := range p.held[k] {
		p.nodes[n].used -= c
	}
	delete(p.held, k)
	if len(pl) > 0 {
		p.held[k] = pl
		for n, c := range pl {
			p.nodes[n].used += c
		}
	}
}

func (p *testPlacer) Hold(k Key, placement any) {
	pl, _ := placement.(testPlacement)
	p.log = append(p.log, testUndo{key: k, held: p.held[k]})
	p.set(k, pl)
}

func (p *testPlacer) Remove(k Key) { p.Hold(k, nil) }

func (p *testPlacer) RemoveLeaving() bool {
	left := map[string]int{}
	for name, n := range p.nodes {
		if n.leaving > 0 {
			left[name], n.leaving = n.leaving, 0
		}
	}
	p.log = append(p.log, testUndo{left: left})
	return len(left) > 0
}

// Defragment tries every workload on its own, then every pair, the cheapest first.
func (p *testPlacer) Defragment(r PlaceRequest, o DefragmentPlan) []Key {
	var can []Key
	for _, k := range sortedKeys(p.held) {
		if o.Cost(k) >= 0 && len(p.held[k]) > 0 {
			can = append(can, k)
		}
	}
	slices.SortStableFunc(can, func(a, b Key) int { return cmp.Compare(o.Cost(a), o.Cost(b)) })
	fits := func(moves ...Key) bool {
		mark, cost := p.Checkpoint(), int64(0)
		defer p.Rollback(mark)
		gone := map[Key]testPlacement{}
		for _, k := range moves {
			cost += o.Cost(k)
			gone[k] = p.held[k]
			p.Remove(k)
		}
		_, refusal := p.Place(r)
		return refusal == nil && cost <= o.LostWork && len(moves) <= o.Moves
	}
	for _, k := range can {
		if fits(k) {
			return []Key{k}
		}
	}
	for i, k := range can {
		for _, l := range can[i+1:] {
			if fits(k, l) {
				return []Key{k, l}
			}
		}
	}
	return nil
}

func (p *testPlacer) Checkpoint() int { return len(p.log) }

func (p *testPlacer) Rollback(mark int) {
	for len(p.log) > mark {
		u := p.log[len(p.log)-1]
		p.log = p.log[:len(p.log)-1]
		if u.left == nil {
			p.set(u.key, u.held)
		}
		for name, cards := range u.left {
			p.nodes[name].leaving = cards
		}
	}
}

func (p *testPlacer) Place(r PlaceRequest) (any, *Refusal) {
	free := map[string]int{}
	for n, node := range p.nodes {
		if !slices.Contains(r.AvoidNodes, n) {
			free[n] = max(0, node.cards-node.used-node.leaving) // nominated ones may be beside those who leave
		}
	}
	placed := testPlacement{}
	for _, ps := range r.PodSets {
		per := int(ps.Spec.OnNode()["gpu"])
		if per == 0 {
			continue
		}
		if refusal := p.placePods(ps, per, free, placed); refusal != nil {
			return nil, refusal
		}
	}
	p.Hold(r.Workload, placed)
	return placed, nil
}

func (p *testPlacer) Find(r PlaceRequest) (any, *Refusal) { return p.Place(r) }

func (p *testPlacer) placePods(ps PlacePodSet, per int, free map[string]int, placed testPlacement) *Refusal {
	var nodes []string
	for _, n := range slices.Sorted(maps.Keys(p.nodes)) {
		if p.matches(p.nodes[n], ps.Flavors) {
			nodes = append(nodes, n)
		}
	}
	if t := ps.Spec.Topology; t != nil && len(t.Slices) > 0 {
		return p.placeSlices(ps, per, nodes, free, placed)
	}
	domains := map[string][]string{"": nodes}
	if t := ps.Spec.Topology; t != nil && t.Mode == TopologyRequired {
		domains = map[string][]string{}
		for _, n := range nodes {
			d := p.nodes[n].labels[t.Level]
			domains[d] = append(domains[d], n)
		}
	}
	best, most, emptyMost := "", -1, 0
	for _, d := range slices.Sorted(maps.Keys(domains)) {
		fit, empty := 0, 0
		for _, n := range domains[d] {
			fit += free[n] / per
			empty += p.nodes[n].cards / per
		}
		if fit > most {
			best, most = d, fit
		}
		emptyMost = max(emptyMost, empty)
	}
	if most < int(ps.Count) {
		return &Refusal{PodSet: ps.Spec.Name, Reason: fmt.Errorf("%d of %d pods fit", max(0, most), ps.Count), NeverFits: emptyMost < int(ps.Count)}
	}
	left := int(ps.Count)
	for _, n := range domains[best] {
		k := min(left, free[n]/per)
		if k > 0 {
			free[n] -= k * per
			placed[n] += k * per
			left -= k
		}
	}
	return nil
}

// placeSlices puts each slice of pods into one domain of the slice's level.
func (p *testPlacer) placeSlices(ps PlacePodSet, per int, nodes []string, free map[string]int, placed testPlacement) *Refusal {
	slice := ps.Spec.Topology.Slices[0]
	domains := map[string][]string{}
	for _, n := range nodes {
		d := p.nodes[n].labels[slice.Level]
		domains[d] = append(domains[d], n)
	}
	left, fit := int(ps.Count), 0
	for _, d := range slices.Sorted(maps.Keys(domains)) {
		pods := 0
		for _, n := range domains[d] {
			pods += free[n] / per
		}
		pods -= pods % int(slice.Size)
		fit += pods
		for _, n := range domains[d] {
			k := min(left, pods, free[n]/per)
			free[n] -= k * per
			placed[n] += k * per
			left -= k
			pods -= k
		}
	}
	if left > 0 {
		return &Refusal{PodSet: ps.Spec.Name, Reason: fmt.Errorf("%d of %d pods fit in slices of %d", fit, ps.Count, slice.Size)}
	}
	return nil
}

func (p *testPlacer) matches(n *testNode, flavors []*Flavor) bool {
	for _, f := range flavors {
		for k, v := range f.NodeLabels {
			if n.labels[k] != v {
				return false
			}
		}
	}
	return true
}
