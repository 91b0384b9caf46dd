package admission

import (
	"slices"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// A reservation is quota that is counted in the future for a workload that was refused, so that
// others leave it alone. There are two kinds: what a blocked StrictFIFO head could use of its
// quota, so that it is not overtaken; and what is free of the quota a workload will get by
// preempting others once its preemption delay, or their minimum runtime, has passed: whoever took
// it meanwhile would only be preempted again. Reservations are made anew in each decision.

// reservationKind tells the two apart.
type reservationKind uint8

const (
	ofHeads reservationKind = iota
	ofDelayed
)

func (c *equivClass) reservationKind() reservationKind {
	if c.refused.by(rulesOfTime) {
		return ofDelayed
	}
	return ofHeads
}

// liftReservations takes reservations of a kind out of the future (in a what-if). It reports whether there are any.
func (e *Engine) liftReservations(t *tree, kind reservationKind) bool {
	found := false
	for _, c := range t.reservations {
		if c.reservationKind() == kind {
			found = true
			e.tx.Sub(c.queue.node, c.reservation, quota.Future)
		}
	}
	return found
}

// liftReservation takes a class's own reservation out of the future (in a what-if), so that nothing lifts it twice, and
// returns how to put it back.
func (e *Engine) liftReservation(c *equivClass) (restore func()) {
	mark, own := e.tx.Checkpoint(), c.reservation
	e.tx.Sub(c.queue.node, own, quota.Future)
	c.reservation = nil
	return func() {
		e.tx.Rollback(mark)
		c.reservation = own
	}
}

// restoreReservations counts lifted ones again (in a what-if).
func (e *Engine) restoreReservations(t *tree, kind reservationKind) {
	for _, c := range t.reservations {
		if c.reservationKind() == kind {
			e.tx.Add(c.queue.node, c.reservation, quota.Future)
		}
	}
}

// fitsBesideReservations: with the victims gone the preemptor fits beside what is reserved for delayed workloads.
func (e *Engine) fitsBesideReservations(t *tree, q *queue, usage []quota.Amount, victims []victim) bool {
	delayed := func(c *equivClass) bool { return c.reservationKind() == ofDelayed }
	if len(victims) == 0 || !slices.ContainsFunc(t.reservations, delayed) {
		return true
	}
	mark := e.tx.Checkpoint()
	defer e.tx.Rollback(mark)
	e.discount(victims)
	return !slices.ContainsFunc(usage, func(u quota.Amount) bool { return !q.node.Fits(u.FR, u.V, quota.Future) })
}

// reserveAhead asks what a workload will do once its preemption delay has passed. If it will get
// in, it reserves what is free of its quota.
func (e *Engine) reserveAhead(a *assignment) {
	if !a.mayReserveAhead() {
		return
	}
	b := e.newAssignment()
	defer e.recycle(b)
	e.evaluate(a.w, a.shape, b, afterDelay)
	if b.refused.by(ruleThisDecision) {
		a.refused.add(ruleThisDecision)
	}
	if len(b.victims) == 0 || len(b.overrides) > 0 {
		return
	}
	a.borrow, a.usage = b.borrow, append(a.usage[:0], b.usage...)
	a.reserveFree(b.refused.by(ruleYields))
}

// mayReserveAhead says whether there may be something to reserve.
func (a *assignment) mayReserveAhead() bool {
	q := a.w.queue
	return q.choice || q.spec.StrictFIFO || slices.ContainsFunc(a.usage, func(u quota.Amount) bool { return q.node.Available(u.FR, quota.Future) > 0 })
}

// reserveFree notes what is free of the quota the workload will have; of nominal quota only, if it yields to others.
func (a *assignment) reserveFree(nominalOnly bool) {
	n := a.w.queue.node
	for _, u := range a.usage {
		v := min(u.V, n.Available(u.FR, quota.Future))
		if nominalOnly {
			v = min(v, n.Cells[u.FR].Unused())
		}
		if v > 0 {
			a.reservation = append(a.reservation, quota.Amount{FR: u.FR, V: v})
		}
	}
}

// canReserve says whether what the workload needs can be reserved. Where there is a choice of
// flavors, what it reserves may not be what it takes in the end, and nodes are not reserved at all.
func (a *assignment) canReserve() bool { return !a.w.queue.choice && !a.lacksNodes }

// reserves says whether a refused workload gets a reservation. The head of a queue that can always
// reclaim its quota needs none, and where shares decide, they protect it well enough.
func (a *assignment) reserves() bool {
	q := a.w.queue
	return len(a.reservation) > 0 || a.mode == noCandidates && !a.admissible() && q.spec.StrictFIFO && !a.w.spec.Extra &&
		q.node.Parent != nil && q.tree.policy == PolicyFIFO &&
		q.spec.Preemption.ReclaimWithinCohort != PreemptAny
}

// entitled is what a blocked head could use of its queue's quota or, if it has to borrow, within its limit.
func (a *assignment) entitled() []quota.Amount {
	var list []quota.Amount
	for _, u := range a.usage {
		cl := &a.w.queue.node.Cells[u.FR]
		v := min(u.V, cl.Unused())
		if a.borrow > 0 {
			v = u.V
			if cl.BorrowingLimit != quota.NoLimit {
				v = min(v, cl.Nominal+cl.BorrowingLimit-cl.Use[quota.Future])
			}
		}
		if v > 0 {
			list = append(list, quota.Amount{FR: u.FR, V: v})
		}
	}
	return list
}

// reserve makes a refused class's reservation.
func (e *Engine) reserve(c *equivClass, a *assignment) {
	q := c.queue
	t := q.tree
	if q.spec.StrictFIFO {
		for _, o := range slices.Clone(t.reservations) {
			if o.queue == q { // another was the head before
				e.unreserve(o)
				e.announceUnreserved(o)
			}
		}
	}
	amounts := a.reservation
	if len(amounts) == 0 && a.reserves() {
		amounts = a.entitled()
	}
	for _, u := range amounts {
		c.reservation = append(c.reservation, u)
		q.node.Add(u.FR, u.V, quota.Future)
		t.updateBorrowing(q, u.FR)
	}
	if len(c.reservation) > 0 {
		t.reservations = append(t.reservations, c)
		t.version++
	}
	e.announceUnreserved(c)
}

// unreserve takes a class's reservation back while it is looked at again.
func (e *Engine) unreserve(c *equivClass) {
	if len(c.reservation) == 0 {
		return
	}
	t := c.queue.tree
	t.version++
	for _, u := range c.reservation {
		c.queue.node.Add(u.FR, -u.V, quota.Future)
		t.updateBorrowing(c.queue, u.FR)
	}
	c.liftedReservation = append(c.liftedReservation[:0], c.reservation...)
	c.reservation = c.reservation[:0]
	if i := slices.Index(t.reservations, c); i >= 0 {
		t.reservations = slices.Delete(t.reservations, i, i+1)
	}
}

// announceUnreserved gives others a hint of quota that was reserved before and is not any more.
func (e *Engine) announceUnreserved(c *equivClass) {
	for _, u := range c.liftedReservation {
		if quota.AmountOf(c.reservation, u.FR) < u.V {
			e.hintFreed(c.queue.tree, u.FR)
		}
	}
	c.liftedReservation = c.liftedReservation[:0]
}
