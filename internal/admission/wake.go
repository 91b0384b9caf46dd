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

// parkClass puts a class to sleep with its answer. In a StrictFIFO queue it
// stays first in line and blocks those behind it.
func (e *Engine) parkClass(c *class, v verdict) {
	c.verdict = v
	e.sleep(c)
	if c.told != v.reason {
		c.told = v.reason
		c.untold = append(c.untold[:0], c.members...)
	}
	e.tell(c)
}

// sleep takes a class out of line; in a StrictFIFO queue it stays.
func (e *Engine) sleep(c *class) {
	q := c.queue
	c.parked = true
	q.parked++
	if !q.spec.StrictFIFO && c.pos >= 0 {
		q.active.remove(c.pos)
	}
}

// tell passes a class's verdict on to members who have not heard it.
func (e *Engine) tell(c *class) {
	for _, w := range c.untold {
		if w.class == c {
			e.park(w, c.verdict.reason, c.verdict.message)
		}
	}
	c.untold = c.untold[:0]
}

// unpark wakes a class. Others may have what was kept for it until its turn comes.
func (e *Engine) unpark(c *class) {
	e.rouse(c)
	e.settleReserve(c)
}

// rouse wakes a class that is looked at next.
func (e *Engine) rouse(c *class) {
	if !c.parked {
		return
	}
	c.parked = false
	e.unreserve(c)
	c.queue.parked--
	if c.pos < 0 {
		c.queue.active.push(c)
	}
	e.ready(c.queue)
}

// reconsider looks at a parked class again that may displace more than when it was refused: once
// what it needs is within reach, if that is known.
func (e *Engine) reconsider(c *class) {
	q := c.queue
	if !c.parked {
		return
	}
	if q.spec.StrictFIFO || c.fickle || len(c.awaits) > 0 || len(c.needs) == 0 {
		e.unpark(c)
		return
	}
	c.barred = c.barred && c.members[0].strikesFrom().After(e.at)
	c.refusedAt = 0
	e.awaitChance(c)
	for _, n := range c.needs {
		q.heed(n.fr)
	}
	e.enlist(q.node.root.tree)
}

// wake tells the queues which flavor-resources were freed, or began to be
// borrowed by some node, since the last look. Where shares decide, all of them count.
func (e *Engine) wake(t *tree) {
	if t.policy != PolicyFIFO && (t.loose || len(t.tilted) > 0) {
		for _, q := range t.queues {
			for fr := range q.waits {
				q.heed(int32(fr))
			}
		}
		clear(t.freed)
		t.loose, t.tilted = false, t.tilted[:0]
		return
	}
	if t.loose {
		t.loose = false
		for fr, freed := range t.freed {
			if freed {
				t.freed[fr] = false
				for _, q := range t.queues {
					q.heed(int32(fr))
				}
			}
		}
	}
	for _, fr := range t.tilted {
		for _, q := range t.queues {
			if q.spec.Preemption.ReclaimWithinCohort != PreemptNever {
				q.heed(fr)
			}
		}
	}
	t.tilted = t.tilted[:0]
}

// heed notes a change that may help someone parked in the queue.
func (q *queue) heed(fr int32) {
	if q.parked > 0 && int(fr) < len(q.waits) && len(q.waits[fr]) > 0 && !slices.Contains(q.heeded, fr) {
		q.heeded = append(q.heeded, fr)
	}
}

// next is the workload whose turn it is, among those in line and those parked
// whom recent changes may help. Only the first of these is woken: as
// long as it takes what there is, the others need not be touched.
func (e *Engine) next(t *tree, q *queue) *workload {
	if len(q.heeded) > 0 || len(q.fickle) > 0 {
		if c := e.hopeful(t, q); c == nil {
			q.heeded = q.heeded[:0]
		} else if len(q.active) == 0 || q.active[0] == c || c.before(q.active[0]) {
			e.rouse(c)
		}
	}
	return q.head()
}

