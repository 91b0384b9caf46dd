package admission

import (
	"slices"
	"time"
)

// backfill looks, behind the blocked head of a StrictFIFO queue, for the first
// workload that fits now and cannot delay the head (EASY): it declares to be
// over before the head can start, or leaves enough for the head when it starts.
func (e *Engine) backfill(t *tree, q *queue) *assignment {
	if !e.opts.Backfill || !q.spec.StrictFIFO || len(q.active) < 1 || !q.active[0].inadmissible || q.backfilled == t.version {
		return nil
	}
	q.backfilled = t.version
	head := q.active[0].members[0]
	e.shiftReservation(q.active[0], -1)
	defer e.shiftReservation(q.active[0], 1)
	var tr trial
	defer tr.undo()
	start, ok := e.shadow(t, head, &tr)
	if !ok {
		return nil
	}
	released := slices.Clone(tr.ops)
	a, b := e.newAssignment(), e.newAssignment()
	defer e.recycle(b)
	for _, w := range q.afterHead(head) {
		if w.runTime(false) <= 0 {
			continue
		}
		tr.undo() // back to now
		e.evals++
		fits := e.fitsNow(w, w.class.shape, a) && (e.opts.Placer == nil || e.tryPlace(a))
		if fits && w.runTime(false) > start.Sub(e.at) {
			for _, op := range released {
				op.do(1)
			}
			tr.ops = append(tr.ops[:0], released...)
			tr.add(q, a.usage, 1)
			fits = e.fitsNow(head, head.class.shape, b)
		}
		if fits {
			a.backfill = true
			a.version = t.version
			return a
		}
	}
	e.recycle(a)
	return nil
}

// shadow is when the head can start at the latest, if everyone who runs stays
// within the time declared. The trial is left in the state of that moment.
func (e *Engine) shadow(t *tree, head *workload, tr *trial) (time.Time, bool) {
	a := e.newAssignment()
	defer e.recycle(a)
	for _, end := range e.endings(t, e.at, false, tr) {
		tr.add(end.queue, end.usage, -1)
		if e.fitsNow(head, head.class.shape, a) {
			return end.at, true
		}
	}
	return time.Time{}, false
}

// afterHead lists the queue's workloads after its head, one per class, in order.
func (q *queue) afterHead(head *workload) []*workload {
	var line []*workload
	for _, c := range q.active {
		if c.members[0] != head {
			line = append(line, c.members[0])
		}
	}
	slices.SortFunc(line, queueOrder)
	return line
}

func (e *Engine) shiftReservation(c *equivClass, sign int64) {
	for _, u := range c.reservation {
		c.queue.node.add(u.fr, sign*u.v, future)
	}
}
