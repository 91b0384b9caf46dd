package admission

import "slices"

// For whom room is being made is told by the objects: those who leave, or left, name the one they make room for, and who
// waits for them was told so. Such a workload is an heir: before anything else is decided it is given a claim on that
// room, in each decision anew. What it claimed before does not matter, so neither does a restart, a change of quotas or an eviction that
// could not be written. A claim on room that others leave for nobody in particular lasts for one decision.

// readName notes whom w makes room for, if an event says so and we do not know it yet.
func (e *Engine) readName(w *workload, p *workload) {
	uid := w.spec.EvictedFor
	switch {
	case uid == "":
		e.makeRoom(w, nil)
	case p != nil && p.spec.UID == uid:
		e.makeRoom(w, p)
	case w.sought != uid:
		e.unnamed = append(e.unnamed, w)
	}
}

// makeRoom joins one who leaves, or left, to the one it does so for; nil: to nobody.
func (e *Engine) makeRoom(w, p *workload) {
	switch from := w.roomFor; {
	case from == nil:
	case w.left:
		from.leftFor--
	default:
		from.leavers = without(from.leavers, w)
	}
	w.roomFor, w.left, w.sought = p, !w.holds, ""
	switch {
	case p == nil:
		return
	case w.left:
		p.leftFor++
	default:
		p.leavers = append(p.leavers, w)
	}
	w.sought = p.spec.UID
}

// displaced: somebody makes room for w, or did and w was told to wait for that.
func (w *workload) displaced() bool {
	return len(w.leavers) > 0 || w.leftFor > 0 && w.spec.Nominated
}

// inherit lists a workload that is to be given its claim, if it is an heir.
func (e *Engine) inherit(w *workload) {
	if !w.heir {
		w.heir = true
		e.heirs = append(e.heirs, w)
	}
}

// callHeirs sends heirs who have no claim to their trees. Names are looked up for all at once: there are some after
// a restart only.
func (e *Engine) callHeirs() {
	if len(e.unnamed) > 0 {
		named := map[string]*workload{}
		for _, v := range e.unnamed {
			named[v.spec.EvictedFor] = nil
		}
		for _, w := range e.workloads { // UIDs are unique; the order does not matter
			if _, ok := named[w.spec.UID]; ok {
				named[w.spec.UID] = w
			}
		}
		for _, v := range e.unnamed {
			p := named[v.spec.EvictedFor]
			if e.makeRoom(v, p); p != nil {
				e.inherit(p)
			}
			v.sought = v.spec.EvictedFor
		}
		e.unnamed = e.unnamed[:0]
	}
	for _, w := range e.heirs {
		if w.heir = w.class != nil && w.displaced(); w.heir { // if it is in line later, it is called again
			t := w.queue.node.root.tree
			t.heirs = append(t.heirs, w)
			e.enlist(t)
		}
	}
	e.heirs = e.heirs[:0]
}

// heir is a workload with what it claims so far; nil: it stands in line.
type heir struct {
	w   *workload
	had *assignment
}

// compare orders heirs by turn; but who may do with fewer pods comes last, or it would grow into what others left for the rest.
func (h heir) compare(o heir) int {
	if x := h.w.claimed.shape.shrinks; x != o.w.claimed.shape.shrinks {
		if x {
			return 1
		}
		return -1
	}
	return turn(h.w, o.w)
}

// handOver gives heirs their claims: each has the room that was made for it, and nobody else's. Others hear only of claims
// that are not as they were; and if nothing changed since, none are.
func (e *Engine) handOver(t *tree) {
	if e.unready > 0 || len(t.heirs) == 0 && !t.handsAnew(e) {
		return
	}
	t.handedAt, t.touched = [2]uint64{t.shifts, e.capacity}, false
	heirs := make([]heir, 0, len(t.heirs)+len(t.waiting))
	for _, w := range t.heirs {
		if w.heir = false; w.class != nil && w.displaced() && w.queue.node.root.tree == t {
			e.leaveLine(w)
			heirs = append(heirs, heir{w, nil})
		}
	}
	for _, w := range t.waiting {
		e.liftClaim(w, false)
		heirs = append(heirs, heir{w, w.claimed})
		w.claim = nil
		w.queue.claims = w.queue.claims[:0]
	}
	t.heirs, t.waiting = t.heirs[:0], t.waiting[:0]
	slices.SortFunc(heirs, heir.compare)
	for _, h := range heirs {
		e.letStay(h.w)
	}
	for _, h := range heirs {
		e.giveRoom(h)
	}
	for _, h := range heirs {
		if h.had != nil {
			h.w.queue.rebalance(h.had.usage)
		}
		for _, v := range h.w.leavers {
			v.queue.rebalance(v.usage)
		}
		if q := h.w.queue; h.had != nil && t.policy != PolicyFIFO && len(q.claims) == 0 {
			q.wakeAll(e) // the next may take from others now
		}
	}
}

// handsAnew: something changed since claims were given, so that they may be more or better ones now.
func (t *tree) handsAnew(e *Engine) bool {
	return len(t.waiting) > 0 && t.handedAt != [2]uint64{t.shifts, e.capacity}
}

// letStay puts those who leave for w back into the future while it is looked at who can have what.
func (e *Engine) letStay(w *workload) {
	for _, v := range w.leavers {
		if v.leaving {
			v.leaving, v.stays = false, true
			delete(e.evicting, v)
			e.shift(v, 1)
		}
	}
}

// letGo is the reverse of letStay.
func (e *Engine) letGo(w *workload) {
	for _, v := range w.leavers {
		if v.stays {
			v.leaving, v.stays = true, false
			e.evicting[v] = struct{}{}
			e.shift(v, -1)
		}
	}
}

// giveRoom gives an heir a claim on the room that is being made for it. If that is not enough, because not all
// evictions were written, it finds its victims again as if none had been told yet.
func (e *Engine) giveRoom(h heir) {
	w, s := h.w, h.w.claimed.shape
	e.letGo(w)
	a := e.newAssignment()
	defer e.recycle(a)
	if e.fitOnly(w, s, a); !a.promising() && len(w.leavers) > 0 {
		e.letStay(w)
		e.evaluate(w, s, a)
		e.letGo(w)
		if a.promising() {
			told := func(v victim) bool { return v.w.leaving }
			if a.victims = slices.DeleteFunc(a.victims, told); len(a.victims) == 0 && a.mode != fit {
				a.mode = deferred
			}
		}
	}
	if a.mode == fit && e.unready > 0 {
		a.mode = deferred // another was admitted meanwhile
	}
	if h.had != nil && a.promising() && a.mode != fit && len(a.victims) == 0 && a.asClaimed(h.had) {
		h.had.placed = a.placed
		w.claim, w.claimed = h.had.usage, h.had
		e.putClaim(w)
		w.wait()
		return
	}
	if h.had != nil {
		for _, u := range h.had.usage {
			e.freed(w.queue, u.fr)
		}
	}
	if a.promising() {
		if a.mode == fit {
			w.struck = e.decision
		}
		e.process(a)
	}
	switch {
	case w.holds:
		w.claimed = nil
		w.queue.pending--
	case w.claim == nil: // it stands in line like others
		e.stepIn(w)
	}
}

// asClaimed: nothing is different from a claim so far.
func (a *assignment) asClaimed(had *assignment) bool {
	return slices.Equal(a.counts, had.counts) && slices.EqualFunc(a.flavors, had.flavors, slices.Equal) && a.borrow == had.borrow
}
