package admission

import "slices"

// backfills says whether workloads may pass the queue's blocked head.
func (q *queue) backfills() bool { return q.spec.StrictFIFO && q.spec.Backfill }

// backfill looks, behind the blocked head of a StrictFIFO queue, for the first workload that fits
// now and cannot delay the head (EASY): it will be over before the head can start, or leaves
// enough for the head when it starts.
func (e *Engine) backfill(t *tree, q *queue) *assignment {
	if !q.backfills() || len(q.active) < 1 || !q.active[0].inadmissible || q.backfilled == t.version {
		return nil
	}
	q.backfilled = t.version
	head := q.active[0].members[0]
	defer e.liftReservation(q.active[0])()
	ended := e.endedBeforeHead(t, head)
	if len(ended) == 0 {
		return nil
	}
	a := e.newAssignment()
	var unplaced []*requestShape // that no nodes are free for
	for _, w := range q.afterHead(head) {
		if w.runLimit() <= 0 || slices.Contains(unplaced, w.class.shape) {
			continue
		}
		e.evals++
		if e.passes(t, w, a, head, ended) {
			a.backfill = true
			a.version = t.version
			return a
		}
		if a.failed != nil && !q.choice && !a.shape.shrinks && len(e.advanceNodes) == 0 && !e.opts.unpruned { // the same nodes for all who ask for the same
			unplaced = append(unplaced, a.shape)
		}
	}
	e.recycle(a)
	return nil
}

// passes says whether w fits now and cannot delay the head, which starts once others have ended.
func (e *Engine) passes(t *tree, w *workload, a *assignment, head *workload, ended []ending) bool {
	if !e.fitsOnNodes(w, a) || e.takesReserved(&starting{w: w, usage: a.usage}) != nil {
		return false
	}
	start := ended[len(ended)-1].at
	return w.runLimit() <= start.Sub(e.at) || e.headFitsBeside(t, head, a, ended)
}

// backfillAgain searches once more behind the blocked head: a workload that came may pass it.
func (e *Engine) backfillAgain(q *queue) {
	if q.backfills() {
		q.backfilled = 0
		e.enlist(q.tree)
	}
}

// endedBeforeHead lists the running workloads that end before the head can start at the latest, if all stay within the
// time they declared or that is expected of them; empty if the head still does not fit.
func (e *Engine) endedBeforeHead(t *tree, head *workload) []ending {
	mark := e.tx.Checkpoint()
	defer e.tx.Rollback(mark)
	a := e.newAssignment()
	defer e.recycle(a)
	e.playEvictions(t)
	ends := t.endings(e.at, (*workload).runLimit)
	for i, end := range ends {
		e.playEnd(end)
		if e.fitsOnNodes(head, a) {
			return ends[:i+1]
		}
	}
	return nil
}

// headFitsBeside says whether the head still fits at its start if a is admitted now.
func (e *Engine) headFitsBeside(t *tree, head *workload, a *assignment, ended []ending) bool {
	mark := e.tx.Checkpoint()
	defer e.tx.Rollback(mark)
	e.addBoth(a.w.queue, a.usage)
	if !e.takeNodes(a) {
		return false
	}
	e.playEvictions(t)
	for _, end := range ended {
		e.playEnd(end)
	}
	b := e.newAssignment()
	defer e.recycle(b)
	return e.fitsOnNodes(head, b)
}

// fitsOnNodes says whether w fits as things stand, its pods on nodes included.
func (e *Engine) fitsOnNodes(w *workload, a *assignment) bool {
	return e.fitsNow(w, w.class.shape, a) && (e.opts.Placer == nil || e.tryPlace(a))
}

// playEvictions gives back what workloads that are being evicted still have (in a what-if).
func (e *Engine) playEvictions(t *tree) {
	if e.opts.Placer != nil {
		e.removeEvicting()
	}
	e.letEvictedLeave(t)
}

// afterHead lists the queue's workloads after its head, one per class, in order.
func (q *queue) afterHead(head *workload) []*workload {
	var list []*workload
	for _, c := range q.active {
		if c.members[0] != head {
			list = append(list, c.members[0])
		}
	}
	slices.SortFunc(list, queueOrder)
	return list
}
