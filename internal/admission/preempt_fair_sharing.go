package admission

// Preemption under fair sharing: take from the subtree with the highest share,
// one workload at a time, as long as the rule holds that the preemptor stays poorer
// than those it takes from.

// fairCursor is a queue's part in a hunt under fair sharing; it counts only
// while hunt is that of the hunt under way.
type fairCursor struct {
	search uint64
	walk   cursor
	retry  []*workload // refused by the first strategy
}

// fairSearch is one of the two passes of a hunt.
type fairSearch struct {
	id     uint64
	pass   uint64 // stamps the nodes closed in this pass
	second bool   // choose among those the first strategy refused
}

func (e *Engine) searchFairSharing(s *search) []victim {
	e.searches += 2
	h := fairSearch{id: e.searches, pass: e.searches}
	if !e.openCursors(s, h) {
		return nil
	}
	e.pretendPreemptor(s, 1) // shares include the workload that wants in
	ok := e.firstStrategy(s, h, e.opts.FairStrategies[0])
	if !ok && len(e.opts.FairStrategies) > 1 {
		h.pass, h.second = h.pass+1, true
		ok = e.secondStrategy(s, h)
	}
	e.pretendPreemptor(s, -1)
	if ok {
		e.restoreUnneeded(s, true)
		ok = !e.futile(s)
	}
	e.restoreVictims(s)
	if !ok {
		return nil
	}
	return s.victims
}

// head is whom to take next from a queue, nil if there is nobody.
func (h fairSearch) head(s *search, q *queue) *workload {
	f := &q.fair
	switch {
	case f.search != h.id:
		return nil
	case !h.second:
		return s.peek(&f.walk)
	case len(f.retry) > 0:
		return f.retry[0]
	}
	return nil
}

func (h fairSearch) closed(n *node) bool { return n.closedIn == h.pass }

func (h fairSearch) close(n *node) { n.closedIn = h.pass }

// pretendPreemptor adds the preemptor's usage to the future, or takes it off again.
func (e *Engine) pretendPreemptor(s *search, sign int64) {
	for _, u := range s.usage {
		s.a.w.queue.node.add(u.fr, sign*u.v, future)
	}
}

// preemptorFitsFairly is roomy while the preemptor's usage is pretended.
func (e *Engine) preemptorFitsFairly(s *search) bool {
	e.pretendPreemptor(s, -1)
	ok := e.preemptorFits(s, true)
	e.pretendPreemptor(s, 1)
	return ok
}

// openCursors opens a cursor for each queue with workloads that policy lets us take.
func (e *Engine) openCursors(s *search, h fairSearch) bool {
	q := s.a.w.queue
	p := &q.spec.Preemption
	t := q.node.root.tree
	any := false
	if p.WithinQueue != PreemptNever {
		any = h.open(s, cursor{queue: q, list: e.victimList(q)})
	}
	// One at a time: while a workload of the queue waits for its room, the next does not take
	// from others. Shares even out by themselves as workloads end.
	if q.node.parent != nil && p.ReclaimWithinCohort != PreemptNever && len(q.nominated) == 0 && !e.checkCooldown(s) {
		for _, o := range t.queues {
			if o != q && !o.node.withinNominal(s.need) && h.open(s, cursor{queue: o, list: e.victimList(o), lca: t.root}) {
				any = true
			}
		}
	}
	return any
}

func (h fairSearch) open(s *search, c cursor) bool {
	if s.peek(&c) == nil {
		return false
	}
	f := &c.queue.fair
	f.search, f.walk, f.retry = h.id, c, f.retry[:0]
	return true
}

// target descends from a cohort to the queue to take from next: at each
// level the child with the highest share. nil means only that some node was closed.
func (e *Engine) target(s *search, h fairSearch, n *node) *queue {
	if n.queue != nil { // a queue without a cohort
		if h.head(s, n.queue) == nil {
			h.close(n)
			return nil
		}
		return n.queue
	}
	var best *node
	var bestShare share
	for _, ch := range n.children { // cohorts first: on a tie with a queue the most unfair within is chosen
		if h.closed(ch) {
			continue
		}
		sh := e.share(ch)
		if h.excludes(s, ch, sh) {
			h.close(ch)
			continue
		}
		if best == nil || h.richer(s, ch, sh, best, bestShare) {
			best, bestShare = ch, sh
		}
	}
	if best == nil {
		h.close(n)
		return nil
	}
	if best.queue == nil {
		return e.target(s, h, best)
	}
	return best.queue
}

