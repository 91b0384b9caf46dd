package admission

import (
	"math"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// queueingHint is an upper bound of what a queue's workloads could get hold of, of one
// flavor-resource: what is free, and what could be preempted or overridden. An inadmissible class that needs more is not worth another look.
type queueingHint struct {
	fr            int32
	as            uint64 // tree.version as of which this holds
	demandChanges uint64 // likewise Engine.demandChanges
	in            uint64 // and Engine.decision

	free            int64       // what there is
	own             int64       // of the queue's nominal quota
	unreserved      int64       // what there is with reservations of delayed workloads
	others          preemptible // at most what other queues could be made to give up
	most            int64       // and no more than this with it
	withoutYielding int64       // at most what can be had without yielding; -1: not known yet

	reachable       int64 // at most what can be got hold of
	afterMinRuntime int64 // the same, now
	thisDecision    int64 // the same, within the preemption delay
	inCooldown      int64 // the same, in a preemption cooldown
	limit           int64 // from here on, refused already
	improvements    uint64

	overridable bool  // some nomination may be overridden
	mayTake     int64 // a class that takes more than this of what is free would yield
	skipped     bool  // some class was passed over for that
}

// hintFor is what holds for all priorities; it is reused while the queue looks for the next class and nothing changes.
func (e *Engine) hintFor(t *tree, q *queue, fr int32) *queueingHint {
	h := &q.lastHint
	if h.fr == fr && h.as == t.version && h.demandChanges == e.demandChanges && h.in == e.decision {
		return h
	}
	c := &q.node.Cells[fr]
	*h = queueingHint{fr: fr, as: t.version, demandChanges: e.demandChanges, in: e.decision, free: q.node.Available(fr, quota.Future), own: c.Unused(), most: quota.Unlimited, withoutYielding: -1}
	mark := e.tx.Checkpoint()
	defer e.tx.Rollback(mark)
	e.liftReservations(t, ofDelayed)
	h.unreserved = q.node.Available(fr, quota.Future)
	p := &q.spec.Preemption
	if p.ReclaimWithinCohort == PreemptNever {
		return h
	}
	if t.policy == PolicyFIFO && !p.BorrowWithinCohort && q.node.Parent == t.root.Node {
		h.most = c.Unused() // it reclaims no more than its nominal quota
	}
	for _, o := range t.borrowIndex[fr].borrowing {
		if o != q {
			h.others.add(e.preemptibleIn(t, o, fr))
		}
	}
	return h
}

// forList is what holds for the classes in a list.
func (h *queueingHint) forList(e *Engine, t *tree, q *queue, l *waitList) queueingHint {
	fr := h.fr
	if !l.ownQueue.holds(e, q, fr, quota.Unlimited) {
		l.ownQueue = e.preemptibleBy(q, fr, q.spec.Preemption.WithinQueue, l.rank, quota.Unlimited)
	}
	ours, theirs := t.overridable(q, fr, l.rank)
	with := func(v int64) int64 { // other queues' nominations: within nominal quota, unless it may preempt and borrow
		if q.spec.Preemption.BorrowWithinCohort {
			return v + theirs
		}
		return max(v, min(v+theirs, h.own+l.ownQueue.all+ours))
	}
	o := *h
	if t.policy != PolicyFIFO && l.complex == 0 && l.Least > h.free && !e.mayTakeFromOthers(t, q, fr, l) {
		o.others = preemptible{}
	}
	all := h.preempting(l.ownQueue.all, o.others.all)
	o.reachable = with(all + ours)
	o.inCooldown = with(max(h.free, min(h.free+o.others.all, h.own)) + l.ownQueue.all + ours) // others' only within nominal quota
	o.afterMinRuntime = with(h.preempting(l.ownQueue.afterMinRuntime, o.others.afterMinRuntime) + ours)
	o.thisDecision = with(h.preempting(l.ownQueue.thisDecision, o.others.thisDecision) + ours)
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

// mayTakeFromOthers says whether shares may let a class in a list take from other queues: one that asks for least has the
// best chance. Whom it could preempt in its own queue makes it poorer still, and is not looked into.
func (e *Engine) mayTakeFromOthers(t *tree, q *queue, fr int32, l *waitList) bool {
	switch {
	case q.node.Parent == nil || len(q.nominated) > 0:
		return false
	case l.ownQueue.all > 0 || e.opts.unpruned:
		return true
	}
	mark := e.tx.Checkpoint()
	defer e.tx.Rollback(mark)
	e.liftReservations(t, ofDelayed)
	e.liftReservations(t, ofHeads)
	usage, need := [1]quota.Amount{{FR: fr, V: l.Least}}, [1]int32{fr}
	e.tx.Add(q.node, usage[:], quota.Future)
	return e.anyGiver(t, &taker{queue: q, usage: usage[:], need: need[:], entitled: q.node.WithinNominal(need[:])}, func(o *queue) bool {
		return e.preemptibleIn(t, o, fr).all > 0
	})
}

// preempting is at most what can be had if the own queue gives so much up, and others.
func (h *queueingHint) preempting(own, others int64) int64 {
	return max(h.free, min(h.free+others, h.most)) + own
}

// nextHintedFor is nextHinted for the classes that wait for one flavor-resource, if one comes before best.
func (e *Engine) nextHintedFor(t *tree, q *queue, fr int32, best *equivClass) *equivClass {
	h := e.hintFor(t, q, fr)
	h.improvements = t.improvements
	limit := int64(math.MaxInt64) // refused already for this priority or a higher one
	for i := range q.waits[fr] {
		l := q.waits[fr][i]
		if best != nil && !q.spec.UsageFairSharing && l.rank < best.members[0].rank {
			break // lists go down in priority: no class further on comes before it
		}
		if l.refusedAt == t.improvements {
			limit = min(limit, l.refused)
		}
		if l.Empty() || l.complex == 0 && l.Least >= limit {
			continue
		}
		of := h.forList(e, t, q, l)
		if of.limit = limit; l.complex == 0 {
			of.reachable = min(of.reachable, limit-1)
			if of.afterMinRuntime < of.reachable && of.free <= 0 && !q.choice && e.opts.Placer == nil {
				of.reachable, t.awaitsMinRuntime = of.afterMinRuntime, true
			}
		}
		if c := l.first(e, &of); c != nil && (best == nil || c.Before(best)) {
			best = c
		}
		if of.skipped {
			t.retryYielded(fr)
		}
	}
	return best
}

// worthwhile says whether a class that waits for need is to be evaluated again.
func (h *queueingHint) worthwhile(e *Engine, c *equivClass, need int64) bool {
	switch {
	case c.refusedAt == h.improvements:
		return false
	case c.shape.simple && need >= h.limit:
		return false
	case need > h.thisDecision && h.free <= 0 && c.members[0].preemptsFrom(e).After(e.at): // nothing to take, and nothing to reserve
		return false
	case h.awaitsMinRuntime(e, c, need):
		return false
	case c.refused.by(ruleCooldown) && need > h.inCooldown:
		return false
	case c.shape.simple && need > h.mayTake && need <= h.free:
		c.refusedAt, h.skipped = h.improvements, true // as if it had yielded
		return false
	}
	return true
}

// awaitsMinRuntime: those that the class would have to preempt have only just started, and nothing comes free that could be reserved for it.
func (h *queueingHint) awaitsMinRuntime(e *Engine, c *equivClass, need int64) bool {
	if need <= h.afterMinRuntime || h.free > 0 || !c.shape.simple || !c.canReserve && !c.members[0].minRuntimeBinds(e).After(e.at) {
		return false
	}
	c.queue.tree.awaitsMinRuntime = true
	return true
}

// stillBeyond makes a class inadmissible again that was requeued and came too late, without
// evaluating it, if it is plain that it has to wait on and all its members know why.
func (e *Engine) stillBeyond(t *tree, c *equivClass) bool {
	q := c.queue
	if !c.shape.simple || c.reported != ReasonWaitingForQuota || len(c.unreported) > 0 || len(c.needs) != 1 || len(c.fixedUsage) != 1 || c.fixedUsage[0] != c.needs[0] ||
		q.choice || q.spec.StrictFIFO || e.opts.Placer != nil || len(t.nominated) > 0 {
		return false
	}
	n := c.needs[0]
	if h := e.hintFor(t, q, n.FR).forList(e, t, q, q.waitsLike(c, n.FR)); n.V <= h.reachable && !h.awaitsMinRuntime(e, c, n.V) {
		return false
	}
	e.deactivate(c)
	e.announceUnreserved(c)
	e.setRetryTimer(c)
	c.refusedAt, c.refusedUsage = t.improvements, t.usageChanges
	return true
}

// registerWaits registers a class for what it lacks; one resource per flavor is enough.
func (e *Engine) registerWaits(c *equivClass, a *assignment) {
	lastFlavor := int32(-1)
	for _, m := range a.misses {
		if m.reason != ReasonWaitingForQuota || m.flavor == lastFlavor {
			continue
		}
		lastFlavor = m.flavor
		need := c.queue.node.Available(m.fr, quota.Future) + m.amount
		if a.w.spec.NeverPreempt {
			need = 1 // it may wait for others of its kind, whatever else is free
		}
		l := c.queue.waitFor(c, m.fr, need)
		if e.monotone(a) {
			l.refuse(need, c.refusedAt)
		}
	}
}

// monotone: where this request was refused, a larger one of its priority would be too.
func (e *Engine) monotone(a *assignment) bool {
	q := a.w.queue
	return a.shape.simple && !a.w.spec.NeverPreempt && e.opts.Placer == nil && q.tree.policy == PolicyFIFO && !e.inCooldown(a.w, false) && !a.refused.by(rulesOfTime|ruleThisDecision|ruleFutile|ruleShared|ruleGated) &&
		q.spec.Preemption.WithinQueue != PreemptLowerOrNewerEqualPriority
}

// overridable is at most what could be overridden of nominations in the queue, and in other queues.
func (t *tree) overridable(q *queue, fr int32, rank int64) (ours, theirs int64) {
	p := &q.spec.Preemption
	for _, w := range t.nominated {
		switch {
		case w.queue == q && p.WithinQueue.covers(rank, w.rank):
			ours += quota.AmountOf(w.nominatedUsage, fr)
		case w.queue != q && w.nomination.borrow > 0 && t.policy == PolicyFIFO && p.ReclaimWithinCohort.covers(priorityOf(rank), w.spec.Priority):
			theirs += quota.AmountOf(w.nominatedUsage, fr)
		}
	}
	return ours, theirs
}

// preemptible is what running workloads of a queue could give up of a flavor-resource.
type preemptible struct {
	all             int64
	afterMinRuntime int64 // of those that had their minimum runtime
	thisDecision    int64 // of those admitted in this decision
	least           int64 // of one of them

	fr   int32
	as   uint64 // queue.reservedChanges as of which this holds
	in   uint64 // likewise Engine.decision
	over int64  // and how much more the queue uses than its nominal quota
}

func (y *preemptible) add(o preemptible) {
	y.all, y.afterMinRuntime, y.thisDecision = y.all+o.all, y.afterMinRuntime+o.afterMinRuntime, y.thisDecision+o.thisDecision
}

func (y *preemptible) holds(e *Engine, q *queue, fr int32, over int64) bool {
	return y.fr == fr && y.as == q.reservedChanges && y.in == e.decision && y.over == over
}

// preemptibleIn is what a queue could give up to others. Its workloads are preempted in their order,
// until the queue borrows no more: those that come later are safe.
func (e *Engine) preemptibleIn(t *tree, q *queue, fr int32) preemptible {
	over := -q.node.Cells[fr].Unused()
	if t.policy != PolicyFIFO || q.spec.UsageFairSharing {
		over = quota.Unlimited
	}
	if !q.preemptible.holds(e, q, fr, over) {
		q.preemptible = e.preemptibleBy(q, fr, PreemptAny, 0, over)
	}
	return q.preemptible
}

// preemptibleBy is at most what a queue could give up to a workload of a rank.
func (e *Engine) preemptibleBy(q *queue, fr int32, policy PreemptionPolicy, rank, over int64) preemptible {
	y := preemptible{fr: fr, as: q.reservedChanges, in: e.decision, over: over}
	overPast := over // what it borrows while those within their minimum runtime are passed over
	for _, w := range q.quotaReserved {
		if !policy.covers(rank, w.rank) {
			if !q.anySafe() {
				break // the rest are more important
			}
			continue
		}
		if w.phase == phaseEvicting {
			continue
		}
		v := quota.AmountOf(w.usage, fr)
		y.all += v
		if v > 0 && (y.least == 0 || v < y.least) {
			y.least = v
		}
		if over <= 0 && overPast <= 0 {
			continue
		}
		admittedNow := w.in.admitted == e.decision
		past := admittedNow || e.hadMinRuntime(w)
		if admittedNow && over > 0 {
			y.thisDecision += v
		}
		if past && overPast > 0 {
			y.afterMinRuntime += v
		}
		if w.in.preempted != e.decision && w.preemptor == nil {
			over -= v
			if past {
				overPast -= v
			}
		}
	}
	return y
}
