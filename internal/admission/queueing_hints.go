package admission

import (
	"math"
	"slices"
)

// enlist marks a tree as one in which something may be decided.
func (e *Engine) enlist(t *tree) {
	if !t.listed {
		t.listed, e.unsorted = true, true
		e.work = append(e.work, t)
	}
}

// ready notes that a queue may have a head to look at.
func (e *Engine) ready(q *queue) {
	if q.head() != nil {
		e.enlist(q.node.root.tree)
	}
}

// setInadmissible puts a class to sleep with its answer. In a StrictFIFO queue it
// stays first in line and blocks those behind it.
func (e *Engine) setInadmissible(c *equivClass, v verdict) {
	c.verdict = v
	e.deactivate(c)
	if c.reported != v.reason {
		c.reported = v.reason
		c.unreported = append(c.unreported[:0], c.members...)
	}
	e.reportMembers(c)
}

// deactivate takes a class out of line; in a StrictFIFO queue it stays.
func (e *Engine) deactivate(c *equivClass) {
	q := c.queue
	c.inadmissible = true
	q.inadmissible++
	if !q.spec.StrictFIFO && c.pos >= 0 {
		q.active.remove(c.pos)
	}
}

// reportMembers passes a class's verdict on to members who have not heard it.
func (e *Engine) reportMembers(c *equivClass) {
	for _, w := range c.unreported {
		if w.class == c {
			e.reportPending(w, c.verdict.reason, c.verdict.message)
		}
	}
	c.unreported = c.unreported[:0]
}

// requeue wakes a class. Others may have what was kept for it until its turn comes.
func (e *Engine) requeue(c *equivClass) {
	e.activate(c)
	e.announceUnreserved(c)
}

// activate wakes a class that is looked at next.
func (e *Engine) activate(c *equivClass) {
	if !c.inadmissible {
		return
	}
	c.inadmissible = false
	e.unreserve(c)
	c.queue.inadmissible--
	if c.pos < 0 {
		c.queue.active.push(c)
	}
	e.ready(c.queue)
}

// reconsider looks at a parked class again that may displace more than when it was refused: once
// what it needs is within reach, if that is known.
func (e *Engine) reconsider(c *equivClass) {
	q := c.queue
	if !c.inadmissible {
		return
	}
	if q.spec.StrictFIFO || c.volatile || len(c.awaits) > 0 || len(c.needs) == 0 {
		e.requeue(c)
		return
	}
	c.cooldown = c.cooldown && c.members[0].cooldownEnds().After(e.at)
	c.refusedAt = 0
	e.setRetryTimer(c)
	for _, n := range c.needs {
		q.hint(n.fr)
	}
	e.enlist(q.node.root.tree)
}

// spreadHints tells the queues which flavor-resources were freed, or began to be
// borrowed by some node, since the last look. Where shares decide, all of them count.
func (e *Engine) spreadHints(t *tree) {
	if t.policy != PolicyFIFO && (t.anyFreed || len(t.newlyBorrowed) > 0) {
		for _, q := range t.queues {
			for fr := range q.waits {
				q.hint(int32(fr))
			}
		}
		clear(t.freed)
		t.anyFreed, t.newlyBorrowed = false, t.newlyBorrowed[:0]
		return
	}
	if t.anyFreed {
		t.anyFreed = false
		for fr, freed := range t.freed {
			if freed {
				t.freed[fr] = false
				for _, q := range t.queues {
					q.hint(int32(fr))
				}
			}
		}
	}
	for _, fr := range t.newlyBorrowed {
		for _, q := range t.queues {
			if q.spec.Preemption.ReclaimWithinCohort != PreemptNever {
				q.hint(fr)
			}
		}
	}
	t.newlyBorrowed = t.newlyBorrowed[:0]
}

// hint notes a change that may help someone parked in the queue.
func (q *queue) hint(fr int32) {
	if q.inadmissible > 0 && int(fr) < len(q.waits) && len(q.waits[fr]) > 0 && !slices.Contains(q.hinted, fr) {
		q.hinted = append(q.hinted, fr)
	}
}

// next is the workload whose turn it is, among those in line and those parked
// whom recent changes may help. Only the first of these is woken: as
// long as it takes what there is, the others need not be touched.
func (e *Engine) next(t *tree, q *queue) *workload {
	if len(q.hinted) > 0 || len(q.volatile) > 0 {
		if c := e.nextHinted(t, q); c == nil {
			q.hinted = q.hinted[:0]
		} else if len(q.active) == 0 || q.active[0] == c || c.before(q.active[0]) {
			e.activate(c)
		}
	}
	return q.head()
}

