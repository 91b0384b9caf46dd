package placement

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Place reserves placements for all pods of the gang within the transaction, or changes nothing and
// says how many fit.
func (t *Txn) Place(g *Gang) Answer { return t.e.placeGang(g, true) }

// Find is Place in a transaction that is rolled back next: nothing comes after the gang's last pod, which so need not be
// put on its node and taken off again.
func (t *Txn) Find(g *Gang) Answer { return t.e.placeGang(g, false) }

func (e *Engine) placeGang(g *Gang, holdLast bool) Answer {
	mark := len(e.journal)
	answer := Answer{Fits: true, PodSets: make([]PodSetAnswer, len(g.PodSets))}
	total, fit := 0, 0
	for i := range g.PodSets {
		set, a := &g.PodSets[i], &answer.PodSets[i]
		total += set.Count
		a.Name, a.Count = set.Name, set.Count
	}
	var few [8]int
	done := append(make([]bool, 0, len(few)), make([]bool, len(g.PodSets))...)
	for i := range g.PodSets {
		if done[i] {
			continue
		}
		members := g.together(i, few[:0])
		holds, refusal := e.placeMembers(g, members, holdLast || i < len(g.PodSets)-1)
		for k, m := range members {
			done[m] = true
			if k < len(holds) {
				fit += len(holds[k])
				a := &answer.PodSets[m]
				a.Fit = len(holds[k])
				a.Placed, a.holds = placed(holds[k], e.levels(g.PodSets[m].Topology))
			}
		}
		if refusal != nil {
			if len(holds) == 0 {
				answer.PodSets[i].Fit = refusal.Fit
				fit += refusal.Fit
			}
			refusal.Fit, refusal.Count = fit, total
			answer.Fits, answer.Refusal = false, refusal
			break
		}
	}
	if !answer.Fits {
		e.undo(mark)
		for i := range answer.PodSets {
			answer.PodSets[i].Placed, answer.PodSets[i].holds = nil, nil
		}
	}
	return answer
}

// together are the sets that must share a domain with set i: itself and the others of its group.
func (g *Gang) together(i int, members []int) []int {
	members = append(members, i)
	if t := g.PodSets[i].Topology; t != nil && t.Group != "" {
		for j := i + 1; j < len(g.PodSets); j++ {
			if other := g.PodSets[j].Topology; other != nil && other.Group == t.Group {
				members = append(members, j)
			}
		}
	}
	return members
}

func (e *Engine) placeMembers(g *Gang, members []int, holdLast bool) ([][]*holding, *Refusal) {
	set := &g.PodSets[members[0]]
	if set.Topology != nil {
		sets := make([]*PodSet, len(members))
		for k, m := range members {
			sets[k] = &g.PodSets[m]
		}
		return e.placeInTopology(g, sets)
	}
	if refusal := cmp.Or(e.tooMany(set), e.fewer(set)); refusal != nil {
		return nil, refusal
	}
	holds, refusal := e.placeFrom(g, set, nil, 0, holdLast)
	return [][]*holding{holds}, refusal
}

// uncounted is how many pods of a set are placed one by one before it is asked how many fit at all: a set of two billion
// pods must not cost more than the nodes that there are.
const uncounted = 1024

// tooMany refuses a large set that all nodes together do not hold.
func (e *Engine) tooMany(set *PodSet) *Refusal {
	if set.Count <= uncounted {
		return nil
	}
	s, err := e.shapeOf(&set.Pod)
	if err != nil {
		return nil // placing it says so
	}
	fit := 0
	for pos := range e.nodes {
		n := e.capacity(s, int32(pos))
		if fit += n; n == mostOnNode || fit >= set.Count {
			return nil
		}
	}
	r := e.refuse(s, nil)
	r.Fit = fit
	r.Detail = "all nodes together hold no more"
	r.RetryOn |= OnPodGone | OnNode
	return r
}

