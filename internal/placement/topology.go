package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/elastic-ai/elastic/internal/nodematch"
)

// tree of a topology's domains over the nodes that carry all of its labels.
type tree struct {
	levels    []string
	labels    uint64 // version of the nodes' labels it was built for
	root      *domain
	flat      *domain   // the root without the levels between it and the narrowest
	all       []*domain // parents before children
	positions []int32   // nodes in the topology
}

// domain is one of a level: a zone, a rack, a host. The root stands above the widest level.
type domain struct {
	path      string
	value     string
	level     int // -1 for the root
	children  []*domain
	positions []int32 // nodes, at the narrowest level
	pods      int     // pods of the present request that fit
	fits      int     // those of them that can be here in the groups the request asks for
	score     int64   // what the request prefers of its nodes
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
	t = &tree{levels: levels, labels: e.labels, root: &domain{level: -1}, flat: &domain{level: -1}}
	byPath := map[string]*domain{"": t.root}
	for pos, n := range e.nodes {
		if n == nil || !n.known {
			continue
		}
		if leaf := t.leaf(byPath, &n.desc); leaf != nil {
			leaf.positions = append(leaf.positions, int32(pos))
			t.positions = append(t.positions, int32(pos))
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
	if len(d.children) == 0 {
		t.flat.children = append(t.flat.children, d)
	}
	for _, c := range d.children {
		t.collect(c)
	}
}

// mostOnNode bounds how many equal pods are counted on one node.
const mostOnNode = 1024

// capacity is how many pods of the request shape fit on the node at once, with real cards.
func (e *Engine) capacity(s *shape, pos int32) int {
	x := e.refreshed(s)
	if x.reasons[pos] != Fits {
		return 0
	}
	if x.caps[pos] > 0 {
		return int(x.caps[pos])
	}
	scratch := e.nodes[pos].clone()
	count := 0
	for ; count < mostOnNode; count++ {
		if x.full[pos] = e.pick.run(e, s, scratch, 0); x.full[pos] != Fits {
			break
		}
		copy(scratch.view.Cards, e.pick.after.Cards)
		copy(scratch.view.Free, e.pick.after.Free)
	}
	x.caps[pos] = int32(count)
	return count
}

// measure fills in how many pods of the request shape fit in every domain.
func (e *Engine) measure(t *tree, s *shape, w resolvedTopology) {
	for i := len(t.all) - 1; i >= 0; i-- {
		d := t.all[i]
		d.pods, d.fits, d.score = 0, 0, 0
		for _, pos := range d.positions {
			n := e.capacity(s, pos)
			d.pods, d.fits = d.pods+n, d.fits+n
			d.score += e.preferred(s, pos, w.preferences)
		}
		for _, c := range d.children {
			d.pods, d.fits, d.score = d.pods+c.pods, d.fits+c.fits, d.score+c.score
		}
		d.fits -= d.fits % w.unit(d.level)
	}
}

// preferred is what a node that the pods may use is worth to them.
func (e *Engine) preferred(s *shape, pos int32, preferences []Preference) int64 {
	if n := &e.nodes[pos].desc; len(preferences) > 0 && matches(&s.pod, n) == Fits {
		return nodematch.Score(preferences, n.Name, n.Labels)
	}
	return 0
}

// resolvedTopology is a topology request in the numbers of a tree.
type resolvedTopology struct {
	level   int   // where all pods are together; -1 for anywhere
	sliced  int   // where the widest slices are; the narrowest without any
	units   []int // how many pods stay together in a domain, by level from the root on
	flat    bool  // nothing is said of any level
	fullest bool

	preferences []Preference
}

func (w *resolvedTopology) unit(level int) int { return w.units[level+1] }

func (t *tree) resolve(r *TopologyRequest, count int) (resolvedTopology, error) {
	w := resolvedTopology{level: -1, sliced: len(t.levels) - 1, fullest: r.FullestFirst, flat: r.Mode == Unconstrained && len(r.Slices) == 0, preferences: r.Preferences}
	if r.Mode != Unconstrained {
		if w.level = slices.Index(t.levels, r.Level); w.level < 0 {
			return w, fmt.Errorf("topology %q has no level %q", r.Topology, r.Level)
		}
	}
	widest, outer := w.level, r.Level
	for _, slice := range r.Slices {
		level := slices.Index(t.levels, slice.Level)
		switch {
		case level < 0:
			return w, fmt.Errorf("topology %q has no level %q for slices", r.Topology, slice.Level)
		case level < widest:
			return w, fmt.Errorf("slices at level %q are not within %q", slice.Level, outer)
		case slice.Size <= 0 || count%slice.Size != 0:
			return w, fmt.Errorf("%d pods cannot be cut into slices of %d", count, slice.Size)
		}
		if len(w.units) == 0 {
			w.sliced = level
		}
		for len(w.units) < level+2 {
			w.units = append(w.units, slice.Size)
		}
		widest, outer, count = level+1, slice.Level, slice.Size
	}
	for len(w.units) < len(t.levels)+1 {
		w.units = append(w.units, 1)
	}
	return w, nil
}

// candidates are the domains that could hold the whole set, best first: of the wanted level before
// wider ones, those with preferred nodes before others, the fuller before the emptier. A wider domain is better than
// one with fewer preferred nodes, unless the level is required.
func (t *tree) candidates(mode TopologyMode, w resolvedTopology, count int) []*domain {
	var out []*domain
	for level := w.level; level >= -1; level-- {
		from := len(out)
		most := int64(0)
		for _, d := range t.all {
			if d.level == level && mode != Required {
				most = max(most, d.score)
			}
		}
		for _, d := range t.all {
			if d.level == level && d.fits >= count && d.score >= most {
				out = append(out, d)
			}
		}
		slices.SortFunc(out[from:], fullestFirst)
		if mode == Required {
			break
		}
	}
	return out
}

// fullestFirst compares by the groups that fit, and then by what they would leave.
func fullestFirst(a, b *domain) int {
	return cmp.Or(cmp.Compare(b.score, a.score), a.fits-b.fits, a.pods-b.pods, strings.Compare(a.path, b.path))
}

func emptiestFirst(a, b *domain) int {
	return cmp.Or(cmp.Compare(b.score, a.score), b.fits-a.fits, a.pods-b.pods, strings.Compare(a.path, b.path))
}

// smallestFirst compares by the pods that fit, in whatever groups.
func smallestFirst(a, b *domain) int {
	return cmp.Or(cmp.Compare(b.score, a.score), a.pods-b.pods, strings.Compare(a.path, b.path))
}

// portion is a number of pods for a domain.
type portion struct {
	at   *domain
	pods int
}

// distribute hands pods down the tree to its narrowest domains, level by level, in the groups of each.
// Down to the level of the slices it does not matter to which of the wider domains a narrower one
// belongs.
func (d *domain) distribute(pods int, w resolvedTopology) []portion {
	parts := []portion{{d, pods}}
	for len(parts) > 0 && len(parts[0].at.children) > 0 {
		level := parts[0].at.level
		if level < w.sliced {
			all := &domain{level: level}
			for _, part := range parts {
				all.children = append(all.children, part.at.children...)
			}
			parts = []portion{{all, pods}}
		}
		var next []portion
		for _, part := range parts {
			next = part.at.split(part.pods, w, next)
		}
		parts = next
	}
	return parts
}

// split hands pods to children: to as few as possible, which is all of the emptiest and on, and the fullest that holds
// what is left; or else to the fullest that holds all, if one of the widest does, or all of the fullest and on. Within
// the domain of a slice the smallest comes first, as in Kueue.
func (d *domain) split(pods int, w resolvedTopology, out []portion) []portion {
	children, order := slices.Clone(d.children), emptiestFirst
	switch {
	case w.fullest:
		order = fullestFirst
	case d.level >= w.sliced:
		order = smallestFirst
	}
	slices.SortFunc(children, order)
	for i := 0; pods > 0 && i < len(children); i++ {
		child, last := children[i], !w.fullest && children[i].fits >= pods
		if last || w.fullest && d.level < 0 && i == 0 {
			if tight := tightest(children[i:], pods); tight != nil {
				child = tight
			}
		}
		if take := min(pods, child.fits); take > 0 {
			out = append(out, portion{child, take})
			pods -= take
		}
	}
	return out
}

// tightest is the fullest domain that holds so many pods, nil if none does.
func tightest(among []*domain, pods int) *domain {
	var best *domain
	for _, d := range among {
		if d.fits >= pods && (best == nil || fullestFirst(d, best) < 0) {
			best = d
		}
	}
	return best
}

// placeInTopology reserves for a set, or for a group of sets that share a domain.
func (e *Engine) placeInTopology(g *Gang, sets []*PodSet) ([][]*holding, *Refusal) {
	first := sets[0]
	t, err := e.topology(first.Topology.Topology)
	if err != nil {
		return nil, &Refusal{Detail: err.Error()}
	}
	s, err := e.shapeOf(&first.Pod)
	var w resolvedTopology
	if err == nil {
		w, err = t.resolve(first.Topology, first.Count)
	}
	if err != nil {
		return nil, &Refusal{Detail: err.Error()}
	}
	if first.Topology.Balanced && first.Topology.Mode == Preferred {
		if holds := e.placeBalanced(g, sets, t); holds != nil {
			return holds, nil
		}
	}
	e.measure(t, s, w)
	most := 0
	for _, d := range t.all {
		if d.level == w.level || first.Topology.Mode == Preferred {
			most = max(most, d.fits)
		}
	}
	for _, d := range t.candidates(first.Topology.Mode, w, first.Count) {
		mark := len(e.journal)
		if holds := e.placeIn(g, sets, t, d); holds != nil {
			return holds, nil
		}
		e.undo(mark)
		// Measuring for the other sets of the group left its numbers behind.
		e.measure(t, s, w)
	}
	return nil, e.tooNarrow(s, t, first, most)
}

// measureFor measures a tree for the pods of a set; false if these cannot be placed by it.
func (e *Engine) measureFor(set *PodSet, t *tree) (s *shape, w resolvedTopology, ok bool) {
	s, err := e.shapeOf(&set.Pod)
	if err != nil {
		return nil, w, false
	}
	if w, err = t.resolve(set.Topology, set.Count); err != nil {
		return nil, w, false
	}
	e.measure(t, s, w)
	return s, w, true
}

// placeIn tries all sets in one domain.
func (e *Engine) placeIn(g *Gang, sets []*PodSet, t *tree, d *domain) [][]*holding {
	var all [][]*holding
	for _, set := range sets {
		_, w, ok := e.measureFor(set, t)
		if !ok || d.fits < set.Count {
			return nil
		}
		from := d
		if w.flat {
			from = t.flat
		}
		holds, ok := e.placeParts(g, set, nil, from.distribute(set.Count, w))
		if !ok {
			return nil
		}
		all = append(all, holds)
	}
	return all
}

// placeParts reserves for parts of a set, after those that have their places; false if one does not fit.
func (e *Engine) placeParts(g *Gang, set *PodSet, holds []*holding, parts []portion) ([]*holding, bool) {
	for _, part := range parts {
		some := *set
		some.Count = part.pods
		placed, refusal := e.placeFrom(g, &some, part.at.positions, len(holds), true)
		if refusal != nil {
			return nil, false
		}
		holds = append(holds, placed...)
	}
	return holds, true
}

func (e *Engine) tooNarrow(s *shape, t *tree, set *PodSet, most int) *Refusal {
	r := e.refuse(s, t.positions)
	r.Fit = min(most, set.Count)
	if slices.ContainsFunc(t.positions, func(pos int32) bool { return len(e.nodes[pos].holdings) > 0 }) {
		r.RetryOn |= OnPodGone // also a node that takes a pod could take more
	}
	if most < set.Count {
		r.Detail = fmt.Sprintf("topology %q allows to fit only %d out of %d pod(s)", set.Topology.Topology, most, set.Count)
	} else {
		r.Detail = fmt.Sprintf("no domain of topology %q holds all pod sets of group %q", set.Topology.Topology, set.Topology.Group)
	}
	return r
}