// nextHinted finds the first parked class that may get hold of what it needs and
// was not refused since the last change for the better.
func (e *Engine) nextHinted(t *tree, q *queue) *equivClass {
	if q.spec.StrictFIFO { // only the head matters
		if len(q.active) == 0 || !q.active[0].inadmissible || !q.active[0].improved(t) {
			return nil
		}
		return q.active[0]
	}
	best := t.firstVolatile(q)
	for _, fr := range q.hinted {
		best = e.nextHintedFor(t, q, fr, best)
	}
	return best
}

// nextHintedFor is hopeful for those who wait for one flavor-resource, if one has an earlier turn than best.
func (e *Engine) nextHintedFor(t *tree, q *queue, fr int32, best *equivClass) *equivClass {
	h := e.hintFor(t, q, fr)
	h.improvements = t.improvements
	limit := int64(math.MaxInt64) // refused already for this priority or a higher one
	for i := range q.waits[fr] {
		l := q.waits[fr][i]
		if best != nil && !q.spec.UsageFairSharing && l.priority < best.members[0].spec.Priority {
			break // lists go down in priority: nobody further on has an earlier turn
		}
		if l.refusedAt == t.improvements {
			limit = min(limit, l.refused)
		}
		if len(l.chunks) == 0 || l.complex == 0 && l.least >= limit {
			continue
		}
		of := h.forList(e, t, q, l)
		if of.limit = limit; l.complex == 0 {
			of.reachable = min(of.reachable, limit-1)
			if of.afterMinRuntime < of.reachable && of.free <= 0 && !q.choice && e.opts.Placer == nil {
				of.reachable, t.awaitsMinRuntime = of.afterMinRuntime, true
			}
		}
		if c := l.first(e, &of); c != nil && (best == nil || c.before(best)) {
			best = c
		}
		if of.skipped {
			t.retryYielded(fr)
		}
	}
	return best
}

// Where several pod sets choose between several flavors, more usage elsewhere can help, too: the first pod set
// then takes another flavor and leaves room for the next. And who would displace others if they did not come straight back may do so once
// they cannot. So they are looked at after every change.

// watch lists a parked class as one that any change of usage may help.
func (e *Engine) watch(c *equivClass) {
	if !c.volatile {
		c.volatile = true
		e.volatiles++
		c.queue.volatile = append(c.queue.volatile, c)
	}
}

func (e *Engine) unwatch(c *equivClass) {
	if q := c.queue; c.volatile {
		c.volatile = false
		e.volatiles--
		i := slices.Index(q.volatile, c)
		q.volatile = slices.Delete(q.volatile, i, i+1)
	}
}

// improved: since the class was refused something changed that may help it.
func (c *equivClass) improved(t *tree) bool {
	return c.refusedAt != t.improvements || c.volatile && c.refusedUsage != t.usageChanges
}

func (e *Engine) anyVolatile(t *tree) bool {
	return e.volatiles > 0 && slices.ContainsFunc(t.queues, func(q *queue) bool { return len(q.volatile) > 0 })
}

func (t *tree) firstVolatile(q *queue) *equivClass {
	var best *equivClass
	for _, c := range q.volatile {
		if c.inadmissible && c.improved(t) && (best == nil || c.before(best)) {
			best = c
		}
	}
	return best
}

// stillBeyond puts a class back to sleep that was woken and outdone, without looking closer, if it is
// plain that it has to wait on and all its members know why.
func (e *Engine) stillBeyond(t *tree, c *equivClass) bool {
	q := c.queue
	if !c.shape.simple || c.reported != ReasonWaitingForQuota || len(c.unreported) > 0 || len(c.needs) != 1 || len(c.fixedUsage) != 1 || c.fixedUsage[0] != c.needs[0] ||
		q.choice || q.spec.StrictFIFO || e.opts.Placer != nil || len(t.nominated) > 0 {
		return false
	}
	n := c.needs[0]
	if h := e.hintFor(t, q, n.fr).forList(e, t, q, q.waitsLike(c, n.fr)); n.v <= h.reachable && !h.awaitsMinRuntime(e, c, n.v) {
		return false
	}
	e.deactivate(c)
	e.announceUnreserved(c)
	e.setRetryTimer(c)
	c.refusedAt, c.refusedUsage = t.improvements, t.usageChanges
	return true
}

