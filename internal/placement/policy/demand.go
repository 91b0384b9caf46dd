package policy

import (
	"cmp"
	"slices"
)

// Demand is what pods of this cluster request: each equivalence class with its share of all pods.
type Demand struct {
	Classes []Class
	Popular []Class // the same without the rarest, as published rules look at it
	future  future
}

// Class is an equivalence class: pods that request the same of cards.
type Class struct {
	Cards        int // 0: no card
	Core, Memory int64
	Exclusive    bool
	Models       []int32 // any of these; empty: any
	Share        float64 // of all pods
	Weight       float64 // of all that is requested of cards
	// CPU needs of the class in increasing order, and the share of all pods that need at most that much.
	CPU   []int64
	UpTo  []float64
	price int // index into prices
}

// Ask is one kind of pod with how often it came.
type Ask struct {
	Cards        int
	Core, Memory int64
	Exclusive    bool
	Models       []int32
	CPU          int64
	Weight       float64
}

// popular is the part of all pods that Demand.Popular covers.
const popular = 0.95

// NewDemand sums up asks. Their order does not matter.
func NewDemand(asks []Ask) *Demand {
	asks = slices.Clone(asks)
	slices.SortStableFunc(asks, func(a, b Ask) int { return compareAsks(&a, &b) })
	merged := asks[:0]
	total := 0.0
	for _, a := range asks {
		total += a.Weight
		if n := len(merged); n > 0 && compareAsks(&merged[n-1], &a) == 0 {
			merged[n-1].Weight += a.Weight
		} else {
			merged = append(merged, a)
		}
	}
	d := &Demand{Classes: classes(merged), future: foresee(merged)}
	slices.SortStableFunc(merged, func(a, b Ask) int { return cmp.Compare(b.Weight, a.Weight) })
	covered := 0.0
	for i := range merged {
		if covered >= popular*total {
			merged = merged[:i]
			break
		}
		covered += merged[i].Weight
	}
	slices.SortStableFunc(merged, func(a, b Ask) int { return compareAsks(&a, &b) })
	d.Popular = classes(merged)
	return d
}

// classes of asks that are sorted, each with its share.
func classes(asks []Ask) []Class {
	pods, cores := 0.0, 0.0
	for i := range asks {
		pods += asks[i].Weight
		cores += asks[i].Weight * float64(asks[i].Cards) * float64(asks[i].Core)
	}
	var out []Class
	for i := range asks {
		a := &asks[i]
		if i == 0 || !sameClass(&asks[i-1], a) {
			out = append(out, Class{Cards: a.Cards, Core: a.Core, Memory: a.Memory, Exclusive: a.Exclusive, Models: a.Models, price: usual})
		}
		c := &out[len(out)-1]
		c.Share += a.Weight / pods
		if cores > 0 {
			c.Weight += a.Weight * float64(a.Cards) * float64(a.Core) / cores
		}
		if n := len(c.CPU); n > 0 && c.CPU[n-1] == a.CPU {
			c.UpTo[n-1] = c.Share
		} else {
			c.CPU = append(c.CPU, a.CPU)
			c.UpTo = append(c.UpTo, c.Share)
		}
	}
	return out
}

// Fitting is the share of all pods that are of this class and need at most this much CPU.
func (c *Class) Fitting(cpu int64) float64 {
	for i := len(c.CPU) - 1; i >= 0; i-- {
		if c.CPU[i] <= cpu {
			return c.UpTo[i]
		}
	}
	return 0
}

// Takes says whether a pod of the class can have (a part of) the card.
func (c *Class) Takes(card *Card) bool {
	if !card.Usable || c.Exclusive && !card.Idle() || card.FreeCore < c.Core || card.FreeMemory < c.Memory {
		return false
	}
	return len(c.Models) == 0 || slices.Contains(c.Models, card.Model)
}

func sameClass(a, b *Ask) bool {
	return a.Cards == b.Cards && a.Core == b.Core && a.Memory == b.Memory && a.Exclusive == b.Exclusive && slices.Equal(a.Models, b.Models)
}

func compareAsks(a, b *Ask) int {
	for _, d := range [...]int64{int64(a.Cards - b.Cards), a.Core - b.Core, a.Memory - b.Memory, bit(a.Exclusive) - bit(b.Exclusive)} {
		if d != 0 {
			return int(max(min(d, 1), -1))
		}
	}
	if d := slices.Compare(a.Models, b.Models); d != 0 {
		return d
	}
	return int(max(min(a.CPU-b.CPU, 1), -1))
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
