package admission

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// reviewLater lists a holder to be checked for reasons to evict it.
func (e *Engine) reviewLater(w *workload) {
	if !w.reviewed {
		w.reviewed = true
		e.review = append(e.review, w)
	}
}

// reviewReserved evicts those who may not go on: deactivated, stopped, out of time.
func (e *Engine) reviewReserved(at time.Time) {
	slices.SortFunc(e.review, func(a, b *workload) int {
		return cmp.Or(strings.Compare(a.spec.Namespace, b.spec.Namespace), strings.Compare(a.spec.Name, b.spec.Name))
	})
	for _, w := range e.review {
		w.reviewed = false
		if !w.hasQuota || w.evicting || w.gone {
			continue
		}
		if reason, message := e.mustLeave(w, at); reason != "" {
			e.evict(Evict{Reason: reason, Message: message}, w)
		}
	}
	e.review = e.review[:0]
}

func (e *Engine) mustLeave(w *workload, at time.Time) (Reason, string) {
	s := &w.spec
	switch {
	case s.Inactive:
		return ReasonDeactivated, "The workload is deactivated"
	case w.local.exists && w.local.spec.Stop == StopHoldAndDrain:
		return ReasonLocalQueueStopped, "The LocalQueue is stopped"
	case w.queue.exists && w.queue.spec.Stop == StopHoldAndDrain:
		return ReasonClusterQueueStopped, "The ClusterQueue is stopped"
	case s.MaxRunTime > 0 && !s.StartedAt.IsZero():
		end := s.StartedAt.Add(s.MaxRunTime - s.RanBefore)
		if !at.Before(end) {
			return ReasonMaxExecutionExceeded, "The maximum execution time (" + s.MaxRunTime.String() + ") exceeded"
		}
		e.setTimer(end, w)
	}
	return "", ""
}

// evict adds w to the plan's evictions; it leaves the future at once.
func (e *Engine) evict(ev Evict, w *workload) {
	ev.Workload, ev.UID, ev.Queue = w.spec.Key, w.spec.UID, w.queue.name
	e.plan.Evict = append(e.plan.Evict, ev)
	e.setEvicting(w, true)
}

// timer looks again at a time: at a workload whose backoff or run time ends, or at a tree in which somebody is not spared any more.
type timer struct {
	at time.Time
	w  *workload
	t  *tree
}

func (e *Engine) setTimer(at time.Time, w *workload) {
	if at.IsZero() || w.timer.Equal(at) {
		return
	}
	w.timer = at
	e.timers.push(timer{at: at, w: w})
}

// due is when the timer is to go off as things stand; zero: it is void.
func (t timer) due() time.Time {
	if t.w == nil {
		return t.t.minRuntimeAt
	}
	return t.w.due()
}

func (t timer) before(o timer) bool { return t.at.Before(o.at) }

func (t timer) setPos(int) {}

// retryTime is when time alone may let the first of a parked class displace more than now; zero: never.
func (e *Engine) retryTime(c *equivClass) time.Time {
	var next time.Time
	first := c.members[0]
	soon := func(at time.Time) {
		if at.After(e.at) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if c.delayed {
		soon(first.preemptsFrom(e))
		if !c.canReserve {
			soon(first.minRuntimeBinds(e))
		}
	}
	if c.cooldown {
		soon(first.cooldownEnds())
	}
	return next
}

// setRetryTimer sets a class's timer.
func (e *Engine) setRetryTimer(c *equivClass) {
	c.retryAt = e.retryTime(c)
	e.setTimer(c.retryAt, c.members[0])
}

// due says what a timer of w waits for, zero when it is void by now.
func (w *workload) due() time.Time {
	switch {
	case w.gone:
		return time.Time{}
	case w.hasQuota && !w.evicting && w.spec.MaxRunTime > 0 && !w.spec.StartedAt.IsZero():
		return w.spec.StartedAt.Add(w.spec.MaxRunTime - w.spec.RanBefore)
	case w.class != nil && w.class.inadmissible && w.class.members[0] == w && !w.class.retryAt.IsZero():
		return w.class.retryAt
	case !w.hasQuota:
		return w.spec.RequeueAt
	}
	return time.Time{}
}

func (e *Engine) fireTimers(at time.Time) {
	for len(e.timers) > 0 && !e.timers[0].at.After(at) {
		t := e.popTimer()
		switch {
		case !t.at.Equal(t.due()):
		case t.w == nil:
			e.minRuntimeEnded(t.t)
		case t.w.hasQuota:
			e.reviewLater(t.w)
		case t.w.class != nil:
			e.reconsider(t.w.class)
		case t.w.nominatedUsage == nil:
			e.enqueueOrHoldBack(t.w)
		}
	}
}

// popTimer takes the earliest timer away.
func (e *Engine) popTimer() timer {
	t := e.timers[0]
	e.timers.remove(0)
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
