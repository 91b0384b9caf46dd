package admission

import "slices"

// A claim is room in the future tree for a workload that waits until others
// have left. Whoever comes later must leave it alone, unless its rights are
// better: then the claim is set aside and its holder looks again.

// nominate lets a workload wait for room that is being made.
func (e *Engine) nominate(a *assignment) {
	w := a.w
	if w.class != nil {
		e.leaveQueue(w)
	}
	e.setNomination(a)
	w.joinNominated()
	if w.reported != ReasonWaitingForPreemptedWorkloads {
		e.reportPending(w, ReasonWaitingForPreemptedWorkloads, e.message(a))
	}
}

// leaveQueue takes a workload out of line that is to wait with a claim.
func (e *Engine) leaveQueue(w *workload) {
	w.nomination = &assignment{key: w.class.key, shape: w.class.shape}
	e.dequeue(w)
	w.queue.pending++
}

// rejoinQueue puts it in line again, as there is nothing for it to claim.
func (e *Engine) rejoinQueue(w *workload) {
	w.nomination = nil
	w.queue.pending--
	e.enqueue(w)
	e.awaitNomination(w)
}

// joinNominated lists a workload among those who wait with a claim.
func (w *workload) joinNominated() {
	t := w.queue.node.root.tree
	i, _ := slices.BinarySearchFunc(t.nominated, w, queueOrder)
	t.nominated = slices.Insert(t.nominated, i, w)
	w.queue.nominated = append(w.queue.nominated, w)
}

// dropUnownedNominations gives claims up on room that others leave for nobody in particular.
func (e *Engine) dropUnownedNominations(t *tree) {
	for _, w := range slices.Clone(t.nominated) {
		if !w.hasVictims() {
			e.requeueNominated(w)
		}
	}
}

// setNomination notes the room that a workload waits for, and keeps it from others.
func (e *Engine) setNomination(a *assignment) {
	kept := *a
	kept.key = a.w.nomination.key
	kept.counts = slices.Clone(a.counts)
	kept.usage = slices.Clone(a.usage)
	kept.flavors = make([][]int32, len(a.shape.podSets))
	for i := range kept.flavors {
		kept.flavors[i] = slices.Clone(a.flavors[i])
	}
	kept.need, kept.misses, kept.victims, kept.avoid, kept.overrides, kept.picks, kept.reservation = nil, nil, nil, nil, nil, nil, nil
	a.w.nomination, a.w.nominatedUsage = &kept, kept.usage
	for _, u := range a.w.nominatedUsage {
		e.count(a.w.queue, u.fr, u.v, future)
	}
	if e.opts.Placer != nil {
		e.opts.Placer.Hold(a.w.spec.Key, a.placed)
	}
}

// removeNomination gives a claim up.
func (e *Engine) removeNomination(w *workload, forGood bool) {
	q := w.queue
	e.liftNomination(w, forGood)
	q.pending--
	t := q.node.root.tree
	t.nominated = without(t.nominated, w)
	q.nominated = without(q.nominated, w)
	w.nominatedUsage, w.nomination = nil, nil
	if q.spec.StrictFIFO {
		e.ready(q)
	}
	if t.policy != PolicyFIFO && len(q.nominated) == 0 {
		q.requeueAll(e) // the next may take from others now
	}
}

