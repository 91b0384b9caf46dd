package placement

import (
	"fmt"
	"slices"
	"strings"
)

// tree of a topology's domains over the nodes that carry all of its labels.
type tree struct {
	levels []string
	labels uint64 // version of the nodes' labels it was built for
	root   *domain
	all    []*domain // parents before children
	slots  []int32   // nodes in the topology
}

// domain is one place of a level: a zone, a rack, a host. The root stands above the widest level.
type domain struct {
	path     string
	value    string
	level    int // -1 for the root
	children []*domain
	slots    []int32 // nodes, at the narrowest level
	pods     int     // pods of the present request that fit
	slices   int     // slices of it that fit; where there are no slices, pods
}

// topology is the tree under that name, rebuilt when labels changed.
func (e *Engine) topology(name string) (*tree, error) {
	levels, known := e.opts.Topologies[name]
	if !known {
		return nil, fmt.Errorf("topology %q: %w", name, ErrUnknown)
	}
	t := e.trees[name]
	if t != nil && t.labels == e.labels && slices.Equal(t.levels, levels) {
		return t, nil
	}
	t = &tree{levels: levels, labels: e.labels, root: &domain{level: -1}}
	byPath := map[string]*domain{"": t.root}
	for slot, n := range e.nodes {
		if n == nil || !n.known {
			continue
		}
		if leaf := t.leaf(byPath, &n.desc); leaf != nil {
			leaf.slots = append(leaf.slots, int32(slot))
			t.slots = append(t.slots, int32(slot))
		}
	}
	t.collect(t.root)
	e.trees[name] = t
	return t, nil
}

// leaf is the narrowest domain of a node, or nil if it lacks a label.
func (t *tree) leaf(byPath map[string]*domain, n *Node) *domain {
	for _, key := range t.levels {
		if _, labelled := n.Labels[key]; !labelled {
			return nil
		}
	}
	at := t.root
	for level, key := range t.levels {
		path := at.path + "/" + n.Labels[key]
		next := byPath[path]
		if next == nil {
			next = &domain{path: path, value: n.Labels[key], level: level}
			byPath[path] = next
			at.children = append(at.children, next)
		}
		at = next
	}
	return at
}

func (t *tree) collect(d *domain) {
	slices.SortFunc(d.children, func(a, b *domain) int { return strings.Compare(a.path, b.path) })
	t.all = append(t.all, d)
	for _, c := range d.children {
		t.collect(c)
	}
}

// mostOnNode bounds how many equal pods are counted on one node.
const mostOnNode = 1024

// capacity is how many pods of the shape fit on the node at once, with real cards.
func (e *Engine) capacity(s *shape, slot int32) int {
	x := e.refreshed(s)
	if x.reasons[slot] != Fits {
		return 0
	}
	if x.caps[slot] > 0 {
		return int(x.caps[slot])
	}
	scratch := e.nodes[slot].clone()
	count := 0
	for count < mostOnNode && e.pick.run(e, s, scratch, 0) == Fits {
		copy(scratch.view.Cards, e.pick.after.Cards)
		copy(scratch.view.Free, e.pick.after.Free)
		count++
	}
	x.caps[slot] = int32(count)
	return count
}

// measure fills in how much of the shape every domain holds.
func (e *Engine) measure(t *tree, s *shape, sliceLevel, sliceSize int) {
	for i := len(t.all) - 1; i >= 0; i-- {
		d := t.all[i]
		d.pods, d.slices = 0, 0
		for _, slot := range d.slots {
			d.pods += e.capacity(s, slot)
		}
		for _, c := range d.children {
			d.pods += c.pods
			d.slices += c.slices
		}
		if d.level >= sliceLevel {
			d.slices = d.pods / sliceSize
		}
	}
}

// wish is a topology request in numbers.
type wish struct {
	level, sliceLevel, sliceSize int
}

func (t *tree) wish(r *TopologyRequest, count int) (wish, error) {
	w := wish{level: -1, sliceLevel: len(t.levels) - 1, sliceSize: 1}
	if r.Mode != Unconstrained {
		if w.level = slices.Index(t.levels, r.Level); w.level < 0 {
			return w, fmt.Errorf("topology %q has no level %q", r.Topology, r.Level)
		}
	}
	if r.SliceSize == 0 {
		return w, nil
	}
	if w.sliceLevel = slices.Index(t.levels, r.SliceLevel); w.sliceLevel < 0 {
		return w, fmt.Errorf("topology %q has no level %q for slices", r.Topology, r.SliceLevel)
	}
	if w.sliceLevel < w.level {
		return w, fmt.Errorf("slices at level %q are wider than %q", r.SliceLevel, r.Level)
	}
	if r.SliceSize < 0 || count%r.SliceSize != 0 {
		return w, fmt.Errorf("%d pods cannot be cut into slices of %d", count, r.SliceSize)
	}
	w.sliceSize = r.SliceSize
	return w, nil
}

