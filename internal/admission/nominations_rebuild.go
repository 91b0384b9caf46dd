package admission

import "slices"

// For whom room is being made is told by the objects: those who leave, or left, name the one they make room for, and who
// waits for them was told so. Such a workload is an heir: before anything else is decided it is given a claim on that
// room, in each decision anew. What it claimed before does not matter, so neither does a restart, a change of quotas or an eviction that
// could not be written. A claim on room that others leave for nobody in particular lasts for one decision.

// readPreemptor notes whom w makes room for, if an event says so and we do not know it yet.
func (e *Engine) readPreemptor(w *workload, p *workload) {
	uid := w.spec.EvictedFor
	switch {
	case uid == "":
		e.setPreemptor(w, nil)
	case p != nil && p.spec.UID == uid:
		e.setPreemptor(w, p)
	case w.preemptorUID != uid:
		e.unresolvedVictims = append(e.unresolvedVictims, w)
	}
}

// setPreemptor joins one who leaves, or left, to the one it does so for; nil: to nobody.
func (e *Engine) setPreemptor(w, p *workload) {
	switch from := w.preemptor; {
	case from == nil:
	case w.victimGone:
		from.victimsGone--
	default:
		from.victims = without(from.victims, w)
	}
	w.preemptor, w.victimGone, w.preemptorUID = p, !w.hasQuota, ""
	switch {
	case p == nil:
		return
	case w.victimGone:
		p.victimsGone++
	default:
		p.victims = append(p.victims, w)
	}
	w.preemptorUID = p.spec.UID
}

// hasVictims: somebody makes room for w, or did and w was told to wait for that.
func (w *workload) hasVictims() bool {
	return len(w.victims) > 0 || w.victimsGone > 0 && w.spec.Nominated
}

// awaitNomination lists a workload that is to be given its claim, if it is an heir.
func (e *Engine) awaitNomination(w *workload) {
	if !w.awaitsNomination {
		w.awaitsNomination = true
		e.toNominate = append(e.toNominate, w)
	}
}

// collectNominees sends heirs who have no claim to their trees. Names are looked up for all at once: there are some after
// a restart only.
func (e *Engine) collectNominees() {
	if len(e.unresolvedVictims) > 0 {
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
			if e.setPreemptor(v, p); p != nil {
				e.awaitNomination(p)
			}
			v.preemptorUID = v.spec.EvictedFor
		}
		e.unresolvedVictims = e.unresolvedVictims[:0]
	}
	for _, w := range e.toNominate {
		if w.awaitsNomination = w.class != nil && w.hasVictims(); w.awaitsNomination { // if it is in line later, it is called again
			t := w.queue.node.root.tree
			t.toNominate = append(t.toNominate, w)
			e.enlist(t)
		}
	}
	e.toNominate = e.toNominate[:0]
}

// nominee is a workload with what it claims so far; nil: it stands in line.
type nominee struct {
	w        *workload
	previous *assignment
}

// compare orders heirs by turn; but who may do with fewer pods comes last, or it would grow into what others left for the rest.
func (h nominee) compare(o nominee) int {
	if x := h.w.nomination.shape.shrinks; x != o.w.nomination.shape.shrinks {
		if x {
			return 1
		}
		return -1
	}
	return queueOrder(h.w, o.w)
}

