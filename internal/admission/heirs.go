package admission

import "slices"

// For whom room is being made is told by the objects: those who leave, or left, name the one they make room for, and who
// waits for them was told so. Such a claim lasts until its holder is admitted; when it got lost, by a restart, a change of
// quotas or an eviction that could not be written, its holder is an heir and is given it again before anything else is
// decided. A claim on room that others leave for nobody in particular is made anew in each decision.

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
	if w.roomFor != nil {
		*w.roomFor.room(w.left)--
	}
	w.roomFor, w.left, w.sought = p, !w.holds, ""
	if p != nil {
		w.sought = p.spec.UID
		*p.room(w.left)++
	}
}

// room counts who leaves for w, or left for it.
func (w *workload) room(left bool) *int {
	if left {
		return &w.leftFor
	}
	return &w.leaveFor
}

// displaced: somebody makes room for w, or did and w was told to wait for that.
func (w *workload) displaced() bool {
	return w.leaveFor > 0 || w.leftFor > 0 && w.spec.Promised
}

// inherit lists a workload to be given its claim again.
func (e *Engine) inherit(w *workload) {
	if !w.heir {
		w.heir = true
		e.heirs = append(e.heirs, w)
	}
}

// callHeirs sends those without their claims to their trees. Names are looked up for all at once: there are some after
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

// handOver gives heirs their claims again: each has the room that was made for it, and nobody else's.
func (e *Engine) handOver(t *tree) {
	if len(t.heirs) == 0 || e.unready > 0 {
		return
	}
	heirs := slices.DeleteFunc(t.heirs, func(w *workload) bool {
		w.heir = w.class != nil && w.queue.node.root.tree == t
		return !w.heir
	})
	t.heirs = nil
	slices.SortFunc(heirs, turn)
	rooms := map[*workload][]*workload{}
	for v := range e.evicting { // who leaves is moved out of the future and back: that commutes
		if p := v.roomFor; p != nil && p.heir && v.queue.node.root == t.root && p.queue.node.root == t.root {
			rooms[p] = append(rooms[p], v)
		}
	}
	for _, room := range rooms {
		e.setAllLeaving(room, false)
	}
	for _, w := range heirs {
		w.heir = false
		e.giveRoom(w, rooms[w])
	}
}

func (e *Engine) setAllLeaving(room []*workload, leaving bool) {
	for _, v := range room {
		e.setLeaving(v, leaving)
	}
}

// giveRoom gives w a claim on the room that is being made for it. If that is not enough, because not all
// evictions were written, it finds its victims again as if none had been told yet.
func (e *Engine) giveRoom(w *workload, room []*workload) {
	e.setAllLeaving(room, true)
	a := e.newAssignment()
	defer e.recycle(a)
	if e.fitOnly(w, w.class.shape, a); !a.promising() && len(room) > 0 {
		e.setAllLeaving(room, false)
		e.evaluate(w, w.class.shape, a)
		e.setAllLeaving(room, true)
		if a.promising() {
			told := func(v victim) bool { return v.w.leaving }
			if a.victims = slices.DeleteFunc(a.victims, told); len(a.victims) == 0 && a.mode != fit {
				a.mode = deferred
			}
		}
	}
	switch {
	case !a.promising():
		return // it stands in line like others
	case a.mode == fit:
		w.struck = e.decision
	}
	e.process(a)
}
