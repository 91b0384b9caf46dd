package admission

import (
	"slices"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

func (ev WorkloadChanged) apply(e *Engine) {
	spec := &ev.Workload // a copy: what is known of the decision under way is filled in
	w := e.workloads[spec.Key]
	if spec.Finished {
		if w != nil {
			e.forget(w)
		}
		return
	}
	if w != nil && w.spec.UID != spec.UID {
		e.forget(w)
		w = nil
	}
	if w == nil {
		w = &workload{pos: -1}
		e.workloads[spec.Key] = w
	}
	e.update(w, spec)
}

// update moves a workload to the state an event describes. Decisions that are being carried out
// outlive events from before them: an assumed admission ends by DecisionDropped, by a confirming
// event or with the workload.
func (e *Engine) update(w *workload, spec *Workload) {
	e.setLocal(w, spec)
	switch {
	case spec.Admission != nil:
		e.setReserved(w, spec)
	case w.assumed:
		spec.Admission, spec.Evicting = w.spec.Admission, false
		e.setReserved(w, spec)
		w.assumed = true
	default:
		e.setPending(w, spec)
	}
}

func (e *Engine) setLocal(w *workload, spec *Workload) {
	k := Key{spec.Namespace, spec.LocalQueue}
	if w.local != nil && w.local.spec.Key == k {
		return
	}
	l := e.localQueue(k)
	e.leaveLocal(w)
	w.local, w.localPos = l, len(l.members)
	l.members = append(l.members, w)
}

func (e *Engine) leaveLocal(w *workload) {
	l := w.local
	if l == nil {
		return
	}
	if w.hasQuota() {
		l.reserveUsage(e, w.usage, -1)
	}
	last := len(l.members) - 1
	l.members[w.localPos] = l.members[last]
	l.members[w.localPos].localPos = w.localPos
	l.members[last] = nil
	l.members = l.members[:last]
	w.local = nil
	if last == 0 && !l.exists {
		delete(e.locals, l.spec.Key)
	}
}

func (ev WorkloadGone) apply(e *Engine) {
	if w := e.workloads[ev.Key]; w != nil {
		e.forget(w)
	}
}

func (e *Engine) forget(w *workload) {
	e.releaseQuota(w)
	e.leave(w)
	e.leaveLocal(w)
	e.setPreemptor(w, nil)
	e.enter(w, phaseGone)
	delete(e.workloads, w.spec.Key)
}

func (ev DecisionDropped) apply(e *Engine) {
	w := e.workloads[ev.Key]
	if w == nil {
		return
	}
	spec := w.spec
	if w.assumed {
		w.assumed = false
		spec.Admission, spec.Evicting = nil, false
		e.uncharge(w)
		e.setPending(w, &spec)
		return
	}
	if w.phase == phaseEvicting && !w.spec.Evicting {
		// Nominations that counted on its leaving are found again.
		e.setEvicting(w, false)
		w.moving = false
		e.setPreemptor(w, nil)
		w.queue.tree.dropNominations(e)
		e.reviewLater(w)
	}
}

// leave takes a workload out of its queue.
func (e *Engine) leave(w *workload) {
	switch w.phase {
	case phasePending:
		e.dequeue(w)
	case phaseNominated:
		e.removeNomination(w, false)
	case phaseHeldBack:
		if w.countedIn != nil {
			w.countedIn.heldBack--
			w.countedIn = nil
		}
		e.enter(w, phaseNew)
	}
	w.queue = nil
}

// setReserved gives a workload the quota that its object says it has.
func (e *Engine) setReserved(w *workload, spec *Workload) {
	q := e.queue(spec.Admission.Queue)
	usage := e.usageOf(spec, e.scratch.usage[:0])
	e.scratch.usage = usage
	if w.hasQuota() && w.queue == q && slices.Equal(usage, w.usage) {
		e.confirmReserved(w, spec)
		return
	}
	evicting, p := w.phase == phaseEvicting || spec.Evicting, w.preemptor
	if w.hasQuota() {
		spec.adoptPlacement(w.spec.Admission)
	}
	e.releaseQuota(w)
	e.leave(w)
	w.spec, w.queue = *spec, q
	w.setVictimPlace(spec, nanos(spec.Admission.ReservedAt))
	w.order = e.orderTime(spec)
	e.setRank(w, q)
	w.assumed, w.reported, w.published, w.moving = false, "", "", evicting && spec.returns()
	e.occupyQuota(w, slices.Clone(usage))
	if e.opts.Placer != nil {
		e.hold(w, spec.Admission.Placement)
	}
	if evicting {
		e.setEvicting(w, true)
	}
	e.readPreemptor(w, p)
	e.reviewLater(w)
}

// confirmReserved takes in an event that leaves the quota as it is: most often the confirmation of
// an admission of ours.
func (e *Engine) confirmReserved(w *workload, spec *Workload) {
	if !spec.adoptPlacement(w.spec.Admission) && e.opts.Placer != nil {
		e.hold(w, spec.Admission.Placement)
	}
	rank, _ := e.rankOf(spec, w.queue)
	if reserved := nanos(spec.Admission.ReservedAt); reserved != w.reservedAt || rank != w.rank || spec.savedAt(reserved) != w.savedAt || spec.NeverPreempt != w.safe {
		if w.queue.spec.Defragmentation != nil && e.opts.Placer != nil {
			CapacityChanged{}.apply(e) // it may cost less to move it
		}
		switch t := w.queue.tree; {
		case rank < w.rank || w.safe && !spec.NeverPreempt:
			e.hintPreemptible(w)
		case (rank > w.rank || spec.NeverPreempt && !w.safe) && len(t.reservations) > 0:
			e.enlist(t) // a workload with a reservation may not be able to preempt it any more
		}
		e.reorder(w, func() {
			w.rank = rank
			w.setVictimPlace(spec, reserved)
		})
	}
	if spec.runLimit() != w.spec.runLimit() || spec.AdvanceReservation != w.spec.AdvanceReservation {
		e.budgetFreed, e.advanceChanged = true, true
	}
	e.countExtra(w, -1)
	w.spec, w.assumed = *spec, false
	e.countExtra(w, 1)
	w.order = e.orderTime(spec)
	e.setRank(w, w.queue)
	e.awaitPods(w, !spec.PodsReady)
	if spec.Evicting {
		e.setMoving(w, spec.returns())
		e.setEvicting(w, true)
		e.readPreemptor(w, w.preemptor)
	}
	e.reviewLater(w)
}

// adoptPlacement fills in where the pods are, which we know and the objects do not tell.
func (s *Workload) adoptPlacement(before *Admission) bool {
	if s.Admission.Placement != nil || before.Placement == nil {
		return false
	}
	adm := *s.Admission
	adm.Placement = before.Placement
	s.Admission = &adm
	return true
}

// reorder changes what orders workloads with quota reserved among each other.
func (e *Engine) reorder(w *workload, change func()) {
	q := w.queue
	i, _ := slices.BinarySearchFunc(q.quotaReserved, w, victimOrder)
	q.quotaReserved = slices.Delete(q.quotaReserved, i, i+1)
	change()
	i, _ = slices.BinarySearchFunc(q.quotaReserved, w, victimOrder)
	q.quotaReserved = slices.Insert(q.quotaReserved, i, w)
	q.reservedChanges++
}

// hintPreemptible lets classes that lack what w has look again: it became easier to preempt.
func (e *Engine) hintPreemptible(w *workload) {
	t := w.queue.tree
	for _, u := range w.usage {
		e.hintFreed(t, u.FR)
	}
	t.improvements++
	e.enlist(t)
}

// occupyQuota counts usage as reserved by w in its queue.
func (e *Engine) occupyQuota(w *workload, usage []quota.Amount) {
	q := w.queue
	w.usage = usage
	e.countExtra(w, 1)
	e.enter(w, phaseReserved)
	e.awaitPods(w, !w.spec.PodsReady)
	i, _ := slices.BinarySearchFunc(q.quotaReserved, w, victimOrder)
	q.quotaReserved = slices.Insert(q.quotaReserved, i, w)
	q.reservedChanges++
	for _, a := range usage {
		e.count(q, a.FR, a.V, quota.Now)
		e.count(q, a.FR, a.V, quota.Future)
	}
	if w.local != nil {
		w.local.reserveUsage(e, usage, 1)
	}
	if e.budgeted.any() {
		e.noteCommitted(w, 1)
	}
}

// awaitPods counts admitted workloads whose pods are not ready; when there are none any more, the others go on.
func (e *Engine) awaitPods(w *workload, awaited bool) {
	if !e.opts.BlockUntilReady || w.podsAwaited == awaited {
		return
	}
	w.podsAwaited = awaited
	if awaited {
		e.unready++
		return
	}
	if e.unready--; e.unready > 0 {
		return
	}
	for _, t := range e.trees {
		t.usageFreed = t.usageFreed || len(t.nominated) > 0
		e.enlist(t)
	}
}

// releaseQuota gives back the quota of w, if it has any.
func (e *Engine) releaseQuota(w *workload) {
	if !w.hasQuota() {
		return
	}
	q := w.queue
	e.countExtra(w, -1)
	if e.budgeted.any() {
		e.noteCommitted(w, -1)
	}
	i, _ := slices.BinarySearchFunc(q.quotaReserved, w, victimOrder)
	q.quotaReserved = slices.Delete(q.quotaReserved, i, i+1)
	q.reservedChanges++
	for _, a := range w.usage {
		e.count(q, a.FR, -a.V, quota.Now)
		if w.phase == phaseReserved || w.moving {
			e.count(q, a.FR, -a.V, quota.Future)
		}
	}
	if w.local != nil {
		w.local.reserveUsage(e, w.usage, -1)
	}
	if e.opts.Placer != nil {
		e.removePlacement(w)
		CapacityChanged{}.apply(e) // its nodes may be those of other flavors, too
	}
	e.awaitPods(w, false)
	w.assumed, w.usage, w.moving = false, nil, false
	e.enter(w, phaseNew)
	delete(e.evicting, w)
}

// setEvicting takes the quota of w out of the future, unless it moves, or puts it back.
func (e *Engine) setEvicting(w *workload, evicting bool) {
	to, sign := phaseReserved, int64(1)
	if evicting {
		to, sign = phaseEvicting, -1
	}
	if w.phase == to {
		return
	}
	leaves := !w.moving
	if leaves && evicting && e.budgeted.any() {
		e.noteCommitted(w, -1)
	}
	e.enter(w, to)
	if leaves && !evicting && e.budgeted.any() {
		e.noteCommitted(w, 1)
	}
	w.queue.reservedChanges++
	if evicting {
		e.evicting[w] = struct{}{}
	} else {
		delete(e.evicting, w)
	}
	for _, a := range w.usage {
		if leaves {
			e.count(w.queue, a.FR, sign*a.V, quota.Future)
		}
	}
}

// count changes usage for good and gives hints to classes that it may help.
func (e *Engine) count(q *queue, fr int32, v int64, k quota.View) {
	if e.relink {
		// Only the queue's own cell lasts until the trees are linked again.
		q.node.Grow(len(e.frs))
		q.node.Cells[fr].Use[k] += v
		q.at.changed = true
		return
	}
	if v < 0 {
		q.node.Add(fr, v, k)
		e.freed(q, fr)
		return
	}
	t := q.tree
	t.version++
	t.usageChanges++
	if k == quota.Now {
		q.node.Add(fr, v, k)
		return
	}
	for n := q.node; n != nil && v != 0; n = n.Parent {
		c := &n.Cells[fr]
		was := c.Use[k] > c.Subtree && len(t.reservations) == 0 // what is reserved for others is not borrowed
		v = n.AddStep(fr, v, k)
		borrows := !was && c.Use[k] > c.Subtree || t.policy != PolicyFIFO // where shares decide, every step changes who is preempted first
		if borrows && !slices.Contains(t.newlyBorrowed, fr) {
			t.newlyBorrowed = append(t.newlyBorrowed, fr)
			t.improvements++
		}
	}
	t.updateBorrowing(q, fr)
	if !t.listed && (len(t.newlyBorrowed) > 0 || e.anyVolatile(t)) {
		e.enlist(t)
	}
}

// freed notes that a queue uses less, or will.
func (e *Engine) freed(q *queue, fr int32) {
	t := q.tree
	t.version++
	t.usageChanges++
	t.usageFreed, t.anyFreed = true, true
	t.improvements++
	if int(fr) < len(t.freed) { // the tree of a deleted queue has nobody to help
		t.freed[fr] = true
	}
	t.updateBorrowing(q, fr)
	e.enlist(t)
}

// usageOf is the quota that an admission takes, less the pods that finished.
func (e *Engine) usageOf(w *Workload, buf []quota.Amount) []quota.Amount {
	for i := range w.Admission.PodSets {
		ps := &w.Admission.PodSets[i]
		var spec *PodSet
		if j := slices.IndexFunc(w.PodSets, func(p PodSet) bool { return p.Name == ps.Name }); j >= 0 {
			spec = &w.PodSets[j]
		}
		e.scratch.names = appendSorted(e.scratch.names[:0], ps.Flavors)
		for _, res := range e.scratch.names {
			v := reservedAmount(ps, spec, res)
			if v > 0 {
				buf = quota.AddAmount(buf, e.intern(ps.Flavors[res], res), v)
			}
		}
	}
	return buf
}

func reservedAmount(ps *PodSetAssignment, spec *PodSet, res string) int64 {
	left := ps.Count
	if spec != nil {
		left = min(left, spec.Left()) // it may have been admitted for what was left then
	}
	switch {
	case ps.Usage != nil && left != ps.Count && ps.Count > 0:
		return quota.Times(ps.Usage[res]/int64(ps.Count), left)
	case ps.Usage != nil:
		return min(ps.Usage[res], quota.Unlimited)
	case res == Pods:
		return int64(left)
	case spec == nil:
		return 0
	}
	return quota.Times(spec.Requests[res], left)
}

// setPending takes in an event that shows a workload without an admission.
func (e *Engine) setPending(w *workload, spec *Workload) {
	wasEvicted, p := w.hasQuota(), w.preemptor
	e.releaseQuota(w)
	order := e.orderTime(spec)
	rank, _ := e.rankOf(spec, w.local.queue)
	same := !wasEvicted && w.order == order && w.rank == rank && w.waits()
	if same {
		key, _ := e.classKey(spec, w.local, rank)
		same = w.classKey() == string(key)
	}
	if !same {
		e.leave(w)
	}
	w.spec, w.order, w.moving = *spec, order, spec.returns() && (w.moving || w.phase == phaseNew)
	if same {
		w.spec.PodSets = w.shape().podSets
		e.setRank(w, w.queue)
	}
	e.readPreemptor(w, p)
	e.partFromVictims(w)
	e.enqueueOrHoldBack(w)
}

// classKey is the key of the class w is in, or was in before it was nominated.
func (w *workload) classKey() string {
	if w.class != nil {
		return w.class.key
	}
	return w.nomination.key
}

// enqueueOrHoldBack puts a workload into its queue, or holds it back with a reason.
func (e *Engine) enqueueOrHoldBack(w *workload) {
	q := w.local.queue
	if why := e.heldBack(w, q); why.reason != "" {
		if w.spec.RequeueAt.After(e.at) {
			e.setTimer(w.spec.RequeueAt, w)
		}
		e.leave(w)
		e.enter(w, phaseHeldBack)
		if why.counted {
			w.countedIn = q
			q.heldBack++
		}
		if w.heldBackWhy != why.message { // the token alone does not tell one misconfiguration from another
			w.reported, w.published, w.heldBackWhy = "", "", why.message
		}
		e.report(w, why)
		return
	}
	if w.heldBackWhy != "" {
		w.heldBackWhy, w.reported = "", "" // what held it back is no reason any more
		if e.opts.EvictOnly {
			e.reportPending(w, ReasonPending, NotEvaluated)
		}
	}
	if w.queue == q && w.waits() {
		return
	}
	e.leave(w)
	w.queue = q
	e.enqueue(w)
	e.awaitNomination(w)
}

// reportPending notes a changed reason for the next plan.
func (e *Engine) reportPending(w *workload, reason Reason, message string) {
	e.report(w, hold{reason: reason, message: message})
}

func (e *Engine) report(w *workload, why hold) {
	if w.reported == why.reason {
		return
	}
	w.reported = why.reason
	e.plan.Pending = append(e.plan.Pending, Pending{Workload: w.spec.Key, UID: w.spec.UID, Reason: why.reason, Message: why.message, Blocked: why.blocked})
}