// queueingHint is what decides whether waiting for an amount of a flavor-resource may be over.
type queueingHint struct {
	fr            int32
	as            uint64 // tree.version as of which this holds
	demandChanges uint64 // likewise Engine.asked
	in            uint64 // and Engine.decision

	free            int64       // what there is
	own             int64       // of the queue's own quota
	room            int64       // what there is with what is kept for those who are too new in line
	others          preemptible // at most what other queues could be made to give up
	most            int64       // and no more than this with it
	withoutYielding int64       // at most what it can have without being in the way of others' own; -1: not known yet

	reachable       int64 // at most what can be got hold of
	afterMinRuntime int64 // the same, now
	thisDecision    int64 // the same, for who is too new in line
	ownQueueOnly    int64 // the same, for who may displace in its own queue only
	limit           int64 // from here on, refused already
	improvements    uint64

	overridable bool  // somebody may take over what others wait for
	mayTake     int64 // who takes more than this of what is free would step back
	skipped     bool  // somebody was passed over for that
}

// hintFor is what holds for all priorities, kept while the queue looks for the next and nothing changes.
func (e *Engine) hintFor(t *tree, q *queue, fr int32) *queueingHint {
	h := &q.lastHint
	if h.fr != fr || h.as != t.version || h.demandChanges != e.demandChanges || h.in != e.decision {
		*h = queueingHint{fr: fr, as: t.version, demandChanges: e.demandChanges, in: e.decision, free: q.node.available(fr, future), own: q.node.cells[fr].unused(), most: unlimited, withoutYielding: -1}
		t.shiftReservations(-1, true)
		h.room = q.node.available(fr, future)
		if p := &q.spec.Preemption; p.ReclaimWithinCohort != PreemptNever {
			if t.policy == PolicyFIFO && !p.BorrowWithinCohort && q.node.parent == t.root {
				h.most = q.node.cells[fr].unused() // it takes back no more than its own
			}
			for _, o := range t.borrowIndex[fr].borrowing {
				if o != q {
					h.others.add(e.preemptibleIn(t, o, fr))
				}
			}
		}
		t.shiftReservations(1, true)
	}
	return h
}

// forList is what holds for those in a list.
func (h *queueingHint) forList(e *Engine, t *tree, q *queue, l *waitList) queueingHint {
	fr := h.fr
	if !l.ownQueue.holds(e, q, fr, unlimited) {
		l.ownQueue = e.preemptibleBy(q, fr, q.spec.Preemption.WithinQueue, l.priority, unlimited)
	}
	ours, theirs := t.overridable(q, fr, l.priority)
	with := func(v int64) int64 { // what can be taken over of others: on own quota, unless it may displace and borrow
		if q.spec.Preemption.BorrowWithinCohort {
			return v + theirs
		}
		return max(v, min(v+theirs, h.own+l.ownQueue.all+ours))
	}
	o := *h
	all := h.displacing(l.ownQueue.all, h.others.all)
	o.reachable, o.ownQueueOnly = with(all+ours), with(h.displacing(l.ownQueue.all, 0)+ours)
	o.afterMinRuntime, o.thisDecision = with(h.displacing(l.ownQueue.afterMinRuntime, h.others.afterMinRuntime)+ours), with(h.displacing(l.ownQueue.thisDecision, h.others.thisDecision)+ours)
	o.overridable = ours+theirs > 0
	o.mayTake = o.reachable
	if t.yielding && h.own < o.reachable {
		if h.withoutYielding < 0 {
			h.withoutYielding = max(0, e.withoutYielding(t, q, fr))
		}
		o.mayTake = max(h.own, h.withoutYielding)
		if bound := with(o.mayTake + all - h.free + ours); bound < o.reachable {
			o.reachable = bound
			t.retryYielded(fr)
		}
	}
	return o
}

// worthwhile says whether a class that waits for need is to be looked at.
func (h *queueingHint) worthwhile(e *Engine, c *equivClass, need int64) bool {
	switch {
	case c.refusedAt == h.improvements:
		return false
	case c.shape.simple && need >= h.limit:
		return false
	case need > h.thisDecision && h.free <= 0 && c.members[0].preemptsFrom(e).After(e.at): // nothing to take, and nothing to keep
		return false
	case h.awaitsMinRuntime(e, c, need):
		return false
	case c.cooldown && need > h.ownQueueOnly:
		return false
	case c.shape.simple && need > h.mayTake && need <= h.free:
		c.refusedAt, h.skipped = h.improvements, true // as if it had stepped back
		return false
	}
	return true
}

