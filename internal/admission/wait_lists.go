package admission

import (
	"cmp"
	"math"
	"slices"
)

// wait says that a class, when parked, may be helped once its queue can get
// hold of `need` of a flavor-resource.
type wait struct {
	order int64 // of the class's lead
	need  int64
	class *equivClass
}

// waitList is a queue's waits for one flavor-resource, of one priority, which decides whom the waiting may displace,
// and of one local queue where usage decides. They stand in the order of their turns, in chunks that know their least
// need: the first that may be helped is found without looking at those who ask for too much.
type waitList struct {
	priority int64
	by       *localQueue
	chunks   []waitChunk
	least    int64 // of all their needs
	complex  int   // waits of classes that are not simple
	// Whoever asks for one resource only, and for this much or more, was refused when
	// tree.helps was refusedAt: who asks for more has no better chance.
	refused   int64
	refusedAt uint64
	// What they could displace in their own queue.
	ownQueue preemptible
}

type waitChunk struct {
	least int64
	waits []wait
}

const waitsInChunk = 64

func (w *wait) compare(o *wait) int {
	if w.order != o.order {
		return cmp.Compare(w.order, o.order)
	}
	return tieOrder(w.class.lead, o.class.lead)
}

// find is where w stands or would stand.
func (l *waitList) find(w wait) (i, j int) {
	i, _ = slices.BinarySearchFunc(l.chunks, w, func(c waitChunk, w wait) int { return c.waits[len(c.waits)-1].compare(&w) })
	i = min(i, len(l.chunks)-1)
	j, _ = slices.BinarySearchFunc(l.chunks[i].waits, w, func(a, b wait) int { return a.compare(&b) })
	return i, j
}

func (l *waitList) insert(w wait) {
	if !w.class.shape.simple {
		l.complex++
	}
	if len(l.chunks) == 0 {
		l.chunks, l.least = append(l.chunks, waitChunk{w.need, []wait{w}}), w.need
		return
	}
	l.least = min(l.least, w.need)
	i, j := l.find(w)
	c := &l.chunks[i]
	c.waits = slices.Insert(c.waits, j, w)
	c.least = min(c.least, w.need)
	if len(c.waits) > waitsInChunk {
		rest := waitChunk{waits: slices.Clone(c.waits[waitsInChunk/2:])}
		clear(c.waits[waitsInChunk/2:])
		c.waits = c.waits[:waitsInChunk/2]
		c.settle()
		rest.settle()
		l.chunks = slices.Insert(l.chunks, i+1, rest)
	}
}

func (l *waitList) remove(w wait) {
	if !w.class.shape.simple {
		l.complex--
	}
	i, j := l.find(w)
	c := &l.chunks[i]
	need := c.waits[j].need
	c.waits = slices.Delete(c.waits, j, j+1)
	switch {
	case len(c.waits) == 0:
		l.chunks = slices.Delete(l.chunks, i, i+1)
	case need == c.least:
		c.settle()
	}
	if need == l.least {
		l.least = math.MaxInt64
		for i := range l.chunks {
			l.least = min(l.least, l.chunks[i].least)
		}
	}
}

func (c *waitChunk) settle() {
	c.least = math.MaxInt64
	for i := range c.waits {
		c.least = min(c.least, c.waits[i].need)
	}
}

// first is the first class in turn whose wait may be over.
func (l *waitList) first(e *Engine, h *queueingHint) *equivClass {
	above := int64(math.MinInt64)
	if h.free <= 0 && l.complex == 0 && !h.overridable {
		above = h.room // nothing is free, and who asks for less lacks only what is kept for others
	}
	for i := range l.chunks {
		c := &l.chunks[i]
		if c.least > h.reachable {
			continue
		}
		for j := range c.waits {
			if w := &c.waits[j]; w.need <= h.reachable && (w.need > above || w.need <= h.free) && w.class.inadmissible && h.worthwhile(e, w.class, w.need) {
				return w.class
			}
		}
	}
	return nil
}

// refuse notes that a simple request for need was refused, and thus all larger ones.
func (l *waitList) refuse(need int64, helps uint64) {
	if l.refusedAt != helps || need < l.refused {
		l.refused, l.refusedAt = need, helps
	}
}

// waitsLike is the list a class stands in with its wait for a flavor-resource: higher priorities come first.
func (q *queue) waitsLike(c *equivClass, fr int32) *waitList {
	for len(q.waits) <= int(fr) {
		q.waits = append(q.waits, nil)
	}
	prio := c.lead.spec.Priority
	i, _ := slices.BinarySearchFunc(q.waits[fr], prio, func(l *waitList, p int64) int { return cmp.Compare(p, l.priority) })
	for ; i < len(q.waits[fr]) && q.waits[fr][i].priority == prio; i++ {
		if q.waits[fr][i].by == c.by {
			return q.waits[fr][i]
		}
	}
	l := &waitList{priority: prio, by: c.by}
	q.waits[fr] = slices.Insert(q.waits[fr], i, l)
	return l
}

// waitFor registers a parked class to wake when it can get hold of need. What
// a class needs hardly ever changes, so the wait stays when the class wakes.
func (q *queue) waitFor(c *equivClass, fr int32, need int64) *waitList {
	l := q.waitsLike(c, fr)
	at := slices.IndexFunc(c.needs, func(n amount) bool { return n.fr == fr })
	switch {
	case at < 0:
		c.needs = append(c.needs, amount{fr, need})
	case c.needs[at].v == need:
		return l
	default:
		l.remove(c.waitsFor(c.needs[at]))
		c.needs[at].v = need
	}
	l.insert(c.waitsFor(amount{fr, need}))
	return l
}

func (c *equivClass) waitsFor(n amount) wait { return wait{c.lead.order, n.v, c} }

// follow keeps a class's waits where its first member would stand.
func (q *queue) follow(c *equivClass) {
	if c.lead == c.members[0] {
		return
	}
	for _, n := range c.needs {
		q.waitsLike(c, n.fr).remove(c.waitsFor(n))
	}
	c.lead = c.members[0]
	for _, n := range c.needs {
		q.waitsLike(c, n.fr).insert(c.waitsFor(n))
	}
}

// waitNoMore takes a class's waits away.
func (q *queue) waitNoMore(c *equivClass) {
	for _, n := range c.needs {
		l := q.waitsLike(c, n.fr)
		l.remove(c.waitsFor(n))
		if len(l.chunks) == 0 {
			q.waits[n.fr] = slices.DeleteFunc(q.waits[n.fr], func(o *waitList) bool { return o == l })
		}
	}
	c.needs = nil
}
