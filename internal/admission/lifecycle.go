package admission

import (
	"slices"
)

func (ev WorkloadChanged) apply(e *Engine) {
	spec := ev.Workload
	w := e.workloads[spec.Key]
	if spec.Finished {
		if w != nil {
			e.forget(w)
		}
		return
	}
	if w == nil {
		w = &workload{pos: -1}
		e.workloads[spec.Key] = w
	} else if w.spec.UID != spec.UID {
		e.forget(w)
		w = &workload{pos: -1}
		e.workloads[spec.Key] = w
	}
	e.update(w, spec)
}

// update moves a workload to the state an event describes. Decisions that are
// being carried out outlive events from before they were: an admission ends by
// DecisionDropped, by a confirming event or with the workload.
func (e *Engine) update(w *workload, spec Workload) {
	e.setLocal(w, spec)
	switch {
	case spec.Admission != nil:
		e.hold(w, spec)
	case w.assumed:
		spec.Admission, spec.Evicting = w.spec.Admission, false
		e.hold(w, spec)
		w.assumed = true
	default:
		e.pend(w, spec)
	}
}

func (e *Engine) setLocal(w *workload, spec Workload) {
	l := e.localQueue(Key{spec.Namespace, spec.LocalQueue})
	if w.local == l {
		return
	}
	e.leaveLocal(w)
	w.local, w.localPos = l, len(l.members)
	l.members = append(l.members, w)
}

func (e *Engine) leaveLocal(w *workload) {
	l := w.local
	if l == nil {
		return
	}
	if w.holds {
		l.usage.hold(e, w.usage, -1)
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
	e.release(w)
	e.withdraw(w)
	e.leaveLocal(w)
	e.makeRoom(w, nil)
	w.gone = true
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
		e.pend(w, spec)
		return
	}
	if w.holds && w.leaving && !w.spec.Evicting {
		// Those who counted on its going must look again.
		e.setLeaving(w, false)
		e.makeRoom(w, nil)
		w.queue.node.root.tree.dropClaims(e)
		e.reviewLater(w)
	}
}

// withdraw takes a workload out of line.
func (e *Engine) withdraw(w *workload) {
	if w.class != nil {
		e.dequeue(w)
	}
	if w.claim != nil {
		e.unclaim(w, true)
	}
	w.queue = nil
}

// hold makes a workload the holder of its admission's quota.
func (e *Engine) hold(w *workload, spec Workload) {
	q := e.queue(spec.Admission.Queue)
	usage := e.usageOf(&spec, e.scratch.usage[:0])
	e.scratch.usage = usage
	if w.holds && w.queue == q && slices.Equal(usage, w.usage) {
		e.keepHolding(w, spec)
		return
	}
	leaving, p := w.leaving || spec.Evicting, w.roomFor
	if w.holds {
		spec.keepPlacement(w.spec.Admission)
	}
	e.release(w)
	e.withdraw(w)
	w.spec, w.queue = spec, q
	w.reserved = nanos(spec.Admission.ReservedAt)
	w.order = e.orderTime(&spec)
	w.assumed, w.told, w.heard = false, "", ""
	e.occupy(w, slices.Clone(usage))
	if e.opts.Placer != nil {
		e.opts.Placer.Hold(spec.Key, spec.Admission.Placement)
	}
	if leaving {
		e.setLeaving(w, true)
	}
	e.readName(w, p)
	e.reviewLater(w)
}

// keepHolding takes in an event that leaves the quota held as it is: most often
// the confirmation of an admission of ours.
func (e *Engine) keepHolding(w *workload, spec Workload) {
	if !spec.keepPlacement(w.spec.Admission) && e.opts.Placer != nil {
		e.opts.Placer.Hold(spec.Key, spec.Admission.Placement)
	}
	if reserved := nanos(spec.Admission.ReservedAt); reserved != w.reserved || spec.Priority != w.spec.Priority {
		switch t := w.queue.node.root.tree; {
		case spec.Priority < w.spec.Priority:
			e.heedAll(w)
		case spec.Priority > w.spec.Priority && len(t.reserving) > 0:
			e.enlist(t) // who keeps room may not be able to displace it any more
		}
		e.standElsewhere(w, func() { w.reserved, w.spec.Priority = reserved, spec.Priority })
	}
	w.spec, w.assumed = spec, false
	w.order = e.orderTime(&spec)
	e.await(w, !spec.PodsReady)
	if spec.Evicting {
		e.setLeaving(w, true)
		e.readName(w, w.roomFor)
	}
	e.reviewLater(w)
}

// keepPlacement: the objects do not tell where the pods are, but we know.
func (s *Workload) keepPlacement(before *Admission) bool {
	if s.Admission.Placement != nil || before.Placement == nil {
		return false
	}
	adm := *s.Admission
	adm.Placement = before.Placement
	s.Admission = &adm
	return true
}

