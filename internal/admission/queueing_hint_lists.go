package admission

import (
	"cmp"
	"math"
	"slices"

	"github.com/elastic-ai/elastic/internal/admission/index"
	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// wait says that an inadmissible class may be worth another look once its queue can get hold of
// need of a flavor-resource.
type wait struct {
	order int64 // of the class's lead
	need  int64
	class *equivClass
}

// Compare orders waits as the queue orders their classes.
func (w wait) Compare(o wait) int {
	if w.order != o.order {
		return cmp.Compare(w.order, o.order)
	}
	return tieOrder(w.class.lead, o.class.lead)
}

// Size is the amount needed.
func (w wait) Size() int64 { return w.need }

// waitList has a queue's waits for one flavor-resource, of one rank, since that decides whom they
// may preempt, and of one LocalQueue where usage decides the order. They stand in queue order: the
// first that is worth another look is found without touching those that ask for too much.
type waitList struct {
	index.List[wait]
	rank    int64
	by      *localQueue
	complex int // waits of classes that are not simple

	// A simple class that asked for this much was refused when tree.improvements was refusedAt;
	// one that asks for more has no better chance.
	refused   int64
	refusedAt uint64

	// What they could preempt in their own queue.
	ownQueue preemptible
}

func (l *waitList) insert(w wait) {
	if !w.class.shape.simple {
		l.complex++
	}
	l.Insert(w)
}

func (l *waitList) remove(w wait) {
	if !w.class.shape.simple {
		l.complex--
	}
	l.Remove(w)
}

// first is the first class in queue order that is worth another look.
func (l *waitList) first(e *Engine, h *queueingHint) *equivClass {
	above := int64(math.MinInt64)
	if h.free <= 0 && l.complex == 0 && !h.overridable {
		above = h.unreserved // nothing is free, and smaller requests lack only what is reserved for others
	}
	for i := range l.Chunks {
		c := &l.Chunks[i]
		if c.Least > h.reachable {
			continue
		}
		for j := range c.Items {
			if w := &c.Items[j]; w.need <= h.reachable && (w.need > above || w.need <= h.free) && w.class.inadmissible && h.worthwhile(e, w.class, w.need) {
				return w.class
			}
		}
	}
	return nil
}

// refuse notes that a simple request for need was refused, and thus all larger ones.
func (l *waitList) refuse(need int64, improvements uint64) {
	if l.refusedAt != improvements || need < l.refused {
		l.refused, l.refusedAt = need, improvements
	}
}

// waitsLike is the list in which a class waits for a flavor-resource. Higher ranks come first.
func (q *queue) waitsLike(c *equivClass, fr int32) *waitList {
	for len(q.waits) <= int(fr) {
		q.waits = append(q.waits, nil)
	}
	rank := c.lead.rank
	i, _ := slices.BinarySearchFunc(q.waits[fr], rank, func(l *waitList, r int64) int { return cmp.Compare(r, l.rank) })
	for ; i < len(q.waits[fr]) && q.waits[fr][i].rank == rank; i++ {
		if q.waits[fr][i].by == c.by {
			return q.waits[fr][i]
		}
	}
	l := &waitList{rank: rank, by: c.by}
	q.waits[fr] = slices.Insert(q.waits[fr], i, l)
	return l
}

// waitFor has an inadmissible class looked at again once the queue can get hold of need. What a
// class needs hardly ever changes, so the wait stays when the class is requeued.
func (q *queue) waitFor(c *equivClass, fr int32, need int64) *waitList {
	l := q.waitsLike(c, fr)
	at := slices.IndexFunc(c.needs, func(n quota.Amount) bool { return n.FR == fr })
	switch {
	case at < 0:
		c.needs = append(c.needs, quota.Amount{FR: fr, V: need})
	case c.needs[at].V == need:
		return l
	default:
		l.remove(c.waitsFor(c.needs[at]))
		c.needs[at].V = need
	}
	l.insert(c.waitsFor(quota.Amount{FR: fr, V: need}))
	return l
}

func (c *equivClass) waitsFor(n quota.Amount) wait { return wait{c.lead.order, n.V, c} }

// follow moves a class's waits to where its first member stands.
func (q *queue) follow(c *equivClass) {
	if c.lead == c.members[0] {
		return
	}
	for _, n := range c.needs {
		q.waitsLike(c, n.FR).remove(c.waitsFor(n))
	}
	c.lead = c.members[0]
	for _, n := range c.needs {
		q.waitsLike(c, n.FR).insert(c.waitsFor(n))
	}
}

// removeWaits takes a class's waits away.
func (q *queue) removeWaits(c *equivClass) {
	for _, n := range c.needs {
		l := q.waitsLike(c, n.FR)
		l.remove(c.waitsFor(n))
		if l.Empty() {
			q.waits[n.FR] = slices.DeleteFunc(q.waits[n.FR], func(o *waitList) bool { return o == l })
		}
	}
	c.needs = nil
}
