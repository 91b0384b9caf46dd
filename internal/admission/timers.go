package admission

import "time"

// timer looks again at a time: at a workload whose backoff, run time or refusal ends, at a tree
// in which a minimum runtime ends, or at a flavor whose nodes may be had again.
type timer struct {
	at time.Time
	w  *workload
	t  *tree
	f  *flavor
}

func (e *Engine) setTimer(at time.Time, w *workload) {
	if at.IsZero() || w.timer.Equal(at) {
		return
	}
	w.timer = at
	e.timers.Push(timer{at: at, w: w})
}

// due is when the timer is to go off as things stand; zero: it is void.
func (t timer) due() time.Time {
	switch {
	case t.w != nil:
		return t.w.due()
	case t.t != nil:
		return t.t.minRuntimeAt
	case t.f.price != nil:
		return t.f.price.ClosedUntil
	}
	return time.Time{}
}

// Before orders timers by time.
func (t timer) Before(o timer) bool { return t.at.Before(o.at) }

// SetPos does nothing: timers that are void stay until their time.
func (t timer) SetPos(int) {}

// due says what a timer of w waits for, zero when it is void by now.
func (w *workload) due() time.Time {
	switch {
	case w.phase == phaseGone:
		return time.Time{}
	case w.phase == phaseReserved && w.spec.MaxRunTime > 0 && !w.spec.StartedAt.IsZero():
		return w.spec.StartedAt.Add(w.spec.MaxRunTime - w.spec.RanBefore)
	case w.phase == phasePending && w.class.inadmissible && w.class.members[0] == w && !w.class.retryAt.IsZero():
		return w.class.retryAt
	case !w.hasQuota():
		return w.spec.RequeueAt
	}
	return time.Time{}
}

func (e *Engine) fireTimers(at time.Time) {
	for len(e.timers) > 0 && !e.timers[0].at.After(at) {
		t := e.popTimer()
		switch {
		case !t.at.Equal(t.due()):
		case t.f != nil:
			e.flavorOrderChanged(t.f)
		case t.w == nil:
			e.minRuntimeEnded(t.t)
		case t.w.hasQuota():
			e.reviewLater(t.w)
		case t.w.phase == phasePending:
			e.reconsider(t.w.class)
		case t.w.phase != phaseNominated:
			e.enqueueOrHoldBack(t.w)
		}
	}
}

// popTimer takes the earliest timer away.
func (e *Engine) popTimer() timer {
	t := e.timers[0]
	e.timers.Remove(0)
	if t.w != nil && t.w.timer.Equal(t.at) {
		t.w.timer = time.Time{}
	}
	return t
}

// nextTimer is when the earliest timer that still counts goes off.
func (e *Engine) nextTimer() time.Time {
	for len(e.timers) > 0 && !e.timers[0].at.Equal(e.timers[0].due()) {
		e.popTimer() // it may be set anew
	}
	if len(e.timers) == 0 {
		return time.Time{}
	}
	return e.timers[0].at
}

// retryTime is when time alone may let the first of an inadmissible class preempt more than now; zero: never.
func (e *Engine) retryTime(c *equivClass) time.Time {
	var next time.Time
	first := c.members[0]
	soon := func(at time.Time) {
		if at.After(e.at) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if c.refused.by(rulesOfTime) {
		soon(first.preemptsFrom(e))
		if !c.canReserve {
			soon(first.minRuntimeBinds(e))
		}
	}
	if c.refused.by(ruleCooldown) {
		soon(first.cooldownEnds(e))
	}
	return next
}

// setRetryTimer sets a class's timer.
func (e *Engine) setRetryTimer(c *equivClass) {
	c.retryAt = e.retryTime(c)
	e.setTimer(c.retryAt, c.members[0])
}

// Minimum runtimes have one timer for a tree, whatever the number of workloads that wait for them.

// setMinRuntimeTimer sets it for when the next minimum runtime ends, if some class waits for that.
func (e *Engine) setMinRuntimeTimer(t *tree) {
	if !t.awaitsMinRuntime || t.minRuntimeAt.After(e.at) {
		return
	}
	t.minRuntimeAt, t.minRuntimeSince = e.nextMinRuntimeEnd(t, e.at), e.at
	if t.awaitsMinRuntime = !t.minRuntimeAt.IsZero(); t.awaitsMinRuntime {
		e.timers.Push(timer{at: t.minRuntimeAt, t: t})
	}
}

// nextMinRuntimeEnd is when the first minimum runtime of a tree ends after a time; zero: never.
func (e *Engine) nextMinRuntimeEnd(t *tree, after time.Time) time.Time {
	var next time.Time
	for _, q := range t.queues {
		for _, w := range q.quotaReserved {
			if w.phase == phaseEvicting {
				continue
			}
			for _, run := range w.timing(e).MinRuntime.all() {
				if at := w.minRuntimeEnd(run); at.After(after) && (next.IsZero() || at.Before(next)) {
					next = at
				}
			}
		}
	}
	return next
}

// minRuntimeEnded looks again at classes that wait for minimum runtimes, unless the workload whose ended is gone. It
// may have ended earlier than was known: objects say when quota was reserved in whole seconds.
func (e *Engine) minRuntimeEnded(t *tree) {
	end := e.nextMinRuntimeEnd(t, t.minRuntimeSince)
	t.minRuntimeAt = time.Time{}
	if end.IsZero() || end.After(e.at) {
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
