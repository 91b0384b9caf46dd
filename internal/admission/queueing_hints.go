package admission

import (
	"math"
	"slices"
)

// A class that was refused is inadmissible until a change makes it worth another look, as
// kube-scheduler's queueing hints do for pods. It registers for what it lacked; when some of that is
// freed, the first class in queue order that may get hold of enough is requeued, and only that one:
// as long as it takes what there is, the others need not be touched.

// enlist marks a tree as one in which something may be decided.
func (e *Engine) enlist(t *tree) {
	if !t.listed {
		t.listed, e.unsorted = true, true
		e.work = append(e.work, t)
	}
}

// ready notes that a queue may have a head to evaluate.
func (e *Engine) ready(q *queue) {
	if q.head() != nil {
		e.enlist(q.tree)
	}
}

// refuse makes the class of a workload that cannot be admitted inadmissible, and registers which
// changes make it worth another look.
func (e *Engine) refuse(a *assignment) {
	if a.refused.by(ruleYields) {
		e.yieldClass(a)
		return
	}
	if a.refused.by(rulesApart) {
		e.setApart(a)
		return
	}
	c := a.w.class
	t := c.queue.tree
	v := verdict{reason: a.refusalReason()}
	if v.reason == c.reported && len(c.unreported) == 0 && !c.outdated {
		v.message = c.verdict.message // nothing new is reported
	} else {
		v.message = e.message(a)
	}
	e.setInadmissible(c, v)
	c.refusedAt = t.improvements
	e.noteRefusal(c, a)
	if a.refused.by(ruleThisDecision) || a.w.in.cooldown == e.decision {
		e.retryNext = append(e.retryNext, c)
	}
	e.registerHints(c, a)
	if c.queue.spec.StrictFIFO || len(a.reservation)+len(c.liftedReservation) > 0 {
		e.reserve(c, a)
	}
	// What it had reserved so far and leaves to others is of no help to itself.
	c.refusedAt, c.refusedUsage = t.improvements, t.usageChanges
}

// refusalReason is the token for why the assignment is not possible now.
func (a *assignment) refusalReason() Reason {
	switch {
	case a.refused.by(ruleGated):
		return ReasonPreemptionGated
	case a.failed != nil:
		return ReasonTopologyPlacementFailed
	case a.mode == noFit && a.reason != "":
		return a.reason
	}
	return ReasonWaitingForQuota
}

// setInadmissible takes a class out of its queue's order with its verdict. In a StrictFIFO queue it
// stays first and blocks those behind it.
func (e *Engine) setInadmissible(c *equivClass, v verdict) {
	if c.outdated && c.reported == v.reason && c.verdict.message != v.message {
		e.correctMembers(c, v)
	}
	c.verdict, c.outdated = v, false
	e.deactivate(c)
	if c.reported != v.reason {
		c.reported = v.reason
		c.unreported = append(c.unreported[:0], c.members...)
	}
	e.reportMembers(c)
}

// deactivate is setInadmissible without a verdict.
func (e *Engine) deactivate(c *equivClass) {
	q := c.queue
	c.inadmissible = true
	q.inadmissible++
	if !q.spec.StrictFIFO && c.pos >= 0 {
		q.active.Remove(c.pos)
	}
}

// reportMembers passes a class's verdict on to members that do not have it yet.
func (e *Engine) reportMembers(c *equivClass) {
	for _, w := range c.unreported {
		if w.class == c {
			e.reportPending(w, c.verdict.reason, c.verdict.message)
		}
	}
	c.unreported = c.unreported[:0]
}

// correctMembers passes a verdict on to members that were told of it with other quotas.
func (e *Engine) correctMembers(c *equivClass, v verdict) {
	for _, w := range c.members {
		if w.reported == v.reason {
			e.plan.Pending = append(e.plan.Pending, Pending{Workload: w.spec.Key, UID: w.spec.UID, Reason: v.reason, Message: v.message, Again: true})
		}
	}
}

// outdateVerdicts notes that quotas are others than some classes were told of. Most messages name what is lacking at the
// moment, which any workload that starts or ends changes; that is not told each time.
func (q *queue) outdateVerdicts() {
	for _, c := range q.classes {
		c.outdated = c.outdated || c.reported == ReasonExceedsMaxQuota
	}
}

// noteRefusal notes which rules held a class up, and sets a timer for those that end with time.
func (e *Engine) noteRefusal(c *equivClass, a *assignment) {
	c.refused, c.canReserve = a.refused, a.canReserve()
	e.setRetryTimer(c)
	e.noteApart(c, a)
}