// overridable is at most what someone could take over of what others of the queue wait for, and of other queues.
func (t *tree) overridable(q *queue, fr int32, priority int64) (ours, theirs int64) {
	p := &q.spec.Preemption
	for _, w := range t.nominated {
		switch {
		case w.queue == q && p.WithinQueue.covers(priority, w.spec.Priority):
			ours += amountOf(w.nominatedUsage, fr)
		case w.queue != q && w.nomination.borrow > 0 && t.policy == PolicyFIFO && p.ReclaimWithinCohort.covers(priority, w.spec.Priority):
			theirs += amountOf(w.nominatedUsage, fr)
		}
	}
	return ours, theirs
}

// awaitsMinRuntime: those whom the class would have to displace have only just started, and nothing comes free that could be kept for it.
func (h *queueingHint) awaitsMinRuntime(e *Engine, c *equivClass, need int64) bool {
	if need <= h.afterMinRuntime || h.free > 0 || !c.shape.simple || !c.canReserve && !c.members[0].minRuntimeBinds(e).After(e.at) {
		return false
	}
	c.queue.node.root.tree.awaitsMinRuntime = true
	return true
}

// preemptible is what holders of a queue could give up of a flavor-resource.
type preemptible struct {
	all             int64
	afterMinRuntime int64 // of those who are not spared
	thisDecision    int64 // of those who were admitted in this decision

	fr   int32
	as   uint64 // queue.turnover as of which this holds
	in   uint64 // likewise Engine.decision
	over int64  // and how much more the queue uses than its own quota
}

func (y *preemptible) add(o preemptible) {
	y.all, y.afterMinRuntime, y.thisDecision = y.all+o.all, y.afterMinRuntime+o.afterMinRuntime, y.thisDecision+o.thisDecision
}

func (y *preemptible) holds(e *Engine, q *queue, fr int32, over int64) bool {
	return y.fr == fr && y.as == q.reservedChanges && y.in == e.decision && y.over == over
}

// preemptibleIn is what those of a queue could give up to others. They are displaced in their order, until the queue borrows
// no more: who comes later is safe.
func (e *Engine) preemptibleIn(t *tree, q *queue, fr int32) preemptible {
	over := -q.node.cells[fr].unused()
	if t.policy != PolicyFIFO || q.spec.UsageFairSharing {
		over = unlimited
	}
	if !q.preemptible.holds(e, q, fr, over) {
		q.preemptible = e.preemptibleBy(q, fr, PreemptAny, 0, over)
	}
	return q.preemptible
}

// preemptibleBy is at most what they could give up to who has a priority.
func (e *Engine) preemptibleBy(q *queue, fr int32, policy PreemptionPolicy, priority, over int64) preemptible {
	y := preemptible{fr: fr, as: q.reservedChanges, in: e.decision, over: over}
	for _, w := range q.quotaReserved {
		if !policy.covers(priority, w.spec.Priority) {
			break // the rest are more important
		}
		if w.evicting {
			continue
		}
		v := amountOf(w.usage, fr)
		y.all += v
		if over <= 0 {
			continue
		}
		switch {
		case w.admitted == e.decision:
			y.thisDecision += v
			y.afterMinRuntime += v
		case e.opts.PreemptionDelay <= 0 || !e.minRuntimeEnds(w).After(e.at):
			y.afterMinRuntime += v
		}
		if w.preemptedIn != e.decision && w.preemptor == nil {
			over -= v
		}
	}
	return y
}

// displacing is at most what can be had if the own queue gives so much up, and others.
func (h *queueingHint) displacing(own, others int64) int64 {
	return max(h.free, min(h.free+others, h.most)) + own
}

// requeueAll wakes every parked class of a queue.
func (q *queue) requeueAll(e *Engine) {
	if q.inadmissible == 0 {
		return
	}
	for _, c := range q.classes { // waking is a heap insertion; the order does not matter
		e.requeue(c)
	}
}

// awaitNodes notes that a parked class waits for room on the flavor's nodes.
func (f *flavor) awaitNodes(c *equivClass) {
	if n := len(f.awaitingNodes); n >= 64 && n&(n-1) == 0 { // from time to time, forget who left
		f.awaitingNodes = slices.DeleteFunc(f.awaitingNodes, func(c *equivClass) bool { return len(c.members) == 0 })
	}
	if !c.awaits[f] {
		if c.awaits == nil {
			c.awaits = map[*flavor]bool{}
		}
		c.awaits[f] = true
		f.awaitingNodes = append(f.awaitingNodes, c)
	}
}

// requeueForNodes wakes those whom the flavor's nodes had no room for.
func (e *Engine) requeueForNodes(f *flavor) {
	for _, c := range f.awaitingNodes {
		delete(c.awaits, f)
		if c.inadmissible {
			e.requeue(c)
		}
	}
	f.awaitingNodes = f.awaitingNodes[:0]
}
