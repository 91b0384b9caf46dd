package placement

import (
	"math/bits"
	"slices"

	"github.com/elastic-ai/elastic/internal/placement/policy"
)

// picker chooses cards of one node for one pod. It works on a copy of the node's numbers and is
// reused, so that asking costs no allocation.
type picker struct {
	c      policy.Case
	after  policy.Node
	shape  *shape
	node   *node
	engine *Engine
	choose policy.Chooser
	ranked []ranked
	steps  int
}

// ranked is a card that a unit may have, with its score.
type ranked struct {
	score float64
	take  policy.Take
}

// mostSteps bounds the search for pods whose containers fit only in an unlucky combination.
const mostSteps = 4096

// run picks cards for the shape on the node. Afterwards p.c describes the case, ready to be scored.
func (p *picker) run(e *Engine, s *shape, n *node, salt uint64) Reason {
	if !n.known {
		return NodeUnknown
	}
	v := &n.view
	for _, a := range s.request.Need {
		if a.Resource >= len(v.Free) || v.Free[a.Resource] < a.Value {
			return lacking(a.Resource)
		}
	}
	if len(s.units) > len(v.Cards) && (len(s.needs) == 1 || s.pod.Arrange == Apart) {
		return FewCards
	}
	p.engine, p.shape, p.node, p.steps = e, s, n, mostSteps
	p.c = policy.Case{Before: v, After: v, Request: &s.request, Takes: p.c.Takes[:0], Demand: e.demand.now, Salt: salt}
	if s.alone {
		if r := p.rank(&s.needs[0]); r != Fits {
			return r
		}
	}
	p.after.Cards = append(p.after.Cards[:0], v.Cards...)
	p.after.Free = append(p.after.Free[:0], v.Free...)
	p.after.Total, p.after.Links, p.after.Kinds = v.Total, v.Links, v.Kinds
	for _, a := range s.request.Need {
		p.after.Free[a.Resource] -= a.Value
	}
	p.c.After = &p.after
	if s.alone {
		for i := range p.ranked {
			p.give(p.ranked[i].take)
		}
		return Fits
	}
	if len(s.units) == 0 {
		return Fits
	}
	for i := range s.needs {
		if r := p.quick(&s.needs[i]); r != Fits {
			return r
		}
	}
	p.choose = nil
	if s.request.Linked {
		p.choose = s.policy.Card.Chooser()
	}
	if !p.unit(0) {
		return FewCards
	}
	return Fits
}

// quick says why a need alone cannot be met, before any search.
func (p *picker) quick(n *need) Reason {
	var seen seenCards
	for i := range p.after.Cards {
		p.look(n, i, &seen)
	}
	return seen.reason(n)
}

// rank finds the cards for a pod's only need in one pass, the best-scored first and of equals the first: what unit comes to
// where the score of a card stays the same while others are given.
func (p *picker) rank(n *need) Reason {
	p.ranked = p.ranked[:0]
	var seen seenCards
	for i := range p.c.After.Cards {
		core, mem, ok := p.look(n, i, &seen)
		if !ok {
			continue
		}
		t := policy.Take{Card: int32(i), Core: core, Memory: mem}
		next, at := ranked{p.shape.policy.Card.CardScore(&p.c, t), t}, len(p.ranked)
		if at < n.count {
			p.ranked = append(p.ranked, next)
		} else if at--; p.ranked[at].score >= next.score {
			continue
		}
		for ; at > 0 && p.ranked[at-1].score < next.score; at-- {
			p.ranked[at] = p.ranked[at-1]
		}
		p.ranked[at] = next
	}
	for i := range p.ranked {
		p.ranked[i].take.Unit = int32(i)
	}
	return seen.reason(n)
}

// seenCards counts the cards of a node by what they are to a need.
type seenCards struct{ now, healthy, fitting, otherwise int }

// look at a card: what a unit of the need would take of it, if it can now.
func (p *picker) look(n *need, i int, seen *seenCards) (core, mem int64, ok bool) {
	card := &p.c.After.Cards[i]
	if !n.accepts(card.Model) {
		return 0, 0, false
	}
	if core, mem, ok = n.of(p.engine, &p.node.desc.Cards[i], card.Memory); !ok {
		return 0, 0, false
	}
	seen.fitting++
	if !card.Usable {
		return 0, 0, false
	}
	seen.healthy++
	if free(card, n, core, mem) {
		seen.now++
		return core, mem, true
	}
	if !n.exclusive && !card.Takes(n.space) && card.FreeCore >= core && card.FreeMemory >= mem {
		seen.otherwise++
	}
	return 0, 0, false
}

func (s *seenCards) reason(n *need) Reason {
	switch {
	case s.now >= n.count:
		return Fits
	case s.fitting < n.count:
		return CardsDiffer
	case s.healthy < n.count:
		return CardsUnhealthy
	case s.now+s.otherwise >= n.count:
		return SharedOtherwise
	}
	return FewCards
}

