package policy

// Capacity for pods of several cards has a price: what losing one card of it costs, in cards wasted,
// for an equivalence class that is all of demand. Where there is plenty it is nearly free, and pods go
// where they leave least waste; where it gets scarce, small pods leave it alone.
var prices = [...]float64{0.1, 0.4, 1.5, 4}

// plenty is how many times the capacity that will be requested there must be, for each price but the highest.
var plenty = [...]float64{12, 6, 3}

// usual is the price level before the first Reprice.
const usual = 1

// slack prevents a price from going to and fro: it moves when scarcity is this far past the mark.
const slack = 0.2

// Capacity is what Reprice has to know of a node: how many cards' worth is free, and how many cards pods of each class could have.
type Capacity struct {
	free float64
	have []float64
}

// Measure the free capacity of a node. It stays the same while the node does.
func (d *Demand) Measure(n *Node, r *Capacity) {
	r.free, r.have = float64(left(n))/Whole, r.have[:0]
	for i := range d.Classes {
		have := 0.0
		if d.Classes[i].Cards >= 2 {
			have = d.Classes[i].capacity(n)
		}
		r.have = append(r.have, have)
	}
}

// Reprice sets the price of capacity for each class from how much of it there is on the nodes, and how
// much of what is still free that class will request. It reports whether any price moved.
func (d *Demand) Reprice(nodes []*Capacity) bool {
	free := 0.0
	for _, r := range nodes {
		free += r.free
	}
	moved := false
	for i := range d.Classes {
		c := &d.Classes[i]
		if c.Cards < 2 {
			continue
		}
		have, want := 0.0, free*c.Weight
		for _, r := range nodes {
			have += r.have[i]
		}
		if level := c.level(have, want); level != c.price {
			c.price, moved = level, true
		}
	}
	return moved
}

// level of the price for this much capacity and demand.
func (c *Class) level(have, want float64) int {
	level := len(plenty)
	for i, times := range plenty {
		mark := times * want
		if i < c.price {
			mark *= 1 + slack // to get cheaper again
		} else {
			mark *= 1 - slack
		}
		if have >= mark {
			level = i
			break
		}
	}
	return level
}

// capacity is the number of cards that pods of the class could have on the node.
func (c *Class) capacity(n *Node) float64 {
	fits := 0
	for i := range n.Cards {
		if c.Takes(&n.Cards[i]) {
			fits++
		}
	}
	if fits < c.Cards {
		return 0
	}
	return float64(fits-fits%c.Cards) * c.Fitting(n.Free[CPU]) / c.Share
}