// hopeful finds the first parked class that may get hold of what it needs and
// was not refused since the last change for the better.
func (e *Engine) hopeful(t *tree, q *queue) *class {
	if q.spec.StrictFIFO { // only the head matters
		if len(q.active) == 0 || !q.active[0].parked || !q.active[0].outdated(t) {
			return nil
		}
		return q.active[0]
	}
	best := t.fickleFirst(q)
	for _, fr := range q.heeded {
		best = e.hopefulFor(t, q, fr, best)
	}
	return best
}

// hopefulFor is hopeful for those who wait for one flavor-resource, if one has an earlier turn than best.
func (e *Engine) hopefulFor(t *tree, q *queue, fr int32, best *class) *class {
	h := e.hopeFor(t, q, fr)
	h.helps = t.helps
	limit := int64(math.MaxInt64) // refused already for this priority or a higher one
	for i := range q.waits[fr] {
		l := q.waits[fr][i]
		if best != nil && !q.spec.UsageFairSharing && l.priority < best.members[0].spec.Priority {
			break // lists go down in priority: nobody further on has an earlier turn
		}
		if l.refusedAt == t.helps {
			limit = min(limit, l.refused)
		}
		if len(l.chunks) == 0 || l.complex == 0 && l.least >= limit {
			continue
		}
		of := h.of(e, t, q, l)
		if of.limit = limit; l.complex == 0 {
			of.reach = min(of.reach, limit-1)
			if of.ripe < of.reach && of.free <= 0 && !q.choice && e.opts.Placer == nil {
				of.reach, t.unripe = of.ripe, true
			}
		}
		if c := l.first(e, &of); c != nil && (best == nil || c.before(best)) {
			best = c
		}
		if of.skipped {
			t.lendLater(fr)
		}
	}
	return best
}

// Where several pod sets choose between several flavors, more usage elsewhere can help, too: the first pod set
// then takes another flavor and leaves room for the next. And who would displace others if they did not come straight back may do so once
// they cannot. So they are looked at after every change.

// watch lists a parked class as one that any change of usage may help.
func (e *Engine) watch(c *class) {
	if !c.fickle {
		c.fickle = true
		e.fickle++
		c.queue.fickle = append(c.queue.fickle, c)
	}
}

func (e *Engine) unwatch(c *class) {
	if q := c.queue; c.fickle {
		c.fickle = false
		e.fickle--
		i := slices.Index(q.fickle, c)
		q.fickle = slices.Delete(q.fickle, i, i+1)
	}
}

// outdated: since the class was refused something changed that may help it.
func (c *class) outdated(t *tree) bool {
	return c.refusedAt != t.helps || c.fickle && c.refusedIn != t.shifts
}

func (e *Engine) anyFickle(t *tree) bool {
	return e.fickle > 0 && slices.ContainsFunc(t.queues, func(q *queue) bool { return len(q.fickle) > 0 })
}

func (t *tree) fickleFirst(q *queue) *class {
	var best *class
	for _, c := range q.fickle {
		if c.parked && c.outdated(t) && (best == nil || c.before(best)) {
			best = c
		}
	}
	return best
}

// beyondReach puts a class back to sleep that was woken and outdone, without looking closer, if it is
// plain that it has to wait on and all its members know why.
func (e *Engine) beyondReach(t *tree, c *class) bool {
	q := c.queue
	if !c.shape.simple || c.told != ReasonWaitingForQuota || len(c.untold) > 0 || len(c.needs) != 1 || len(c.asks) != 1 || c.asks[0] != c.needs[0] ||
		q.choice || q.spec.StrictFIFO || e.opts.Placer != nil || len(t.waiting) > 0 {
		return false
	}
	n := c.needs[0]
	if h := e.hopeFor(t, q, n.fr).of(e, t, q, q.waitsLike(c, n.fr)); n.v <= h.reach && !h.unripe(e, c, n.v) {
		return false
	}
	e.sleep(c)
	e.settleReserve(c)
	e.awaitChance(c)
	c.refusedAt, c.refusedIn = t.helps, t.shifts
	return true
}

