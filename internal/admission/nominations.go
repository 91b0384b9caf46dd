package admission

import (
	"slices"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// A nomination is quota in the future for a workload that waits until others have left, as
// kube-scheduler's nominated node is for a pod. Whoever comes later must leave it alone, unless it
// could preempt the nominated workload: then the nomination is overridden.

// nominate lets a workload wait for quota that is being freed.
func (e *Engine) nominate(a *assignment) {
	w := a.w
	if w.phase == phasePending {
		e.leaveQueue(w)
	}
	e.setNomination(a)
	e.joinNominated(w)
	if w.reported != ReasonWaitingForPreemptedWorkloads {
		e.reportPending(w, ReasonWaitingForPreemptedWorkloads, e.message(a))
	}
}

// leaveQueue takes a workload that is to be nominated out of its class.
func (e *Engine) leaveQueue(w *workload) {
	w.nomination = &assignment{key: w.class.key, shape: w.class.shape}
	e.dequeue(w)
	w.queue.pending++
	e.enter(w, phaseNominating)
}

// rejoinQueue puts it back, as there is nothing to nominate it for.
func (e *Engine) rejoinQueue(w *workload) {
	w.nomination = nil
	w.queue.pending--
	e.enqueue(w)
	e.awaitNomination(w)
}

// joinNominated lists a workload among the nominated ones.
func (e *Engine) joinNominated(w *workload) {
	t := w.queue.tree
	i, _ := slices.BinarySearchFunc(t.nominated, w, queueOrder)
	t.nominated = slices.Insert(t.nominated, i, w)
	w.queue.nominated = append(w.queue.nominated, w)
	e.enter(w, phaseNominated)
}

// IsAwaited says that the preemptor of a workload that is evicted is still nominated: the eviction is not in vain.
func (e *Engine) IsAwaited(victim Key) bool {
	w := e.workloads[victim]
	return w != nil && w.preemptor != nil && w.preemptor.nomination != nil
}

// dropUnownedNominations ends nominations for quota that others free for nobody in particular: they
// last for one decision.
func (e *Engine) dropUnownedNominations(t *tree) {
	for _, w := range slices.Clone(t.nominated) {
		if !w.nominable() {
			e.requeueNominated(w)
		}
	}
}

// setNomination counts the quota that a workload waits for in the future.
func (e *Engine) setNomination(a *assignment) {
	n := *a
	n.key = a.w.nomination.key
	n.counts = slices.Clone(a.counts)
	n.usage = slices.Clone(a.usage)
	n.flavors = make([][]int32, len(a.shape.podSets))
	for i := range n.flavors {
		n.flavors[i] = slices.Clone(a.flavors[i])
	}
	n.need, n.misses, n.victims, n.avoid, n.overrides, n.picks, n.reservation = nil, nil, nil, nil, nil, nil, nil
	a.w.nomination, a.w.nominatedUsage = &n, n.usage
	for _, u := range n.usage {
		e.count(a.w.queue, u.FR, u.V, quota.Future)
	}
	if e.opts.Placer != nil {
		e.hold(a.w, a.placed)
	}
}

// removeNomination ends a nomination; quietly, where the workload's admission follows.
func (e *Engine) removeNomination(w *workload, quietly bool) {
	q := w.queue
	if quietly && !e.relink {
		e.uncountNomination(w)
	} else {
		for _, u := range w.nominatedUsage {
			e.count(q, u.FR, -u.V, quota.Future)
		}
		if e.opts.Placer != nil {
			e.removePlacement(w)
		}
	}
	q.pending--
	t := q.tree
	t.nominated = without(t.nominated, w)
	q.nominated = without(q.nominated, w)
	w.nominatedUsage, w.nomination = nil, nil
	e.enter(w, phaseNew)
	if q.spec.StrictFIFO {
		e.ready(q)
	}
	if t.policy != PolicyFIFO && len(q.nominated) == 0 {
		q.requeueAll(e) // the next may preempt in other queues now
	}
}

// uncountNomination takes a nomination out of the future without a hint to others: its admission,
// or counting it again, follows.
func (e *Engine) uncountNomination(w *workload) {
	for _, u := range w.nominatedUsage {
		w.queue.node.Add(u.FR, -u.V, quota.Future)
	}
	if e.opts.Placer != nil {
		e.removePlacement(w)
	}
}

// countNomination is the reverse.
func (e *Engine) countNomination(w *workload) {
	for _, u := range w.nominatedUsage {
		w.queue.node.Add(u.FR, u.V, quota.Future)
	}
	if e.opts.Placer != nil {
		e.hold(w, w.nomination.placed)
	}
}

// liftNominations takes nominations out of the future (in a what-if).
func (e *Engine) liftNominations(ws ...*workload) {
	if e.opts.Placer != nil {
		e.tx.ChangeNodes()
	}
	for _, w := range ws {
		e.tx.Sub(w.queue.node, w.nominatedUsage, quota.Future)
		if e.opts.Placer != nil {
			e.opts.Placer.Remove(w.spec.Key)
		}
	}
}

func without(list []*workload, w *workload) []*workload {
	if i := slices.Index(list, w); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// requeueNominated sends a nominated workload back into its queue.
func (e *Engine) requeueNominated(w *workload) {
	q := w.queue
	e.removeNomination(w, false)
	w.queue = q
	e.enqueue(w)
}

// overrideNomination takes a nomination away for the sake of another workload.
func (e *Engine) overrideNomination(w *workload) {
	w.in.overridden = e.decision
	if w.phase == phaseNominated {
		e.requeueNominated(w)
		e.reportPending(w, ReasonPending, overriddenMessage)
		e.awaitNomination(w)
	}
}

// dropNominations ends all nominations and reservations of a tree, to be found again as things are by then.
func (t *tree) dropNominations(e *Engine) {
	for _, w := range slices.Clone(t.nominated) {
		e.requeueNominated(w)
		e.awaitNomination(w)
	}
	for _, c := range slices.Clone(t.reservations) {
		e.requeue(c)
	}
}

// admitNominated admits nominated workloads whose quota came free in this decision, on any flavor.
func (e *Engine) admitNominated(t *tree) {
	if !t.usageFreed || e.unready > 0 {
		return
	}
	t.usageFreed = false
	for _, w := range slices.Clone(t.nominated) {
		if e.unready == 0 {
			e.tryAdmitNominated(w)
		}
	}
}

// tryAdmitNominated admits a nominated workload if it fits now.
func (e *Engine) tryAdmitNominated(w *workload) {
	a := e.newAssignment()
	defer e.recycle(a)
	mark := e.tx.Checkpoint()
	e.liftNominations(w)
	e.evaluate(w, w.nomination.shape, a, fitOnly)
	e.tx.Rollback(mark)
	if a.mode == fit && a.admissible() {
		e.removeNomination(w, slices.Equal(w.nominatedUsage, a.usage))
		w.in.preempted = e.decision
		e.admit(a)
	}
}

// attemptOverNominations tries again without the nominations that the workload may override.
func (e *Engine) attemptOverNominations(t *tree, a *assignment) {
	if len(t.nominated) == 0 || a.how == fitOnly {
		return
	}
	// Whether it borrows is known once it fits. If it does not, it may override more.
	for _, borrows := range [...]bool{false, true} {
		if !borrows && a.mode > noFit && a.borrow > 0 {
			continue
		}
		overrides := e.scratch.overrides[:0]
		for _, p := range t.nominated {
			if p.in.overridden == e.decision || !a.w.mayOverride(p, borrows) {
				continue
			}
			if p.in.preempted == e.decision {
				a.refused.add(ruleThisDecision)
				continue
			}
			overrides = append(overrides, p)
		}
		e.scratch.overrides = overrides
		if len(overrides) > 0 && e.attemptWithoutNominations(a, overrides, borrows) {
			return
		}
	}
	if t.policy != PolicyFIFO && a.mode < deferred {
		e.attemptOverLaterNominations(t, a)
	}
}

// attemptWithoutNominations tries with some nominations out of the way. It adopts the result if that
// is better and, unless it may borrow, does not.
func (e *Engine) attemptWithoutNominations(a *assignment, overrides []*workload, mayBorrow bool) bool {
	b := e.newAssignment()
	b.reset(a.w, a.shape, a.how)
	mark := e.tx.Checkpoint()
	e.liftNominations(overrides...)
	e.attempt(b)
	if !b.admissible() && a.shape.shrinks {
		e.attemptPartial(b)
	}
	e.tx.Rollback(mark)
	ok := b.admissible() && (b.mode > a.mode || !a.admissible() || a.partial && !b.partial)
	for _, p := range overrides {
		ok = ok && (mayBorrow || b.borrow == 0 || a.w.mayOverride(p, true))
	}
	if ok {
		b.overrides = append(b.overrides[:0], overrides...)
		*a, *b = *b, *a
		a.refused.add(b.refused.rules & ruleMinRuntime)
	} else {
		a.refused.merge(b.refused)
	}
	e.recycle(b)
	return ok
}

// mayOverride says whether a workload may take the quota p is nominated for. A nomination is as good
// as an admission: only a workload that could preempt p may.
func (w *workload) mayOverride(p *workload, borrows bool) bool {
	q := w.queue
	pol := &q.spec.Preemption
	if q == p.queue {
		return pol.WithinQueue.allows(w, p)
	}
	if q.tree.policy != PolicyFIFO || p.nomination.borrow == 0 || !pol.ReclaimWithinCohort.allows(w, p) {
		return false
	}
	return !borrows || pol.BorrowWithinCohort && p.spec.Priority < w.spec.Priority &&
		(pol.BorrowMaxPriority == nil || p.spec.Priority <= *pol.BorrowMaxPriority)
}
