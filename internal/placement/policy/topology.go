package policy

import "math/bits"

// topology gives a pod of several cards the best-connected set of them: the one whose slowest
// pair is fastest, then the most bandwidth in all. Cards of one NUMA node count as a slow link
// where links are unknown. A single card or a share takes the card whose links are worth least to others.
type topology struct{}

func (topology) Name() string     { return "topology" }
func (topology) ReadsOtherCards() {}

func (topology) Node(c *Case) float64 {
	if len(c.Takes) < 2 {
		return 1 - used(c.Before, c.Request)/2
	}
	var set uint64
	for _, take := range c.Takes {
		set |= 1 << take.Card
	}
	slowest, sum, pairs := worth(c.Before, set)
	if pairs == 0 {
		return 1
	}
	return 0.8*saturate(slowest) + 0.2*saturate(sum/float64(pairs))
}

// Card for one card: the fewer links to cards still idle, the better.
func (topology) Card(c *Case, take Take) float64 {
	sum, others := 0.0, 0
	for i := range c.After.Cards {
		if i != int(take.Card) && c.After.Cards[i].Usable && c.After.Cards[i].Idle() {
			sum += link(c.Before, int(take.Card), i)
			others++
		}
	}
	lonely := 1.0
	if others > 0 {
		lonely = 1 - saturate(sum/float64(others))
	}
	return 0.5*lonely + 0.5*binpack{}.Card(c, take)
}

// Choose looks at every set where there are few, and grows a set from each card where there are many.
func (topology) Choose(c *Case, candidates uint64, n int) uint64 {
	if m := bits.OnesCount64(candidates); m <= 12 {
		return bestOfAll(c.Before, candidates, n)
	}
	return bestGrown(c.Before, candidates, n)
}

func bestOfAll(node *Node, candidates uint64, n int) uint64 {
	var cards [64]int
	m := 0
	for rest := candidates; rest != 0; rest &= rest - 1 {
		cards[m] = bits.TrailingZeros64(rest)
		m++
	}
	var best uint64
	bestSlowest, bestSum := -1.0, -1.0
	// Gosper's walk over all n-subsets of m positions, in increasing order.
	for pick := uint64(1)<<n - 1; pick < 1<<m; {
		var set uint64
		for rest := pick; rest != 0; rest &= rest - 1 {
			set |= 1 << cards[bits.TrailingZeros64(rest)]
		}
		slowest, sum, _ := worth(node, set)
		if slowest > bestSlowest || slowest == bestSlowest && sum > bestSum {
			best, bestSlowest, bestSum = set, slowest, sum
		}
		low := pick & -pick
		high := pick + low
		pick = (pick^high)>>2/low | high
	}
	return best
}

func bestGrown(node *Node, candidates uint64, n int) uint64 {
	var best uint64
	bestSlowest, bestSum := -1.0, -1.0
	for starts := candidates; starts != 0; starts &= starts - 1 {
		set := starts & -starts
		for bits.OnesCount64(set) < n {
			var next uint64
			nextSlowest, nextSum := -1.0, -1.0
			for rest := candidates &^ set; rest != 0; rest &= rest - 1 {
				slowest, sum, _ := worth(node, set|rest&-rest)
				if slowest > nextSlowest || slowest == nextSlowest && sum > nextSum {
					next, nextSlowest, nextSum = rest&-rest, slowest, sum
				}
			}
			set |= next
		}
		slowest, sum, _ := worth(node, set)
		if slowest > bestSlowest || slowest == bestSlowest && sum > bestSum {
			best, bestSlowest, bestSum = set, slowest, sum
		}
	}
	return best
}

// worth of a set: its slowest pair, the sum over pairs, and how many pairs.
func worth(node *Node, set uint64) (slowest, sum float64, pairs int) {
	slowest = -1
	for rest := set; rest != 0; rest &= rest - 1 {
		a := bits.TrailingZeros64(rest)
		for others := rest & (rest - 1); others != 0; others &= others - 1 {
			l := link(node, a, bits.TrailingZeros64(others))
			sum += l
			pairs++
			if slowest < 0 || l < slowest {
				slowest = l
			}
		}
	}
	return max(slowest, 0), sum, pairs
}

const (
	sameNUMA  = 16 // GB/s over one PCIe root
	otherNUMA = 8  // and across the sockets
)

func link(node *Node, a, b int) float64 {
	if len(node.Links) > 0 {
		if l := node.Links[a*len(node.Cards)+b]; l > 0 {
			return float64(l)
		}
	}
	if node.Cards[a].NUMA == node.Cards[b].NUMA {
		return sameNUMA
	}
	return otherNUMA
}

// saturate maps a bandwidth to 0..1: half at 100 GB/s.
func saturate(bandwidth float64) float64 { return bandwidth / (bandwidth + 100) }
