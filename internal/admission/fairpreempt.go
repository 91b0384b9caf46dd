package admission

// Preemption under fair sharing: take from the subtree with the highest share,
// one workload at a time, as long as the rule holds that the preemptor stays poorer
// than those it takes from.

// fairHunt is the state of one hunt under fair sharing.
type fairHunt struct {
	cursors map[*queue]*cursor
	retry   map[*queue][]*workload // refused by the first strategy
	closed  map[*node]bool         // nothing more to take below
}

func (e *Engine) huntFairly(s *search) []victim {
	h := &fairHunt{cursors: map[*queue]*cursor{}, retry: map[*queue][]*workload{}, closed: map[*node]bool{}}
	if !e.lineUp(s, h) {
		return nil
	}
	e.pretend(s, 1) // shares include the workload that wants in
	ok := e.firstStrategy(s, h, e.opts.FairStrategies[0])
	if !ok && len(e.opts.FairStrategies) > 1 {
		ok = e.secondStrategy(s, h)
	}
	e.pretend(s, -1)
	if ok {
		e.giveBack(s, true)
	}
	e.putBack(s)
	if !ok {
		return nil
	}
	return s.victims
}

// pretend adds the preemptor's usage to the future, or takes it off again.
func (e *Engine) pretend(s *search, sign int64) {
	for _, u := range s.usage {
		s.a.w.queue.node.add(u.fr, sign*u.v, future)
	}
}

// roomyFairly is roomy while the preemptor's usage is pretended.
func (e *Engine) roomyFairly(s *search) bool {
	e.pretend(s, -1)
	ok := e.roomy(s, true)
	e.pretend(s, 1)
	return ok
}

// lineUp opens a cursor for each queue with workloads that policy lets us take.
func (e *Engine) lineUp(s *search, h *fairHunt) bool {
	q := s.a.w.queue
	p := &q.spec.Preemption
	t := q.node.root.tree
	if p.WithinQueue != PreemptNever {
		h.open(s, &cursor{queue: q})
	}
	if q.node.parent != nil && p.ReclaimWithinCohort != PreemptNever && !s.a.w.barredNow() {
		for _, o := range t.queues {
			if o != q && !o.node.withinNominal(s.need) {
				h.open(s, &cursor{queue: o, lca: t.root})
			}
		}
	}
	return len(h.cursors) > 0
}

func (h *fairHunt) open(s *search, c *cursor) {
	if s.peek(c) != nil {
		h.cursors[c.queue] = c
	}
}

// target descends from a cohort to the queue to take from next: at each
// level the child with the highest share. nil means only that some node was closed.
func (e *Engine) target(s *search, h *fairHunt, n *node, has func(*queue) *workload) *queue {
	if n.queue != nil { // a queue without a cohort
		h.closed[n] = h.closed[n] || has(n.queue) == nil
		if h.closed[n] {
			return nil
		}
		return n.queue
	}
	var best *node
	var bestShare share
	for _, ch := range n.children { // cohorts first: on a tie with a queue the most unfair within is chosen
		if h.closed[ch] {
			continue
		}
		sh := e.share(ch)
		if s.spares(ch, sh, has) {
			h.closed[ch] = true
			continue
		}
		if best == nil || s.richer(ch, sh, best, bestShare, has) {
			best, bestShare = ch, sh
		}
	}
	if best == nil {
		h.closed[n] = true
		return nil
	}
	if best.queue == nil {
		return e.target(s, h, best, has)
	}
	return best.queue
}

// spares: nothing may be taken below the node. The way to the preemptor's own
// queue stays open: there may be imbalance below, or workloads of its own to displace.
func (s *search) spares(n *node, sh share, has func(*queue) *workload) bool {
	own := s.a.w.queue
	if n.queue == nil {
		return !sh.borrowing && !own.node.under(n)
	}
	return !sh.borrowing && n.queue != own || has(n.queue) == nil
}