// liftNomination takes the claimed room out of the future, telling others if for good.
func (e *Engine) liftNomination(w *workload, tell bool) {
	for _, u := range w.nominatedUsage {
		if tell || e.relink {
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

// requeueNominated sends a claim's holder back in line.
func (e *Engine) requeueNominated(w *workload) {
	q := w.queue
	e.removeNomination(w, true)
	w.queue = q
	e.enqueue(w)
}

// overrideNomination takes a claim from its holder for another.
func (e *Engine) overrideNomination(w *workload) {
	w.overriddenIn = e.decision
	if w.nominatedUsage != nil {
		e.requeueNominated(w)
		e.reportPending(w, ReasonPending, "Another workload has taken over the room that was made for it")
		e.awaitNomination(w)
	}
}

// dropNominations gives all claims and reservations of a tree up, to be made again as things are by then.
func (t *tree) dropNominations(e *Engine) {
	for _, w := range slices.Clone(t.nominated) {
		e.requeueNominated(w)
		e.awaitNomination(w)
	}
	for _, c := range slices.Clone(t.reservations) {
		e.requeue(c)
	}
}

// admitNominated admits those whose room came free in this decision, on any flavor.
func (e *Engine) admitNominated(t *tree) {
	if !t.usageFreed || e.unready > 0 {
		return
	}
	t.usageFreed = false
	for _, w := range slices.Clone(t.nominated) {
		if e.unready == 0 {
			e.tryAdmitNominated(w)
		}
	}
}

// tryAdmitNominated admits a claim's holder if its room is there.
func (e *Engine) tryAdmitNominated(w *workload) {
	a := e.newAssignment()
	defer e.recycle(a)
	e.liftNomination(w, false)
	e.fitOnly(w, w.nomination.shape, a)
	e.restoreNomination(w)
	if a.mode == fit && a.admissible() {
		e.removeNomination(w, !slices.Equal(w.nominatedUsage, a.usage))
		w.preemptedIn = e.decision
		e.admit(a)
	}
}

// fitOnly is evaluate without displacing anyone, or taking over what others wait for.
func (e *Engine) fitOnly(w *workload, s *requestShape, a *assignment) {
	e.scratch.fitOnly = true
	e.evaluate(w, s, a)
	e.scratch.fitOnly = false
}

func (e *Engine) restoreNomination(w *workload) {
	for _, u := range w.nominatedUsage {
		w.queue.node.add(u.fr, u.v, future)
	}
	if e.opts.Placer != nil {
		e.opts.Placer.Hold(w.spec.Key, w.nomination.placed)
	}
}

// reserve keeps room from others while a refused workload waits: what it could use of its own quota for the blocked
// head of a StrictFIFO queue, so that it is not overtaken, and what is free of the room it will have for
// who is only too new in line to displace others.
func (e *Engine) reserve(c *equivClass, a *assignment) {
	q := c.queue
	t := q.node.root.tree
	if q.spec.StrictFIFO {
		for _, o := range slices.Clone(t.reservations) {
			if o.queue == q { // another was first in line before
				e.unreserve(o)
				e.announceUnreserved(o)
			}
		}
	}
	room := a.reservation
	if len(room) == 0 && a.reserves() {
		room = a.entitled()
	}
	for _, u := range room {
		c.reservation = append(c.reservation, u)
		q.node.add(u.fr, u.v, future)
		t.updateBorrowing(q, u.fr)
	}
	if len(c.reservation) > 0 {
		t.reservations = append(t.reservations, c)
		t.version++
	}
	e.announceUnreserved(c)
}

// reserves says whether a refused workload keeps others from its room. A queue that can
// always take its quota back needs no protection for its head; and where shares decide, they protect it well enough.
func (a *assignment) reserves() bool {
	q := a.w.queue
	return len(a.reservation) > 0 || a.mode == noCandidates && !a.admissible() && q.spec.StrictFIFO &&
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

// shiftReservations moves what is kept for those who are too new in line to displace others, or for blocked heads, out of the future, or
// back. It reports whether there was any.
func (t *tree) shiftReservations(sign int64, patient bool) bool {
	any := false
	for _, c := range t.reservations {
		if c.delayed == patient {
			any = true
			for _, u := range c.reservation {
				c.queue.node.add(u.fr, sign*u.v, future)
			}
		}
	}
	return any
}

// unreserve takes a reservation back while its class is looked at again.
func (e *Engine) unreserve(c *equivClass) {
	if len(c.reservation) == 0 {
		return
	}
	t := c.queue.node.root.tree
	t.version++
	for _, u := range c.reservation {
		c.queue.node.add(u.fr, -u.v, future)
		t.updateBorrowing(c.queue, u.fr)
	}
	c.liftedReservation = append(c.liftedReservation[:0], c.reservation...)
	c.reservation = c.reservation[:0]
	if i := slices.Index(t.reservations, c); i >= 0 {
		t.reservations = slices.Delete(t.reservations, i, i+1)
	}
}

// announceUnreserved tells others about reserved room that was given up.
func (e *Engine) announceUnreserved(c *equivClass) {
	t := c.queue.node.root.tree
	for _, u := range c.liftedReservation {
		i := slices.IndexFunc(c.reservation, func(r amount) bool { return r.fr == u.fr })
		if (i < 0 || c.reservation[i].v < u.v) && int(u.fr) < len(t.freed) {
			t.freed[u.fr], t.anyFreed = true, true
			t.improvements++
			e.enlist(t)
		}
	}
	c.liftedReservation = c.liftedReservation[:0]
}

// attemptOverNominations tries again without the claims it may take over.
func (e *Engine) attemptOverNominations(t *tree, a *assignment) {
	if len(t.nominated) == 0 || e.scratch.fitOnly {
		return
	}
	// Whether it borrows is known once it fits. Who does not may take over more.
	for _, borrows := range [...]bool{false, true} {
		if !borrows && a.mode > noFit && a.borrow > 0 {
			continue
		}
		drops := e.scratch.overrides[:0]
		for _, p := range t.nominated {
			if p.overriddenIn == e.decision || !a.w.mayOverride(p, borrows) {
				continue
			}
			if p.preemptedIn == e.decision {
				a.retryNext = true
				continue
			}
			drops = append(drops, p)
		}
		e.scratch.overrides = drops
		if len(drops) > 0 && e.attemptWithoutNominations(a, drops, borrows) {
			return
		}
	}
}

// attemptWithoutNominations tries with some claims out of the way, and keeps the result if it is better
// and, unless it may borrow, does not.
func (e *Engine) attemptWithoutNominations(a *assignment, drops []*workload, mayBorrow bool) bool {
	b := e.newAssignment()
	b.reset(a.w, a.shape)
	e.shiftNominations(drops, -1)
	e.attempt(b)
	if !b.admissible() && a.shape.shrinks {
		e.attemptPartial(b)
	}
	e.shiftNominations(drops, 1)
	ok := b.admissible() && (b.mode > a.mode || !a.admissible() || a.partial && !b.partial)
	for _, p := range drops {
		ok = ok && (mayBorrow || b.borrow == 0 || a.w.mayOverride(p, true))
	}
	if ok {
		b.overrides = append(b.overrides[:0], drops...)
		*a, *b = *b, *a
	} else {
		a.noteLater(b)
	}
	e.recycle(b)
	return ok
}

func (e *Engine) shiftNominations(ws []*workload, sign int64) {
	for _, p := range ws {
		for _, u := range p.nominatedUsage {
			p.queue.node.add(u.fr, sign*u.v, future)
		}
		switch {
		case e.opts.Placer == nil:
		case sign < 0:
			e.opts.Placer.Remove(p.spec.Key)
		default:
			e.opts.Placer.Hold(p.spec.Key, p.nomination.placed)
		}
	}
}

// mayOverride says whether a workload may take the room p waits for. A claim is as
// good as an admission: only who could displace p may.
func (w *workload) mayOverride(p *workload, borrows bool) bool {
	q := w.queue
	pol := &q.spec.Preemption
	if q == p.queue {
		return pol.WithinQueue.allows(w, p)
	}
	if q.node.root.tree.policy != PolicyFIFO || p.nomination.borrow == 0 || !pol.ReclaimWithinCohort.allows(w, p) {
		return false
	}
	return !borrows || pol.BorrowWithinCohort && p.spec.Priority < w.spec.Priority &&
		(pol.BorrowMaxPriority == nil || p.spec.Priority <= *pol.BorrowMaxPriority)
}

// allows says whether the policy lets w displace v.
func (p PreemptionPolicy) allows(w, v *workload) bool {
	equal := w.spec.Priority == v.spec.Priority && p == PreemptLowerOrNewerEqualPriority
	return p.covers(w.spec.Priority, v.spec.Priority) && (!equal || w.order < v.order)
}

// covers is allows as far as priorities tell.
func (p PreemptionPolicy) covers(priority, victim int64) bool {
	switch p {
	case PreemptLowerPriority:
		return victim < priority
	case PreemptLowerOrNewerEqualPriority:
		return victim <= priority
	}
	return p == PreemptAny
}
