package placement

import "math"

// index is what a request shape knows of every node: its score, or why it does not fit. A tournament
// tree over the scores has the best node at its root; ties go to the smaller name, so that the
// answer does not depend on the order in which nodes were met.
type index struct {
	built   bool
	cursor  int    // changes seen, counted from the engine's first
	demand  uint64 // version of the demand the scores were made with
	scores  []float64
	reasons []Reason
	counts  [reasons]int // of nodes by reason
	gens    []uint64     // node.gen that matched was computed for
	matched []Reason
	caps    []int32  // how many pods fit at once; 0 where not counted yet
	full    []Reason // where they are counted: why no more do
	tree    []int32  // positions; the root is tree[1], leaves start at len/2
	known   []remembered
}

var noScore = math.Inf(-1)

// refreshed brings the shape's index up to date: only nodes that changed are scored again.
func (e *Engine) refreshed(s *shape) *index {
	e.remember(s)
	x := &s.index
	lost := !x.built || x.cursor < e.base // what changed is not known any more
	otherDemand := x.demand != e.demand.version && (s.policy.Node.ReadsDemand() || s.policy.Card.ReadsDemand())
	x.demand = e.demand.version
	grown := x.grow(e)
	end := e.base + len(e.changes)
	if lost {
		clear(x.caps)
	} else {
		for _, pos := range e.changes[x.cursor-e.base:] {
			x.caps[pos] = 0
		}
	}
	switch {
	case lost:
		for pos := range e.nodes {
			e.rescore(s, int32(pos))
		}
		x.rebuild(e)
		x.built = true
	case otherDemand: // which changes scores, not what fits
		for _, pos := range e.changes[x.cursor-e.base:] {
			x.setReason(pos, Fits) // as far as is known yet
		}
		for pos, reason := range x.reasons {
			if reason == Fits {
				e.rescore(s, int32(pos))
			}
		}
		x.rebuild(e)
	case x.cursor < end:
		e.round++
		changed := e.changes[x.cursor-e.base:]
		for _, pos := range changed {
			if e.seen[pos] != e.round {
				e.seen[pos] = e.round
				e.rescore(s, pos)
			}
		}
		// Climbing compares neighbours, so all of them must be up to date first.
		if grown {
			x.rebuild(e)
			changed = nil
		}
		for _, pos := range changed {
			if e.seen[pos] == e.round {
				e.seen[pos] = 0
				x.climb(e, pos)
			}
		}
	}
	x.cursor = end
	return x
}

func (e *Engine) rescore(s *shape, pos int32) {
	e.scored++
	x := &s.index
	x.scores[pos] = noScore
	n := e.nodes[pos]
	if n == nil {
		x.setReason(pos, NodeUnknown)
		x.gens[pos] = 0
		return
	}
	if x.gens[pos] != n.gen {
		x.gens[pos] = n.gen
		x.matched[pos] = matches(&s.pod, &n.desc)
	}
	reason := x.matched[pos]
	if !n.known {
		reason = NodeUnknown
	}
	if reason == Fits {
		reason, x.scores[pos] = e.score(s, n)
	}
	x.setReason(pos, reason)
}

// score of a node that takes the shape's pods by its labels and taints, or why it does not.
func (e *Engine) score(s *shape, n *node) (Reason, float64) {
	state := n.stateOf()
	was := s.index.recall(state, len(e.nodes))
	if was.state == state && was.demand == s.index.demand {
		return was.reason, was.score
	}
	reason, score := e.pick.run(e, s, n, 0), noScore
	if reason == Fits {
		score = s.policy.Node.NodeScore(&e.pick.c)
	}
	*was = remembered{state, s.index.demand, score, reason}
	return reason, score
}

func (x *index) setReason(pos int32, reason Reason) {
	x.counts[x.reasons[pos]]--
	x.counts[reason]++
	x.reasons[pos] = reason
}

// grow adds new positions, and says that the tree is larger: it is to be rebuilt from its leaves, once
// their scores are up to date.
func (x *index) grow(e *Engine) bool {
	for len(x.scores) < len(e.nodes) {
		x.scores = append(x.scores, noScore)
		x.reasons = append(x.reasons, NodeUnknown)
		x.counts[NodeUnknown]++
		x.gens = append(x.gens, 0)
		x.matched = append(x.matched, NodeUnknown)
		x.caps = append(x.caps, 0)
		x.full = append(x.full, Fits)
	}
	leaves := 1
	for leaves < len(e.nodes) {
		leaves *= 2
	}
	if 2*leaves == len(x.tree) {
		return false
	}
	x.tree = make([]int32, 2*leaves)
	return true
}

func (x *index) rebuild(e *Engine) {
	leaves := len(x.tree) / 2
	for i := range leaves {
		x.tree[leaves+i] = -1
		if i < len(x.scores) {
			x.tree[leaves+i] = int32(i)
		}
	}
	for i := leaves - 1; i > 0; i-- {
		x.tree[i] = x.better(e, x.tree[2*i], x.tree[2*i+1])
	}
}

// climb from a node whose score may be another, up to where it neither wins nor won.
func (x *index) climb(e *Engine, pos int32) {
	for i := (len(x.tree)/2 + int(pos)) / 2; i > 0; i /= 2 {
		best := x.better(e, x.tree[2*i], x.tree[2*i+1])
		if best == x.tree[i] && best != pos {
			return
		}
		x.tree[i] = best
	}
}

func (x *index) better(e *Engine, a, b int32) int32 {
	switch {
	case a < 0 || x.scores[a] == noScore:
		return b
	case b < 0 || x.scores[b] == noScore:
		return a
	case x.scores[a] != x.scores[b]:
		if x.scores[a] > x.scores[b] {
			return a
		}
		return b
	case e.nodes[a].name < e.nodes[b].name:
		return a
	}
	return b
}

// best node for the shape, or nil. The salt draws lots where the policy wants them.
func (e *Engine) best(s *shape, salt uint64) *node {
	x, top := e.top(s)
	if top < 0 {
		return nil
	}
	if s.policy.Node.Shuffles() {
		top = e.drawn(x, x.scores[top], salt)
	}
	return e.nodes[top]
}

// top of a shape's index, up to date; below 0 if it fits nowhere.
func (e *Engine) top(s *shape) (x *index, pos int32) {
	x = e.refreshed(s)
	if len(e.nodes) == 0 {
		return x, -1
	}
	if pos = x.tree[1]; pos >= 0 && x.scores[pos] == noScore {
		pos = -1
	}
	return x, pos
}

// fitsSomewhere says that a node takes a pod of the shape.
func (e *Engine) fitsSomewhere(s *shape) bool {
	_, pos := e.top(s)
	return pos >= 0
}

// drawn is one of the nodes with this score. The lot depends on names, not on positions.
func (e *Engine) drawn(x *index, score float64, salt uint64) int32 {
	best, bestLot := int32(-1), uint64(0)
	for pos, s := range x.scores {
		if s == score {
			if lot := hashInt(salt, e.nodes[pos].lot); best < 0 || lot > bestLot {
				best, bestLot = int32(pos), lot
			}
		}
	}
	return best
}
