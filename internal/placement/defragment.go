package placement

import (
	"cmp"
	"slices"
	"strings"
)

// clone of a node, to try changes on.
func (n *node) clone() *node {
	c := &node{name: n.name, known: n.known, desc: n.desc, view: n.view}
	c.view.Cards = slices.Clone(n.view.Cards)
	c.view.Free = slices.Clone(n.view.Free)
	return c
}

// clearing is which pods would have to leave a node so that another fits.
type clearing struct {
	node  *node
	leave []*holding
	// What it costs: the highest priority among the pods that leave, and their core.
	priority int32
	core     int64
}

func (c *clearing) compare(o *clearing) int {
	return cmp.Or(cmp.Compare(c.priority, o.priority), len(c.leave)-len(o.leave), cmp.Compare(c.core, o.core),
		strings.Compare(c.node.name, o.node.name))
}

// clearNode finds the pods that must leave the node for the request shape: of those that may, as few and
// of as low priority as possible. nil means that even without all of them it would not fit.
func (e *Engine) clearNode(s *shape, n *node, may func(*holding) bool) *clearing {
	if !n.known || matches(&s.pod, &n.desc) != Fits {
		return nil
	}
	var can []*holding
	for _, h := range n.holdings {
		if may(h) {
			can = append(can, h)
		}
	}
	if len(can) == 0 {
		return nil
	}
	scratch := n.clone()
	for _, h := range can {
		h.charge(&scratch.view, -1)
	}
	if e.pick.run(e, s, scratch, 0) != Fits {
		return nil
	}
	// Pods that can stay do, those of high priority first, then the large.
	slices.SortFunc(can, func(a, b *holding) int {
		return cmp.Or(cmp.Compare(b.pod.Priority, a.pod.Priority), cmp.Compare(b.shape.request.Core, a.shape.request.Core),
			strings.Compare(a.key, b.key))
	})
	c := &clearing{node: n}
	for _, h := range can {
		h.charge(&scratch.view, 1)
		if e.pick.run(e, s, scratch, 0) == Fits {
			continue
		}
		h.charge(&scratch.view, -1)
		if len(c.leave) == 0 || h.pod.Priority > c.priority {
			c.priority = h.pod.Priority
		}
		c.leave = append(c.leave, h)
		c.core += h.shape.request.Core
	}
	return c
}

// Move of a pod to another place.
type Move struct {
	Pod, From string
	To        Assignment
}

// mostTried nodes are tried for a defragmentation plan, those with the least to move first.
const mostTried = 64

// Defragment plans moves after which the pod fits: at most `most` of them, as few as possible, each
// into capacity that is free now. Pinned pods and reservations stay where they are. It returns where the
// pod would go; without a plan, the error is a *Refusal. Nothing changes.
func (e *Engine) Defragment(pod *Pod, most int) ([]Move, Assignment, error) {
	s, err := e.shapeOf(pod)
	if err != nil {
		return nil, Assignment{}, err
	}
	movable := func(h *holding) bool { return h.bound && !h.pod.Pinned }
	var plans []*clearing
	for _, n := range e.nodes {
		if n == nil {
			continue
		}
		if c := e.clearNode(s, n, movable); c != nil && len(c.leave) <= most {
			c.priority = 0 // a moved pod runs on: the fewest moves win
			plans = append(plans, c)
		}
	}
	slices.SortFunc(plans, (*clearing).compare)
	for _, c := range plans[:min(len(plans), mostTried)] {
		if moves, to, ok := e.tryMoves(pod, s, c); ok {
			return moves, to, nil
		}
	}
	return nil, Assignment{}, e.refuse(s, nil)
}

func (e *Engine) tryMoves(pod *Pod, s *shape, c *clearing) ([]Move, Assignment, bool) {
	txn := e.Begin()
	defer txn.Rollback()
	for _, h := range c.leave {
		e.remove(h)
	}
	if e.pick.run(e, s, c.node, 0) != Fits {
		return nil, Assignment{}, false
	}
	held := e.newHolding(pod, s, c.node)
	held.takes = e.pick.takes()
	e.add(held)
	var moves []Move
	for _, h := range c.leave {
		n := e.best(h.shape, e.salt(h.key))
		if n == nil || e.pick.run(e, h.shape, n, 0) != Fits {
			return nil, Assignment{}, false
		}
		moved := e.newHolding(&h.pod, h.shape, n)
		moved.bound, moved.takes = true, e.pick.takes()
		e.add(moved)
		moves = append(moves, Move{Pod: h.key, From: h.node.name, To: moved.assignment()})
	}
	return moves, held.assignment(), true
}
