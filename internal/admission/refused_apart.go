package admission

import "time"

// Budgets and advance reservations refuse workloads apart from how much quota is free. Such a class does not block a
// StrictFIFO queue: others there may have other budgets, or be over before a reservation begins, and periods are long. It
// is looked at again at a time that is known, or when something else changes that may help it.

// refuseApart makes an assignment one that such a rule refuses until a time.
func (a *assignment) refuseApart(reason Reason, rule rules, until time.Time) {
	a.mode, a.reason = noFit, reason
	a.misses, a.victims, a.overrides, a.reservation = a.misses[:0], a.victims[:0], a.overrides[:0], a.reservation[:0]
	a.failed, a.placed, a.lacksReservedOnly = nil, nil, false
	a.refused = refusal{rules: rule, until: until}
}

// setApart makes a class inadmissible for such a rule.
func (e *Engine) setApart(a *assignment) {
	c := a.w.class
	q := c.queue
	v := verdict{reason: a.reason, message: c.verdict.message}
	if c.reported != v.reason || len(c.unreported) > 0 {
		v.message = e.message(a)
	}
	e.setInadmissible(c, v)
	if c.pos >= 0 {
		q.active.Remove(c.pos)
	}
	q.removeWaits(c)
	e.unwatch(c)
	e.unreserve(c)
	e.announceUnreserved(c)
	c.refused, c.canReserve = a.refused, false
	c.refusedAt, c.refusedUsage = q.tree.improvements, q.tree.usageChanges
	c.retryAt = time.Time{}
	e.noteApart(c, a)
	if a.aside != nil && len(a.aside.spec.Nodes) > 0 { // there may be others
		for _, f := range q.flavors() {
			e.flavors[f].awaitNodes(c)
		}
	}
	if q.spec.StrictFIFO {
		if len(q.active) > 0 {
			e.requeue(q.active[0]) // it is the head now, and may reserve in turn
		}
		e.ready(q)
	}
}

// noteApart has a class looked at again for the sake of such rules; also one that lacks quota in some flavors, where
// they refuse others.
func (e *Engine) noteApart(c *equivClass, a *assignment) {
	if a.over != nil {
		e.retryApart(c, ruleBudget, a.over.until)
	}
	if a.aside != nil {
		e.retryApart(c, ruleAdvance, a.aside.spec.Until)
	}
}

func (e *Engine) retryApart(c *equivClass, rule rules, until time.Time) {
	c.refused.add(rule)
	if !c.apart {
		c.apart = true
		e.apart = append(e.apart, c)
	}
	if c.retryAt.IsZero() || until.Before(c.retryAt) {
		c.retryAt = until
		e.setTimer(c.retryAt, c.members[0])
	}
}

// reviewApart looks again at classes that such a rule refused, if something changed that may help them, and at heads of
// StrictFIFO queues: one that is refused so by now does not block its queue any more.
func (e *Engine) reviewApart() {
	if !e.refusesApart() && len(e.apart) == 0 {
		e.budgetFreed, e.advanceChanged = false, false
		return
	}
	for _, q := range e.queues { // each queue on its own; the order does not matter
		if q.spec.StrictFIFO && len(q.active) > 0 {
			e.requeue(q.active[0])
		}
	}
	e.retryReserved()
	left := e.apart[:0]
	for _, c := range e.apart {
		listed := len(c.members) > 0 && c.inadmissible && c.refused.by(rulesApart)
		if c.apart = listed && !e.helpsApart(c); c.apart {
			left = append(left, c)
		} else if listed {
			e.requeue(c)
		}
	}
	clear(e.apart[len(left):])
	e.apart, e.budgetFreed, e.advanceChanged = left, false, false
}

// refusesApart says that there are such rules: a workload that fits may still be refused.
func (e *Engine) refusesApart() bool { return e.budgeted.any() || len(e.advance) > 0 }

// helpsApart says that something changed which may help a class. Of one that lacks nodes that is not known; and if others
// took the reserved ones meanwhile, it blocks its queue as any other that lacks nodes.
func (e *Engine) helpsApart(c *equivClass) bool {
	return c.refused.by(ruleBudget) && e.budgetFreed ||
		c.refused.by(ruleAdvance) && (e.advanceChanged || len(c.awaits) > 0 || c.improved(c.queue.tree))
}
