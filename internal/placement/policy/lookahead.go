package policy

import (
	"math"
	"math/bits"
	"slices"
)

const (
	draws     = 32 // futures looked at
	drawn     = 20 // pods in each
	cacheBits = 15
)

// draw is a pod of a possible future.
type draw struct {
	cpu       int64
	core, mem int64
	cards     int
	exclusive bool
	models    []int32
}

// future pods of a demand, and what was computed with them.
type future struct {
	draws       []draw // draws times drawn
	cache       []waste
	start, work cardsLeft
}

type waste struct {
	state uint64
	value float64
}

// foresee deals out a sample with the proportions of the asks, in an order that is random but always the same.
func foresee(asks []Ask) future {
	total := 0.0
	for i := range asks {
		total += asks[i].Weight
	}
	if total == 0 {
		return future{}
	}
	f := future{draws: make([]draw, 0, draws*drawn)}
	at, upTo := -1, 0.0
	for i := range draws * drawn {
		want := (float64(i) + 0.5) / (draws * drawn) * total
		for upTo < want && at+1 < len(asks) {
			at++
			upTo += asks[at].Weight
		}
		a := &asks[at]
		f.draws = append(f.draws, draw{cpu: a.CPU, core: a.Core, mem: a.Memory, cards: a.Cards, exclusive: a.Exclusive, models: a.Models})
	}
	for i := len(f.draws) - 1; i > 0; i-- {
		j := mix(uint64(i)) % uint64(i+1)
		f.draws[i], f.draws[j] = f.draws[j], f.draws[i]
	}
	return f
}

// Replaces takes over from a demand that nobody asks any more.
func (d *Demand) Replaces(old *Demand) {
	d.future.cache, old.future.cache = old.future.cache, nil
	clear(d.future.cache)
}

// Waste is how many cards' worth of the node will stay empty once it is filled with pods as they
// usually come: the mean over all draws. It depends on the node's state alone, so it is remembered
// by a hash of that state.
func (d *Demand) Waste(n *Node) float64 {
	if len(n.Cards) == 0 {
		return 0
	}
	f := &d.future
	if len(f.draws) == 0 {
		return float64(left(n)) / Whole
	}
	if f.cache == nil {
		f.cache = make([]waste, 1<<cacheBits)
	}
	state := stateOf(n)
	slot := &f.cache[state>>(64-cacheBits)]
	if slot.state != state {
		f.start.from(n)
		sum := int64(0)
		for i := 0; i < len(f.draws); i += drawn {
			f.work.copy(&f.start)
			sum += f.work.fill(f.draws[i : i+drawn])
		}
		*slot = waste{state, float64(sum) / (draws * Whole)}
	}
	return slot.value
}

// stateOf hashes what Waste looks at. The order of like cards does not matter.
func stateOf(n *Node) uint64 {
	h := mix(uint64(n.Free[CPU]))
	for i := range n.Cards {
		c := &n.Cards[i]
		if c.Usable {
			h += mix(mix(uint64(c.FreeMemory)<<32|uint64(uint32(c.Model))) ^ uint64(c.FreeCore)<<1 ^ uint64(bit(c.Idle())))
		}
	}
	return mix(h) | 1
}

// cardsLeft is a node during a fill.
type cardsLeft struct {
	cpu          int64
	n            int
	most         int32 // the most core left on one card
	usable, idle uint64
	core         [mostCards]int32
	mem          [mostCards]int32
	cards        []Card
}

const mostCards = 64

func (l *cardsLeft) from(n *Node) {
	l.cards, l.n, l.cpu = n.Cards, len(n.Cards), n.Free[CPU]
	l.usable, l.idle = 0, 0
	for i := range n.Cards {
		c := &n.Cards[i]
		l.core[i], l.mem[i] = 0, 0
		if !c.Usable {
			continue
		}
		l.usable |= 1 << i
		l.core[i], l.mem[i] = int32(c.FreeCore), int32(min(c.FreeMemory, math.MaxInt32))
		if c.Idle() {
			l.idle |= 1 << i
		}
	}
	l.most = slices.Max(l.core[:l.n])
}

func (l *cardsLeft) copy(from *cardsLeft) {
	l.cards, l.n, l.cpu, l.most, l.usable, l.idle = from.cards, from.n, from.cpu, from.most, from.usable, from.idle
	copy(l.core[:l.n], from.core[:l.n])
	copy(l.mem[:l.n], from.mem[:l.n])
}

// fill gives the node to the pods in turn, skipping those that do not fit, and returns what is left of its cards.
func (l *cardsLeft) fill(pods []draw) int64 {
	for i := range pods {
		p := &pods[i]
		if p.cpu > l.cpu {
			continue
		}
		switch {
		case p.cards == 0:
		case p.exclusive && !l.giveWhole(p):
			continue
		case !p.exclusive && !l.giveShares(p):
			continue
		}
		l.cpu -= p.cpu
	}
	return l.sum()
}

func (l *cardsLeft) giveWhole(p *draw) bool {
	fits := l.idle
	if len(p.models) > 0 || p.mem > 0 {
		for i := range l.n {
			if !p.likes(&l.cards[i]) || int64(l.mem[i]) < p.mem {
				fits &^= 1 << i
			}
		}
	}
	if bits.OnesCount64(fits) < p.cards {
		return false
	}
	for range p.cards {
		i := bits.TrailingZeros64(fits)
		fits &= fits - 1
		l.idle &^= 1 << i
		l.core[i], l.mem[i] = 0, 0
	}
	l.most = slices.Max(l.core[:l.n])
	return true
}

// giveShares takes a share of each of p.cards cards, by best fit.
func (l *cardsLeft) giveShares(p *draw) bool {
	core := int32(p.core)
	if core > l.most {
		return false
	}
	var taken uint64
	for range p.cards {
		best := -1
		for i := range l.n {
			if l.core[i] >= core && (best < 0 || l.core[i] < l.core[best]) && int64(l.mem[i]) >= p.mem &&
				(taken|^l.usable)&(1<<i) == 0 && p.likes(&l.cards[i]) {
				best = i
			}
		}
		if best < 0 {
			return false
		}
		taken |= 1 << best
	}
	for rest := taken; rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(rest)
		l.core[i] -= core
		l.mem[i] -= int32(p.mem)
	}
	l.idle &^= taken
	l.most = slices.Max(l.core[:l.n])
	return true
}

func (p *draw) likes(c *Card) bool {
	return len(p.models) == 0 || slices.Contains(p.models, c.Model)
}

// sum is what is left, by the scarcer of core and memory.
func (l *cardsLeft) sum() int64 {
	sum := int64(0)
	for i := range l.n {
		share := max(int64(l.core[i]), 0)
		if size := l.cards[i].Memory; size > 0 {
			share = min(share, max(int64(l.mem[i]), 0)*Whole/size)
		}
		sum += share
	}
	return sum
}
