package admission

import (
	"cmp"
	"slices"
	"strings"
)

// Quota is lent while nobody it belongs to can use it. Each queue sends the first of its line that can be
// helped, so a workload that borrows may come up while further back in another line somebody could be
// admitted on quota of its own, and would take it back at once. Such a borrower steps back until
// all lines have been looked at, and then has what is left.

// demandItem is how much of a flavor-resource a class asks for.
type demandItem struct {
	v     int64
	class *equivClass
}

func (a demandItem) compare(b demandItem) int {
	return cmp.Or(cmp.Compare(a.v, b.v), strings.Compare(a.class.key, b.class.key))
}

// demand is a queue's asks for one flavor-resource in order, in chunks so that an insertion moves little.
type demand [][]demandItem

const chunk = 256

// find is where a stands or would stand.
func (d demand) find(a demandItem) (i, j int) {
	i, _ = slices.BinarySearchFunc(d, a, func(c []demandItem, a demandItem) int { return c[len(c)-1].compare(a) })
	if i == len(d) {
		i--
	}
	j, _ = slices.BinarySearchFunc(d[i], a, demandItem.compare)
	return i, j
}

func (d *demand) insert(a demandItem) {
	if len(*d) == 0 {
		*d = demand{{a}}
		return
	}
	i, j := d.find(a)
	c := slices.Insert((*d)[i], j, a)
	(*d)[i] = c
	if len(c) > chunk {
		*d = slices.Insert(*d, i+1, slices.Clone(c[chunk/2:]))
		(*d)[i] = slices.Delete(c, chunk/2, len(c))
	}
}

func (d *demand) remove(a demandItem) {
	i, j := d.find(a)
	(*d)[i] = slices.Delete((*d)[i], j, j+1)
	if len((*d)[i]) == 0 {
		*d = slices.Delete(*d, i, i+1)
	}
}

// within lists up to most classes that ask for more than low and no more than high, the largest first.
func (d demand) within(list []*equivClass, low, high int64, most int) []*equivClass {
	i, _ := slices.BinarySearchFunc(d, high, func(c []demandItem, v int64) int { return compareAmount(c[len(c)-1], v) })
	for i = min(i, len(d)-1); i >= 0 && most > 0; i-- {
		j, _ := slices.BinarySearchFunc(d[i], high, compareAmount)
		for j--; j >= 0 && most > 0; j-- {
			if d[i][j].v <= low {
				return list
			}
			list = append(list, d[i][j].class)
			most--
		}
	}
	return list
}

// compareAmount sorts those who ask for v exactly before v.
func compareAmount(a demandItem, v int64) int {
	if a.v <= v {
		return -1
	}
	return 1
}

// addDemand notes what a new class asks for. Where there is a choice, of flavors or of counts, that is not known beforehand.
func (e *Engine) addDemand(c *equivClass) {
	e.demandChanges++
	c.fixedUsage = e.fixedUsage(c.queue, c.shape)
	for _, u := range c.fixedUsage {
		q := c.queue
		for len(q.demand) <= int(u.fr) {
			q.demand = append(q.demand, nil)
		}
		q.demand[u.fr].insert(demandItem{u.v, c})
	}
}

func (e *Engine) removeDemand(c *equivClass) {
	e.demandChanges++
	for _, u := range c.fixedUsage {
		c.queue.demand[u.fr].remove(demandItem{u.v, c})
	}
	c.fixedUsage = nil
	if t := c.queue.node.root.tree; e.anyVolatile(t) {
		t.usageChanges++
		e.enlist(t)
	}
}

// fixedUsage is what workloads of a shape take in a queue, if only one answer is possible.
func (e *Engine) fixedUsage(q *queue, s *requestShape) []amount {
	if s.shrinks {
		return nil
	}
	var usage []amount
	for i, requests := range s.requests {
		for _, r := range requests {
			g := q.group(r.resource)
			switch {
			case g < 0 && (r.resource == 0 || r.v == 0 || e.opts.IgnoreUndeclared):
				continue
			case g < 0 || len(q.groups[g].flavors) != 1:
				return nil
			}
			if v := r.v * int64(s.counts[i]); v > 0 {
				usage = addAmount(usage, q.groups[g].flavors[0].frs[slices.Index(q.groups[g].resources, r.resource)], v)
			}
		}
	}
	return usage
}

// contestedQuota is quota of another queue that a borrower would leave too little of.
type contestedQuota struct {
	queue *queue
	fr    int32
	free  int64 // what the queue can use of its own as things stand
}

// borrowerYields says whether a borrower would be in the way of somebody's own quota.
func (e *Engine) borrowerYields(t *tree, a *assignment) bool {
	if !t.yielding || !a.admissible() || a.borrow == 0 || len(a.overrides) > 0 || a.w.queue.spec.StrictFIFO {
		return false
	}
	loans := e.scratch.contested[:0]
	for _, u := range a.usage {
		for _, b := range t.borrowIndex[u.fr].unused {
			if b == a.w.queue || b.pending == 0 || int(u.fr) >= len(b.demand) || b.spec.Preemption.ReclaimWithinCohort == PreemptNever {
				continue
			}
			if free := min(b.node.cells[u.fr].unused(), b.node.available(u.fr, future)); free > 0 {
				loans = append(loans, contestedQuota{b, u.fr, free})
			}
		}
	}
	e.scratch.contested = loans
	if len(loans) == 0 {
		return false
	}
	return slices.ContainsFunc(e.contestants(a, loans), func(c *equivClass) bool { return e.fitsNominal(c, a.w) })
}

// few owners are looked at in each queue; more would hardly give another answer.
const contestantLimit = 4

