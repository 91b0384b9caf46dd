package machines

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/elastic-ai/elastic/internal/cloud"
)

// Nodes whose workload is done wait for the next one, where the CloudOffer says for how long (keepIdle). They are still in
// the name of the workload that had them, and it is the one that is looked at when their time is up. The next workload takes
// them over by one write for each, which fails if somebody else was faster.
//
// A node's label does not change, and the pods of a workload select one value of it. So a workload takes over nodes of one
// purchase only; what it lacks is bought with the same label, and what it does not need is let go. If that was not done, as when
// the program was killed, nobody else takes over the rest.

// adoption is an idle node that a workload takes over.
type adoption struct {
	name string
	purchase
}

// stayIdle has an idle node wait, or lets it go when its time is up.
func (v *view) stayIdle(c *claim, p *plan) {
	if left := c.Idle.Add(v.keepIdle[c.Flavor]).Sub(v.now); left > 0 {
		p.look(left)
		return
	}
	if seen := v.learned.Of(c.Place); seen != nil && seen.Obtainable {
		v.learned.Running(c.Place, v.now)
		p.learned(c)
	}
	p.letGo = append(p.letGo, c.name)
}

// sharesLabel says that another workload has a node with the label of an idle one.
func sharesLabel(label string, uid types.UID, others []*NodeClaim) bool {
	return slices.ContainsFunc(others, func(n *NodeClaim) bool {
		c := readClaim(n)
		return c.label == label && (c.held || !c.deleted) && !c.idle() && n.Labels[uidLabel] != string(uid)
	})
}

// serves says that a workload may have an idle node.
func (v *view) serves(c *claim) bool {
	return !c.unfit && c.registered && c.label != "" && c.Idle.Add(v.keepIdle[c.Flavor]).After(v.now) && c.usable(v.run, v.declared, v.now)
}

// usable says that an idle node will be there until the workload is done, as far as that is known: Karpenter ends it when it
// expires, whatever runs there. A workload that does not say how long it runs takes none in the second half of their lives.
func (c *claim) usable(run time.Duration, declared bool, now time.Time) bool {
	if c.expires.IsZero() { // never
		return true
	}
	if !declared {
		run = max(run, c.expires.Sub(c.created)/2)
	}
	return now.Add(run).Before(c.expires)
}

// idleAt are the idle nodes of a flavor at a place, by the values of their labels.
func (v *view) idleAt(flavor string, place cloud.Place) map[string]int {
	groups := map[string]int{}
	for i := range v.pool {
		if c := &v.pool[i]; c.Flavor == flavor && c.Place == place && v.serves(c) {
			groups[c.label]++
		}
	}
	return groups
}

// idleGroup are the idle nodes that serve an offer best: the fewest that suffice, or the most there are; "": none.
func (v *view) idleGroup(flavor string, o *cloud.Offer) (best string) {
	groups := v.idleAt(flavor, o.Place)
	for label, n := range groups {
		had := groups[best]
		enough, hadEnough := n >= o.Machines, had >= o.Machines
		better := enough && !hadEnough || enough && n < had || !hadEnough && n > had
		if best == "" || better || n == had && label < best {
			best = label
		}
	}
	return best
}

// withIdle are the offers of a part, with the nodes that are there already.
func (v *view) withIdle(part *part) []cloud.Offer {
	offers := slices.Clone(part.offers)
	for i := range offers {
		o := &offers[i]
		o.Idle = min(o.Machines, v.idleAt(part.flavor, o.Place)[v.idleGroup(part.flavor, o)])
	}
	return offers
}

// completes says that what an attempt lacks is idle, or can be bought.
func (v *view) completes(ordered []*claim) bool {
	first := ordered[0]
	lacks := first.Nodes - len(ordered) - v.idleAt(first.Flavor, first.Place)[first.Group]
	return lacks <= 0 || v.learned.Of(first.Place).Closed(first.wanted(), v.now).IsZero()
}

// fill takes over or buys the nodes that an attempt lacks.
func (v *view) fill(first purchase, has []*claim, p *plan) {
	var missing []int
	for n := range first.Nodes {
		if !slices.ContainsFunc(has, func(c *claim) bool { return c.Node == n }) {
			missing = append(missing, n)
		}
	}
	idle := v.take(first)
	serve := min(len(idle), len(missing))
	if first.Group != "" {
		bought := len(missing) - serve
		for _, c := range has {
			if !c.adopted(v.uid) {
				bought++
			}
		}
		first.Bought = bought
	}
	for i, n := range missing {
		first.Node = n
		if i < serve {
			p.adopt = append(p.adopt, adoption{name: idle[i].name, purchase: first})
			continue
		}
		p.buy = append(p.buy, first)
	}
	for i := serve; i < len(idle); i++ { // others would have the same label
		p.letGo = append(p.letGo, idle[i].name)
	}
	v.makeWay(first.Flavor, len(missing)-serve, p)
}

// take takes the idle nodes of an attempt's group out of the pool.
func (v *view) take(first purchase) (taken []claim) {
	if first.Group == "" {
		return nil
	}
	v.pool = slices.DeleteFunc(v.pool, func(c claim) bool {
		of := c.Flavor == first.Flavor && c.label == first.Group && v.serves(&c)
		if of && c.Place == first.Place {
			taken = append(taken, c)
		}
		return of
	})
	slices.SortFunc(taken, func(a, b claim) int { return cmp.Compare(a.name, b.name) })
	return taken
}

// makeWay lets go as many idle nodes as are bought, those that wait longest first. So there are never more nodes than the
// quota that was in use at once allowed, however a tenant varies what its jobs ask for.
func (v *view) makeWay(flavor string, bought int, p *plan) {
	slices.SortFunc(v.pool, func(a, b claim) int { return cmp.Or(a.Idle.Compare(b.Idle), cmp.Compare(a.name, b.name)) })
	v.pool = slices.DeleteFunc(v.pool, func(c claim) bool {
		if c.Flavor != flavor || bought == 0 {
			return false
		}
		bought--
		p.letGo = append(p.letGo, c.name)
		return true
	})
}

// lastAttempt is the highest number of an attempt of a workload that names or labels of nodes have.
func lastAttempt(uid types.UID, claims []claim) (last int) {
	for i := range claims {
		last = max(last, claims[i].attempts()[uid])
	}
	return last
}
