package admission

import (
	"slices"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// Each queue sends its first workload that can be helped, so a workload that borrows may come up
// while further back in another queue a workload fits into that queue's nominal quota, and would
// reclaim it at once. Such a borrower yields until all queues' entries were processed, and then has
// what is left.

// contestedQuota is nominal quota of another queue of which a borrower would leave too little.
type contestedQuota struct {
	queue *queue
	fr    int32
	free  int64 // what the queue can use of it as things stand
}

// borrowerYields says whether a borrower would be in the way of another queue's use of its nominal quota.
func (e *Engine) borrowerYields(t *tree, a *assignment) bool {
	if !t.yielding || !a.admissible() || a.borrow == 0 || len(a.overrides) > 0 || a.w.queue.spec.StrictFIFO {
		return false
	}
	contested := e.scratch.contested[:0]
	for _, u := range a.usage {
		for _, b := range t.borrowIndex[u.FR].unused {
			if b == a.w.queue || b.pending == 0 || int(u.FR) >= len(b.demand) || b.spec.Preemption.ReclaimWithinCohort == PreemptNever {
				continue
			}
			if free := min(b.node.Cells[u.FR].Unused(), b.node.Available(u.FR, quota.Future)); free > 0 {
				contested = append(contested, contestedQuota{b, u.FR, free})
			}
		}
	}
	e.scratch.contested = contested
	if len(contested) == 0 {
		return false
	}
	return slices.ContainsFunc(e.contestants(a, contested), func(c *equivClass) bool { return e.fitsNominal(c, a.w) })
}

// contestantLimit is how many classes are looked at in each queue; more would hardly give another answer.
const contestantLimit = 4

// contestants lists classes that would no longer fit into their nominal quota if the assignment were carried out.
func (e *Engine) contestants(a *assignment, contested []contestedQuota) []*equivClass {
	mark := e.tx.Checkpoint()
	defer e.tx.Rollback(mark)
	e.discount(leavers(a.victims))
	e.tx.Add(a.w.queue.node, a.usage, quota.Future)
	list := e.scratch.contestants[:0]
	for _, l := range contested {
		left := l.queue.node.Available(l.fr, quota.Future)
		if left >= l.free || !quota.CanReclaim(l.queue.node, a.w.queue.node, l.fr) {
			continue
		}
		if !l.queue.spec.StrictFIFO {
			list = l.queue.demand[l.fr].within(list, left, l.free, contestantLimit)
			continue
		}
		if w := l.queue.first(); w != nil && quota.AmountOf(w.class.fixedUsage, l.fr) > left {
			list = append(list, w.class)
		}
	}
	e.scratch.contestants = list
	return list
}

// fitsNominal: the class fits as things stand into its queue's nominal quota, and could reclaim it from w.
func (e *Engine) fitsNominal(c *equivClass, w *workload) bool {
	first := c.members[0]
	if e.inCooldown(first, true) || w != nil && !c.queue.spec.Preemption.ReclaimWithinCohort.allows(first, w) {
		return false
	}
	for _, u := range c.fixedUsage {
		cl := &c.queue.node.Cells[u.FR]
		if cl.Use[quota.Future]+u.V > cl.Nominal || !c.queue.node.Fits(u.FR, u.V, quota.Future) {
			return false
		}
	}
	for g := range c.shape.groups {
		for _, u := range c.fixedUsage {
			if c.shape.refuses(e, e.frs[u.FR].Flavor, g, []int32{e.frs[u.FR].Resource}) != "" {
				return false
			}
		}
	}
	return len(c.fixedUsage) > 0
}

// yieldClass makes the class of a borrower that yields inadmissible until all entries were
// processed, without reporting it.
func (e *Engine) yieldClass(a *assignment) {
	c := a.w.class
	t := c.queue.tree
	e.deactivate(c)
	e.announceUnreserved(c)
	e.noteRefusal(c, a)
	c.refusedAt, c.refusedUsage = t.improvements, t.usageChanges
	a.misses = a.misses[:0]
	for _, u := range a.usage {
		k := e.frs[u.FR]
		a.miss(miss{reason: ReasonWaitingForQuota, flavor: k.Flavor, resource: k.Resource, fr: u.FR, amount: u.V - c.queue.node.Available(u.FR, quota.Future)})
		t.retryYielded(u.FR)
	}
	e.registerHints(c, a)
	if c.reported == "" || len(c.unreported) > 0 {
		t.unreported = append(t.unreported, c)
	}
}

// retryYielded notes that somebody yielded a flavor-resource.
func (t *tree) retryYielded(fr int32) {
	if !slices.Contains(t.yieldedFRs, fr) {
		t.yieldedFRs = append(t.yieldedFRs, fr)
	}
}

// nominalNeeds lists, for one flavor-resource, what the queues of a tree could use of their nominal quota at once.
type nominalNeeds struct {
	list         []nominalNeed
	fr           int32
	as           uint64 // tree.version as of which this holds
	phaseChanges uint64 // likewise Engine.phaseChanges
	in           uint64 // and Engine.decision
}

// nominalNeed is the most that a pending class of a queue would take.
type nominalNeed struct {
	queue *queue
	v     int64
}

// withoutYielding is at most what a queue can have of a flavor-resource without being in the way of
// others' use of their nominal quota.
func (e *Engine) withoutYielding(t *tree, q *queue, fr int32) int64 {
	most := int64(quota.Unlimited)
	for _, need := range e.nominalNeeds(t, fr) {
		if b := need.queue.node; b != q.node {
			most = min(most, max(q.node.AvailableTogether(b, fr)-need.v, q.node.AvailableUnborrowed(b, fr)))
		}
	}
	return most
}

// nominalNeeds is the same for all queues of the tree, which look for their entries one after the other while nothing changes.
func (e *Engine) nominalNeeds(t *tree, fr int32) []nominalNeed {
	n := &t.needs
	if n.fr == fr && n.as == t.version && n.phaseChanges == e.phaseChanges && n.in == e.decision {
		return n.list
	}
	*n = nominalNeeds{list: n.list[:0], fr: fr, as: t.version, phaseChanges: e.phaseChanges, in: e.decision}
	for _, b := range t.borrowIndex[fr].unused {
		if int(fr) >= len(b.demand) || b.demand[fr].Empty() || b.spec.StrictFIFO || b.spec.Preemption.ReclaimWithinCohort != PreemptAny {
			continue
		}
		own := min(b.node.Cells[fr].Unused(), b.node.Available(fr, quota.Future))
		if own <= 0 {
			continue
		}
		e.scratch.contestants = b.demand[fr].within(e.scratch.contestants[:0], 0, own, contestantLimit)
		if i := slices.IndexFunc(e.scratch.contestants, func(c *equivClass) bool { return e.fitsNominal(c, nil) }); i >= 0 {
			n.list = append(n.list, nominalNeed{b, quota.AmountOf(e.scratch.contestants[i].fixedUsage, fr)})
		}
	}
	return n.list
}

// retryYieldedClasses lets borrowers that yielded have what is left; false if there were none.
func (e *Engine) retryYieldedClasses(t *tree) bool {
	t.yielding = false
	for _, fr := range t.yieldedFRs {
		e.hintFreed(t, fr)
	}
	for _, c := range t.unreported { // they are owed an answer
		e.requeue(c)
	}
	found := len(t.yieldedFRs) > 0
	t.yieldedFRs, t.unreported = t.yieldedFRs[:0], t.unreported[:0]
	return found
}
