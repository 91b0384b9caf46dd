package placement

import (
	"cmp"
	"slices"
	"strings"
)

// clone of a node for trying things out on.
func (n *node) clone() *node {
	c := &node{name: n.name, known: n.known, desc: n.desc, view: n.view}
	c.view.Cards = slices.Clone(n.view.Cards)
	c.view.Free = slices.Clone(n.view.Free)
	return c
}

// clearing is who would have to leave a node so that a pod fits.
type clearing struct {
	node  *node
	leave []*holding
	// What it costs: the highest priority among those who leave, how many, and the core they hold.
	priority int32
	core     int64
}

func (c *clearing) compare(o *clearing) int {
	return cmp.Or(cmp.Compare(c.priority, o.priority), len(c.leave)-len(o.leave), cmp.Compare(c.core, o.core),
		strings.Compare(c.node.name, o.node.name))
}

// clear finds who must leave the node for the shape: of those that may, as few and as unimportant
// as possible. nil means that even an empty node would not do.
func (e *Engine) clear(s *shape, n *node, may func(*holding) bool) *clearing {
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
	// Whoever can stay stays, the important first, then the large.
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

// Victim is a pod that would have to go, and what it holds.
type Victim struct {
	Pod      string
	Priority int32
	Assignment
}

// Victims says which pods would have to go for the gang to fit, and where it would then go. Only
// pods for which may returns true are considered; nil means those of lower priority. Few and
// unimportant pods are preferred. Nothing changes. Without an answer that fits, there are no victims.
func (e *Engine) Victims(g *Gang, may func(pod PodStatus) bool) ([]Victim, Answer) {
	txn := e.Begin()
	defer txn.Rollback()
	answer := Answer{Fits: true}
	var gone []*holding
	done := make([]bool, len(g.PodSets))
	for i := range g.PodSets {
		if done[i] {
			continue
		}
		members := g.together(i)
		some, holds, refusal := e.makeRoomFor(g, members, may)
		gone = append(gone, some...)
		if refusal != nil {
			return nil, Answer{Refusal: refusal}
		}
		for k, m := range members {
			done[m] = true
			set := &g.PodSets[m]
			answer.PodSets = append(answer.PodSets, PodSetAnswer{
				Name: set.Name, Count: set.Count, Fit: set.Count, Placed: placed(holds[k], e.levels(set.Topology)),
			})
		}
	}
	return e.reprieve(gone), answer
}

// makeRoomFor places sets that belong together and returns who had to go. With a topology, all who
// may go do at first: which domain is cheapest to clear shows only when they are given back.
func (e *Engine) makeRoomFor(g *Gang, members []int, may func(pod PodStatus) bool) ([]*holding, [][]*holding, *Refusal) {
	set := &g.PodSets[members[0]]
	allowed := func(h *holding) bool {
		switch {
		case g.Key != "" && h.pod.Gang == g.Key:
			return false
		case may == nil:
			return h.pod.Priority < set.Pod.Priority
		}
		return may(h.status())
	}
	if set.Topology == nil {
		return e.makeRoom(g, set, allowed)
	}
	if holds, refusal := e.placeMembers(g, members); refusal == nil {
		return nil, holds, nil
	}
	gone := e.removeAll(allowed)
	holds, refusal := e.placeMembers(g, members)
	return gone, holds, refusal
}

// makeRoom places the pods of a set one by one, clearing the cheapest node for each that does not fit.
func (e *Engine) makeRoom(g *Gang, set *PodSet, may func(*holding) bool) (gone []*holding, holds [][]*holding, refusal *Refusal) {
	pod := set.Pod
	pod.Gang, pod.PodSet = g.Key, set.Name
	s, err := e.shapeOf(&pod)
	if err != nil {
		return nil, nil, &Refusal{Detail: err.Error()}
	}
	holds = make([][]*holding, 1)
	var plans map[*node]*clearing
	for i := range set.Count {
		pod.Key = slotKey(g.Key, set.Name, i)
		n := e.best(s, e.salt(pod.Key))
		if n == nil {
			if plans == nil {
				plans = e.clearings(s, may)
			}
			c := cheapest(plans)
			if c == nil {
				r := e.refuse(s, nil)
				r.Fit, r.Count = i, set.Count
				return gone, nil, r
			}
			for _, h := range c.leave {
				e.drop(h)
			}
			gone = append(gone, c.leave...)
			n = c.node
		}
		holds[0] = append(holds[0], e.hold(&pod, s, n, 0))
		if plans != nil {
			plans[n] = e.clear(s, n, may)
		}
	}
	return gone, holds, nil
}

func (e *Engine) clearings(s *shape, may func(*holding) bool) map[*node]*clearing {
	plans := map[*node]*clearing{}
	for _, n := range e.nodes {
		if n != nil {
			plans[n] = e.clear(s, n, may)
		}
	}
	return plans
}

func cheapest(plans map[*node]*clearing) *clearing {
	var best *clearing
	for _, c := range plans {
		if c != nil && (best == nil || c.compare(best) < 0) {
			best = c
		}
	}
	return best
}

func (e *Engine) removeAll(may func(*holding) bool) []*holding {
	var gone []*holding
	for _, h := range e.sortedHoldings() {
		if may(h) {
			e.drop(h)
			gone = append(gone, h)
		}
	}
	return gone
}

// reprieve gives back what there is still room for, the important first, and returns the rest.
func (e *Engine) reprieve(gone []*holding) []Victim {
	slices.SortFunc(gone, func(a, b *holding) int {
		return cmp.Or(cmp.Compare(b.pod.Priority, a.pod.Priority), strings.Compare(a.key, b.key))
	})
	var victims []Victim
	for _, h := range gone {
		if e.stillFits(h) {
			e.keep(h)
			continue
		}
		victims = append(victims, Victim{Pod: h.key, Priority: h.pod.Priority, Assignment: h.assignment()})
	}
	slices.SortFunc(victims, func(a, b Victim) int { return strings.Compare(a.Pod, b.Pod) })
	return victims
}

// stillFits says whether a holding that was dropped has its very place free.
func (e *Engine) stillFits(h *holding) bool {
	v := &h.node.view
	for _, a := range h.shape.request.Need {
		if v.Free[a.Resource] < a.Value {
			return false
		}
	}
	for i := range h.takes {
		t := &h.takes[i]
		at := h.node.at(t.index)
		if at < 0 {
			continue
		}
		card := &v.Cards[at]
		if card.FreeCore < t.core || card.FreeMemory < t.mem || t.need != nil && t.need.exclusive && !card.Idle() {
			return false
		}
	}
	return true
}

// Move of a pod to another place.
type Move struct {
	Pod, From string
	To        Assignment
}

// mostTried nodes are tried for a defragmentation plan, those with the least to move first.
const mostTried = 64

// Defragment plans moves after which the pod fits: at most `most` of them, as few as possible, each
// into room that is free now. Pinned pods and reservations stay where they are. It returns where the
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
		if c := e.clear(s, n, movable); c != nil && len(c.leave) <= most {
			c.priority = 0 // a move harms nobody: the fewest win
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
		e.drop(h)
	}
	if e.pick.run(e, s, c.node, 0) != Fits {
		return nil, Assignment{}, false
	}
	held := e.newHolding(pod, s, c.node)
	held.takes = e.pick.takes()
	e.keep(held)
	var moves []Move
	for _, h := range c.leave {
		n := e.best(h.shape, e.salt(h.key))
		if n == nil || e.pick.run(e, h.shape, n, 0) != Fits {
			return nil, Assignment{}, false
		}
		moved := e.newHolding(&h.pod, h.shape, n)
		moved.bound, moved.takes = true, e.pick.takes()
		e.keep(moved)
		moves = append(moves, Move{Pod: h.key, From: h.node.name, To: moved.assignment()})
	}
	return moves, held.assignment(), true
}
