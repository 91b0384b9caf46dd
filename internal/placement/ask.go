package placement

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// ErrUnknown is returned for a pod, gang or node the engine has never heard of.
var ErrUnknown = errors.New("not known")

// Verdict on one node.
type Verdict struct {
	Node   string
	Reason Reason // Fits, or why not
}

// Filter says of each node whether it can take the pod now. Verdicts are appended to out, in the
// order of names, and returned; a slice with room costs no allocation. A pod of a gang with a
// reservation may only go where that is.
func (e *Engine) Filter(pod *Pod, names []string, out []Verdict) ([]Verdict, error) {
	s, err := e.shapeOf(pod)
	if err != nil {
		return out, err
	}
	x := e.refreshed(s)
	reserved := e.reserved(pod)
	for _, name := range names {
		v := Verdict{Node: name, Reason: NodeUnknown}
		if n := e.byName[name]; n != nil {
			v.Reason = x.reasons[n.slot]
			if reserved {
				v.Reason = HeldElsewhere
				if e.slotFor(pod, name, nil) != nil {
					v.Reason = Fits
				}
			}
		}
		out = append(out, v)
	}
	return out, nil
}

// MaxScore of a node, as kube-scheduler's extenders count.
const MaxScore = 10

// Score rates the nodes from 0 to MaxScore, the best of them MaxScore. Nodes that cannot take the
// pod, or that nobody has heard of, get 0. Scores are appended to out.
func (e *Engine) Score(pod *Pod, names []string, out []int64) ([]int64, error) {
	s, err := e.shapeOf(pod)
	if err != nil {
		return out, err
	}
	x := e.refreshed(s)
	reserved := e.reserved(pod)
	low, high := math.Inf(1), noScore
	for _, name := range names {
		if n := e.byName[name]; n != nil && x.reasons[n.slot] == Fits {
			low, high = min(low, x.scores[n.slot]), max(high, x.scores[n.slot])
		}
	}
	for _, name := range names {
		score := int64(0)
		if n := e.byName[name]; n != nil && x.reasons[n.slot] == Fits {
			// The worst that fits still beats what does not.
			score = MaxScore
			if high > low {
				score = 1 + int64(math.Round((MaxScore-1)*(x.scores[n.slot]-low)/(high-low)))
			}
		}
		if reserved {
			score = 0
			if e.slotFor(pod, name, nil) != nil {
				score = MaxScore
			}
		}
		out = append(out, score)
	}
	return out, nil
}

// Best is the node the policy would choose of all, without holding it. The error is a *Refusal where there is none.
func (e *Engine) Best(pod *Pod) (string, error) {
	s, err := e.shapeOf(pod)
	if err != nil {
		return "", err
	}
	if n := e.best(s, e.salt(pod.Key)); n != nil {
		return n.name, nil
	}
	return "", e.refuse(s, nil)
}

// Assign chooses cards for the pod on the node and holds them until it is bound, released, or the
// time is past (a zero time never is). A pod that already holds a place there gets the same answer
// again; one that holds another place gives it up if this one works.
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
		e.drop(old)
	} else if slot := e.slotFor(pod, nodeName, nil); slot != nil {
		e.drop(slot)
		h := e.newHolding(pod, s, n)
		h.takes, h.until = slot.takes, until
		e.keep(h)
		txn.keepAll()
		return h.assignment(), nil
	}
	reason := matches(&s.pod, &n.desc)
	if reason == Fits {
		reason = e.pick.run(e, s, n, e.salt(pod.Key))
	}
	if reason != Fits {
		return Assignment{}, &Refusal{Count: 1, Nodes: map[Reason]int{reason: 1}, Wake: reason.WakesOn()}
	}
	h := e.newHolding(pod, s, n)
	h.takes, h.until = e.pick.takes(), until
	e.keep(h)
	txn.keepAll()
	return h.assignment(), nil
}

// Release gives up what is reserved under a pod's or a gang's key. Bound pods keep what they have,
// and pods of the gang what they have claimed.
func (e *Engine) Release(key string) {
	if h := e.pods[key]; h != nil && !h.bound {
		e.drop(h)
	}
	for _, h := range slices.Clone(e.gangs[key]) {
		if h.slot {
			e.drop(h)
		}
	}
}

// Expire gives up reservations whose time is past and returns their keys, sorted.
func (e *Engine) Expire(now time.Time) []string {
	var keys []string
	for _, h := range e.sortedHoldings() {
		if !h.bound && !h.until.IsZero() && !h.until.After(now) {
			keys = append(keys, h.key)
			e.drop(h)
		}
	}
	return keys
}

// reserved says whether the pod's gang holds places that no pod has claimed yet.
func (e *Engine) reserved(pod *Pod) bool {
	if pod.Gang == "" {
		return false
	}
	for _, h := range e.gangs[pod.Gang] {
		if h.slot && h.pod.PodSet == pod.PodSet {
			return true
		}
	}
	return false
}

// slotFor finds the reservation that the pod of a gang would claim on a node: the one with these cards if they are known.
func (e *Engine) slotFor(pod *Pod, nodeName string, grants []Grant) *holding {
	if pod.Gang == "" {
		return nil
	}
	var first *holding
	for _, h := range e.gangs[pod.Gang] {
		if !h.slot || h.node.name != nodeName || h.pod.PodSet != pod.PodSet {
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
	var grants []Grant
	for c := range h.pod.Containers {
		var cards []CardGrant
		for i := range h.takes {
			if t := &h.takes[i]; t.container == c {
				cards = append(cards, CardGrant{Index: t.index, Core: t.core, Memory: t.mem})
			}
		}
		if cards != nil {
			grants = append(grants, Grant{Container: h.pod.Containers[c].Name, Cards: cards})
		}
	}
	return grants
}

func (e *Engine) salt(key string) uint64 {
	return hashString(hashInt(hashSeed, e.opts.Seed), key)
}
