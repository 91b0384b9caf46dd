package admission

import (
	"slices"
	"time"
)

// Who has not waited long enough displaces nobody who runs, and who has only just started is not displaced. Whoever will get in by
// displacing others keeps meanwhile what is free of that room.

// preemptsFrom is when a workload has waited long enough to displace others.
func (w *workload) preemptsFrom(e *Engine) time.Time {
	if e.opts.PreemptionDelay <= 0 {
		return time.Time{}
	}
	since := w.spec.Created
	if w.spec.EvictedAt.After(since) {
		since = w.spec.EvictedAt
	}
	return since.Add(e.opts.PreemptionDelay)
}

// minRuntimeUntil is until when those who would be displaced are left alone as they have only just started: many end by
// themselves in that time, and the workload keeps the room they leave. Where it cannot, it does not wait for them forever.
func (e *Engine) minRuntimeUntil(a *assignment, victims []victim) time.Time {
	var until time.Time
	if e.opts.PreemptionDelay <= 0 {
		return until
	}
	for _, v := range victims {
		if at := e.minRuntimeEnds(v.w); v.w.admitted != e.decision && at.After(until) {
			until = at
		}
	}
	if last := a.w.minRuntimeBinds(e); !a.canReserve() && until.After(last) {
		return last
	}
	return until
}

// minRuntimeEnds is from when a holder is not spared any more.
func (e *Engine) minRuntimeEnds(w *workload) time.Time {
	return time.Unix(0, w.reservedAt).Add(e.opts.PreemptionDelay + timeGrain)
}

// minRuntimeBinds is how long a workload spares others where it cannot keep the room that they leave.
func (w *workload) minRuntimeBinds(e *Engine) time.Time {
	return w.preemptsFrom(e).Add(minRuntimeFactor * e.opts.PreemptionDelay)
}

// canReserve: what it needs can be kept. Where there is a choice of flavors, what it keeps may not be what it takes in the end, and nodes are
// not kept at all.
func (a *assignment) canReserve() bool { return !a.w.queue.choice && !a.lacksNodes }

const (
	// longestGrace is how many times PreemptionDelay a workload spares those who have only just started.
	minRuntimeFactor = 8
	// timeGrain is how much later than it says something may have happened: the API keeps whole seconds.
	timeGrain = time.Second
)

// delayUntil notes that more can be displaced from a time on.
func (a *assignment) delayUntil(until time.Time) {
	if !a.delayed || until.Before(a.until) {
		a.until = until
	}
	a.delayed = true
}

// reserveAhead asks what a workload that is too new in line to displace others will do when it is not. If it will get in,
// it keeps what is free of that room: who took it meanwhile would only be displaced again.
func (e *Engine) reserveAhead(a *assignment) {
	q := a.w.queue
	free := func(u amount) bool { return q.node.available(u.fr, future) > 0 }
	if !q.choice && !q.spec.StrictFIFO && !slices.ContainsFunc(a.usage, free) {
		return // nothing to keep
	}
	b := e.newAssignment()
	defer e.recycle(b)
	e.evaluateAfterDelay(a.w, a.shape, b)
	a.retryNext = a.retryNext || b.retryNext
	if len(b.victims) == 0 || len(b.overrides) > 0 {
		return
	}
	a.borrow, a.usage = b.borrow, append(a.usage[:0], b.usage...)
	a.reserveFree(b.yields)
}

// reserveFree notes what is free of the room it will have; of its queue's own quota only, if it steps back for others.
func (a *assignment) reserveFree(own bool) {
	n := a.w.queue.node
	for _, u := range a.usage {
		v := min(u.v, n.available(u.fr, future))
		if own {
			v = min(v, n.cells[u.fr].unused())
		}
		if v > 0 {
			a.reservation = append(a.reservation, amount{u.fr, v})
		}
	}
}

// evaluateAfterDelay is evaluate as if the workload had waited long enough to displace others.
func (e *Engine) evaluateAfterDelay(w *workload, s *requestShape, a *assignment) {
	patience := e.opts.PreemptionDelay
	e.opts.PreemptionDelay = 0
	e.evaluate(w, s, a)
	e.opts.PreemptionDelay = patience
}

// fitsBesideReservations: with the victims gone there is room next to what is kept for those who are too new in line.
func (e *Engine) fitsBesideReservations(t *tree, q *queue, usage []amount, victims []victim) bool {
	if len(victims) == 0 || !slices.ContainsFunc(t.reservations, func(c *equivClass) bool { return c.delayed }) {
		return true
	}
	e.shiftAll(victims, -1)
	ok := !slices.ContainsFunc(usage, func(u amount) bool { return !q.node.fits(u.fr, u.v, future) })
	e.shiftAll(victims, 1)
	return ok
}

// setMinRuntimeTimer sets a timer for when the next holder of a tree is not spared any more, if somebody waits for that.
func (e *Engine) setMinRuntimeTimer(t *tree) {
	if !t.awaitsMinRuntime || t.minRuntimeAt.After(e.at) {
		return
	}
	t.minRuntimeAt = e.nextMinRuntimeEnd(t, e.at)
	if t.awaitsMinRuntime = !t.minRuntimeAt.IsZero(); t.awaitsMinRuntime {
		e.timers.push(timer{at: t.minRuntimeAt, t: t})
	}
}

// nextMinRuntimeEnd is when the first holder of a tree is not spared any more, after a time; zero: never.
func (e *Engine) nextMinRuntimeEnd(t *tree, after time.Time) time.Time {
	var next time.Time
	for _, q := range t.queues {
		for _, w := range q.quotaReserved {
			if at := e.minRuntimeEnds(w); !w.evicting && at.After(after) && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	return next
}

// minRuntimeEnded lets those look again who spare others, unless whom they waited for is gone.
func (e *Engine) minRuntimeEnded(t *tree) {
	ripe := e.nextMinRuntimeEnd(t, t.minRuntimeAt.Add(-1))
	t.minRuntimeAt = time.Time{}
	if ripe.IsZero() || ripe.After(e.at) {
		e.setMinRuntimeTimer(t)
		return
	}
	t.awaitsMinRuntime, t.anyFreed = false, true
	for fr := range t.freed {
		t.freed[fr] = true
	}
	t.improvements++
	e.enlist(t)
}
