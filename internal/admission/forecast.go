package admission

import (
	"cmp"
	"slices"
	"time"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// ending is a workload that gives its quota back at a time.
type ending struct {
	key   Key
	at    time.Time
	queue *queue
	usage []quota.Amount
}

func byEnd(a, b ending) int { return cmp.Compare(nanos(a.at), nanos(b.at)) }

// endOf is when a running workload's time is up, by a way to tell its run time. Zero: unknown.
func (w *workload) endOf(runTime func(*workload) time.Duration) time.Time {
	start := w.spec.StartedAt
	if start.IsZero() && w.spec.Admission != nil {
		start = w.spec.Admission.ReservedAt
	}
	run := runTime(w)
	if run <= 0 {
		return time.Time{}
	}
	return start.Add(run)
}

// runTime is how long a workload will most likely run; 0: unknown.
func (w *workload) runTime() time.Duration {
	if w.spec.ExpectedRunTime > 0 {
		return w.spec.ExpectedRunTime
	}
	return w.spec.declaredRunTime()
}

// runLimit is how long a workload runs at most: as it declared, which is enforced, or as is expected of it.
func (w *workload) runLimit() time.Duration { return w.spec.runLimit() }

func (s *Workload) runLimit() time.Duration {
	if declared := s.declaredRunTime(); declared > 0 {
		return declared
	}
	return s.ExpectedRunTime
}

// declaredRunTime is what is left of the maximum execution time; 0: there is none.
func (s *Workload) declaredRunTime() time.Duration {
	if s.MaxRunTime <= 0 {
		return 0
	}
	return s.MaxRunTime - s.RanBefore
}

// endings lists when the running workloads of a tree end, soonest first.
func (t *tree) endings(at time.Time, runTime func(*workload) time.Duration) []ending {
	var list []ending
	for _, q := range t.queues {
		for _, w := range q.quotaReserved {
			if w.phase == phaseEvicting {
				continue
			}
			if end := w.endOf(runTime); !end.IsZero() {
				if end.Before(at) {
					end = at // overdue: any moment now
				}
				list = append(list, ending{w.spec.Key, end, q, w.usage})
			}
		}
	}
	slices.SortStableFunc(list, byEnd)
	return list
}

// letEvictedLeave gives back what workloads of a tree that are being evicted still have (in a what-if).
func (e *Engine) letEvictedLeave(t *tree) {
	for _, q := range t.queues {
		for _, w := range q.quotaReserved {
			if w.phase == phaseEvicting && !w.moving {
				e.tx.Sub(q.node, w.usage, quota.Now)
			}
		}
	}
}

// addBoth counts usage now and in the future (in a what-if); subBoth takes it off.
func (e *Engine) addBoth(q *queue, usage []quota.Amount) {
	e.tx.Add(q.node, usage, quota.Now)
	e.tx.Add(q.node, usage, quota.Future)
}

func (e *Engine) subBoth(q *queue, usage []quota.Amount) {
	e.tx.Sub(q.node, usage, quota.Now)
	e.tx.Sub(q.node, usage, quota.Future)
}

// fitsNow tries to admit w as things stand, preempting nobody.
func (e *Engine) fitsNow(w *workload, s *requestShape, a *assignment) bool {
	a.reset(w, s, fitOnly)
	e.assign(a)
	if a.mode != fit && s.shrinks {
		e.attemptPartial(a)
	}
	return a.mode == fit && e.staysWithinBudgets(a)
}

// forecastLimit bounds how many workloads ahead a forecast plays through.
const forecastLimit = 500

// forecast estimates when a pending workload starts: running ones end when they are expected to,
// and those before it start as soon as quota and nodes let them.
func (e *Engine) forecast(w *workload, at time.Time) time.Time {
	t := w.queue.tree
	mark := e.tx.Checkpoint()
	defer e.tx.Rollback(mark)
	e.liftNominations(t.nominated...) // they start in turn like everyone
	e.liftReservations(t, ofHeads)
	e.liftReservations(t, ofDelayed)
	e.playEvictions(t)
	ends := t.endings(at, (*workload).runTime)
	ahead := t.aheadOf(w)
	a := e.newAssignment()
	defer e.recycle(a)
	for {
		ahead = e.playRound(ahead, at, a, &ends)
		if !slices.Contains(ahead, w) {
			return at
		}
		if len(ends) == 0 {
			return time.Time{}
		}
		at = ends[0].at
		for len(ends) > 0 && ends[0].at.Equal(at) {
			e.playEnd(ends[0])
			ends = ends[1:]
		}
	}
}

// playEnd gives back what a workload has at its end.
func (e *Engine) playEnd(end ending) {
	e.subBoth(end.queue, end.usage)
	if e.opts.Placer != nil {
		e.tx.ChangeNodes()
		e.opts.Placer.Remove(end.key)
	}
}

// playRound admits whichever of the pending workloads fit and returns the rest.
func (e *Engine) playRound(pending []*workload, at time.Time, a *assignment, ends *[]ending) []*workload {
	var left []*workload
	blocked := map[*queue]bool{}
	for _, p := range pending {
		if blocked[p.queue] || !e.fitsNow(p, p.shape(), a) || !e.takeNodes(a) {
			left = append(left, p)
			if p.queue.spec.StrictFIFO {
				blocked[p.queue] = true
			}
			continue
		}
		usage := slices.Clone(a.usage)
		e.addBoth(p.queue, usage)
		if run := p.runTime(); run > 0 {
			end := ending{p.spec.Key, at.Add(run), p.queue, usage}
			i, _ := slices.BinarySearchFunc(*ends, end, byEnd)
			*ends = slices.Insert(*ends, i, end)
		}
	}
	return left
}

// takeNodes places the pods in the what-if, where there is a Placer.
func (e *Engine) takeNodes(a *assignment) bool {
	if e.opts.Placer == nil {
		return true
	}
	e.tx.ChangeNodes()
	_, refusal := e.opts.Placer.Place(e.placeRequest(a))
	return refusal == nil
}

func (w *workload) shape() *requestShape {
	if w.class != nil {
		return w.class.shape
	}
	return w.nomination.shape
}

// aheadOf lists the pending workloads of the tree that come before w, and w.
func (t *tree) aheadOf(w *workload) []*workload {
	var list []*workload
	for _, q := range t.queues {
		for _, c := range q.classes {
			for _, p := range c.members {
				if queueOrder(p, w) <= 0 {
					list = append(list, p)
				}
			}
		}
		for _, p := range q.nominated {
			if queueOrder(p, w) <= 0 {
				list = append(list, p)
			}
		}
	}
	slices.SortFunc(list, queueOrder)
	if n := len(list); n > forecastLimit {
		list = list[n-forecastLimit:]
	}
	return list
}
