package admission

import (
	"cmp"
	"slices"
)

// wait says that a parked class may be helped once its queue has more than
// `need` of a flavor-resource left. Waits of an earlier parking are void.
type wait struct {
	class *class
	need  int64
	epoch uint32
}

// enlist marks a tree as one in which something may be decided.
func (e *Engine) enlist(t *tree) {
	if !t.listed {
		t.listed = true
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
	c.parked, c.verdict = true, v
	c.epoch++
	q := c.queue
	q.parked++
	if !q.spec.StrictFIFO && c.pos >= 0 {
		q.deactivate(c)
	}
	if c.told != v.reason {
		c.told = v.reason
		c.untold = append(c.untold[:0], c.members...)
	}
	e.tell(c)
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

// unpark wakes a class.
func (e *Engine) unpark(c *class) {
	if !c.parked {
		return
	}
	c.parked = false
	c.epoch++
	e.unreserve(c)
	c.queue.parked--
	if c.pos < 0 {
		c.queue.activate(c)
	}
	e.ready(c.queue)
}

// waitFor registers a parked class to wake when more than need is free.
func (e *Engine) waitFor(c *class, fr int32, need int64) {
	q := c.queue
	for len(q.waits) < len(e.frs) {
		q.waits = append(q.waits, nil)
	}
	h := q.waits[fr]
	if len(h) > 64 && len(h) > 4*q.parked {
		h = dropVoid(h)
	}
	h = append(h, wait{c, need, c.epoch})
	for i := len(h) - 1; i > 0; {
		p := (i - 1) / 2
		if h[i].need >= h[p].need {
			break
		}
		h[i], h[p] = h[p], h[i]
		i = p
	}
	q.waits[fr] = h
}

// dropVoid keeps the heap from filling up with waits nobody is behind any more.
func dropVoid(h []wait) []wait {
	h = slices.DeleteFunc(h, wait.void)
	slices.SortFunc(h, func(a, b wait) int { return cmp.Compare(a.need, b.need) })
	return h
}

func (w wait) void() bool { return w.epoch != w.class.epoch }

func popWait(h []wait) []wait {
	last := len(h) - 1
	h[0] = h[last]
	h[last] = wait{}
	h = h[:last]
	for i := 0; ; {
		l := 2*i + 1
		if l >= last {
			return h
		}
		if r := l + 1; r < last && h[r].need < h[l].need {
			l = r
		}
		if h[l].need >= h[i].need {
			return h
		}
		h[i], h[l] = h[l], h[i]
		i = l
	}
}

// wake looks at the flavor-resources of which some was freed and wakes
// those for whom it may be enough.
func (e *Engine) wake(t *tree) {
	if t.loose {
		t.loose = false
		for fr, freed := range t.freed {
			if freed {
				t.freed[fr] = false
				for _, q := range t.queues {
					e.wakeFreed(q, int32(fr))
				}
			}
		}
	}
	if len(t.tilted) > 0 {
		tilted := t.tilted
		t.tilted = t.tilted[:0]
		for _, q := range t.queues {
			if q.parked > 0 && q.spec.Preemption.ReclaimWithinCohort != PreemptNever {
				e.wakeTilted(q, tilted)
			}
		}
	}
}

func (e *Engine) wakeFreed(q *queue, fr int32) {
	if int(fr) >= len(q.waits) || len(q.waits[fr]) == 0 {
		return
	}
	free := q.node.available(fr, future)
	h := q.waits[fr]
	for len(h) > 0 && h[0].need < free {
		w := h[0]
		h = popWait(h)
		if !w.void() {
			e.unpark(w.class)
		}
	}
	q.waits[fr] = h
}

// wakeTilted wakes everyone who lacks one of frs and might take it from a
// queue that just began to borrow.
func (e *Engine) wakeTilted(q *queue, frs []int32) {
	for _, fr := range frs {
		if int(fr) >= len(q.waits) {
			continue
		}
		for _, w := range q.waits[fr] {
			if !w.void() {
				e.unpark(w.class)
			}
		}
		q.waits[fr] = dropVoid(q.waits[fr])
	}
}

// wakeAll wakes every parked class of a queue.
func (q *queue) wakeAll(e *Engine) {
	if q.parked == 0 {
		return
	}
	for _, c := range q.classes { // waking is a heap insertion; the order does not matter
		e.unpark(c)
	}
	for fr := range q.waits {
		q.waits[fr] = q.waits[fr][:0]
	}
}

// wakePlacement wakes those whom the flavor's nodes had no room for.
func (e *Engine) wakePlacement(f *flavor) {
	for _, w := range f.refused {
		if !w.void() {
			e.unpark(w.class)
		}
	}
	f.refused = f.refused[:0]
}
