package policy

import "math"

// The rules of this file are published ones, as evaluated in Weng et al., "Beware of
// Fragmentation" (USENIX ATC 2023): scores are whole percents, and of equals the first by name wins.
// They exist to be compared with.

const (
	largestCPU  = 128000 // thousandths of a core
	largestCore = 8 * Whole
)

// percent drops what is below one percent.
func percent(x float64) float64 { return math.Trunc(x*100) / 100 }

// bestFit leaves the least free CPU and card capacity behind.
type bestFit struct{}

func (bestFit) Name() string { return "bestfit" }
func (bestFit) Node(c *Case) float64 {
	return percent(1 - 0.5*float64(c.After.Free[CPU])/largestCPU - 0.5*float64(left(c.After))/largestCore)
}
func (bestFit) Card(c *Case, take Take) float64 { return tightest(c, take) }

// dotProduct prefers nodes whose free capacity points away from the request.
type dotProduct struct{}

func (dotProduct) Name() string { return "dotprod" }
func (dotProduct) Node(c *Case) float64 {
	cpu := float64(c.Before.Free[CPU]) / largestCPU * float64(c.Request.Amount(CPU)) / largestCPU
	core := float64(left(c.Before)) / largestCore * float64(c.Request.Core) / largestCore
	return percent(1 - (cpu+core)/2)
}
func (dotProduct) Card(c *Case, take Take) float64 { return tightest(c, take) }

// clustering puts pods of one kind (shares, one card, two cards, …) on the same nodes.
type clustering struct{}

func (clustering) Name() string { return "clustering" }
func (clustering) Node(c *Case) float64 {
	if c.Request.Kind < 0 {
		return 0
	}
	kinds := 0
	for _, count := range c.Before.Kinds {
		if count > 0 {
			kinds++
		}
	}
	tier := 0.0
	switch same := c.Before.Kinds[c.Request.Kind] > 0; {
	case same && kinds == 1:
		tier = 75
	case same:
		tier = 50
	case kinds == 0:
		tier = 25
	}
	return (tier + math.Trunc(25*float64(largestCore-left(c.Before))/largestCore)) / 100
}
func (clustering) Card(c *Case, take Take) float64 { return tightest(c, take) }

// packing takes cards in use first, then idle cards of nodes in use, then idle nodes.
type packing struct{}

func (packing) Name() string { return "packing" }
func (packing) Node(c *Case) float64 {
	if c.Request.Cards == 0 {
		return 0
	}
	idle := 0
	for i := range c.Before.Cards {
		if c.Before.Cards[i].Idle() {
			idle++
		}
	}
	if idle == len(c.Before.Cards) {
		return float64(max(33-idle, idle)) / 100
	}
	idleUsed, free := 0, int64(0)
	for _, take := range c.Takes {
		card := &c.Before.Cards[take.Card]
		if card.Idle() {
			idleUsed++
		}
		free += card.FreeCore * 100 / Whole
	}
	if idleUsed > 0 {
		return float64(max(50-idleUsed, 33)) / 100
	}
	return float64(max(100-free/10, 50)) / 100
}
func (packing) Card(c *Case, take Take) float64 { return tightest(c, take) }

// fgd is fragmentation gradient descent.
type fgd struct{}

func (fgd) Name() string     { return "fgd" }
func (fgd) ReadsDemand()     {}
func (fgd) ReadsOtherCards() {}
func (fgd) Node(c *Case) float64 {
	return percent(sigmoid((unusable(c.Before, c.Demand) - unusable(c.After, c.Demand)) / Whole))
}
func (fgd) Card(c *Case, take Take) float64 {
	before := unusable(c.After, c.Demand)
	card := &c.After.Cards[take.Card]
	saved := *card
	card.FreeCore -= take.Core
	card.FreeMemory -= take.Memory
	card.Shares++
	after := unusable(c.After, c.Demand)
	*card = saved
	return percent(sigmoid((before - after) / Whole))
}

// unusable is the expected part of the node's free cards that the next pod could not use: all of
// it where the pod does not fit, else the cards with too little left for it. In thousandths of a card.
func unusable(n *Node, d *Demand) float64 {
	total := left(n)
	if total == 0 {
		return 0
	}
	sum := 0.0
	for i := range d.Popular {
		class := &d.Popular[i]
		if class.Cards == 0 {
			sum += class.Share * float64(total)
			continue
		}
		var small int64
		fits := 0
		for j := range n.Cards {
			if class.Takes(&n.Cards[j]) {
				fits++
			} else {
				small += n.Cards[j].Left()
			}
		}
		if fits < class.Cards {
			sum += class.Share * float64(total)
			continue
		}
		fitting := class.Fitting(n.Free[CPU])
		sum += fitting*float64(small) + (class.Share-fitting)*float64(total)
	}
	return sum
}