// fewer refuses a set of which all nodes together hold fewer, in the words that placing its pods one after the other comes
// to. It is for sets of which as many fit whichever cards they get.
func (e *Engine) fewer(set *PodSet) *Refusal {
	if set.Count == 1 || len(e.unhealthy) > 0 {
		return nil
	}
	s, err := e.shapeOf(&set.Pod)
	if err != nil || !s.countable {
		return nil
	}
	x := e.refreshed(s)
	if x.counts[Fits] >= set.Count {
		return nil // each holds one
	}
	fit, counts, left := 0, x.counts, x.counts[Fits]
	for pos := 0; left > 0; pos++ {
		if x.reasons[pos] != Fits {
			continue
		}
		left--
		n := e.capacity(s, int32(pos))
		if fit += n; n == mostOnNode || fit >= set.Count {
			return nil
		}
		counts[x.full[pos]]++
	}
	r := &Refusal{Fit: fit}
	r.refusedBy(counts)
	return r
}

func (e *Engine) levels(t *TopologyRequest) []string {
	if t == nil {
		return nil
	}
	return e.opts.Topologies[t.Topology]
}

// placeFrom reserves for the pods of a set one after the other, as many as fit, anywhere or within some
// nodes. They are numbered from first. The last is held only where that is asked for.
func (e *Engine) placeFrom(g *Gang, set *PodSet, within []int32, first int, holdLast bool) ([]*holding, *Refusal) {
	pod := set.Pod
	pod.Gang, pod.PodSet = g.Key, set.Name
	s, err := e.shapeOf(&pod)
	if err != nil {
		return nil, &Refusal{Detail: err.Error()}
	}
	holds := make([]*holding, 0, min(set.Count, uncounted))
	for i := range set.Count {
		pod.Key = placeholderKey(g.Key, set.Name, first+i)
		salt := uint64(0)
		if s.drawsLots {
			salt = e.salt(pod.Key)
		}
		var n *node
		if within == nil {
			n = e.best(s, salt)
		} else {
			n = e.bestWithin(s, within)
		}
		if n == nil {
			return holds, e.refuse(s, within)
		}
		h := e.placeholder(&pod, s, n, salt)
		h.number = first + i
		holds = append(holds, h)
		if holdLast || i < set.Count-1 {
			e.add(h)
		}
	}
	return holds, nil
}

// placeholderKey names a gang's pod that is not known yet. Numbers are padded so that they sort.
func placeholderKey(gang, set string, i int) string {
	number := strconv.Itoa(i)
	return gang + "[" + set + "/" + "0000"[min(len(number), 4):] + number + "]"
}

// placeholder is what to hold for a gang's pod on a node that is known to fit.
func (e *Engine) placeholder(pod *Pod, s *shape, n *node, salt uint64) *holding {
	if reason := e.pick.run(e, s, n, salt); reason != Fits {
		panic("placement: index says that " + n.name + " fits, picking cards says: " + reason.String())
	}
	h := e.newHolding(pod, s, n)
	h.placeholder = true
	h.takes = e.pick.takes()
	return h
}

func (e *Engine) bestWithin(s *shape, within []int32) *node {
	x := e.refreshed(s)
	best := int32(-1)
	for _, pos := range within {
		if x.scores[pos] == noScore {
			continue
		}
		if best < 0 || x.better(e, best, pos) == pos {
			best = pos
		}
	}
	if best < 0 {
		return nil
	}
	return e.nodes[best]
}

// placed groups holdings by node, in the order of node names, and sorts them so.
func placed(holds []*holding, levels []string) ([]Placed, []*holding) {
	if len(holds) > 1 {
		holds = slices.Clone(holds)
		slices.SortStableFunc(holds, func(a, b *holding) int { return strings.Compare(a.node.name, b.node.name) })
	}
	out := make([]Placed, 0, min(len(holds), 8))
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
	return out, holds
}
