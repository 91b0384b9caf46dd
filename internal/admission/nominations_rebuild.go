package admission

import (
	"slices"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// Victims name their preemptor in the Evicted condition, and the preemptor was told that it waits
// for them; nominations are rebuilt from that in every decision, before anything else is decided. What was
// nominated before does not matter, so neither does a restart, a change of quotas or an eviction
// that could not be written. A nomination for quota that others free for nobody in particular lasts
// for one decision.

// readPreemptor notes for whom w is evicted, if an event says so and we do not know it yet.
func (e *Engine) readPreemptor(w *workload, p *workload) {
	uid := w.spec.EvictedFor
	switch {
	case uid == "", p != nil && p.spec.UID == uid && w.outlived(p):
		e.setPreemptor(w, nil)
	case p != nil && p.spec.UID == uid:
		e.setPreemptor(w, p)
	case w.preemptorUID != uid:
		e.unresolvedVictims = append(e.unresolvedVictims, w)
	}
}

// outlived says that the preemptor of w has lost its quota since w was evicted for it: it had what it asked for, and is not
// nominated for what w leaves any more.
func (w *workload) outlived(p *workload) bool {
	return w.spec.Evicting && !p.spec.EvictedAt.IsZero() && !p.spec.EvictedAt.Before(w.spec.EvictedAt)
}

// partFromVictims parts a workload that was evicted from those that were evicted for it before.
func (e *Engine) partFromVictims(p *workload) {
	for _, v := range slices.Clone(p.victims) {
		if v.outlived(p) {
			e.setPreemptor(v, nil)
			v.preemptorUID = v.spec.EvictedFor
		}
	}
}

// setPreemptor joins a victim, leaving or gone, to its preemptor; nil: to nobody.
func (e *Engine) setPreemptor(w, p *workload) {
	switch from := w.preemptor; {
	case from == nil:
	case w.victimGone:
		from.victimsGone--
	default:
		if from.victims = without(from.victims, w); len(from.victims) == 0 {
			delete(e.preemptors, from)
		}
	}
	w.preemptor, w.victimGone, w.preemptorUID = p, !w.hasQuota(), ""
	switch {
	case p == nil:
		return
	case w.victimGone:
		p.victimsGone++
	default:
		p.victims = append(p.victims, w)
		e.preemptors[p] = struct{}{}
	}
	w.preemptorUID = p.spec.UID
}

// hasVictims: others are being evicted for w, or were and w was told to wait for that.
func (w *workload) hasVictims() bool {
	return len(w.victims) > 0 || w.victimsGone > 0 && w.spec.Nominated
}

// nominable: quota is nominated for w in particular, what its victims free or what it had before it moved.
func (w *workload) nominable() bool { return w.hasVictims() || w.moving }

// awaitNomination lists a workload that is to be nominated, if it is nominable.
func (e *Engine) awaitNomination(w *workload) {
	if !w.awaitsNomination {
		w.awaitsNomination = true
		e.toNominate = append(e.toNominate, w)
	}
}

// collectNominees sends workloads that are to be nominated to their trees.
func (e *Engine) collectNominees() {
	e.resolveVictims()
	for _, w := range e.toNominate {
		if w.awaitsNomination = w.phase == phasePending && w.nominable(); w.awaitsNomination { // once it is pending again, it is listed again
			t := w.queue.tree
			t.toNominate = append(t.toNominate, w)
			e.enlist(t)
		}
	}
	e.toNominate = e.toNominate[:0]
}

// resolveVictims finds the preemptors that victims name by UID, for all at once: there are some
// after a restart only.
func (e *Engine) resolveVictims() {
	if len(e.unresolvedVictims) == 0 {
		return
	}
	named := map[string]*workload{}
	for _, v := range e.unresolvedVictims {
		named[v.spec.EvictedFor] = nil
	}
	for _, w := range e.workloads { // UIDs are unique; the order does not matter
		if _, ok := named[w.spec.UID]; ok {
			named[w.spec.UID] = w
		}
	}
	for _, v := range e.unresolvedVictims {
		p := named[v.spec.EvictedFor]
		if p != nil && v.outlived(p) {
			p = nil
		}
		if e.setPreemptor(v, p); p != nil {
			e.awaitNomination(p)
		}
		v.preemptorUID = v.spec.EvictedFor
	}
	e.unresolvedVictims = e.unresolvedVictims[:0]
}

// nominee is a workload to be nominated with its nomination so far; nil: it was pending.
type nominee struct {
	w        *workload
	previous *assignment
}

// compare orders nominees as queues do. But one that may be admitted with fewer pods comes last, or
// it would grow into what victims free for the others.
func (h nominee) compare(o nominee) int {
	if x := h.w.nomination.shape.shrinks; x != o.w.nomination.shape.shrinks {
		if x {
			return 1
		}
		return -1
	}
	return queueOrder(h.w, o.w)
}

// renominate rebuilds the nominations of trees: each preemptor has the quota, and the nodes, that its victims free,
// and nobody else's. Others get a hint only of nominations that changed; if nothing else
// changed since the last time, none did.
func (e *Engine) renominate(trees ...*tree) {
	if e.unready > 0 {
		return
	}
	nominees := e.scratch.nominees[:0]
	for _, t := range trees {
		if len(t.toNominate) > 0 || t.nominationsOutdated() {
			t.nominatedAt, t.usageFreed = t.usageChanges, false
			nominees = e.takeNominees(t, nominees)
		}
	}
	e.scratch.nominees = nominees
	slices.SortStableFunc(nominees, func(a, b nominee) int { return boolOrder(a.w.moving, b.w.moving) }) // or they would go back to the nodes that they left
	for _, h := range nominees {
		e.countVictims(h.w)
	}
	for _, h := range nominees {
		e.renominateOne(h)
	}
	e.setNodesAsideAgain()
	e.announceNodesReleased()
	for _, h := range nominees {
		if h.previous != nil {
			h.w.queue.updateBorrowing(h.previous.usage)
		}
		for _, v := range h.w.victims {
			v.queue.updateBorrowing(v.usage)
		}
		if q := h.w.queue; h.previous != nil && q.tree.policy != PolicyFIFO && len(q.nominated) == 0 {
			q.requeueAll(e) // the next may preempt in other queues now
		}
	}
	clear(nominees)
}

// takeNominees takes those to be nominated out of their queues, and nominations out of the future. They are added to
// those of other trees, in order.
func (e *Engine) takeNominees(t *tree, nominees []nominee) []nominee {
	first := len(nominees)
	for _, w := range t.toNominate {
		if w.awaitsNomination = false; w.phase == phasePending && w.nominable() && w.queue.tree == t {
			e.leaveQueue(w)
			nominees = append(nominees, nominee{w, nil})
		}
	}
	for _, w := range t.nominated {
		e.uncountNomination(w)
		nominees = append(nominees, nominee{w, w.nomination})
		w.nominatedUsage = nil
		w.queue.nominated = w.queue.nominated[:0]
		e.enter(w, phaseNominating)
	}
	t.toNominate, t.nominated = t.toNominate[:0], t.nominated[:0]
	slices.SortFunc(nominees[first:], nominee.compare)
	return nominees
}

// nominationsOutdated: something changed since nominations were made, so that there may be more or better ones now.
func (t *tree) nominationsOutdated() bool {
	return len(t.nominated) > 0 && t.nominatedAt != t.usageChanges
}

// capacityChanged makes nominations outdated after nodes or flavors changed: nodes may have come free for them.
func (e *Engine) capacityChanged() {
	for _, t := range e.trees {
		if t.nominatedAt = 0; len(t.nominated) > 0 {
			e.enlist(t)
		}
	}
}

// countVictims counts the victims of w in the future again while nominations are rebuilt, so that
// each preemptor finds what its own victims free.
func (e *Engine) countVictims(w *workload) {
	for _, v := range w.victims {
		if v.phase == phaseEvicting {
			v.countedAgain = true
			e.enter(v, phaseReserved)
			delete(e.evicting, v)
			v.countInFuture(1)
		}
	}
}

// countInFuture counts the quota of a workload that is being evicted in the future; that of one that moves is there.
func (w *workload) countInFuture(sign int64) {
	if w.moving {
		return
	}
	for _, u := range w.usage {
		w.queue.node.Add(u.FR, sign*u.V, quota.Future)
	}
}

// discountVictims is the reverse of countVictims.
func (e *Engine) discountVictims(w *workload) {
	for _, v := range w.victims {
		if v.countedAgain {
			v.countedAgain = false
			e.enter(v, phaseEvicting)
			e.evicting[v] = struct{}{}
			v.countInFuture(-1)
		}
	}
}

// renominateOne nominates a workload for the quota that its victims free. If that is not enough,
// because not all evictions were written, it finds its victims again as if none had been told yet.
func (e *Engine) renominateOne(h nominee) {
	w, s := h.w, h.w.nomination.shape
	e.discountVictims(w)
	e.releaseNodesAside(w)
	a := e.newAssignment()
	defer e.recycle(a)
	if e.evaluate(w, s, a, fitOnly); !a.admissible() && len(w.victims) > 0 {
		e.findVictimsAgain(w, s, a)
	}
	if a.mode == fit && e.unready > 0 {
		a.mode = deferred // another was admitted meanwhile
	}
	if h.previous != nil && a.admissible() && a.mode != fit && len(a.victims) == 0 && a.sameAs(h.previous) {
		h.previous.placed = a.placed
		w.nominatedUsage, w.nomination = h.previous.usage, h.previous
		e.countNomination(w)
		e.joinNominated(w)
		return
	}
	if h.previous != nil {
		for _, u := range h.previous.usage {
			e.freed(w.queue, u.FR)
		}
	}
	if a.admissible() {
		if a.mode == fit {
			w.in.preempted = e.decision
		}
		e.process(a)
	}
	switch {
	case w.hasQuota():
		w.nomination = nil
		w.queue.pending--
	case w.phase == phaseNominating: // it is pending like others
		e.stayAway(w)
		e.rejoinQueue(w)
	}
}

// findVictimsAgain evaluates a workload as if its victims were not being evicted, and drops those
// that were told from the answer.
func (e *Engine) findVictimsAgain(w *workload, s *requestShape, a *assignment) {
	e.countVictims(w)
	e.consider(w, s, a)
	e.discountVictims(w)
	if !a.admissible() {
		return
	}
	reported := func(v victim) bool { return v.w.phase == phaseEvicting }
	if a.victims = slices.DeleteFunc(a.victims, reported); len(a.victims) == 0 && a.mode != fit {
		a.mode = deferred
	}
}

// sameAs: nothing is different from a nomination so far.
func (a *assignment) sameAs(previous *assignment) bool {
	return slices.Equal(a.counts, previous.counts) && slices.EqualFunc(a.flavors, previous.flavors, slices.Equal) && a.borrow == previous.borrow
}