// candidates are the domains that could hold the whole set, best first: of the wanted level before
// wider ones, the fuller before the emptier.
func (t *tree) candidates(mode TopologyMode, w wish, count int) []*domain {
	var out []*domain
	for level := w.level; level >= -1; level-- {
		from := len(out)
		for _, d := range t.all {
			if d.level == level && d.slices >= count/w.sliceSize {
				out = append(out, d)
			}
		}
		slices.SortStableFunc(out[from:], func(a, b *domain) int {
			if a.slices != b.slices {
				return a.slices - b.slices
			}
			return strings.Compare(a.path, b.path)
		})
		if mode == Required {
			break
		}
	}
	return out
}

// portion is a number of pods for a narrowest domain.
type portion struct {
	leaf  *domain
	count int
}

// deal hands slices (or, within a slice's domain, pods) down the tree, to as few domains as
// possible: the fullest that holds all that is left, else all of the emptiest and on.
func (d *domain) deal(units int, w wish, out []portion) []portion {
	if d.level == w.sliceLevel {
		units *= w.sliceSize
	}
	if len(d.children) == 0 {
		return append(out, portion{d, units})
	}
	inPods := d.level >= w.sliceLevel
	size := func(c *domain) int {
		if inPods {
			return c.pods
		}
		return c.slices
	}
	children := slices.Clone(d.children)
	slices.SortStableFunc(children, func(a, b *domain) int { return size(b) - size(a) })
	below := w
	if inPods {
		below.sliceLevel = -2 // already in pods
	}
	for i := 0; units > 0 && i < len(children); i++ {
		// The last child that still holds everything is the tightest fit.
		if size(children[i]) >= units {
			for i+1 < len(children) && size(children[i+1]) >= units {
				i++
			}
			return children[i].deal(units, below, out)
		}
		if take := size(children[i]); take > 0 {
			out = children[i].deal(take, below, out)
			units -= take
		}
	}
	return out
}

// placeInTopology puts a set, or a group of sets that share a domain, on the books.
func (e *Engine) placeInTopology(g *Gang, sets []*PodSet) ([][]*holding, *Refusal) {
	first := sets[0]
	t, err := e.topology(first.Topology.Topology)
	if err != nil {
		return nil, &Refusal{Detail: err.Error()}
	}
	if first.Topology.Mode == Unconstrained && first.Topology.SliceSize == 0 {
		holds, refusal := e.placeSet(g, first, t.slots)
		return [][]*holding{holds}, refusal
	}
	s, err := e.shapeOf(&first.Pod)
	var w wish
	if err == nil {
		w, err = t.wish(first.Topology, first.Count)
	}
	if err != nil {
		return nil, &Refusal{Detail: err.Error()}
	}
	e.measure(t, s, w.sliceLevel, w.sliceSize)
	most := 0
	for _, d := range t.all {
		if d.level == w.level {
			most = max(most, d.slices*w.sliceSize)
		}
	}
	for _, d := range t.candidates(first.Topology.Mode, w, first.Count) {
		mark := len(e.journal)
		if holds := e.placeIn(g, sets, t, d); holds != nil {
			return holds, nil
		}
		e.undo(mark)
		// Measuring for the other sets of the group left its numbers behind.
		e.measure(t, s, w.sliceLevel, w.sliceSize)
	}
	return nil, e.tooNarrow(s, t, first, most)
}

// placeIn tries all sets in one domain.
func (e *Engine) placeIn(g *Gang, sets []*PodSet, t *tree, d *domain) [][]*holding {
	var all [][]*holding
	for _, set := range sets {
		s, err := e.shapeOf(&set.Pod)
		if err != nil {
			return nil
		}
		w, err := t.wish(set.Topology, set.Count)
		if err != nil {
			return nil
		}
		e.measure(t, s, w.sliceLevel, w.sliceSize)
		if d.slices*w.sliceSize < set.Count {
			return nil
		}
		var holds []*holding
		for _, part := range d.deal(set.Count/w.sliceSize, w, nil) {
			some := *set
			some.Count = part.count
			placed, refusal := e.placeFrom(g, &some, part.leaf.slots, len(holds))
			if refusal != nil {
				return nil
			}
			holds = append(holds, placed...)
		}
		all = append(all, holds)
	}
	return all
}

func (e *Engine) tooNarrow(s *shape, t *tree, set *PodSet, most int) *Refusal {
	r := e.refuse(s, t.slots)
	r.Fit = min(most, set.Count)
	if most < set.Count {
		r.Detail = fmt.Sprintf("topology %q allows to fit only %d out of %d pod(s)", set.Topology.Topology, most, set.Count)
	} else {
		r.Detail = fmt.Sprintf("no domain of topology %q holds all pod sets of group %q", set.Topology.Topology, set.Topology.Group)
	}
	return r
}
