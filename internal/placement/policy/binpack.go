package policy

// binpack fills what is already in use, and leaves the rest whole for larger pods.
type binpack struct{}

func (binpack) Name() string { return "binpack" }

func (binpack) Node(c *Case) float64 { return used(c.After, c.Request) }

func (binpack) Card(c *Case, take Take) float64 {
	card := &c.After.Cards[take.Card]
	if card.Core == 0 {
		return 0
	}
	left := card.FreeCore - take.Core
	if card.Memory > 0 {
		left = min(left, (card.FreeMemory-take.Memory)*Whole/card.Memory)
	}
	return 1 - float64(max(left, 0))/float64(card.Core)
}

// used is how full the node would be, from 0 to 1: its cards for a pod with cards, else its fullest resource.
func used(n *Node, r *Request) float64 {
	var total, left int64
	for i := range n.Cards {
		total += n.Cards[i].Core
		left += n.Cards[i].Left()
	}
	if r.Cards > 0 && total > 0 {
		return 1 - float64(left)/float64(total)
	}
	fullest := 0.0
	for _, need := range r.Need {
		if total := n.Total[need.Resource]; total > 0 {
			fullest = max(fullest, 1-float64(n.Free[need.Resource])/float64(total))
		}
	}
	return min(max(fullest, 0), 1)
}