// standElsewhere changes what orders holders among each other.
func (e *Engine) standElsewhere(w *workload, change func()) {
	q := w.queue
	i, _ := slices.BinarySearchFunc(q.holders, w, victimOrder)
	q.holders = slices.Delete(q.holders, i, i+1)
	change()
	i, _ = slices.BinarySearchFunc(q.holders, w, victimOrder)
	q.holders = slices.Insert(q.holders, i, w)
	q.turnover++
}

// heedAll lets everyone who lacks what w holds look again: it became easier to displace.
func (e *Engine) heedAll(w *workload) {
	t := w.queue.node.root.tree
	for _, u := range w.usage {
		if int(u.fr) < len(t.freed) {
			t.freed[u.fr], t.loose = true, true
		}
	}
	t.helps++
	e.enlist(t)
}

// occupy counts usage as held by w in its queue.
func (e *Engine) occupy(w *workload, usage []amount) {
	q := w.queue
	w.holds, w.usage = true, usage
	e.await(w, !w.spec.PodsReady)
	i, _ := slices.BinarySearchFunc(q.holders, w, victimOrder)
	q.holders = slices.Insert(q.holders, i, w)
	q.turnover++
	for _, a := range usage {
		e.count(q, a.fr, a.v, now)
		e.count(q, a.fr, a.v, future)
	}
	if w.local != nil {
		w.local.usage.hold(e, usage, 1)
	}
}

// await counts a holder whose pods are not ready; the last one to be lets the others go on.
func (e *Engine) await(w *workload, awaited bool) {
	if !e.opts.BlockUntilReady || w.awaited == awaited {
		return
	}
	w.awaited = awaited
	if awaited {
		e.unready++
		return
	}
	if e.unready--; e.unready > 0 {
		return
	}
	for _, t := range e.trees {
		t.touched = t.touched || len(t.waiting) > 0
		e.enlist(t)
	}
}

// release gives back whatever quota w holds.
func (e *Engine) release(w *workload) {
	if !w.holds {
		return
	}
	q := w.queue
	i, _ := slices.BinarySearchFunc(q.holders, w, victimOrder)
	q.holders = slices.Delete(q.holders, i, i+1)
	q.turnover++
	for _, a := range w.usage {
		e.count(q, a.fr, -a.v, now)
		if !w.leaving {
			e.count(q, a.fr, -a.v, future)
		}
	}
	if w.local != nil {
		w.local.usage.hold(e, w.usage, -1)
	}
	if e.opts.Placer != nil {
		e.opts.Placer.Remove(w.spec.Key)
		CapacityChanged{}.apply(e) // its nodes may be those of other flavors, too
	}
	e.await(w, false)
	w.holds, w.leaving, w.assumed, w.usage = false, false, false, nil
	delete(e.evicting, w)
}

// setLeaving moves a holder out of (or back into) the future.
func (e *Engine) setLeaving(w *workload, leaving bool) {
	if w.leaving == leaving {
		return
	}
	w.leaving = leaving
	w.queue.turnover++
	sign := int64(1)
	if leaving {
		sign = -1
		e.evicting[w] = struct{}{}
	} else {
		delete(e.evicting, w)
	}
	for _, a := range w.usage {
		e.count(w.queue, a.fr, sign*a.v, future)
	}
}

// count changes usage for good and notes whom that may help.
func (e *Engine) count(q *queue, fr int32, v int64, k int) {
	if e.reshaped {
		// Only the queue's own cell lasts until the trees are linked again.
		q.node.grow(len(e.frs))
		q.node.cells[fr].use[k] += v
		q.node.changed = true
		return
	}
	if v < 0 {
		q.node.add(fr, v, k)
		e.freed(q, fr)
		return
	}
	t := q.node.root.tree
	t.version++
	t.shifts++
	if k == now {
		q.node.add(fr, v, k)
		return
	}
	n := q.node
	for ; n != nil && v != 0; n = n.parent {
		c := &n.cells[fr]
		was := c.use[k] > c.subtree && len(t.reserving) == 0 // what is kept for others is not borrowed
		before := max(0, c.use[k]-c.local)
		c.use[k] += v
		v = max(0, c.use[k]-c.local) - before
		tilts := !was && c.use[k] > c.subtree || t.policy != PolicyFIFO // where shares decide, every step changes who is taken first
		if tilts && !slices.Contains(t.tilted, fr) {
			t.tilted = append(t.tilted, fr)
			t.helps++
		}
	}
	t.rebalance(q, fr)
	if !t.listed && (len(t.tilted) > 0 || e.anyFickle(t)) {
		e.enlist(t)
	}
}

// freed notes that a queue uses less, or will.
func (e *Engine) freed(q *queue, fr int32) {
	t := q.node.root.tree
	t.version++
	t.shifts++
	t.touched, t.loose = true, true
	t.helps++
	if int(fr) < len(t.freed) { // the tree of a queue that is gone has nobody to help
		t.freed[fr] = true
	}
	t.rebalance(q, fr)
	e.enlist(t)
}

