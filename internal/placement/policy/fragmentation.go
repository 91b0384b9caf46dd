package policy

import "math"

// fragmentation leaves free capacity that is useful to later pods. It looks ahead: the node is filled up with pods as
// they usually come, in a few dozen random draws, and what stays empty at the end is what the node
// will waste. The pod goes where it makes that grow least. Two small costs settle the rest:
// capacity for pods of several cards has a price, and of like nodes the fuller one is taken.
//
// The cards of a node are taken by best fit, as they are in the look-ahead.
type fragmentation struct{}

func (fragmentation) Name() string { return "fragmentation" }
func (fragmentation) ReadsDemand() {}

const costOfFreeCard = 0.01 // in cards wasted, per card left free on the node

func (fragmentation) Node(c *Case) float64 {
	waste := c.Demand.Waste(c.After) - c.Demand.Waste(c.Before)
	cost := waste + largeCapacityLost(c) + costOfFreeCard*float64(left(c.After))/Whole
	return sigmoid(-cost)
}

func (fragmentation) Card(c *Case, take Take) float64 { return tightest(c, take) }

// largeCapacityLost is what it costs that capacity for pods larger than this one goes away.
func largeCapacityLost(c *Case) float64 {
	lost := 0.0
	for i := range c.Demand.Classes {
		class := &c.Demand.Classes[i]
		if class.Cards < 2 || class.Cards <= c.Request.Cards {
			continue
		}
		lost += prices[class.price] * class.Weight * (class.capacity(c.Before) - class.capacity(c.After))
	}
	return lost
}

// tightest prefers the card with the least left; among equals the first.
func tightest(c *Case, take Take) float64 {
	card := &c.After.Cards[take.Card]
	if card.Core == 0 {
		return 0
	}
	return 1 - float64(card.Left())/float64(card.Core)
}

func left(n *Node) int64 {
	var sum int64
	for i := range n.Cards {
		sum += n.Cards[i].Left()
	}
	return sum
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
