package quota

import "math"

// Share is the weighted dominant share of a node: the largest part, over the resources, of what its
// cohort could lend that the node has taken.
type Share struct {
	Borrowing bool
	ratio     float64 // unweighted
	weight    float64
}

// Value is the share as a number; +Inf for a node that borrows on no weight.
func (s Share) Value() float64 {
	if s.ratio == 0 {
		return 0
	}
	if s.weight == 0 {
		return math.Inf(1)
	}
	return s.ratio / s.weight
}

// Compare orders shares. Among nodes that borrow on no weight at all, the ratio decides.
func (s Share) Compare(o Share) int {
	a, b := s.Value(), o.Value()
	if math.IsInf(a, 1) && math.IsInf(b, 1) {
		a, b = s.ratio, o.ratio
	}
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Shares computes shares; it reuses its memory.
type Shares struct {
	taken []int64
}

// Of is a node's share, now or in the future. What counts is what the node borrows or, with all, everything
// it uses (max-min fairness).
func (s *Shares) Of(n *Node, frs []FlavorResource, all bool, k View) Share {
	share := Share{weight: n.Weight}
	if n.Parent == nil {
		return share
	}
	taken := s.taken[:0]
	for range n.Parent.Lendable {
		taken = append(taken, 0)
	}
	s.taken = taken
	for fr := range n.Cells {
		c := &n.Cells[fr]
		over := c.Use[k] - c.Subtree
		if over > 0 {
			share.Borrowing = true
		}
		if all {
			over = c.Use[k]
		}
		if over > 0 {
			taken[frs[fr].Resource] += over
		}
	}
	for r, v := range taken {
		if lendable := n.Parent.Lendable[r]; v > 0 && lendable > 0 {
			share.ratio = max(share.ratio, float64(v)*1000/float64(lendable))
		}
	}
	return share
}
