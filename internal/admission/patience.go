package admission

import (
	"slices"
	"time"
)

// Who has not waited long enough displaces nobody who runs, and who has only just started is not displaced. Whoever will get in by
// displacing others keeps meanwhile what is free of that room.

// mayDisplaceFrom is when a workload has waited long enough to displace others.
func (w *workload) mayDisplaceFrom(e *Engine) time.Time {
	if e.opts.PreemptionDelay <= 0 {
		return time.Time{}
	}
	since := w.spec.Created
	if w.spec.EvictedAt.After(since) {
		since = w.spec.EvictedAt
	}
	return since.Add(e.opts.PreemptionDelay)
}

// spared is until when those who would be displaced are left alone as they have only just started: many end by
// themselves in that time, and the workload keeps the room they leave. Where it cannot, it does not wait for them forever.
func (e *Engine) spared(a *assignment, victims []victim) time.Time {
	var until time.Time
	if e.opts.PreemptionDelay <= 0 {
		return until
	}
	for _, v := range victims {
		if at := e.ripensAt(v.w); v.w.admitted != e.decision && at.After(until) {
			until = at
		}
	}
	if last := a.w.sparesUntil(e); !a.canKeep() && until.After(last) {
		return last
	}
	return until
}

// ripensAt is from when a holder is not spared any more.
func (e *Engine) ripensAt(w *workload) time.Time {
	return time.Unix(0, w.reserved).Add(e.opts.PreemptionDelay + timeGrain)
}

// sparesUntil is how long a workload spares others where it cannot keep the room that they leave.
func (w *workload) sparesUntil(e *Engine) time.Time {
	return w.mayDisplaceFrom(e).Add(longestGrace * e.opts.PreemptionDelay)
}

// canKeep: what it needs can be kept. Where there is a choice of flavors, what it keeps may not be what it takes in the end, and nodes are
// not kept at all.
func (a *assignment) canKeep() bool { return !a.w.queue.choice && !a.homeless }

const (
	// longestGrace is how many times PreemptionDelay a workload spares those who have only just started.
	longestGrace = 8
	// timeGrain is how much later than it says something may have happened: the API keeps whole seconds.
	timeGrain = time.Second
)

// bePatient notes that more can be displaced from a time on.
func (a *assignment) bePatient(until time.Time) {
	if !a.patient || until.Before(a.until) {
		a.until = until
	}
	a.patient = true
}

// lookAhead asks what a workload that is too new in line to displace others will do when it is not. If it will get in,
// it keeps what is free of that room: who took it meanwhile would only be displaced again.
func (e *Engine) lookAhead(a *assignment) {
	q := a.w.queue
	free := func(u amount) bool { return q.node.available(u.fr, future) > 0 }
	if !q.choice && !q.spec.StrictFIFO && !slices.ContainsFunc(a.usage, free) {
		return // nothing to keep
	}
	b := e.newAssignment()
	defer e.recycle(b)
	e.evaluateLater(a.w, a.shape, b)
	a.curbed = a.curbed || b.curbed
	if len(b.victims) == 0 || len(b.drops) > 0 {
		return
	}
	a.borrow, a.usage = b.borrow, append(a.usage[:0], b.usage...)
	a.keep(b.withdrawn)
}

// keep notes what is free of the room it will have; of its queue's own quota only, if it steps back for others.
func (a *assignment) keep(own bool) {
	n := a.w.queue.node
	for _, u := range a.usage {
		v := min(u.v, n.available(u.fr, future))
		if own {
			v = min(v, n.cells[u.fr].unused())
		}
		if v > 0 {
			a.kept = append(a.kept, amount{u.fr, v})
		}
	}
}

// evaluateLater is evaluate as if the workload had waited long enough to displace others.
func (e *Engine) evaluateLater(w *workload, s *shape, a *assignment) {
	patience := e.opts.PreemptionDelay
	e.opts.PreemptionDelay = 0
	e.evaluate(w, s, a)
	e.opts.PreemptionDelay = patience
}

// roomBesides: with the victims gone there is room next to what is kept for those who are too new in line.
func (e *Engine) roomBesides(t *tree, q *queue, usage []amount, victims []victim) bool {
	if len(victims) == 0 || !slices.ContainsFunc(t.reserving, func(c *class) bool { return c.patient }) {
		return true
	}
	e.shiftAll(victims, -1)
	ok := !slices.ContainsFunc(usage, func(u amount) bool { return !q.node.fits(u.fr, u.v, future) })
	e.shiftAll(victims, 1)
	return ok
}

// awaitRipe sets a timer for when the next holder of a tree is not spared any more, if somebody waits for that.
func (e *Engine) awaitRipe(t *tree) {
	if !t.unripe || t.ripensAt.After(e.at) {
		return
	}
	t.ripensAt = e.nextRipe(t, e.at)
	if t.unripe = !t.ripensAt.IsZero(); t.unripe {
		e.timers.push(timer{at: t.ripensAt, t: t})
	}
}

// nextRipe is when the first holder of a tree is not spared any more, after a time; zero: never.
func (e *Engine) nextRipe(t *tree, after time.Time) time.Time {
	var next time.Time
	for _, q := range t.queues {
		for _, w := range q.holders {
			if at := e.ripensAt(w); !w.leaving && at.After(after) && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	return next
}

// ripen lets those look again who spare others, unless whom they waited for is gone.
func (e *Engine) ripen(t *tree) {
	ripe := e.nextRipe(t, t.ripensAt.Add(-1))
	t.ripensAt = time.Time{}
	if ripe.IsZero() || ripe.After(e.at) {
		e.awaitRipe(t)
		return
	}
	t.unripe, t.loose = false, true
	for fr := range t.freed {
		t.freed[fr] = true
	}
	t.helps++
	e.enlist(t)
}
