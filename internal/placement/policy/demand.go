package policy

import (
	"slices"
	"sort"
)

// Demand is what pods of this cluster ask for: each class with its share of all pods.
type Demand struct {
	Classes []Class
}

// Class of pods that ask the same of cards.
type Class struct {
	Cards        int // 0: no card
	Core, Memory int64
	Exclusive    bool
	Models       []int32 // any of these; empty: any
	Share        float64
	// CPU needs of the class in increasing order, and the share of all pods that need at most that much.
	CPU  []int64
	UpTo []float64
}

// Ask is one kind of pod with how often it was asked for.
type Ask struct {
	Cards        int
	Core, Memory int64
	Exclusive    bool
	Models       []int32
	CPU          int64
	Weight       float64
}

// popular is the part of all asks that is looked at: the rare rest costs time and says little.
const popular = 0.95

// NewDemand sums up asks. The order of asks does not matter.
func NewDemand(asks []Ask) *Demand {
	asks = slices.Clone(asks)
	sort.SliceStable(asks, func(i, j int) bool { return compareAsks(&asks[i], &asks[j]) < 0 })
	total := 0.0
	for i := range asks {
		total += asks[i].Weight
	}
	byWeight := slices.Clone(asks)
	sort.SliceStable(byWeight, func(i, j int) bool { return byWeight[i].Weight > byWeight[j].Weight })
	kept := 0.0
	for i := range byWeight {
		if kept >= popular*total {
			byWeight = byWeight[:i]
			break
		}
		kept += byWeight[i].Weight
	}
	sort.SliceStable(byWeight, func(i, j int) bool { return compareAsks(&byWeight[i], &byWeight[j]) < 0 })
	d := &Demand{}
	for i := range byWeight {
		a := &byWeight[i]
		if i == 0 || !sameClass(&byWeight[i-1], a) {
			d.Classes = append(d.Classes, Class{Cards: a.Cards, Core: a.Core, Memory: a.Memory, Exclusive: a.Exclusive, Models: a.Models})
		}
		c := &d.Classes[len(d.Classes)-1]
		c.Share += a.Weight / kept
		if n := len(c.CPU); n > 0 && c.CPU[n-1] == a.CPU {
			c.UpTo[n-1] = c.Share
		} else {
			c.CPU = append(c.CPU, a.CPU)
			c.UpTo = append(c.UpTo, c.Share)
		}
	}
	return d
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
