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
		e.setReserved(w, spec)
	case w.assumed:
		spec.Admission, spec.Evicting = w.spec.Admission, false
		e.setReserved(w, spec)
		w.assumed = true
	default:
		e.setPending(w, spec)
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
	if w.hasQuota {
		l.usage.add(e, w.usage, -1)
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
		e.setPending(w, spec)
		return
	}
	if w.hasQuota && w.evicting && !w.spec.Evicting {
		// Those who counted on its going must look again.
		e.setEvicting(w, false)
		e.setPreemptor(w, nil)
		w.queue.node.root.tree.dropNominations(e)
		e.reviewLater(w)
	}
}

// leave takes a workload out of line.
func (e *Engine) leave(w *workload) {
	if w.class != nil {
		e.dequeue(w)
	}
	if w.nominatedUsage != nil {
		e.removeNomination(w, true)
	}
	w.queue = nil
}

// setReserved makes a workload the holder of its admission's quota.
func (e *Engine) setReserved(w *workload, spec Workload) {
	q := e.queue(spec.Admission.Queue)
	usage := e.usageOf(&spec, e.scratch.usage[:0])
	e.scratch.usage = usage
	if w.hasQuota && w.queue == q && slices.Equal(usage, w.usage) {
		e.confirmReserved(w, spec)
		return
	}
	leaving, p := w.evicting || spec.Evicting, w.preemptor
	if w.hasQuota {
		spec.inheritPlacement(w.spec.Admission)
	}
	e.releaseQuota(w)
	e.leave(w)
	w.spec, w.queue = spec, q
	w.reservedAt = nanos(spec.Admission.ReservedAt)
	w.order = e.orderTime(&spec)
	w.assumed, w.reported, w.published = false, "", ""
	e.occupyQuota(w, slices.Clone(usage))
	if e.opts.Placer != nil {
		e.opts.Placer.Hold(spec.Key, spec.Admission.Placement)
	}
	if leaving {
		e.setEvicting(w, true)
	}
	e.readPreemptor(w, p)
	e.reviewLater(w)
}

// confirmReserved takes in an event that leaves the quota held as it is: most often
// the confirmation of an admission of ours.
func (e *Engine) confirmReserved(w *workload, spec Workload) {
	if !spec.inheritPlacement(w.spec.Admission) && e.opts.Placer != nil {
		e.opts.Placer.Hold(spec.Key, spec.Admission.Placement)
	}
	if reserved := nanos(spec.Admission.ReservedAt); reserved != w.reservedAt || spec.Priority != w.spec.Priority {
		switch t := w.queue.node.root.tree; {
		case spec.Priority < w.spec.Priority:
			e.hintAll(w)
		case spec.Priority > w.spec.Priority && len(t.reservations) > 0:
			e.enlist(t) // who keeps room may not be able to displace it any more
		}
		e.reorder(w, func() { w.reservedAt, w.spec.Priority = reserved, spec.Priority })
	}
	w.spec, w.assumed = spec, false
	w.order = e.orderTime(&spec)
	e.awaitPods(w, !spec.PodsReady)
	if spec.Evicting {
		e.setEvicting(w, true)
		e.readPreemptor(w, w.preemptor)
	}
	e.reviewLater(w)
}

// inheritPlacement: the objects do not tell where the pods are, but we know.
func (s *Workload) inheritPlacement(before *Admission) bool {
	if s.Admission.Placement != nil || before.Placement == nil {
		return false
	}
	adm := *s.Admission
	adm.Placement = before.Placement
	s.Admission = &adm
	return true
}

// reorder changes what orders holders among each other.
func (e *Engine) reorder(w *workload, change func()) {
	q := w.queue
	i, _ := slices.BinarySearchFunc(q.quotaReserved, w, victimOrder)
	q.quotaReserved = slices.Delete(q.quotaReserved, i, i+1)
	change()
	i, _ = slices.BinarySearchFunc(q.quotaReserved, w, victimOrder)
	q.quotaReserved = slices.Insert(q.quotaReserved, i, w)
	q.reservedChanges++
}

// hintAll lets everyone who lacks what w holds look again: it became easier to displace.
func (e *Engine) hintAll(w *workload) {
	t := w.queue.node.root.tree
	for _, u := range w.usage {
		if int(u.fr) < len(t.freed) {
			t.freed[u.fr], t.anyFreed = true, true
		}
	}
	t.improvements++
	e.enlist(t)
}

// occupyQuota counts usage as held by w in its queue.
func (e *Engine) occupyQuota(w *workload, usage []amount) {
	q := w.queue
	w.hasQuota, w.usage = true, usage
	e.awaitPods(w, !w.spec.PodsReady)
	i, _ := slices.BinarySearchFunc(q.quotaReserved, w, victimOrder)
	q.quotaReserved = slices.Insert(q.quotaReserved, i, w)
	q.reservedChanges++
	for _, a := range usage {
		e.count(q, a.fr, a.v, now)
		e.count(q, a.fr, a.v, future)
	}
	if w.local != nil {
		w.local.usage.add(e, usage, 1)
	}
}