// hope is what decides whether waiting for an amount of a flavor-resource may be over.
type hope struct {
	fr    int32
	as    uint64 // tree.version as of which this holds
	asked uint64 // likewise Engine.asked
	in    uint64 // and Engine.decision

	free  int64 // what there is
	own   int64 // of the queue's own quota
	room  int64 // what there is with what is kept for those who are too new in line
	yield yield // at most what other queues could be made to give up
	most  int64 // and no more than this with it
	lent  int64 // at most what it can have without being in the way of others' own; -1: not known yet

	reach int64 // at most what can be got hold of
	ripe  int64 // the same, now
	fresh int64 // the same, for who is too new in line
	tied  int64 // the same, for who may displace in its own queue only
	limit int64 // from here on, refused already
	helps uint64

	claims  bool  // somebody may take over what others wait for
	stay    int64 // who takes more than this of what is free would step back
	skipped bool  // somebody was passed over for that
}

// hopeFor is what holds for all priorities, kept while the queue looks for the next and nothing changes.
func (e *Engine) hopeFor(t *tree, q *queue, fr int32) *hope {
	h := &q.hope
	if h.fr != fr || h.as != t.version || h.asked != e.asked || h.in != e.decision {
		*h = hope{fr: fr, as: t.version, asked: e.asked, in: e.decision, free: q.node.available(fr, future), own: q.node.cells[fr].unused(), most: unlimited, lent: -1}
		t.shiftKept(-1, true)
		h.room = q.node.available(fr, future)
		if p := &q.spec.Preemption; p.ReclaimWithinCohort != PreemptNever {
			if t.policy == PolicyFIFO && !p.BorrowWithinCohort && q.node.parent == t.root {
				h.most = q.node.cells[fr].unused() // it takes back no more than its own
			}
			for _, o := range t.balance[fr].borrowers {
				if o != q {
					h.yield.add(e.yields(t, o, fr))
				}
			}
		}
		t.shiftKept(1, true)
	}
	return h
}

// of is what holds for those in a list.
func (h *hope) of(e *Engine, t *tree, q *queue, l *waitList) hope {
	fr := h.fr
	if !l.given.holds(e, q, fr, unlimited) {
		l.given = e.yieldTo(q, fr, q.spec.Preemption.WithinQueue, l.priority, unlimited)
	}
	ours, theirs := t.claimed(q, fr, l.priority)
	with := func(v int64) int64 { // what can be taken over of others: on own quota, unless it may displace and borrow
		if q.spec.Preemption.BorrowWithinCohort {
			return v + theirs
		}
		return max(v, min(v+theirs, h.own+l.given.all+ours))
	}
	o := *h
	all := h.displacing(l.given.all, h.yield.all)
	o.reach, o.tied = with(all+ours), with(h.displacing(l.given.all, 0)+ours)
	o.ripe, o.fresh = with(h.displacing(l.given.ripe, h.yield.ripe)+ours), with(h.displacing(l.given.fresh, h.yield.fresh)+ours)
	o.claims = ours+theirs > 0
	o.stay = o.reach
	if t.lending && h.own < o.reach {
		if h.lent < 0 {
			h.lent = max(0, e.spare(t, q, fr))
		}
		o.stay = max(h.own, h.lent)
		if bound := with(o.stay + all - h.free + ours); bound < o.reach {
			o.reach = bound
			t.lendLater(fr)
		}
	}
	return o
}

// over says whether a class that waits for need is to be looked at.
func (h *hope) over(e *Engine, c *class, need int64) bool {
	switch {
	case c.refusedAt == h.helps:
		return false
	case c.shape.simple && need >= h.limit:
		return false
	case need > h.fresh && h.free <= 0 && c.members[0].mayDisplaceFrom(e).After(e.at): // nothing to take, and nothing to keep
		return false
	case h.unripe(e, c, need):
		return false
	case c.barred && need > h.tied:
		return false
	case c.shape.simple && need > h.stay && need <= h.free:
		c.refusedAt, h.skipped = h.helps, true // as if it had stepped back
		return false
	}
	return true
}

