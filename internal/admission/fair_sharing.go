package admission

import "github.com/elastic-ai/elastic/internal/admission/quota"

// share is a node's share in the future.
func (e *Engine) share(t *tree, n *quota.Node) quota.Share {
	return e.shares.Of(n, e.frs, t.policy == PolicyMaxMin, quota.Future)
}

// contender is the entry a subtree sends into the tournament, with the share
// the subtree would have if it won.
type contender struct {
	entry *assignment
	share quota.Share
	over  bool // the subtree would borrow something the entry asks for
}

// processFairly processes entries one by one, each time the one whose admission leaves the lowest
// share at every level on the way up. Its queue then sends the next.
func (e *Engine) processFairly(t *tree, entries []*assignment) {
	for _, a := range entries {
		a.w.queue.at.contender = contender{entry: a}
		e.weigh(t, a.w.queue.at)
	}
	e.electBelow(t, t.root)
	for t.root.contender.entry != nil {
		a := t.root.contender.entry
		q := a.w.queue
		if a.version == t.version || e.refresh(t, a) {
			e.process(a)
		}
		e.recycle(a)
		q.at.contender = contender{entry: e.nextEntry(t, q)}
		e.weigh(t, q.at)
		for n := q.node.Parent; n != nil; n = n.Parent {
			e.elect(t, t.at(n))
		}
	}
}

// electBelow elects in all cohorts of a subtree, from the bottom up.
func (e *Engine) electBelow(t *tree, n *treeNode) {
	if n.queue != nil {
		return
	}
	for _, ch := range n.below {
		e.electBelow(t, ch)
	}
	e.elect(t, n)
}

// elect picks the best of a cohort's children and weighs the cohort with it.
func (e *Engine) elect(t *tree, n *treeNode) {
	n.contender = contender{}
	for _, ch := range n.below {
		if c := &ch.contender; c.entry != nil && (n.contender.entry == nil || c.before(&n.contender)) {
			n.contender = *c
		}
	}
	e.weigh(t, n)
}

// weigh computes the share a node would have with its contender admitted.
func (e *Engine) weigh(t *tree, n *treeNode) {
	if n.contender.entry != nil {
		e.weighFor(t, n.Node, &n.contender)
	}
}

func (e *Engine) weighFor(t *tree, n *quota.Node, c *contender) {
	mark := e.tx.Checkpoint()
	e.tx.Add(c.entry.w.queue.node, c.entry.usage, quota.Future)
	c.share, c.over = e.share(t, n), false
	for _, u := range c.entry.usage {
		if n.Parent != nil && n.Borrowing(u.FR, 0, quota.Future) {
			c.over = true
		}
	}
	e.tx.Rollback(mark)
}

// before: one that does not borrow comes first, then the lower share, then priority and age.
func (c *contender) before(o *contender) bool {
	if c.over != o.over {
		return !c.over
	}
	if x := c.share.Compare(o.share); x != 0 {
		return x < 0
	}
	return queueOrder(c.entry.w, o.entry.w) < 0
}
