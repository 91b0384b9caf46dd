package admission

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// reviewLater lists a workload with quota reserved to be checked for reasons to evict it.
func (e *Engine) reviewLater(w *workload) {
	if !w.reviewed {
		w.reviewed = true
		e.review = append(e.review, w)
	}
}

// reviewReserved evicts workloads that may not go on: deactivated, stopped, out of time.
func (e *Engine) reviewReserved(at time.Time) {
	slices.SortFunc(e.review, func(a, b *workload) int {
		return cmp.Or(strings.Compare(a.spec.Namespace, b.spec.Namespace), strings.Compare(a.spec.Name, b.spec.Name))
	})
	for _, w := range e.review {
		w.reviewed = false
		if w.phase != phaseReserved {
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
	case s.Extra && s.Refused != "": // jobs of its queue may no longer grow
		return ReasonLocalQueueStopped, s.Refused
	case w.local.exists && w.local.spec.Stop == StopHoldAndDrain:
		return ReasonLocalQueueStopped, "The LocalQueue is stopped"
	case w.queue.exists && w.queue.spec.Stop == StopHoldAndDrain:
		return ReasonClusterQueueStopped, "The ClusterQueue is stopped"
	case e.budgeted.any() && e.drainedFor(w) != nil:
		b := &e.drainedFor(w).spec
		return ReasonBudgetSpent, "The budget of " + b.On + " is spent: " + b.format(b.Amount) + " " + b.Unit + " " + b.Period
	case s.MaxRunTime > 0 && !s.StartedAt.IsZero():
		end := s.StartedAt.Add(s.MaxRunTime - s.RanBefore)
		if !at.Before(end) {
			return ReasonMaxExecutionExceeded, "The maximum execution time (" + s.MaxRunTime.String() + ") exceeded"
		}
		e.setTimer(end, w)
	}
	return "", ""
}

// evict adds w to the plan's evictions; it is not counted in the future from now on.
func (e *Engine) evict(ev Evict, w *workload) {
	ev.Workload, ev.UID, ev.Queue = w.spec.Key, w.spec.UID, w.queue.name
	e.plan.Evict = append(e.plan.Evict, ev)
	e.setEvicting(w, true)
}
