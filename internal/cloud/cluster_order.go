package cloud

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Other clusters that a job can be sent to, in the order of what it is expected to cost there. What a cluster pays for its
// machines is known by a price for each region; which machines it takes is its own affair.

// ClusterOffer is what the machines of a cluster cost. A cluster may have several; it takes the one that costs a job least.
type ClusterOffer struct {
	Cluster  string
	Resource string // that prices are of
	// Prices are those of regions. None: nobody knows what the machines cost, or all of them cost more than they may.
	Prices []RegionPrice
	// ClosedUntil is when its machines may be had again; zero: now.
	ClosedUntil time.Time
	Egress      Egress
}

// RegionPrice is what machines of one size cost in a region, and how they fare.
type RegionPrice struct {
	Cloud, Region string
	Price         float64 // of one unit of the resource for an hour, US dollars
	Size          float64 // how many units a machine has, of which all are paid for; 0: any
	StartUp       time.Duration
	LossRate      float64 // how often an hour a machine is taken away
}

// ClusterCost is what a job is expected to cost in a cluster.
type ClusterCost struct {
	Cluster string
	Kind    ClusterKind
	Cost    float64 // US dollars; with Open and Closed
	// ClosedUntil is when machines may be had there again; with Closed.
	ClosedUntil time.Time
}

// ClusterKind is whether a cluster's machines are bought, and can be. Lower ones come first.
type ClusterKind int

// What a cluster can be to a job.
const (
	Owned    ClusterKind = iota // it has no offer: machines there cost nothing more
	Open                        // machines can be bought there
	Closed                      // none can be had there now
	Unpriced                    // nobody knows what they cost, or they cost more than they may: nothing is sent there
)

// OrderClusters says what a job is expected to cost in each cluster, cheapest first; what is equal keeps its order. Amounts
// are how much of each resource the job asks for.
func OrderClusters(j *Job, amounts map[string]float64, input Input, clusters []string, offers []ClusterOffer, now time.Time) []ClusterCost {
	costs := make([]ClusterCost, len(clusters))
	for i, name := range clusters {
		costs[i] = ClusterCost{Cluster: name}
		first := true
		for k := range offers {
			if offers[k].Cluster != name {
				continue
			}
			if c := offers[k].cost(j, amounts, input, now); first || c.compare(&costs[i]) < 0 {
				costs[i] = c
			}
			first = false
		}
	}
	slices.SortStableFunc(costs, func(a, b ClusterCost) int { return a.compare(&b) })
	return costs
}

// Same says that nothing of what counts tells one cluster from another.
func (c *ClusterCost) Same(other *ClusterCost) bool { return c.compare(other) == 0 }

func (c *ClusterCost) compare(other *ClusterCost) int {
	return cmp.Or(cmp.Compare(c.Kind, other.Kind), cmp.Compare(c.Cost, other.Cost))
}

// bought is how many units whole machines have that have so many together.
func (p *RegionPrice) bought(amount float64) float64 {
	if !(p.Size > 0) {
		return amount
	}
	const rounding = 1e-9 // sizes may be parts of a card
	return max(amount, math.Ceil(amount/p.Size-rounding)*p.Size)
}

// cost of a job on machines of an offer, in the region where that is least.
func (o *ClusterOffer) cost(j *Job, amounts map[string]float64, input Input, now time.Time) ClusterCost {
	c := ClusterCost{Cluster: o.Cluster, Kind: Open}
	switch {
	case len(o.Prices) == 0:
		c.Kind = Unpriced
		return c
	case o.ClosedUntil.After(now):
		c.Kind, c.ClosedUntil = Closed, o.ClosedUntil
	}
	amount := max(0, amounts[o.Resource])
	if amount == 0 {
		return c // the price is not of what it asks for
	}
	for i := range o.Prices {
		p := &o.Prices[i]
		start := p.StartUp.Hours()
		cost := j.cost(p.bought(amount)*p.Price, start, start, p.LossRate, o.Egress.Cost(input, p.Cloud, p.Region))
		if i == 0 || cost < c.Cost {
			c.Cost = cost
		}
	}
	return c
}