// registerHints notes which changes may turn a refusal into an admission.
func (e *Engine) registerHints(c *equivClass, a *assignment) {
	if a.failed != nil {
		for _, f := range c.queue.flavors() {
			e.flavors[f].awaitNodes(c)
		}
	}
	if a.refused.by(ruleFutile|ruleShared|ruleGated) || len(a.shape.groups) > 1 && c.queue.choice {
		e.watch(c)
		return
	}
	e.unwatch(c)
	if a.shape.shrinks { // fewer pods may do: whatever is freed counts
		for _, g := range c.queue.groups {
			for _, f := range g.flavors {
				for _, fr := range f.frs {
					c.queue.waitFor(c, fr, math.MinInt64)
				}
			}
		}
		return
	}
	e.registerWaits(c, a)
}

// requeue makes a class admissible again. Others may have what was reserved for it until it is evaluated.
func (e *Engine) requeue(c *equivClass) {
	e.activate(c)
	e.announceUnreserved(c)
}

// activate is requeue for a class that is evaluated next.
func (e *Engine) activate(c *equivClass) {
	if !c.inadmissible {
		return
	}
	c.inadmissible = false
	e.unreserve(c)
	c.queue.inadmissible--
	if c.pos < 0 {
		c.queue.active.Push(c)
	}
	e.ready(c.queue)
}

// requeueAll requeues every inadmissible class of a queue.
func (q *queue) requeueAll(e *Engine) {
	if q.inadmissible == 0 {
		return
	}
	for _, c := range q.classes { // requeueing is a heap insertion; the order does not matter
		e.requeue(c)
	}
}

// reconsider looks again at an inadmissible class that may preempt more than when it was refused:
// once it may get hold of what it needs, if that is known.
func (e *Engine) reconsider(c *equivClass) {
	q := c.queue
	if !c.inadmissible {
		return
	}
	if q.spec.StrictFIFO || c.refused.by(rulesApart) || c.volatile || len(c.awaits) > 0 || len(c.needs) == 0 {
		e.requeue(c)
		return
	}
	if !c.members[0].cooldownEnds(e).After(e.at) {
		c.refused.remove(ruleCooldown)
	}
	c.refusedAt = 0
	e.setRetryTimer(c)
	for _, n := range c.needs {
		q.hint(n.FR)
	}
	e.enlist(q.tree)
}

// hintFreed notes that some of a flavor-resource was freed.
func (e *Engine) hintFreed(t *tree, fr int32) {
	if int(fr) < len(t.freed) { // the tree of a deleted queue has nobody to help
		t.freed[fr], t.anyFreed = true, true
		t.improvements++
		e.enlist(t)
	}
}

// spreadHints tells the queues which flavor-resources were freed, or began to be borrowed by some
// node, since the last time. Where shares decide, all of them count.
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

// hint notes a change that may help an inadmissible class of the queue.
func (q *queue) hint(fr int32) {
	if q.inadmissible > 0 && int(fr) < len(q.waits) && len(q.waits[fr]) > 0 && !slices.Contains(q.hinted, fr) {
		q.hinted = append(q.hinted, fr)
	}
}

// next is the workload to evaluate next: the queue's head, or the first inadmissible one that a hint
// makes worth another look, if that comes before it.
func (e *Engine) next(t *tree, q *queue) *workload {
	if len(q.hinted) > 0 || len(q.volatile) > 0 {
		if c := e.nextHinted(t, q); c == nil {
			q.hinted = q.hinted[:0]
		} else if len(q.active) == 0 || q.active[0] == c || c.Before(q.active[0]) {
			e.activate(c)
		}
	}
	return q.head()
}

// nextHinted finds the first inadmissible class that may get hold of what it needs and was not
// refused since the last improvement.
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

// Where several pod sets choose between several flavors, more usage elsewhere can help, too: the
// first pod set then takes another flavor and leaves the rest to the next. And a preemption that was
// futile may not be so any more. Such classes are volatile: they are looked at after every change.

// watch lists an inadmissible class as volatile.
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
		if c.inadmissible && c.improved(t) && (best == nil || c.Before(best)) {
			best = c
		}
	}
	return best
}

// awaitNodes registers a class that waits for capacity on the flavor's nodes.
func (f *flavor) awaitNodes(c *equivClass) {
	if n := len(f.awaitingNodes); n >= 64 && n&(n-1) == 0 { // from time to time, forget classes that are gone
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

// requeueForNodes requeues classes that the flavor's nodes had no capacity for.
func (e *Engine) requeueForNodes(f *flavor) {
	for _, c := range f.awaitingNodes {
		delete(c.awaits, f)
		if c.inadmissible {
			e.requeue(c)
		}
	}
	f.awaitingNodes = f.awaitingNodes[:0]
}
