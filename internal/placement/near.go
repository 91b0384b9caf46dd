package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A pod may use cards of another node over the network. To the engine the two are pods: one without cards, and one that
// is nothing but its cards. How far apart they may be is a list of node label keys, the nearest first: two nodes are as
// far apart as the first key whose value they share. A node is nearest to itself.

// Anywhere, as the last level, is shared by all nodes.
const Anywhere = "any"

// tooFar is the distance of cards that no level reaches.
const tooFar = -1

// Distances says of each node how far it is to the nearest one that has the cards now: 0 is the node itself, 1 shares
// the first level with it, and so on; -1 is beyond all levels. They are appended to out.
func (e *Engine) Distances(cards *Pod, levels, names []string, out []int) ([]int, error) {
	has, err := e.having(cards)
	if err != nil {
		return out, err
	}
	values := make([]map[string]bool, len(levels))
	for i, level := range levels {
		values[i] = map[string]bool{}
		for _, n := range has {
			values[i][n.value(level)] = true
		}
		delete(values[i], "")
	}
	itself := map[*node]bool{}
	for _, n := range has {
		itself[n] = true
	}
	for _, name := range names {
		distance, n := tooFar, e.byName[name]
		switch {
		case n == nil || !n.known:
		case itself[n]:
			distance = 0
		default:
			for i, level := range levels {
				if values[i][n.value(level)] {
					distance = i + 1
					break
				}
			}
		}
		out = append(out, distance)
	}
	return out, nil
}

// value of a node at a level; empty is shared with none.
func (n *node) value(level string) string {
	if level == Anywhere {
		return Anywhere
	}
	return n.desc.Labels[level]
}

// having are the nodes that have the cards: where they are reserved for the gang, else where they are free.
func (e *Engine) having(cards *Pod) ([]*node, error) {
	s, err := e.shapeOf(cards)
	if err != nil {
		return nil, err
	}
	x, reserved := e.refreshed(s), e.reserved(cards)
	var list []*node
	for pos, n := range e.nodes {
		if n == nil || !n.known {
			continue
		}
		if reserved && e.placeholderFor(cards, n.name, nil) != nil || !reserved && x.reasons[pos] == Fits {
			list = append(list, n)
		}
	}
	return list, nil
}

// AssignNear assigns cards to a pod that uses them over the network, as near to the pod's node as they are free, and of
// equally near ones by the policy. As Assign does, it gives the same answer again.
func (e *Engine) AssignNear(cards *Pod, near string, levels []string, until time.Time) (Assignment, error) {
	n := e.byName[near]
	if n == nil || !n.known {
		return Assignment{}, fmt.Errorf("node %s: %w", near, ErrUnknown)
	}
	s, err := e.shapeOf(cards)
	if err != nil {
		return Assignment{}, err
	}
	if old := e.pods[cards.Key]; old != nil && old.shape == s && old.node.distance(n, levels) != tooFar {
		return e.Assign(cards, old.node.name, until)
	}
	has, err := e.having(cards)
	if err != nil {
		return Assignment{}, err
	}
	nearest := tooFar
	var within []int32
	for _, o := range has {
		switch d := o.distance(n, levels); {
		case d == tooFar || nearest != tooFar && d > nearest:
		case d == nearest:
			within = append(within, o.pos)
		default:
			nearest, within = d, []int32{o.pos}
		}
	}
	if nearest == tooFar {
		refusal := e.refuse(s, nil)
		refusal.Detail = "no node within " + strings.Join(levels, ", ") + " of node " + near + " has the cards free"
		refusal.RetryOn |= OnPodGone | OnNode | OnCard
		return Assignment{}, refusal
	}
	if e.reserved(cards) {
		first := slices.MinFunc(within, func(a, b int32) int { return strings.Compare(e.nodes[a].name, e.nodes[b].name) })
		return e.Assign(cards, e.nodes[first].name, until)
	}
	return e.Assign(cards, e.bestWithin(s, within).name, until)
}

// distance between two nodes, in levels.
func (n *node) distance(o *node, levels []string) int {
	if n == o {
		return 0
	}
	for i, level := range levels {
		if v := n.value(level); v != "" && v == o.value(level) {
			return i + 1
		}
	}
	return tooFar
}

// PlaceNear places a gang together with cards that its pods use over the network: all of it in one domain of the nearest
// level in which it fits, or nothing. cards are pod sets of their own, whose names no pod set of the gang has.
func (t *Txn) PlaceNear(g *Gang, cards []PodSet, levels []string) Answer {
	all := *g
	all.PodSets = slices.Concat(g.PodSets, cards)
	var refused *Answer
	for _, level := range levels {
		if level == Anywhere {
			return t.Place(&all)
		}
		for _, value := range t.e.domains(&cards[0].Pod, level) {
			within, possible := all.within(level, value)
			if !possible {
				continue
			}
			answer := t.Place(within)
			if answer.Fits {
				return answer
			}
			refused = &answer
		}
	}
	if refused == nil {
		refused = &Answer{Refusal: &Refusal{Count: 1, RetryOn: OnPodGone | OnNode | OnCard}}
	}
	refused.Refusal.Detail = "no domain of " + levels[len(levels)-1] + " holds the pods and the cards that they use over the network"
	return *refused
}

// domains of a level that have the cards, sorted.
func (e *Engine) domains(cards *Pod, level string) []string {
	has, err := e.having(cards)
	if err != nil {
		return nil // placing it says so
	}
	values := map[string]bool{}
	for _, n := range has {
		if v := n.value(level); v != "" {
			values[v] = true
		}
	}
	return slices.Sorted(maps.Keys(values))
}

// within one domain of a level is where all of the gang goes; it cannot where a pod wants another one.
func (g *Gang) within(level, value string) (*Gang, bool) {
	narrow := *g
	narrow.PodSets = slices.Clone(g.PodSets)
	for i := range narrow.PodSets {
		p := &narrow.PodSets[i].Pod
		if v, said := p.Selector[level]; said && v != value {
			return nil, false
		}
		selector := maps.Clone(p.Selector)
		if selector == nil {
			selector = map[string]string{}
		}
		selector[level] = value
		p.Selector = selector
	}
	return &narrow, true
}