// awaitPods counts a holder whose pods are not ready; the last one to be lets the others go on.
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

// releaseQuota gives back whatever quota w holds.
func (e *Engine) releaseQuota(w *workload) {
	if !w.hasQuota {
		return
	}
	q := w.queue
	i, _ := slices.BinarySearchFunc(q.quotaReserved, w, victimOrder)
	q.quotaReserved = slices.Delete(q.quotaReserved, i, i+1)
	q.reservedChanges++
	for _, a := range w.usage {
		e.count(q, a.fr, -a.v, now)
		if !w.evicting {
			e.count(q, a.fr, -a.v, future)
		}
	}
	if w.local != nil {
		w.local.usage.add(e, w.usage, -1)
	}
	if e.opts.Placer != nil {
		e.opts.Placer.Remove(w.spec.Key)
		CapacityChanged{}.apply(e) // its nodes may be those of other flavors, too
	}
	e.awaitPods(w, false)
	w.hasQuota, w.evicting, w.assumed, w.usage = false, false, false, nil
	delete(e.evicting, w)
}

// setEvicting moves a holder out of (or back into) the future.
func (e *Engine) setEvicting(w *workload, leaving bool) {
	if w.evicting == leaving {
		return
	}
	w.evicting = leaving
	w.queue.reservedChanges++
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
	if e.relink {
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
	t.usageChanges++
	if k == now {
		q.node.add(fr, v, k)
		return
	}
	n := q.node
	for ; n != nil && v != 0; n = n.parent {
		c := &n.cells[fr]
		was := c.use[k] > c.subtree && len(t.reservations) == 0 // what is kept for others is not borrowed
		before := max(0, c.use[k]-c.local)
		c.use[k] += v
		v = max(0, c.use[k]-c.local) - before
		tilts := !was && c.use[k] > c.subtree || t.policy != PolicyFIFO // where shares decide, every step changes who is taken first
		if tilts && !slices.Contains(t.newlyBorrowed, fr) {
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
	t := q.node.root.tree
	t.version++
	t.usageChanges++
	t.usageFreed, t.anyFreed = true, true
	t.improvements++
	if int(fr) < len(t.freed) { // the tree of a queue that is gone has nobody to help
		t.freed[fr] = true
	}
	t.updateBorrowing(q, fr)
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
			v := reservedAmount(ps, spec, res)
			if v > 0 {
				buf = addAmount(buf, e.intern(ps.Flavors[res], res), v)
			}
		}
	}
	return buf
}

func reservedAmount(ps *PodSetAssignment, spec *PodSet, res string) int64 {
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

// setPending makes w a pending workload.
func (e *Engine) setPending(w *workload, spec Workload) {
	wasEvicted, p := w.hasQuota, w.preemptor
	e.releaseQuota(w)
	order := e.orderTime(&spec)
	same := !wasEvicted && w.order == order && w.spec.Priority == spec.Priority && (w.class != nil || w.nominatedUsage != nil)
	if same {
		key, _ := e.classKey(&spec, w.local)
		same = w.classKey() == string(key)
	}
	if !same {
		e.leave(w)
	}
	w.spec, w.order = spec, order
	if same {
		w.spec.PodSets = w.shape().podSets
	}
	e.readPreemptor(w, p)
	e.enqueueOrHoldBack(w)
}

// classKey is the key of the class w is in, or was in before it waited for room.
func (w *workload) classKey() string {
	if w.class != nil {
		return w.class.key
	}
	return w.nomination.key
}

// enqueueOrHoldBack puts a pending workload in line, or holds it back with a reason.
func (e *Engine) enqueueOrHoldBack(w *workload) {
	q := w.local.queue
	reason, message := e.heldBack(w, q)
	if reason != "" {
		if w.spec.RequeueAt.After(e.at) {
			e.setTimer(w.spec.RequeueAt, w)
		}
		e.leave(w)
		if w.heldBackWhy != message { // the token alone does not tell one misconfiguration from another
			w.reported, w.published, w.heldBackWhy = "", "", message
		}
		e.reportPending(w, reason, message)
		return
	}
	if w.heldBackWhy != "" {
		w.heldBackWhy, w.reported = "", "" // what held it back is no reason any more
	}
	if w.queue == q && (w.class != nil || w.nominatedUsage != nil) {
		return
	}
	e.leave(w)
	w.queue = q
	e.enqueue(w)
	e.awaitNomination(w)
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

// reportPending notes a changed verdict for the next plan.
func (e *Engine) reportPending(w *workload, reason Reason, message string) {
	if w.reported == reason {
		return
	}
	w.reported = reason
	e.plan.Pending = append(e.plan.Pending, Pending{Workload: w.spec.Key, UID: w.spec.UID, Reason: reason, Message: message})
}
