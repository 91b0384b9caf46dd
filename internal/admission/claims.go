package admission

import "slices"

// A claim is room in the future tree for a workload that waits until others
// have left. Whoever comes later must leave it alone, unless its rights are
// better: then the claim is set aside and its holder looks again.

// claim lets a workload wait for room that is being made.
func (e *Engine) claim(a *assignment) {
	w := a.w
	q := w.queue
	kept := *a
	kept.key = w.class.key
	e.dequeue(w)
	q.pending++
	kept.counts = slices.Clone(a.counts)
	kept.usage = slices.Clone(a.usage)
	kept.flavors = make([][]int32, len(a.shape.podSets))
	for i := range kept.flavors {
		kept.flavors[i] = slices.Clone(a.flavors[i])
	}
	kept.need, kept.misses, kept.victims, kept.avoid, kept.drops, kept.picks = nil, nil, nil, nil, nil, nil
	w.claimed, w.claim = &kept, kept.usage
	for _, u := range w.claim {
		e.count(q, u.fr, u.v, future)
	}
	if e.opts.Placer != nil {
		e.opts.Placer.Hold(w.spec.Key, a.placed)
	}
	t := q.node.root.tree
	t.waiting = append(t.waiting, w)
	q.claims = append(q.claims, w)
	e.park(w, ReasonWaitingForPreemptedWorkloads, e.message(a))
}

// unclaim gives a claim up.
func (e *Engine) unclaim(w *workload, forGood bool) {
	q := w.queue
	e.liftClaim(w, forGood)
	q.pending--
	t := q.node.root.tree
	t.waiting = without(t.waiting, w)
	q.claims = without(q.claims, w)
	w.claim, w.claimed = nil, nil
	if q.spec.StrictFIFO {
		e.ready(q)
	}
	if t.policy != PolicyFIFO && len(q.claims) == 0 {
		q.wakeAll(e) // the next may take from others now
	}
}

// liftClaim takes the claimed room out of the future, telling others if for good.
func (e *Engine) liftClaim(w *workload, tell bool) {
	for _, u := range w.claim {
		if tell || e.reshaped {
			e.count(w.queue, u.fr, -u.v, future)
		} else {
			w.queue.node.add(u.fr, -u.v, future) // its admission, or putting it back, follows
		}
	}
	if e.opts.Placer != nil {
		e.opts.Placer.Remove(w.spec.Key)
	}
}