// richer says whether to take from a rather than from b, which comes before it.
func (s *search) richer(a *node, sa share, b *node, sb share, has func(*queue) *workload) bool {
	switch c := sa.compare(sb); {
	case c != 0:
		return c > 0
	case a.queue != nil && b.queue != nil:
		return s.takenBefore(has(a.queue), has(b.queue))
	}
	return a.queue == nil
}

// takenBefore: workloads of other queues before those of our own, then as usual.
func (s *search) takenBefore(a, b *workload) bool {
	if own := s.a.w.queue; (a.queue == own) != (b.queue == own) {
		return b.queue == own
	}
	return victimOrder(a, b) < 0
}

// fork returns the nodes below the lowest common cohort on the way to each queue.
func fork(a, b *node) (*node, *node) {
	for x := a; x.parent != nil; x = x.parent {
		for y := b; y.parent != nil; y = y.parent {
			if x.parent == y.parent {
				return x, y
			}
		}
	}
	return a, b
}

func (e *Engine) firstStrategy(s *search, h *fairHunt, rule FairStrategy) bool {
	own := s.a.w.queue
	root := own.node.root
	head := func(q *queue) *workload {
		if c := h.cursors[q]; c != nil {
			return s.peek(c)
		}
		return nil
	}
	entitled := own.node.withinNominal(s.need) // takes back no more than its own
	for !h.closed[root] {
		q := e.target(s, h, root, head)
		if q == nil {
			continue
		}
		c := h.cursors[q]
		w := s.peek(c)
		switch {
		case q == own:
			c.next++
			e.take(s, victim{w, ReasonInClusterQueue})
		case entitled:
			c.next++
			e.take(s, victim{w, ReasonInCohortReclamation})
		case !e.takeFairly(s, h, c, rule):
			continue
		}
		if e.roomyFairly(s) {
			return true
		}
	}
	return false
}

// takeFairly takes the first workload of a queue for which the rule holds;
// the others wait for the second strategy.
func (e *Engine) takeFairly(s *search, h *fairHunt, c *cursor, rule FairStrategy) bool {
	mine, theirs := fork(s.a.w.queue.node, c.queue.node)
	newShare, oldShare := e.share(mine), e.share(theirs)
	for w := s.peek(c); w != nil; w = s.peek(c) {
		c.next++
		if e.poorer(w, newShare, oldShare, theirs, rule) {
			e.take(s, victim{w, ReasonInCohortFairSharing})
			return true
		}
		h.retry[c.queue] = append(h.retry[c.queue], w)
	}
	return false
}

// poorer checks a fair-sharing rule. Beyond Kueue's, the preemptor must end up
// strictly below what the other had, or equals would displace each other in turn.
func (e *Engine) poorer(w *workload, newShare, oldShare share, theirs *node, rule FairStrategy) bool {
	if newShare.compare(oldShare) >= 0 {
		return false
	}
	if rule == LessThanInitialShare {
		return true
	}
	e.shift(w, -1)
	after := e.share(theirs)
	e.shift(w, 1)
	return newShare.compare(after) <= 0
}

// secondStrategy takes at most one workload per queue from those the first
// refused, as long as the preemptor stays below their share before.
func (e *Engine) secondStrategy(s *search, h *fairHunt) bool {
	own := s.a.w.queue
	root := own.node.root
	clear(h.closed)
	head := func(q *queue) *workload {
		if r := h.retry[q]; len(r) > 0 {
			return r[0]
		}
		return nil
	}
	for !h.closed[root] {
		q := e.target(s, h, root, head)
		if q == nil {
			continue
		}
		w := h.retry[q][0]
		mine, theirs := fork(own.node, q.node)
		ok := e.poorer(w, e.share(mine), e.share(theirs), theirs, LessThanInitialShare)
		h.retry[q] = nil
		if ok {
			e.take(s, victim{w, ReasonInCohortFairSharing})
			if e.roomyFairly(s) {
				return true
			}
		}
	}
	return false
}
