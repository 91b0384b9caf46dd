package admission

import "github.com/elastic-ai/elastic/internal/admission/quota"

// Preemption under fair sharing: take from the subtree with the highest share, one workload at a
// time, as long as the strategy holds that the preemptor stays poorer than those it takes from.

// fairCursor is a queue's part in a search under fair sharing; it counts only while search is the
// number of the search under way.
type fairCursor struct {
	search uint64
	walk   cursor
	retry  []*workload // refused by the first strategy
}

// fairSearch is one of the two passes of a search.
type fairSearch struct {
	id     uint64
	pass   uint64 // stamps the nodes closed in this pass
	second bool   // choose among those the first strategy refused
	tree   *tree
}

// giver is a queue that policy and shares may let a search take from.
type giver struct {
	walk   cursor
	gives  preemptible // at most
	passed bool        // none of its workloads has had a minimum runtime
}

func (e *Engine) searchFairSharing(t *tree, s *search) []victim {
	if s.pastMinRuntime || s.extrasOnly {
		e.findGivers(t, s)
	}
	if len(s.givers) == 0 || s.awaitsMinRuntime(e) {
		return nil
	}
	e.searches += 2
	h := fairSearch{id: e.searches, pass: e.searches, tree: t}
	if !h.open(s) {
		return nil
	}
	mark := e.tx.Checkpoint()
	defer e.tx.Rollback(mark)
	own := s.a.w.queue.node
	e.tx.Add(own, s.usage, quota.Future) // shares include the preemptor
	e.searchSteps++
	ok := e.firstStrategy(s, h, e.opts.FairStrategies[0])
	if !ok && len(e.opts.FairStrategies) > 1 {
		h.pass, h.second = h.pass+1, true
		ok = e.secondStrategy(s, h)
	}
	e.tx.Sub(own, s.usage, quota.Future)
	if !ok {
		return nil
	}
	e.restoreUnneeded(s, true)
	if e.futile(s) {
		return nil
	}
	return s.victims
}

// head is the next candidate of a queue, nil if there is none.
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

func (h fairSearch) closed(n *treeNode) bool { return n.closedIn == h.pass || n.openIn != h.id }

func (h fairSearch) close(n *treeNode) { n.closedIn = h.pass }

// preemptorFitsFairly is preemptorFits while shares include the preemptor.
func (e *Engine) preemptorFitsFairly(s *search) bool {
	mark := e.tx.Checkpoint()
	e.tx.Sub(s.a.w.queue.node, s.usage, quota.Future)
	fits := e.preemptorFits(s, true)
	e.tx.Rollback(mark)
	return fits
}

// findGivers lists the queues with workloads that policy and shares may let us preempt.
func (e *Engine) findGivers(t *tree, s *search) {
	s.givers = s.givers[:0]
	q := s.a.w.queue
	p := &q.spec.Preemption
	if p.WithinQueue != PreemptNever {
		e.addGiver(t, s, cursor{queue: q, list: s.candidates(q)})
	}
	// One at a time: while a workload of the queue is nominated, the next does not take from other
	// queues. Shares even out by themselves as workloads end.
	if q.node.Parent != nil && p.ReclaimWithinCohort != PreemptNever && len(q.nominated) == 0 && !e.checkCooldown(s.a, s.withinNominal()) {
		e.findOtherGivers(t, s)
	}
}

// findOtherGivers lists other queues, those aside that shares keep safe whomever the preemptor takes from its own.
func (e *Engine) findOtherGivers(t *tree, s *search) {
	q := s.a.w.queue
	mark := e.tx.Checkpoint()
	defer e.tx.Rollback(mark)
	e.tx.Add(q.node, s.usage, quota.Future)
	entitled := q.node.WithinNominal(s.need)
	if len(s.givers) > 0 && !entitled {
		e.discountOwn(s, s.givers[0].walk)
	}
	e.anyGiver(t, &taker{queue: q, usage: s.usage, need: s.need, entitled: entitled || e.opts.unpruned}, func(o *queue) bool {
		return e.addGiver(t, s, cursor{queue: o, list: s.candidates(o), lca: t.root.Node})
	})
}

// taker is who would take quota from other queues under fair sharing.
type taker struct {
	queue    *queue
	usage    []quota.Amount
	need     []int32 // what is short of that
	entitled bool    // it needs no more than its nominal quota
}