func (n *need) accepts(model int32) bool {
	return len(n.models) == 0 || slices.Contains(n.models, model)
}

func free(card *policy.Card, n *need, core, mem int64) bool {
	return card.FreeCore >= core && card.FreeMemory >= mem && card.Takes(n.space) && (!n.exclusive || card.Idle())
}

// unit gives cards to the unit u and all after it, the best-scored card first, and steps back where that leads nowhere.
func (p *picker) unit(u int) bool {
	if u == len(p.shape.units) {
		return true
	}
	which := p.shape.units[u].need
	n := &p.shape.needs[which]
	if p.choose != nil && n.count > 1 && (u == 0 || p.shape.units[u-1].need != which) {
		if done, ok := p.set(u, n); done {
			return ok
		}
	}
	var tried uint64
	for {
		best := -1
		var bestScore float64
		var bestTake policy.Take
		for i := range p.after.Cards {
			if tried&(1<<i) != 0 {
				continue
			}
			t, ok := p.candidate(u, n, i)
			if !ok {
				tried |= 1 << i
				continue
			}
			if score := p.shape.policy.Card.CardScore(&p.c, t); best < 0 || score > bestScore {
				best, bestScore, bestTake = i, score, t
			}
		}
		if best < 0 {
			return false
		}
		tried |= 1 << best
		p.give(bestTake)
		if p.unit(u + 1) {
			return true
		}
		p.back(len(p.c.Takes) - 1)
		if p.steps--; p.steps <= 0 {
			return false
		}
	}
}

// set lets the rule pick all cards of a need at once. done is false where the rule did not choose.
func (p *picker) set(u int, n *need) (done, ok bool) {
	var candidates uint64
	for i := range p.after.Cards {
		if _, ok := p.candidate(u, n, i); ok {
			candidates |= 1 << i
		}
	}
	if bits.OnesCount64(candidates) < n.count {
		return true, false
	}
	set := p.choose.Choose(&p.c, candidates, n.count)
	if set&^candidates != 0 || bits.OnesCount64(set) != n.count {
		return false, false
	}
	from := len(p.c.Takes)
	for rest := set; rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(rest)
		t, _ := p.candidate(u+len(p.c.Takes)-from, n, i)
		p.give(t)
	}
	if p.unit(u + n.count) {
		return true, true
	}
	p.back(from)
	return false, false
}

// candidate is what unit u would take from card i, if it may.
func (p *picker) candidate(u int, n *need, i int) (policy.Take, bool) {
	card := &p.after.Cards[i]
	if !card.Usable || !n.accepts(card.Model) {
		return policy.Take{}, false
	}
	core, mem, ok := n.of(p.engine, &p.node.desc.Cards[i], p.after.Cards[i].Memory)
	if !ok || !free(card, n, core, mem) || !p.arranged(u, i) {
		return policy.Take{}, false
	}
	return policy.Take{Card: int32(i), Unit: int32(u), Core: core, Memory: mem}, true
}

// arranged: cards of one container are different ones, and containers are together or apart as requested.
func (p *picker) arranged(u, card int) bool {
	which := p.shape.units[u].need
	others, shared := false, false
	for i := range p.c.Takes {
		t := &p.c.Takes[i]
		if p.shape.units[t.Unit].need == which {
			if int(t.Card) == card {
				return false
			}
			continue
		}
		others = true
		shared = shared || int(t.Card) == card
	}
	switch p.shape.pod.Arrange {
	case Together:
		return !others || shared
	case Apart:
		return !shared
	}
	return true
}

func (p *picker) give(t policy.Take) {
	card := &p.after.Cards[t.Card]
	card.FreeCore -= t.Core
	card.FreeMemory -= t.Memory
	card.Shares++
	if p.spaceOf(t) {
		card.InSpace++
	}
	p.c.Takes = append(p.c.Takes, t)
}

func (p *picker) spaceOf(t policy.Take) bool { return p.shape.needs[p.shape.units[t.Unit].need].space }

// back returns all takes from position on.
func (p *picker) back(from int) {
	for _, t := range p.c.Takes[from:] {
		card := &p.after.Cards[t.Card]
		card.FreeCore += t.Core
		card.FreeMemory += t.Memory
		card.Shares--
		if p.spaceOf(t) {
			card.InSpace--
		}
	}
	p.c.Takes = p.c.Takes[:from]
}

// takes copies the outcome of run.
func (p *picker) takes() []take {
	if len(p.c.Takes) == 0 {
		return nil
	}
	out := make([]take, len(p.c.Takes))
	for i, t := range p.c.Takes {
		n := &p.shape.needs[p.shape.units[t.Unit].need]
		out[i] = take{index: p.node.desc.Cards[t.Card].Index, container: n.container, need: n, core: t.Core, mem: t.Memory, space: n.space}
	}
	return out
}
