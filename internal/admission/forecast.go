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

// endOf is when a running workload's time is up: by its declared maximum or, if guess is allowed,
// by the run time expected of it. Zero: unknown.
func (w *workload) endOf(guess bool) time.Time {
	start := w.spec.StartedAt
	if start.IsZero() && w.spec.Admission != nil {
		start = w.spec.Admission.ReservedAt
	}
	run := w.runTime(guess)
	if run <= 0 {
		return time.Time{}
	}
	return start.Add(run)
}

func (w *workload) runTime(guess bool) time.Duration {
	if guess && w.spec.ExpectedRunTime > 0 {
		return w.spec.ExpectedRunTime
	}
	if w.spec.MaxRunTime > 0 {
		return w.spec.MaxRunTime - w.spec.RanBefore
	}
	return 0
}

// endings lists when the running workloads of a tree end, soonest first.
func (t *tree) endings(at time.Time, guess bool) []ending {
	var list []ending
	for _, q := range t.queues {
		for _, w := range q.quotaReserved {
			if w.phase == phaseEvicting {
				continue
			}
			if end := w.endOf(guess); !end.IsZero() {
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
			if w.phase == phaseEvicting {
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
	return a.mode == fit
}

// forecastLimit bounds how many workloads ahead a forecast plays through.
const forecastLimit = 500

// forecast estimates when a pending workload starts: running ones end when they are expected to,
// and those before it start as soon as quota and nodes let them.
func (e *Engine) forecast(w *workload, at time.Time) time.Time {
	t := w.queue.tree
	mark := e.tx.Checkpoint()
	defer e.tx.Rollback(mark)
	if e.opts.Placer != nil {
		e.removeEvicting()
	}
	e.liftNominations(t.nominated...) // they start in turn like everyone
	e.liftReservations(t, ofHeads)
	e.liftReservations(t, ofDelayed)
	e.letEvictedLeave(t)
	ends := t.endings(at, true)
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
		if run := p.runTime(true); run > 0 {
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
