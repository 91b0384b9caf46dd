package placement

import (
	"slices"
	"strings"
)

// NodeStatus is a node with the pods on it.
type NodeStatus struct {
	Name        string
	Known       bool
	Free, Total map[string]int64
	Cards       []CardStatus
	Pods        []PodStatus // with cards or without
}

// CardStatus is a card with the containers that have a share of it.
type CardStatus struct {
	Card
	FreeCore, FreeMemory int64
	Allocations          []CardAllocation
}

// CardAllocation is what a container has of a card.
type CardAllocation struct {
	Pod, Container string
	Core, Memory   int64
	Bound          bool // false: reserved
	Space          bool // it runs at once with others, instead of taking turns
}

// PodStatus is a pod on a node, reserved or bound.
type PodStatus struct {
	Key, Node    string
	Gang, PodSet string
	Bound        bool
}

// Status of all nodes, sorted by name.
func (e *Engine) Status() []NodeStatus {
	var out []NodeStatus
	for _, n := range e.nodes {
		if n != nil {
			out = append(out, e.statusOf(n))
		}
	}
	slices.SortFunc(out, func(a, b NodeStatus) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// NodeStatus of one node; ok is false where it is not known.
func (e *Engine) NodeStatus(name string) (status NodeStatus, ok bool) {
	n := e.byName[name]
	if n == nil {
		return NodeStatus{}, false
	}
	return e.statusOf(n), true
}

// Assignment of a pod, bound or reserved.
func (e *Engine) Assignment(key string) (a Assignment, bound, ok bool) {
	h := e.pods[key]
	if h == nil {
		return Assignment{}, false, false
	}
	return h.assignment(), h.bound, true
}

func (e *Engine) statusOf(n *node) NodeStatus {
	s := NodeStatus{Name: n.name, Known: n.known, Free: map[string]int64{}, Total: map[string]int64{}}
	for name, id := range e.resources {
		if id < len(n.view.Total) {
			s.Free[name], s.Total[name] = n.view.Free[id], n.view.Total[id]
		}
	}
	for i := range n.desc.Cards {
		s.Cards = append(s.Cards, CardStatus{Card: n.desc.Cards[i], FreeCore: n.view.Cards[i].FreeCore, FreeMemory: n.view.Cards[i].FreeMemory})
	}
	for _, h := range n.sorted() {
		s.Pods = append(s.Pods, h.status())
		for i := range h.takes {
			t := &h.takes[i]
			if at := n.at(t.index); at >= 0 {
				share := CardAllocation{Pod: h.key, Core: t.core, Memory: t.mem, Bound: h.bound, Space: t.space}
				if t.container >= 0 {
					share.Container = h.pod.Containers[t.container].Name
				}
				s.Cards[at].Allocations = append(s.Cards[at].Allocations, share)
			}
		}
	}
	return s
}

// sorted holdings, by key.
func (n *node) sorted() []*holding {
	out := slices.Clone(n.holdings)
	slices.SortFunc(out, func(a, b *holding) int { return strings.Compare(a.key, b.key) })
	return out
}

func (h *holding) status() PodStatus {
	return PodStatus{Key: h.key, Node: h.node.name, Gang: h.pod.Gang, PodSet: h.pod.PodSet, Bound: h.bound}
}

func (e *Engine) sortedHoldings() []*holding {
	var out []*holding
	for _, n := range e.nodes {
		if n != nil {
			out = append(out, n.holdings...)
		}
	}
	slices.SortFunc(out, func(a, b *holding) int { return strings.Compare(a.key, b.key) })
	return out
}

// Crowded are the gangs with reservations on a node that count on what others have, too, by name: pods were bound
// there beyond what was free.
func (e *Engine) Crowded(node string) []string {
	n := e.byName[node]
	if n == nil || !n.known {
		return nil
	}
	var gangs []string
	for _, h := range n.holdings {
		if h.placeholder && h.crowded() {
			gangs = append(gangs, h.pod.Gang)
		}
	}
	slices.Sort(gangs)
	return slices.Compact(gangs)
}

// crowded says that the node, or a card, has less than it gives out of what the holding takes.
func (h *holding) crowded() bool {
	v := &h.node.view
	for _, a := range h.shape.request.Need {
		if a.Resource < len(v.Free) && v.Free[a.Resource] < 0 {
			return true
		}
	}
	return slices.ContainsFunc(h.takes, func(t take) bool {
		at := h.node.at(t.index)
		return at >= 0 && (v.Cards[at].FreeCore < 0 || v.Cards[at].FreeMemory < 0)
	})
}
