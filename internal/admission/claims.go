package admission

import "slices"

// A claim is room in the future tree for a workload that waits until others
// have left. Whoever comes later must leave it alone, unless its rights are
// better: then the claim is set aside and its holder looks again.

// claim lets a workload wait for room that is being made.
func (e *Engine) claim(a *assignment) {
	w := a.w
	if w.class != nil {
		e.leaveLine(w)
	}
	e.setClaim(a)
	w.wait()
	if w.told != ReasonWaitingForPreemptedWorkloads {
		e.park(w, ReasonWaitingForPreemptedWorkloads, e.message(a))
	}
}

// leaveLine takes a workload out of line that is to wait with a claim.
func (e *Engine) leaveLine(w *workload) {
	w.claimed = &assignment{key: w.class.key, shape: w.class.shape}
	e.dequeue(w)
	w.queue.pending++
}

// stepIn puts it in line again, as there is nothing for it to claim.
func (e *Engine) stepIn(w *workload) {
	w.claimed = nil
	w.queue.pending--
	e.enqueue(w)
	e.inherit(w)
}

// wait lists a workload among those who wait with a claim.
func (w *workload) wait() {
	t := w.queue.node.root.tree
	i, _ := slices.BinarySearchFunc(t.waiting, w, turn)
	t.waiting = slices.Insert(t.waiting, i, w)
	w.queue.claims = append(w.queue.claims, w)
}

// dropPassing gives claims up on room that others leave for nobody in particular.
func (e *Engine) dropPassing(t *tree) {
	for _, w := range slices.Clone(t.waiting) {
		if !w.displaced() {
			e.backInLine(w)
		}
	}
}

// setClaim notes the room that a workload waits for, and keeps it from others.
func (e *Engine) setClaim(a *assignment) {
	kept := *a
	kept.key = a.w.claimed.key
	kept.counts = slices.Clone(a.counts)
	kept.usage = slices.Clone(a.usage)
	kept.flavors = make([][]int32, len(a.shape.podSets))
	for i := range kept.flavors {
		kept.flavors[i] = slices.Clone(a.flavors[i])
	}
	kept.need, kept.misses, kept.victims, kept.avoid, kept.drops, kept.picks, kept.kept = nil, nil, nil, nil, nil, nil, nil
	a.w.claimed, a.w.claim = &kept, kept.usage
	for _, u := range a.w.claim {
		e.count(a.w.queue, u.fr, u.v, future)
	}
	if e.opts.Placer != nil {
		e.opts.Placer.Hold(a.w.spec.Key, a.placed)
	}
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

// backInLine sends a claim's holder back in line.
func (e *Engine) backInLine(w *workload) {
	q := w.queue
	e.unclaim(w, true)
	w.queue = q
	e.enqueue(w)
}

// setAside takes a claim from its holder for another.
func (e *Engine) setAside(w *workload) {
	w.aside = e.decision
	if w.claim != nil {
		e.backInLine(w)
		e.park(w, ReasonPending, "Another workload has taken over the room that was made for it")
		e.inherit(w)
	}
}

// dropClaims gives all claims and reservations of a tree up, to be made again as things are by then.
func (t *tree) dropClaims(e *Engine) {
	for _, w := range slices.Clone(t.waiting) {
		e.backInLine(w)
		e.inherit(w)
	}
	for _, c := range slices.Clone(t.reserving) {
		e.unpark(c)
	}
}

// completeClaims admits those whose room came free in this decision, on any flavor.
func (e *Engine) completeClaims(t *tree) {
	if !t.touched || e.unready > 0 {
		return
	}
	t.touched = false
	for _, w := range slices.Clone(t.waiting) {
		if e.unready == 0 {
			e.complete(w)
		}
	}
}

// complete admits a claim's holder if its room is there.
func (e *Engine) complete(w *workload) {
	a := e.newAssignment()
	defer e.recycle(a)
	e.liftClaim(w, false)
	e.fitOnly(w, w.claimed.shape, a)
	e.putClaim(w)
	if a.mode == fit && a.promising() {
		e.unclaim(w, !slices.Equal(w.claim, a.usage))
		w.struck = e.decision
		e.admit(a)
	}
}

// fitOnly is evaluate without displacing anyone, or taking over what others wait for.
func (e *Engine) fitOnly(w *workload, s *shape, a *assignment) {
	e.scratch.fitOnly = true
	e.evaluate(w, s, a)
	e.scratch.fitOnly = false
}

func (e *Engine) putClaim(w *workload) {
	for _, u := range w.claim {
		w.queue.node.add(u.fr, u.v, future)
	}
	if e.opts.Placer != nil {
		e.opts.Placer.Hold(w.spec.Key, w.claimed.placed)
	}
}

// reserve keeps room from others while a refused workload waits: what it could use of its own quota for the blocked
// head of a StrictFIFO queue, so that it is not overtaken, and what is free of the room it will have for
// who is only too new in line to displace others.
func (e *Engine) reserve(c *class, a *assignment) {
	q := c.queue
	t := q.node.root.tree
	if q.spec.StrictFIFO {
		for _, o := range slices.Clone(t.reserving) {
			if o.queue == q { // another was first in line before
				e.unreserve(o)
				e.settleReserve(o)
			}
		}
	}
	room := a.kept
	if len(room) == 0 && a.reserves() {
		room = a.entitled()
	}
	for _, u := range room {
		c.reserved = append(c.reserved, u)
		q.node.add(u.fr, u.v, future)
		t.rebalance(q, u.fr)
	}
	if len(c.reserved) > 0 {
		t.reserving = append(t.reserving, c)
		t.version++
	}
	e.settleReserve(c)
}

// reserves says whether a refused workload keeps others from its room. A queue that can
// always take its quota back needs no protection for its head; and where shares decide, they protect it well enough.
func (a *assignment) reserves() bool {
	q := a.w.queue
	return len(a.kept) > 0 || a.mode == noCandidates && !a.promising() && q.spec.StrictFIFO &&
		q.node.parent != nil && q.node.root.tree.policy == PolicyFIFO &&
		q.spec.Preemption.ReclaimWithinCohort != PreemptAny
}

// entitled is what a blocked head could use of its queue's quota, or, if it has to borrow, within its limit.
func (a *assignment) entitled() []amount {
	var room []amount
	for _, u := range a.usage {
		cl := &a.w.queue.node.cells[u.fr]
		v := min(u.v, cl.unused())
		if a.borrow > 0 {
			v = u.v
			if cl.borrow != noLimit {
				v = min(v, cl.nominal+cl.borrow-cl.use[future])
			}
		}
		if v > 0 {
			room = append(room, amount{u.fr, v})
		}
	}
	return room
}

// shiftKept moves what is kept for those who are too new in line to displace others, or for blocked heads, out of the future, or
// back. It reports whether there was any.
func (t *tree) shiftKept(sign int64, patient bool) bool {
	any := false
	for _, c := range t.reserving {
		if c.patient == patient {
			any = true
			for _, u := range c.reserved {
				c.queue.node.add(u.fr, sign*u.v, future)
			}
		}
	}
	return any
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
	equal := w.spec.Priority == v.spec.Priority && p == PreemptLowerOrNewerEqualPriority
	return p.reaches(w.spec.Priority, v.spec.Priority) && (!equal || w.order < v.order)
}

// reaches is allows as far as priorities tell.
func (p PreemptionPolicy) reaches(priority, victim int64) bool {
	switch p {
	case PreemptLowerPriority:
		return victim < priority
	case PreemptLowerOrNewerEqualPriority:
		return victim <= priority
	}
	return p == PreemptAny
}