// anyGiver calls f with the queues that shares may let one take from, and says whether f found something in any. What the
// taker asks for is counted in the what-if, and all whom it could preempt in its own queue are gone. Nothing is taken from
// a side that has no higher share than its own then. Once something may be taken from one, the taker's side at the levels
// above may come to less than that, and may take from all.
func (e *Engine) anyGiver(t *tree, x *taker, f func(*queue) bool) bool {
	found := false
	for n := x.queue.at; n.Parent != nil; n = t.at(n.Parent) {
		then, all := e.share(t, n.Node), x.entitled || found
		for _, o := range t.at(n.Parent).below {
			if o != n && (all || e.mayBePoorer(then, e.share(t, o.Node))) && e.anyGiverOf(t, x, n, o, o, all, f) {
				found = true
			}
		}
	}
	return found
}

// anyGiverOf is anyGiver for the queues below a node of another side.
func (e *Engine) anyGiverOf(t *tree, x *taker, mine, theirs, n *treeNode, all bool, f func(*queue) bool) bool {
	if n.queue != nil {
		return !n.WithinNominal(x.need) && (all || e.mayGiveUp(t, x, mine, theirs, n.queue)) && f(n.queue)
	}
	found := false
	for _, ch := range n.below {
		found = e.anyGiverOf(t, x, mine, theirs, ch, all, f) || found
	}
	return found
}

// mayGiveUp says whether shares may let a queue give up its smallest workload: NoRings wants its side to have no less
// after that than the taker's had before.
func (e *Engine) mayGiveUp(t *tree, x *taker, mine, theirs *treeNode, q *queue) bool {
	if !e.opts.NoRings || len(x.need) != 1 || theirs.Weight == 0 {
		return true
	}
	fr := x.need[0]
	left := e.shareWithout(t, theirs.Node, q.node, []quota.Amount{{FR: fr, V: e.preemptibleIn(t, q, fr).least}})
	return e.shareWithout(t, mine.Node, x.queue.node, x.usage).Compare(left) <= 0
}

// shareWithout is a node's share without some usage of a queue.
func (e *Engine) shareWithout(t *tree, n, queue *quota.Node, usage []quota.Amount) quota.Share {
	mark := e.tx.Checkpoint()
	e.tx.Sub(queue, usage, quota.Future)
	share := e.share(t, n)
	e.tx.Rollback(mark)
	return share
}

// mayBePoorer says whether some strategy may let a side with the one share take from a side with the other.
func (e *Engine) mayBePoorer(mine, theirs quota.Share) bool {
	c := mine.Compare(theirs)
	return c < 0 || c == 0 && !e.opts.NoRings
}

// discountOwn takes all candidates of the preemptor's own queue out of the future (in a what-if).
func (e *Engine) discountOwn(s *search, c cursor) {
	refused := s.a.refused
	for w := s.peek(&c); w != nil; w = s.peek(&c) {
		e.tx.Sub(w.queue.node, w.usage, quota.Future)
		c.next++
	}
	s.a.refused = refused // nobody is held up yet by who was passed over
}

// addGiver lists a queue, if there is a candidate.
func (e *Engine) addGiver(t *tree, s *search, c cursor) bool {
	if s.peek(&c) == nil {
		return false
	}
	g := giver{walk: c}
	if s.minRuntimesBind(e) {
		g.gives = e.preemptibleIn(t, c.queue, s.need[0])
		g.passed = g.gives.afterMinRuntime == 0
	}
	s.givers = append(s.givers, g)
	return true
}

// minRuntimesBind says whether a workload within its minimum runtime is passed over whatever the rule.
func (s *search) minRuntimesBind(e *Engine) bool {
	return e.decision != noDecision && !s.extrasOnly && s.a.how != afterDelay && s.a.canReserve() && len(s.need) == 1 && !e.opts.unpruned
}

// awaitsMinRuntime says whether those that had their minimum runtime cannot give up enough, all together.
func (s *search) awaitsMinRuntime(e *Engine) bool {
	if !s.pastMinRuntime || !s.minRuntimesBind(e) {
		return false
	}
	fr, within := s.need[0], false
	short := quota.AmountOf(s.usage, fr) - s.a.w.queue.node.Available(fr, quota.Future)
	for i := range s.givers {
		g := &s.givers[i]
		short -= g.gives.afterMinRuntime
		within = within || g.gives.afterMinRuntime < g.gives.all
	}
	if short <= 0 {
		return false
	}
	s.skipped = s.skipped || within
	return true
}

// open opens a cursor for each giver that is not passed over, and says whether there is any.
func (h fairSearch) open(s *search) bool {
	found := false
	for i := range s.givers {
		g := &s.givers[i]
		if g.passed && s.pastMinRuntime {
			s.skipped = true
			continue
		}
		found = true
		f := &g.walk.queue.fair
		f.search, f.walk, f.retry = h.id, g.walk, f.retry[:0]
		for n := g.walk.queue.at; n.openIn != h.id; n = h.tree.at(n.Parent) {
			if n.openIn = h.id; n.Parent == nil {
				break
			}
		}
	}
	return found
}

