package placement

import (
	"fmt"
	"slices"
	"time"
)

// Assign chooses cards for the pod on the node and reserves them until it is bound, released, or the
// time is past (a zero time never is). A pod that has a reservation there already gets the same answer
// again; one that has it elsewhere gives it up if this one works.
func (e *Engine) Assign(pod *Pod, nodeName string, until time.Time) (Assignment, error) {
	s, err := e.shapeOf(pod)
	if err != nil {
		return Assignment{}, err
	}
	n := e.byName[nodeName]
	if n == nil || !n.known {
		return Assignment{}, fmt.Errorf("node %s: %w", nodeName, ErrUnknown)
	}
	old := e.pods[pod.Key]
	if old != nil && old.node == n && old.shape == s {
		old.until = until
		return old.assignment(), nil
	}
	txn := e.Begin()
	defer txn.Rollback()
	if old != nil {
		e.remove(old)
	} else if taken := e.placeholderFor(pod, nodeName, nil); taken != nil {
		e.remove(taken)
		h := e.newHolding(pod, s, n)
		h.takes, h.until = taken.takes, until
		e.add(h)
		txn.finish()
		return h.assignment(), nil
	}
	reason := matches(&s.pod, &n.desc)
	if reason == Fits {
		reason = e.pick.run(e, s, n, e.salt(pod.Key))
	}
	if reason != Fits {
		refusal := &Refusal{Count: 1, RetryOn: reason.RetryOn()}
		refusal.Nodes[reason] = 1
		return Assignment{}, refusal
	}
	h := e.newHolding(pod, s, n)
	h.takes, h.until = e.pick.takes(), until
	e.add(h)
	txn.finish()
	return h.assignment(), nil
}

// Release ends the reservations under a pod's or a gang's key. Bound pods are left as they are, and so
// are the gang's pods that have taken their placeholders.
func (e *Engine) Release(key string) {
	if h := e.pods[key]; h != nil && !h.bound {
		e.remove(h)
	}
	e.dropPlaceholders(key)
}

// dropPlaceholders takes what is reserved for a gang's pods to come off its nodes, in the order of keys.
func (e *Engine) dropPlaceholders(gang string) {
	g := e.gangs[gang]
	for i := 0; g != nil && i < len(g.holdings); {
		if h := g.holdings[i]; h.placeholder {
			e.remove(h)
		} else {
			i++
		}
	}
}

// Expire ends reservations whose time is past and returns their keys, sorted.
func (e *Engine) Expire(now time.Time) []string {
	var keys []string
	for _, h := range e.sortedHoldings() {
		if !h.bound && !h.until.IsZero() && !h.until.After(now) {
			keys = append(keys, h.key)
			e.remove(h)
		}
	}
	return keys
}

// reserved says whether the pod's gang has placeholders that no pod has taken yet.
func (e *Engine) reserved(pod *Pod) bool {
	if pod.Gang == "" {
		return false
	}
	for _, h := range e.gangOf(pod.Gang) {
		if h.placeholder && h.pod.PodSet == pod.PodSet {
			return true
		}
	}
	return false
}

// placeholderFor finds the placeholder that the pod of a gang would take on a node: the one with these cards
// if they are known.
func (e *Engine) placeholderFor(pod *Pod, nodeName string, grants []Grant) *holding {
	if pod.Gang == "" {
		return nil
	}
	var first *holding
	for _, h := range e.gangOf(pod.Gang) {
		if !h.placeholder || h.node.name != nodeName || h.pod.PodSet != pod.PodSet {
			continue
		}
		if grants == nil || sameCards(h.takes, grants) {
			return h
		}
		if first == nil {
			first = h
		}
	}
	return first
}

// sameCards says whether the grants name the same cards, in whatever order.
func sameCards(takes []take, grants []Grant) bool {
	n := 0
	for _, g := range grants {
		for _, c := range g.Cards {
			if !slices.ContainsFunc(takes, func(t take) bool { return t.index == c.Index }) {
				return false
			}
			n++
		}
	}
	return n == len(takes)
}

// assignment of a holding, container by container in the pod's order.
func (h *holding) assignment() Assignment {
	return Assignment{Node: h.node.name, Grants: h.grants()}
}

func (h *holding) grants() []Grant {
	if len(h.takes) == 0 {
		return nil
	}
	grants, all := make([]Grant, 0, 1), make([]CardGrant, 0, len(h.takes))
	for c := range h.pod.Containers {
		first := len(all)
		for i := range h.takes {
			if t := &h.takes[i]; t.container == c {
				all = append(all, CardGrant{Index: t.index, Core: t.core, Memory: t.mem})
			}
		}
		cards := all[first:len(all):len(all)]
		if len(cards) > 0 {
			grants = append(grants, Grant{Container: h.pod.Containers[c].Name, Cards: cards})
		}
	}
	return grants
}

func (e *Engine) salt(key string) uint64 {
	return hashString(hashInt(hashSeed, e.opts.Seed), key)
}