// excludes: nothing may be taken below the node. The way to the preemptor's own
// queue stays open: there may be imbalance below, or workloads of its own to displace.
func (h fairSearch) excludes(s *search, n *node, sh share) bool {
	own := s.a.w.queue
	if n.queue == nil {
		return !sh.borrowing && !own.node.under(n)
	}
	return !sh.borrowing && n.queue != own || h.head(s, n.queue) == nil
}

// richer says whether to take from a rather than from b, which comes before it.
func (h fairSearch) richer(s *search, a *node, sa share, b *node, sb share) bool {
	switch c := sa.compare(sb); {
	case c != 0:
		return c > 0
	case a.queue != nil && b.queue != nil:
		return s.evictedBefore(h.head(s, a.queue), h.head(s, b.queue))
	}
	return a.queue == nil
}

// evictedBefore: workloads of other queues before those of our own, then as usual.
func (s *search) evictedBefore(a, b *workload) bool {
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

func (e *Engine) firstStrategy(s *search, h fairSearch, rule FairStrategy) bool {
	own := s.a.w.queue
	root := own.node.root
	entitled := own.node.withinNominal(s.need) // takes back no more than its own
	for !h.closed(root) {
		q := e.target(s, h, root)
		if q == nil {
			continue
		}
		c := &q.fair.walk
		w := s.peek(c)
		switch {
		case q == own:
			c.next++
			e.removeVictim(s, victim{w, ReasonInClusterQueue})
		case entitled:
			c.next++
			e.removeVictim(s, victim{w, ReasonInCohortReclamation})
		case !e.removeFairVictim(s, q, rule):
			continue
		}
		if e.preemptorFitsFairly(s) {
			return true
		}
	}
	return false
}

// removeFairVictim takes the first workload of a queue for which the rule holds;
// the others wait for the second strategy.
func (e *Engine) removeFairVictim(s *search, q *queue, rule FairStrategy) bool {
	sides := e.sides(s, q)
	c := &q.fair.walk
	for w := s.peek(c); w != nil; w = s.peek(c) {
		c.next++
		if e.fairShareAllows(w, sides, rule) {
			e.removeVictim(s, victim{w, ReasonInCohortFairSharing})
			return true
		}
		q.fair.retry = append(q.fair.retry, w)
	}
	return false
}

// sides are the shares of the preemptor's side and of another, just below the cohort where they meet.
type sides struct {
	before, then share // the preemptor's, without and with what it asks for
	theirs       share
	node         *node // theirs
}

func (e *Engine) sides(s *search, q *queue) sides {
	mine, theirs := fork(s.a.w.queue.node, q.node)
	x := sides{then: e.share(mine), theirs: e.share(theirs), node: theirs}
	e.pretendPreemptor(s, -1)
	x.before = e.share(mine)
	e.pretendPreemptor(s, 1)
	return x
}

// fairShareAllows checks a fair-sharing rule. Beyond Kueue's, the tables must not turn: the preemptor ends up
// strictly below what the other had, and the other, unless it has no weight, not below what the
// preemptor had. Both then stand between where they stood, so there is an end to it.
func (e *Engine) fairShareAllows(w *workload, x sides, rule FairStrategy) bool {
	if x.then.compare(x.theirs) >= 0 {
		return false
	}
	e.shift(w, -1)
	left := e.share(x.node)
	e.shift(w, 1)
	if rule == LessThanInitialShare {
		return x.before.compare(left) <= 0 || x.node.weight == 0
	}
	return x.then.compare(left) <= 0
}

// secondStrategy takes at most one workload per queue from those the first
// refused, as long as the preemptor stays below their share before.
func (e *Engine) secondStrategy(s *search, h fairSearch) bool {
	own := s.a.w.queue
	root := own.node.root
	for !h.closed(root) {
		q := e.target(s, h, root)
		if q == nil {
			continue
		}
		w := q.fair.retry[0]
		ok := e.fairShareAllows(w, e.sides(s, q), LessThanInitialShare)
		q.fair.retry = q.fair.retry[:0]
		if ok {
			e.removeVictim(s, victim{w, ReasonInCohortFairSharing})
			if e.preemptorFitsFairly(s) {
				return true
			}
		}
	}
	return false
}
