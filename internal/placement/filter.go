package placement

import (
	"errors"
	"math"
)

// ErrUnknown is returned for a pod, gang or node that no event named.
var ErrUnknown = errors.New("not known")

// Verdict on one node.
type Verdict struct {
	Node   string
	Reason Reason // Fits, or why not
}

// Filter says of each node whether it can take the pod now. Verdicts are appended to out, in the
// order of names, and returned; a slice with enough capacity costs no allocation. A pod of a gang with
// a reservation may only go where that is.
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
			v.Reason = x.reasons[n.pos]
			if reserved {
				v.Reason = ReservedElsewhere
				if e.placeholderFor(pod, name, nil) != nil {
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
// pod, or that are unknown, get 0. Scores are appended to out.
func (e *Engine) Score(pod *Pod, names []string, out []int64) ([]int64, error) {
	s, err := e.shapeOf(pod)
	if err != nil {
		return out, err
	}
	x := e.refreshed(s)
	reserved := e.reserved(pod)
	low, high := math.Inf(1), noScore
	for _, name := range names {
		if n := e.byName[name]; n != nil && x.reasons[n.pos] == Fits {
			low, high = min(low, x.scores[n.pos]), max(high, x.scores[n.pos])
		}
	}
	for _, name := range names {
		score := int64(0)
		if n := e.byName[name]; n != nil && x.reasons[n.pos] == Fits {
			// The worst that fits still beats what does not.
			score = MaxScore
			if high > low {
				score = 1 + int64(math.Round((MaxScore-1)*(x.scores[n.pos]-low)/(high-low)))
			}
		}
		if reserved {
			score = 0
			if e.placeholderFor(pod, name, nil) != nil {
				score = MaxScore
			}
		}
		out = append(out, score)
	}
	return out, nil
}

// Best is the node the policy would choose of all, without a reservation. The error is a *Refusal where there is none.
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