// usageOf is the quota a holder's admission takes, less the pods that finished.
func (e *Engine) usageOf(w *Workload, buf []amount) []amount {
	for i := range w.Admission.PodSets {
		ps := &w.Admission.PodSets[i]
		var spec *PodSet
		if j := slices.IndexFunc(w.PodSets, func(p PodSet) bool { return p.Name == ps.Name }); j >= 0 {
			spec = &w.PodSets[j]
		}
		e.scratch.names = appendSorted(e.scratch.names[:0], ps.Flavors)
		for _, res := range e.scratch.names {
			v := holderAmount(ps, spec, res)
			if v > 0 {
				buf = addAmount(buf, e.intern(ps.Flavors[res], res), v)
			}
		}
	}
	return buf
}

func holderAmount(ps *PodSetAssignment, spec *PodSet, res string) int64 {
	count := int64(ps.Count)
	left := count
	if spec != nil {
		left = min(count, int64(spec.Left())) // it may have been admitted for what was left then
	}
	if ps.Usage != nil {
		v := ps.Usage[res]
		if left != count && count > 0 {
			v = v / count * left
		}
		return v
	}
	if res == Pods {
		return left
	}
	if spec == nil {
		return 0
	}
	return spec.Requests[res] * left
}

// addAmount keeps lists of amounts sorted by flavor-resource.
func addAmount(list []amount, fr int32, v int64) []amount {
	i := len(list)
	for i > 0 && list[i-1].fr >= fr {
		i--
	}
	if i < len(list) && list[i].fr == fr {
		list[i].v += v
		return list
	}
	return slices.Insert(list, i, amount{fr, v})
}

// pend makes w a pending workload.
func (e *Engine) pend(w *workload, spec Workload) {
	wasEvicted, p := w.holds, w.roomFor
	e.release(w)
	order := e.orderTime(&spec)
	same := !wasEvicted && w.order == order && w.spec.Priority == spec.Priority && (w.class != nil || w.claim != nil)
	if same {
		key, _ := e.classKey(&spec, w.local)
		same = w.classKey() == string(key)
	}
	if !same {
		e.withdraw(w)
	}
	w.spec, w.order = spec, order
	if same {
		w.spec.PodSets = w.shape().podSets
	}
	e.readName(w, p)
	e.place(w)
}

// classKey is the key of the class w is in, or was in before it waited for room.
func (w *workload) classKey() string {
	if w.class != nil {
		return w.class.key
	}
	return w.claimed.key
}

// place puts a pending workload in line, or holds it back with a reason.
func (e *Engine) place(w *workload) {
	q := w.local.queue
	reason, message := e.heldBack(w, q)
	if reason != "" {
		if w.spec.RequeueAt.After(e.at) {
			e.setTimer(w.spec.RequeueAt, w)
		}
		e.withdraw(w)
		if w.held != message { // the token alone does not tell one misconfiguration from another
			w.told, w.heard, w.held = "", "", message
		}
		e.park(w, reason, message)
		return
	}
	if w.held != "" {
		w.held, w.told = "", "" // what held it back is no reason any more
	}
	if w.queue == q && (w.class != nil || w.claim != nil) {
		return
	}
	e.withdraw(w)
	w.queue = q
	e.enqueue(w)
	e.inherit(w)
}

// heldBack says why a workload may not even stand in line.
func (e *Engine) heldBack(w *workload, q *queue) (Reason, string) {
	s := &w.spec
	switch {
	case s.Inactive:
		return ReasonSuspended, "The workload is deactivated"
	case s.Gated:
		return ReasonAdmissionGated, "The workload has a closed admission gate"
	case s.Refused != "":
		return ReasonMisconfigured, s.Refused
	case s.Unready != "":
		return ReasonPending, s.Unready
	case !w.local.exists:
		return ReasonMisconfigured, "LocalQueue " + s.LocalQueue + " doesn't exist"
	case w.local.spec.Stop != StopNone:
		return ReasonSuspended, "LocalQueue " + s.LocalQueue + " is inactive"
	case !q.exists:
		return ReasonMisconfigured, "ClusterQueue " + q.name + " doesn't exist"
	case q.spec.Stop != StopNone:
		return ReasonSuspended, "ClusterQueue " + q.name + " is inactive"
	case q.spec.Inactive:
		return ReasonSuspended, "ClusterQueue " + q.name + " is inactive"
	case q.spec.NamespaceSelector == nil || !q.spec.NamespaceSelector.matches(e.namespaces[s.Namespace]):
		return ReasonMisconfigured, "Workload namespace doesn't match ClusterQueue selector"
	case s.RequeueAt.After(e.at):
		return ReasonPending, "The workload is requeued after its backoff ends"
	}
	return "", ""
}

// park notes a changed verdict for the next plan.
func (e *Engine) park(w *workload, reason Reason, message string) {
	if w.told == reason {
		return
	}
	w.told = reason
	e.plan.Pending = append(e.plan.Pending, Pending{Workload: w.spec.Key, UID: w.spec.UID, Reason: reason, Message: message})
}