// target descends from a cohort to the queue to take from next: at each level the child with the
// highest share. nil means only that some node was closed.
func (e *Engine) target(s *search, h fairSearch, n *treeNode) *queue {
	if n.queue != nil { // a queue without a cohort
		if h.head(s, n.queue) == nil {
			h.close(n)
			return nil
		}
		return n.queue
	}
	var best *treeNode
	var bestShare quota.Share
	for _, ch := range n.below { // cohorts first: on a tie with a queue the most unfair within is chosen
		if h.closed(ch) {
			continue
		}
		if ch.queue != nil && h.head(s, ch.queue) == nil {
			h.close(ch)
			continue
		}
		sh := e.shareInSearch(h.tree, ch)
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

// shareInSearch is a node's share with the preemptor, computed once for each number of victims.
func (e *Engine) shareInSearch(t *tree, n *treeNode) quota.Share {
	if n.shareAt != e.searchSteps {
		n.share, n.shareAt = e.share(t, n.Node), e.searchSteps
	}
	return n.share
}

// excludes says whether nothing may be taken below the node. The way to the preemptor's own queue
// stays open: there may be imbalance below, or workloads of its own to preempt.
func (h fairSearch) excludes(s *search, n *treeNode, sh quota.Share) bool {
	return !sh.Borrowing && !s.a.w.queue.node.Under(n.Node)
}

// richer says whether to take from a rather than from b, which comes before it.
func (h fairSearch) richer(s *search, a *treeNode, sa quota.Share, b *treeNode, sb quota.Share) bool {
	switch c := sa.Compare(sb); {
	case c != 0:
		return c > 0
	case a.queue != nil && b.queue != nil:
		return s.evictedBefore(h.head(s, a.queue), h.head(s, b.queue))
	}
	return a.queue == nil
}

// evictedBefore: workloads of other queues come before those of our own, then the usual order.
func (s *search) evictedBefore(a, b *workload) bool {
	if own := s.a.w.queue; (a.queue == own) != (b.queue == own) {
		return b.queue == own
	}
	return victimOrder(a, b) < 0
}

func (e *Engine) firstStrategy(s *search, h fairSearch, strategy FairStrategy) bool {
	own := s.a.w.queue
	entitled := own.node.WithinNominal(s.need) // it reclaims no more than its nominal quota
	for !h.closed(h.tree.root) {
		q := e.target(s, h, h.tree.root)
		if q == nil {
			continue
		}
		c := &q.fair.walk
		w := s.peek(c)
		v := victim{w, ReasonInClusterQueue}
		switch {
		case q != own && !entitled:
			if !e.removeFairVictim(s, h, q, strategy) {
				continue
			}
		case q != own:
			v.why = ReasonInCohortReclamation
			fallthrough
		default:
			c.next++
			if e.skips(s, v) {
				continue
			}
			e.removeVictim(s, v)
		}
		if e.preemptorFitsFairly(s) {
			return true
		}
	}
	return false
}

// removeFairVictim preempts the first workload of a queue for which the strategy holds; the others
// wait for the second one.
func (e *Engine) removeFairVictim(s *search, h fairSearch, q *queue, strategy FairStrategy) bool {
	sides := e.sides(s, h, q)
	c := &q.fair.walk
	for w := s.peek(c); w != nil; w = s.peek(c) {
		c.next++
		v := victim{w, ReasonInCohortFairSharing}
		if e.skips(s, v) {
			continue
		}
		if e.fairShareAllows(s, h.tree, w, &sides, strategy) {
			e.removeVictim(s, v)
			return true
		}
		q.fair.retry = append(q.fair.retry, w)
	}
	return false
}

// sides are the shares of the preemptor's side and of another, just below the cohort where they meet.
type sides struct {
	mine, node   *quota.Node // the preemptor's side, and theirs
	then, theirs quota.Share // the preemptor's is with what it asks for
}

func (e *Engine) sides(s *search, h fairSearch, q *queue) sides {
	mine, theirs := quota.Fork(s.a.w.queue.node, q.node)
	return sides{mine: mine, node: theirs, then: e.shareInSearch(h.tree, h.tree.at(mine)), theirs: e.shareInSearch(h.tree, h.tree.at(theirs))}
}

// secondStrategy preempts at most one workload per queue of those the first strategy refused, as
// long as the preemptor stays below their share before.
func (e *Engine) secondStrategy(s *search, h fairSearch) bool {
	for !h.closed(h.tree.root) {
		q := e.target(s, h, h.tree.root)
		if q == nil {
			continue
		}
		w := q.fair.retry[0]
		sides := e.sides(s, h, q)
		ok := e.fairShareAllows(s, h.tree, w, &sides, LessThanInitialShare)
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
