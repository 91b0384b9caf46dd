package placement

import (
	"fmt"
	"slices"
	"strings"
)

// Place finds places for all pods of the gang and puts them on the books of the transaction, or
// changes nothing and says how many fit.
func (t *Txn) Place(g *Gang) Answer {
	e := t.e
	mark := len(e.journal)
	answer := Answer{Fits: true}
	total, fit := 0, 0
	for i := range g.PodSets {
		total += g.PodSets[i].Count
	}
	for i := range g.PodSets {
		set := &g.PodSets[i]
		holds, refusal := e.placeSet(g, set, nil)
		fit += len(holds)
		answer.PodSets = append(answer.PodSets, PodSetAnswer{Name: set.Name, Count: set.Count, Fit: len(holds), Placed: placed(holds, nil)})
		if refusal != nil {
			refusal.Fit, refusal.Count = fit, total
			answer.Fits, answer.Refusal = false, refusal
			break
		}
	}
	if !answer.Fits {
		e.undo(mark)
		for i := range answer.PodSets {
			answer.PodSets[i].Placed = nil
		}
	}
	return answer
}

// placeSet puts the pods of a set on the books one after the other, as many as fit, anywhere or within some nodes.
func (e *Engine) placeSet(g *Gang, set *PodSet, within []int32) ([]*holding, *Refusal) {
	pod := set.Pod
	pod.Gang, pod.PodSet = g.Key, set.Name
	s, err := e.shapeOf(&pod)
	if err != nil {
		return nil, &Refusal{Detail: err.Error()}
	}
	var holds []*holding
	for i := range set.Count {
		pod.Key = fmt.Sprintf("%s[%s/%d]", g.Key, set.Name, i)
		salt := e.salt(pod.Key)
		n := e.best(s, salt)
		if within != nil {
			n = e.bestWithin(s, within, salt)
		}
		if n == nil {
			return holds, e.refuse(s, within)
		}
		holds = append(holds, e.hold(&pod, s, n, salt))
	}
	return holds, nil
}

// hold a place for a gang's pod on a node that is known to fit.
func (e *Engine) hold(pod *Pod, s *shape, n *node, salt uint64) *holding {
	if reason := e.pick.run(e, s, n, salt); reason != Fits {
		panic("placement: index says that " + n.name + " fits, picking cards says: " + reason.String())
	}
	h := e.newHolding(pod, s, n)
	h.slot = true
	h.takes = e.pick.takes()
	e.keep(h)
	return h
}

func (e *Engine) bestWithin(s *shape, within []int32, salt uint64) *node {
	x := e.refreshed(s)
	best := int32(-1)
	for _, slot := range within {
		if x.scores[slot] == noScore {
			continue
		}
		if best < 0 || x.better(e, best, slot) == slot {
			best = slot
		}
	}
	if best < 0 {
		return nil
	}
	return e.nodes[best]
}

// placed groups holdings by node, in the order of node names.
func placed(holds []*holding, levels []string) []Placed {
	holds = slices.Clone(holds)
	slices.SortStableFunc(holds, func(a, b *holding) int { return strings.Compare(a.node.name, b.node.name) })
	var out []Placed
	for _, h := range holds {
		if len(out) == 0 || out[len(out)-1].Node != h.node.name {
			p := Placed{Node: h.node.name}
			for _, key := range levels {
				p.Domain = append(p.Domain, h.node.desc.Labels[key])
			}
			out = append(out, p)
		}
		p := &out[len(out)-1]
		p.Count++
		p.Cards = append(p.Cards, h.grants())
	}
	return out
}