// renominate gives heirs their claims: each has the room that was made for it, and nobody else's. Others hear only of claims
// that are not as they were; and if nothing changed since, none are.
func (e *Engine) renominate(t *tree) {
	if e.unready > 0 || len(t.toNominate) == 0 && !t.nominationsOutdated(e) {
		return
	}
	t.nominatedAt, t.usageFreed = [2]uint64{t.usageChanges, e.capacity}, false
	heirs := make([]nominee, 0, len(t.toNominate)+len(t.nominated))
	for _, w := range t.toNominate {
		if w.awaitsNomination = false; w.class != nil && w.hasVictims() && w.queue.node.root.tree == t {
			e.leaveQueue(w)
			heirs = append(heirs, nominee{w, nil})
		}
	}
	for _, w := range t.nominated {
		e.liftNomination(w, false)
		heirs = append(heirs, nominee{w, w.nomination})
		w.nominatedUsage = nil
		w.queue.nominated = w.queue.nominated[:0]
	}
	t.toNominate, t.nominated = t.toNominate[:0], t.nominated[:0]
	slices.SortFunc(heirs, nominee.compare)
	for _, h := range heirs {
		e.countVictims(h.w)
	}
	for _, h := range heirs {
		e.renominateOne(h)
	}
	for _, h := range heirs {
		if h.previous != nil {
			h.w.queue.updateBorrowing(h.previous.usage)
		}
		for _, v := range h.w.victims {
			v.queue.updateBorrowing(v.usage)
		}
		if q := h.w.queue; h.previous != nil && t.policy != PolicyFIFO && len(q.nominated) == 0 {
			q.requeueAll(e) // the next may take from others now
		}
	}
}

// nominationsOutdated: something changed since claims were given, so that they may be more or better ones now.
func (t *tree) nominationsOutdated(e *Engine) bool {
	return len(t.nominated) > 0 && t.nominatedAt != [2]uint64{t.usageChanges, e.capacity}
}

// countVictims puts those who leave for w back into the future while it is looked at who can have what.
func (e *Engine) countVictims(w *workload) {
	for _, v := range w.victims {
		if v.evicting {
			v.evicting, v.countedAgain = false, true
			delete(e.evicting, v)
			e.shift(v, 1)
		}
	}
}

// discountVictims is the reverse of letStay.
func (e *Engine) discountVictims(w *workload) {
	for _, v := range w.victims {
		if v.countedAgain {
			v.evicting, v.countedAgain = true, false
			e.evicting[v] = struct{}{}
			e.shift(v, -1)
		}
	}
}

// renominateOne gives an heir a claim on the room that is being made for it. If that is not enough, because not all
// evictions were written, it finds its victims again as if none had been told yet.
func (e *Engine) renominateOne(h nominee) {
	w, s := h.w, h.w.nomination.shape
	e.discountVictims(w)
	a := e.newAssignment()
	defer e.recycle(a)
	if e.fitOnly(w, s, a); !a.admissible() && len(w.victims) > 0 {
		e.countVictims(w)
		e.evaluate(w, s, a)
		e.discountVictims(w)
		if a.admissible() {
			told := func(v victim) bool { return v.w.evicting }
			if a.victims = slices.DeleteFunc(a.victims, told); len(a.victims) == 0 && a.mode != fit {
				a.mode = deferred
			}
		}
	}
	if a.mode == fit && e.unready > 0 {
		a.mode = deferred // another was admitted meanwhile
	}
	if h.previous != nil && a.admissible() && a.mode != fit && len(a.victims) == 0 && a.sameAs(h.previous) {
		h.previous.placed = a.placed
		w.nominatedUsage, w.nomination = h.previous.usage, h.previous
		e.restoreNomination(w)
		w.joinNominated()
		return
	}
	if h.previous != nil {
		for _, u := range h.previous.usage {
			e.freed(w.queue, u.fr)
		}
	}
	if a.admissible() {
		if a.mode == fit {
			w.preemptedIn = e.decision
		}
		e.process(a)
	}
	switch {
	case w.hasQuota:
		w.nomination = nil
		w.queue.pending--
	case w.nominatedUsage == nil: // it stands in line like others
		e.rejoinQueue(w)
	}
}

// sameAs: nothing is different from a claim so far.
func (a *assignment) sameAs(had *assignment) bool {
	return slices.Equal(a.counts, had.counts) && slices.EqualFunc(a.flavors, had.flavors, slices.Equal) && a.borrow == had.borrow
}