// contestants lists classes that would no longer find room in their own quota if the assignment were carried out.
func (e *Engine) contestants(a *assignment, loans []contestedQuota) []*equivClass {
	e.pretendAdmitted(a, 1)
	list := e.scratch.contestants[:0]
	for _, l := range loans {
		left := l.queue.node.available(l.fr, future)
		if left >= l.free || !canReclaim(l.queue.node, a.w.queue.node, l.fr) {
			continue
		}
		if !l.queue.spec.StrictFIFO {
			list = l.queue.demand[l.fr].within(list, left, l.free, contestantLimit)
			continue
		}
		if w := l.queue.first(); w != nil && amountOf(w.class.fixedUsage, l.fr) > left {
			list = append(list, w.class)
		}
	}
	e.pretendAdmitted(a, -1)
	e.scratch.contestants = list
	return list
}

// pretendAdmitted carries an assignment out in the future tree (sign 1), or takes that back.
func (e *Engine) pretendAdmitted(a *assignment, sign int64) {
	e.shiftAll(a.victims, -sign)
	for _, u := range a.usage {
		a.w.queue.node.add(u.fr, sign*u.v, future)
	}
}

// canReclaim: the owner may take quota back from the borrower, who borrows at every level up to where they meet.
func canReclaim(owner, borrower *node, fr int32) bool {
	for n := borrower; !owner.under(n); n = n.parent {
		if !n.borrowing(fr, 0, future) {
			return false
		}
	}
	return true
}

// fitsNominal: the class fits as things stand, on its queue's own quota, and could take it back from w.
func (e *Engine) fitsNominal(c *equivClass, w *workload) bool {
	first := c.members[0]
	if e.inCooldown(first) || w != nil && !c.queue.spec.Preemption.ReclaimWithinCohort.allows(first, w) {
		return false
	}
	for _, u := range c.fixedUsage {
		cl := &c.queue.node.cells[u.fr]
		if cl.use[future]+u.v > cl.nominal || !c.queue.node.fits(u.fr, u.v, future) {
			return false
		}
	}
	for g := range c.shape.groups {
		for _, u := range c.fixedUsage {
			if c.shape.refuses(e, e.frs[u.fr].flavor, g) != "" {
				return false
			}
		}
	}
	return len(c.fixedUsage) > 0
}

// yieldClass parks the class of a borrower without a word until all lines have been looked at.
func (e *Engine) yieldClass(a *assignment) {
	c := a.w.class
	t := c.queue.node.root.tree
	e.deactivate(c)
	e.announceUnreserved(c)
	e.noteDelays(c, a)
	c.refusedAt, c.refusedUsage = t.improvements, t.usageChanges
	a.misses = a.misses[:0]
	for _, u := range a.usage {
		k := e.frs[u.fr]
		a.miss(miss{reason: ReasonWaitingForQuota, flavor: k.flavor, resource: k.resource, fr: u.fr, amount: u.v - c.queue.node.available(u.fr, future)})
		t.retryYielded(u.fr)
	}
	e.registerHints(c, a)
	if c.reported == "" || len(c.unreported) > 0 {
		t.unreported = append(t.unreported, c)
	}
}

func (t *tree) retryYielded(fr int32) {
	if !slices.Contains(t.yieldedFRs, fr) {
		t.yieldedFRs = append(t.yieldedFRs, fr)
	}
}

// withoutYielding is at most what a queue can have of a flavor-resource without being in the way of others' own quota.
func (e *Engine) withoutYielding(t *tree, q *queue, fr int32) int64 {
	most := int64(unlimited)
	for _, b := range t.borrowIndex[fr].unused {
		if b == q || int(fr) >= len(b.demand) || len(b.demand[fr]) == 0 || b.spec.StrictFIFO || b.spec.Preemption.ReclaimWithinCohort != PreemptAny {
			continue
		}
		own := min(b.node.cells[fr].unused(), b.node.available(fr, future))
		if own <= 0 {
			continue
		}
		e.scratch.contestants = b.demand[fr].within(e.scratch.contestants[:0], 0, own, contestantLimit)
		for _, o := range e.scratch.contestants {
			if e.fitsNominal(o, nil) {
				most = min(most, max(q.node.availableTogether(b.node, fr)-amountOf(o.fixedUsage, fr), q.node.availableUnborrowed(b.node, fr)))
				break
			}
		}
	}
	return most
}

// availableTogether is how much both nodes can have together, as far as only one takes from the other's way.
func (n *node) availableTogether(o *node, fr int32) int64 {
	meet, sum := n, int64(0)
	for ; !o.under(meet); meet = meet.parent {
		sum += meet.cells[fr].localFree(future)
	}
	for ; o != meet; o = o.parent {
		sum += o.cells[fr].localFree(future)
	}
	return sum + meet.available(fr, future)
}

// availableUnborrowed is the most a node can have without borrowing at every level below where it meets another, which
// could take nothing back from it then.
func (n *node) availableUnborrowed(o *node, fr int32) int64 {
	most, below := int64(0), int64(0)
	for ; !o.under(n); n = n.parent {
		c := &n.cells[fr]
		most = max(most, c.subtree-c.use[future]+below)
		below += c.localFree(future)
	}
	return most
}

// retryYieldedClasses lets those who stepped back have what is left; false if nobody did.
func (e *Engine) retryYieldedClasses(t *tree) bool {
	t.yielding = false
	for _, fr := range t.yieldedFRs {
		t.freed[fr], t.anyFreed = true, true
		t.improvements++
	}
	for _, c := range t.unreported { // they are owed an answer
		e.requeue(c)
	}
	any := len(t.yieldedFRs) > 0
	t.yieldedFRs, t.unreported = t.yieldedFRs[:0], t.unreported[:0]
	return any
}
