package policy

import "math"

// fragmentation keeps what is left over useful: it takes the place where the room that no
// likely next pod could use grows least.
type fragmentation struct{}

func (fragmentation) Name() string { return "fragmentation" }
func (fragmentation) ReadsDemand() {}

func (fragmentation) Node(c *Case) float64 {
	return sigmoid((wasted(c.Before, c.Demand) - wasted(c.After, c.Demand)) / Whole)
}

func (fragmentation) Card(c *Case, take Take) float64 {
	before := wasted(c.After, c.Demand)
	card := &c.After.Cards[take.Card]
	saved := *card
	card.FreeCore -= take.Core
	card.FreeMemory -= take.Memory
	card.Holders++
	after := wasted(c.After, c.Demand)
	*card = saved
	return sigmoid((before - after) / Whole)
}

// wasted is the expected part of the node's free cards that the next pod could not use (Weng et
// al., "Beware of Fragmentation", USENIX ATC 2023): all of it where the pod does not fit, else the
// cards with too little left for it. In thousandths of a card.
func wasted(n *Node, d *Demand) float64 {
	if len(n.Cards) == 0 || d == nil {
		return 0
	}
	var total int64
	for i := range n.Cards {
		total += n.Cards[i].Left()
	}
	if total == 0 {
		return 0
	}
	sum := 0.0
	for i := range d.Classes {
		class := &d.Classes[i]
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

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