// claimed is at most what someone could take over of what others of the queue wait for, and of other queues.
func (t *tree) claimed(q *queue, fr int32, priority int64) (ours, theirs int64) {
	p := &q.spec.Preemption
	for _, w := range t.waiting {
		switch {
		case w.queue == q && p.WithinQueue.reaches(priority, w.spec.Priority):
			ours += amountOf(w.claim, fr)
		case w.queue != q && w.claimed.borrow > 0 && t.policy == PolicyFIFO && p.ReclaimWithinCohort.reaches(priority, w.spec.Priority):
			theirs += amountOf(w.claim, fr)
		}
	}
	return ours, theirs
}

// unripe: those whom the class would have to displace have only just started, and nothing comes free that could be kept for it.
func (h *hope) unripe(e *Engine, c *class, need int64) bool {
	if need <= h.ripe || h.free > 0 || !c.shape.simple || !c.keeps && !c.members[0].sparesUntil(e).After(e.at) {
		return false
	}
	c.queue.node.root.tree.unripe = true
	return true
}

// yield is what holders of a queue could give up of a flavor-resource.
type yield struct {
	all   int64
	ripe  int64 // of those who are not spared
	fresh int64 // of those who were admitted in this decision

	fr   int32
	as   uint64 // queue.turnover as of which this holds
	in   uint64 // likewise Engine.decision
	over int64  // and how much more the queue uses than its own quota
}

func (y *yield) add(o yield) {
	y.all, y.ripe, y.fresh = y.all+o.all, y.ripe+o.ripe, y.fresh+o.fresh
}

func (y *yield) holds(e *Engine, q *queue, fr int32, over int64) bool {
	return y.fr == fr && y.as == q.turnover && y.in == e.decision && y.over == over
}

// yields is what those of a queue could give up to others. They are displaced in their order, until the queue borrows
// no more: who comes later is safe.
func (e *Engine) yields(t *tree, q *queue, fr int32) yield {
	over := -q.node.cells[fr].unused()
	if t.policy != PolicyFIFO || q.spec.UsageFairSharing {
		over = unlimited
	}
	if !q.yields.holds(e, q, fr, over) {
		q.yields = e.yieldTo(q, fr, PreemptAny, 0, over)
	}
	return q.yields
}

// yieldTo is at most what they could give up to who has a priority.
func (e *Engine) yieldTo(q *queue, fr int32, policy PreemptionPolicy, priority, over int64) yield {
	y := yield{fr: fr, as: q.turnover, in: e.decision, over: over}
	for _, w := range q.holders {
		if !policy.reaches(priority, w.spec.Priority) {
			break // the rest are more important
		}
		if w.leaving {
			continue
		}
		v := amountOf(w.usage, fr)
		y.all += v
		if over <= 0 {
			continue
		}
		switch {
		case w.admitted == e.decision:
			y.fresh += v
			y.ripe += v
		case e.opts.PreemptionDelay <= 0 || !e.ripensAt(w).After(e.at):
			y.ripe += v
		}
		if w.struck != e.decision && w.roomFor == nil {
			over -= v
		}
	}
	return y
}

// displacing is at most what can be had if the own queue gives so much up, and others.
func (h *hope) displacing(own, others int64) int64 {
	return max(h.free, min(h.free+others, h.most)) + own
}

// wakeAll wakes every parked class of a queue.
func (q *queue) wakeAll(e *Engine) {
	if q.parked == 0 {
		return
	}
	for _, c := range q.classes { // waking is a heap insertion; the order does not matter
		e.unpark(c)
	}
}

// refuse notes that a parked class waits for room on the flavor's nodes.
func (f *flavor) refuse(c *class) {
	if n := len(f.refused); n >= 64 && n&(n-1) == 0 { // from time to time, forget who left
		f.refused = slices.DeleteFunc(f.refused, func(c *class) bool { return len(c.members) == 0 })
	}
	if !c.awaits[f] {
		if c.awaits == nil {
			c.awaits = map[*flavor]bool{}
		}
		c.awaits[f] = true
		f.refused = append(f.refused, c)
	}
}

// wakePlacement wakes those whom the flavor's nodes had no room for.
func (e *Engine) wakePlacement(f *flavor) {
	for _, c := range f.refused {
		delete(c.awaits, f)
		if c.parked {
			e.unpark(c)
		}
	}
	f.refused = f.refused[:0]
}