func without(list []*workload, w *workload) []*workload {
	if i := slices.Index(list, w); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// setAside sends a claim's holder back in line.
func (e *Engine) setAside(w *workload) {
	w.aside = e.decision
	if w.claim == nil {
		return
	}
	q := w.queue
	e.unclaim(w, true)
	w.queue = q
	e.enqueue(w)
}

// dropClaims sets all claims and reservations of a tree aside.
func (t *tree) dropClaims(e *Engine) {
	for _, w := range slices.Clone(t.waiting) {
		e.setAside(w)
	}
	for _, c := range slices.Clone(t.reserving) {
		e.unpark(c)
	}
}

// completeClaims admits those whose room is there by now, on any flavor.
func (e *Engine) completeClaims(t *tree) {
	if !t.touched {
		return
	}
	t.touched = false
	for _, w := range slices.Clone(t.waiting) {
		if w.claim == nil || e.unready > 0 {
			continue
		}
		kept := w.claimed
		e.liftClaim(w, false)
		a := e.newAssignment()
		a.reset(w, kept.shape)
		copy(a.counts, kept.counts)
		e.scratch.fitOnly = true
		e.evals++
		e.attempt(a)
		e.scratch.fitOnly = false
		if a.mode == fit && len(a.victims) == 0 || e.asClaimed(a, kept) {
			a.partial = kept.partial
			e.restoreClaim(w)
			e.unclaim(w, !slices.Equal(kept.usage, a.usage))
			w.struck = e.decision
			e.admit(a)
		} else {
			e.restoreClaim(w)
		}
		e.recycle(a)
	}
}

// asClaimed assigns what the workload waited for, if all of it is there.
func (e *Engine) asClaimed(a, kept *assignment) bool {
	a.reset(kept.w, kept.shape)
	copy(a.counts, kept.counts)
	a.usage = append(a.usage, kept.usage...)
	for _, fl := range kept.flavors {
		a.flavors = append(a.flavors, slices.Clone(fl))
	}
	for _, u := range a.usage {
		level, _ := kept.w.queue.node.borrowLevel(u.fr, u.v, now)
		a.borrow = max(a.borrow, level)
	}
	return a.fits(now) && a.fits(future) && (e.opts.Placer == nil || e.tryPlace(a))
}

func (e *Engine) restoreClaim(w *workload) {
	for _, u := range w.claim {
		w.queue.node.add(u.fr, u.v, future)
	}
	if e.opts.Placer != nil {
		e.opts.Placer.Hold(w.spec.Key, w.claimed.placed)
	}
}

// reserve keeps the blocked head of a StrictFIFO queue from being overtaken:
// what it could use of its own quota is not lent out meanwhile. A queue that can
// always take its quota back needs no such protection.
func (e *Engine) reserve(c *class, a *assignment) {
	q := c.queue
	for _, o := range slices.Clone(q.node.root.tree.reserving) {
		if o.queue == q { // another was first in line before
			e.unreserve(o)
			e.settleReserve(o)
		}
	}
	if a.reserves() {
		for _, u := range a.usage {
			cl := &q.node.cells[u.fr]
			v := min(u.v, cl.nominal-cl.use[future])
			if a.borrow > 0 {
				v = u.v
				if cl.borrow != noLimit {
					v = min(v, cl.nominal+cl.borrow-cl.use[future])
				}
			}
			if v > 0 {
				c.reserved = append(c.reserved, amount{u.fr, v})
				q.node.add(u.fr, v, future)
				q.node.root.tree.rebalance(q, u.fr)
			}
		}
	}
	if len(c.reserved) > 0 {
		t := q.node.root.tree
		t.reserving = append(t.reserving, c)
		t.version++
	}
	e.settleReserve(c)
}

// reserves says whether a refused workload keeps others from its quota. Where
// shares decide they protect the head well enough.
func (a *assignment) reserves() bool {
	q := a.w.queue
	return a.mode == noCandidates && !a.promising() && q.spec.StrictFIFO &&
		q.node.parent != nil && q.node.root.tree.policy == PolicyFIFO &&
		q.spec.Preemption.ReclaimWithinCohort != PreemptAny
}

// unreserve takes a reservation back while its class is looked at again.
func (e *Engine) unreserve(c *class) {
	if len(c.reserved) == 0 {
		return
	}
	t := c.queue.node.root.tree
	t.version++
	for _, u := range c.reserved {
		c.queue.node.add(u.fr, -u.v, future)
		t.rebalance(c.queue, u.fr)
	}
	c.lifted = append(c.lifted[:0], c.reserved...)
	c.reserved = c.reserved[:0]
	if i := slices.Index(t.reserving, c); i >= 0 {
		t.reserving = slices.Delete(t.reserving, i, i+1)
	}
}

// settleReserve tells others about reserved room that was given up.
func (e *Engine) settleReserve(c *class) {
	t := c.queue.node.root.tree
	for _, u := range c.lifted {
		i := slices.IndexFunc(c.reserved, func(r amount) bool { return r.fr == u.fr })
		if (i < 0 || c.reserved[i].v < u.v) && int(u.fr) < len(t.freed) {
			t.freed[u.fr], t.loose = true, true
			t.helps++
			e.enlist(t)
		}
	}
	c.lifted = c.lifted[:0]
}

// attemptOverClaims tries again without the claims it may take over.
func (e *Engine) attemptOverClaims(t *tree, a *assignment) {
	if len(t.waiting) == 0 || e.scratch.fitOnly {
		return
	}
	// Whether it borrows is known once it fits. Who does not may take over more.
	for _, borrows := range [...]bool{false, true} {
		if !borrows && a.mode > noFit && a.borrow > 0 {
			continue
		}
		drops := e.scratch.drops[:0]
		for _, p := range t.waiting {
			if p.aside == e.decision || !a.w.mayTake(p, borrows) {
				continue
			}
			if p.struck == e.decision {
				a.curbed = true
				continue
			}
			drops = append(drops, p)
		}
		e.scratch.drops = drops
		if len(drops) > 0 && e.attemptWithout(a, drops, borrows) {
			return
		}
	}
}

// attemptWithout tries with some claims out of the way, and keeps the result if it is better
// and, unless it may borrow, does not.
func (e *Engine) attemptWithout(a *assignment, drops []*workload, mayBorrow bool) bool {
	b := e.newAssignment()
	b.reset(a.w, a.shape)
	e.shiftClaims(drops, -1)
	e.attempt(b)
	if !b.promising() && a.shape.shrinks {
		e.attemptPartial(b)
	}
	e.shiftClaims(drops, 1)
	ok := b.promising() && (b.mode > a.mode || !a.promising() || a.partial && !b.partial)
	for _, p := range drops {
		ok = ok && (mayBorrow || b.borrow == 0 || a.w.mayTake(p, true))
	}
	if ok {
		b.drops = append(b.drops[:0], drops...)
		*a, *b = *b, *a
	} else {
		a.noteLater(b)
	}
	e.recycle(b)
	return ok
}

func (e *Engine) shiftClaims(ws []*workload, sign int64) {
	for _, p := range ws {
		for _, u := range p.claim {
			p.queue.node.add(u.fr, sign*u.v, future)
		}
		switch {
		case e.opts.Placer == nil:
		case sign < 0:
			e.opts.Placer.Remove(p.spec.Key)
		default:
			e.opts.Placer.Hold(p.spec.Key, p.claimed.placed)
		}
	}
}

// mayTake says whether a workload may take the room p waits for. A claim is as
// good as an admission: only who could displace p may.
func (w *workload) mayTake(p *workload, borrows bool) bool {
	q := w.queue
	pol := &q.spec.Preemption
	if q == p.queue {
		return pol.WithinQueue.allows(w, p)
	}
	if q.node.root.tree.policy != PolicyFIFO || p.claimed.borrow == 0 || !pol.ReclaimWithinCohort.allows(w, p) {
		return false
	}
	return !borrows || pol.BorrowWithinCohort && p.spec.Priority < w.spec.Priority &&
		(pol.BorrowMaxPriority == nil || p.spec.Priority <= *pol.BorrowMaxPriority)
}

// allows says whether the policy lets w displace v.
func (p PreemptionPolicy) allows(w, v *workload) bool {
	switch p {
	case PreemptLowerPriority:
		return v.spec.Priority < w.spec.Priority
	case PreemptLowerOrNewerEqualPriority:
		return v.spec.Priority < w.spec.Priority || v.spec.Priority == w.spec.Priority && w.order < v.order
	case PreemptAny:
		return true
	}
	return false
}
