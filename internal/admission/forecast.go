package admission

import (
	"cmp"
	"slices"
	"time"
)

// trial changes usage for the sake of a question and takes it back.
type trial struct {
	ops []trialOp
}

type trialOp struct {
	n    *node
	a    amount
	both bool // now and future; else now only
}

// add counts usage in both trees (sign 1), or takes it off (-1).
func (t *trial) add(q *queue, usage []amount, sign int64) {
	for _, u := range usage {
		op := trialOp{q.node, amount{u.fr, sign * u.v}, true}
		op.do(1)
		t.ops = append(t.ops, op)
	}
}

// leave lets someone go whom the future does not count any more.
func (t *trial) leave(w *workload) {
	for _, u := range w.usage {
		op := trialOp{w.queue.node, amount{u.fr, -u.v}, false}
		op.do(1)
		t.ops = append(t.ops, op)
	}
}

func (o trialOp) do(sign int64) {
	o.n.add(o.a.fr, sign*o.a.v, now)
	if o.both {
		o.n.add(o.a.fr, sign*o.a.v, future)
	}
}

func (t *trial) undo() {
	for _, op := range slices.Backward(t.ops) {
		op.do(-1)
	}
	t.ops = t.ops[:0]
}

// ending is a workload that lets go of its quota at a time.
type ending struct {
	key   Key
	at    time.Time
	queue *queue
	usage []amount
}

func byEnd(a, b ending) int { return cmp.Compare(nanos(a.at), nanos(b.at)) }

// endOf is when a holder's time is up: by its declared maximum or, if guess is
// allowed, by the run time expected of it. Zero: unknown.
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

// endings lists when the holders of a tree let go, soonest first.
func (e *Engine) endings(t *tree, at time.Time, guess bool, tr *trial) []ending {
	var list []ending
	for _, q := range t.queues {
		for _, w := range q.quotaReserved {
			if w.evicting {
				tr.leave(w)
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

// fitsNow tries to admit w as things stand, displacing nobody.
func (e *Engine) fitsNow(w *workload, s *requestShape, a *assignment) bool {
	a.reset(w, s)
	was := e.scratch.fitOnly
	e.scratch.fitOnly = true
	e.assign(a)
	if a.mode != fit && s.shrinks {
		e.attemptPartial(a)
	}
	e.scratch.fitOnly = was
	return a.mode == fit
}

// forecastLimit bounds how many workloads ahead a forecast plays through.
const forecastLimit = 500

// forecast estimates when a pending workload starts: those who run end when
// they are expected to, and those before it in line start as soon as quota lets them.
func (e *Engine) forecast(w *workload, at time.Time) time.Time {
	t := w.queue.node.root.tree
	var tr trial
	defer tr.undo()
	if p := e.opts.Placer; p != nil {
		defer p.Rollback(p.Checkpoint())
		e.removeEvicting()
	}
	e.shiftNominations(t.nominated, -1) // they stand in line like everyone
	defer e.shiftNominations(t.nominated, 1)
	for _, c := range t.reservations {
		e.shiftReservation(c, -1)
		defer e.shiftReservation(c, 1)
	}
	ends := e.endings(t, at, true, &tr)
	line := e.aheadOf(t, w)
	a := e.newAssignment()
	defer e.recycle(a)
	for {
		line = e.playRound(line, at, a, &tr, &ends)
		if !slices.Contains(line, w) {
			return at
		}
		if len(ends) == 0 {
			return time.Time{}
		}
		at = ends[0].at
		for len(ends) > 0 && ends[0].at.Equal(at) {
			tr.add(ends[0].queue, ends[0].usage, -1)
			if e.opts.Placer != nil {
				e.opts.Placer.Remove(ends[0].key)
			}
			ends = ends[1:]
		}
	}
}

// playRound admits whoever of the line fits and returns those who are left.
func (e *Engine) playRound(line []*workload, at time.Time, a *assignment, tr *trial, ends *[]ending) []*workload {
	var left []*workload
	blocked := map[*queue]bool{}
	for _, p := range line {
		if blocked[p.queue] || !e.fitsNow(p, p.shape(), a) || !e.takeNodes(a) {
			left = append(left, p)
			if p.queue.spec.StrictFIFO {
				blocked[p.queue] = true
			}
			continue
		}
		usage := slices.Clone(a.usage)
		tr.add(p.queue, usage, 1)
		if run := p.runTime(true); run > 0 {
			end := ending{p.spec.Key, at.Add(run), p.queue, usage}
			i, _ := slices.BinarySearchFunc(*ends, end, byEnd)
			*ends = slices.Insert(*ends, i, end)
		}
	}
	return left
}

// takeNodes places the pods in a what-if, where there is a Placer.
func (e *Engine) takeNodes(a *assignment) bool {
	if e.opts.Placer == nil {
		return true
	}
	_, refusal := e.opts.Placer.Place(e.placeRequest(a))
	return refusal == nil
}

func (w *workload) shape() *requestShape {
	if w.class != nil {
		return w.class.shape
	}
	return w.nomination.shape
}

// aheadOf lists the pending workloads of the tree that get their turn before w, and w.
func (e *Engine) aheadOf(t *tree, w *workload) []*workload {
	var line []*workload
	for _, q := range t.queues {
		for _, c := range q.classes {
			for _, p := range c.members {
				if queueOrder(p, w) <= 0 {
					line = append(line, p)
				}
			}
		}
		for _, p := range q.nominated {
			if queueOrder(p, w) <= 0 {
				line = append(line, p)
			}
		}
	}
	slices.SortFunc(line, queueOrder)
	if n := len(line); n > forecastLimit {
		line = line[n-forecastLimit:]
	}
	return line
}
