package admission

import "math"

// share is the weighted dominant share of a node: the largest part, over the
// resources, of what its cohort could lend that the node has taken.
type share struct {
	ratio     float64 // unweighted
	weight    float64
	borrowing bool
}

func (s share) value() float64 {
	if s.ratio == 0 {
		return 0
	}
	if s.weight == 0 {
		return math.Inf(1)
	}
	return s.ratio / s.weight
}

// compare orders shares; among those who borrow on no weight at all, the ratio decides.
func (s share) compare(o share) int {
	a, b := s.value(), o.value()
	if math.IsInf(a, 1) && math.IsInf(b, 1) {
		a, b = s.ratio, o.ratio
	}
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// share computes a node's share in the future tree.
func (e *Engine) share(n *node) share {
	s := share{weight: n.weight}
	if n.parent == nil {
		return s
	}
	all := n.root.tree.policy == PolicyMaxMin
	taken := e.scratch.taken[:0]
	for range e.resources {
		taken = append(taken, 0)
	}
	e.scratch.taken = taken
	for fr := range n.cells {
		c := &n.cells[fr]
		over := c.use[future] - c.subtree
		if over > 0 {
			s.borrowing = true
		}
		if all {
			over = c.use[future]
		}
		if over > 0 {
			taken[e.frs[fr].resource] += over
		}
	}
	for r, v := range taken {
		if lend := n.parent.lendable[r]; v > 0 && lend > 0 {
			s.ratio = max(s.ratio, float64(v)*1000/float64(lend))
		}
	}
	return s
}

// contender is the entry a subtree sends into the tournament, with the share
// the subtree would have if it won.
type contender struct {
	entry *assignment
	share share
	over  bool // the subtree would borrow something the entry asks for
}

// processFairly settles entries one by one, each time the one whose admission
// leaves the lowest share at every level on the way up. Its queue then sends the next.
func (e *Engine) processFairly(t *tree, entries []*assignment) {
	for _, a := range entries {
		a.w.queue.node.cand = contender{entry: a}
		e.weigh(a.w.queue.node)
	}
	e.rank(t.root)
	for t.root.cand.entry != nil {
		a := t.root.cand.entry
		q := a.w.queue
		if a.version == t.version || e.refresh(t, a) {
			e.process(a)
		}
		e.recycle(a)
		q.node.cand = contender{entry: e.nextEntry(t, q)}
		e.weigh(q.node)
		for n := q.node.parent; n != nil; n = n.parent {
			e.elect(n)
		}
	}
}

func (e *Engine) rank(n *node) {
	for _, ch := range n.children {
		if ch.queue == nil {
			e.rank(ch)
		}
	}
	if n.queue == nil {
		e.elect(n)
	}
}

// elect picks the best of a cohort's children and weighs the cohort with it.
func (e *Engine) elect(n *node) {
	n.cand = contender{}
	for _, ch := range n.children {
		if ch.cand.entry != nil && (n.cand.entry == nil || ch.cand.before(&n.cand)) {
			n.cand = ch.cand
		}
	}
	e.weigh(n)
}

// weigh computes the share a node would have with its contender admitted.
func (e *Engine) weigh(n *node) {
	a := n.cand.entry
	if a == nil {
		return
	}
	q := a.w.queue.node
	for _, u := range a.usage {
		q.add(u.fr, u.v, future)
	}
	n.cand.share = e.share(n)
	n.cand.over = false
	for _, u := range a.usage {
		if n.parent != nil && n.borrowing(u.fr, 0, future) {
			n.cand.over = true
		}
	}
	for _, u := range a.usage {
		q.add(u.fr, -u.v, future)
	}
}

// before: who does not borrow first, then the lower share, then priority and age.
func (c *contender) before(o *contender) bool {
	if c.over != o.over {
		return !c.over
	}
	if x := c.share.compare(o.share); x != 0 {
		return x < 0
	}
	return queueOrder(c.entry.w, o.entry.w) < 0
}
