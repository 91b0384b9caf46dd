package admission

import (
	"cmp"
	"slices"
	"strings"

	"github.com/elastic-ai/elastic/internal/admission/index"
	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// demand is what the pending classes of a queue request of one flavor-resource, smallest first.
type demand struct {
	index.List[demandItem]
}

// demandItem is how much a class requests.
type demandItem struct {
	v     int64
	class *equivClass
}

// Compare orders by amount.
func (a demandItem) Compare(b demandItem) int {
	return cmp.Or(cmp.Compare(a.v, b.v), strings.Compare(a.class.key, b.class.key))
}

// Size is the amount requested.
func (a demandItem) Size() int64 { return a.v }

// within lists up to most classes that request more than low and no more than high, the largest first.
func (d *demand) within(list []*equivClass, low, high int64, most int) []*equivClass {
	i, _ := slices.BinarySearchFunc(d.Chunks, high, func(c index.Chunk[demandItem], v int64) int { return compareAmount(c.Items[len(c.Items)-1], v) })
	for i = min(i, len(d.Chunks)-1); i >= 0 && most > 0; i-- {
		items := d.Chunks[i].Items
		j, _ := slices.BinarySearchFunc(items, high, compareAmount)
		for j--; j >= 0 && most > 0; j-- {
			if items[j].v <= low {
				return list
			}
			list = append(list, items[j].class)
			most--
		}
	}
	return list
}

// compareAmount sorts items of exactly v before v.
func compareAmount(a demandItem, v int64) int {
	if a.v <= v {
		return -1
	}
	return 1
}

// addDemand notes what a new class requests. Where there is a choice of flavors or counts, that is
// not known beforehand.
func (e *Engine) addDemand(c *equivClass) {
	e.demandChanges++
	c.fixedUsage = e.fixedUsage(c.queue, c.shape)
	for _, u := range c.fixedUsage {
		q := c.queue
		for len(q.demand) <= int(u.FR) {
			q.demand = append(q.demand, demand{})
		}
		q.demand[u.FR].Insert(demandItem{u.V, c})
	}
}

func (e *Engine) removeDemand(c *equivClass) {
	t := c.queue.tree
	e.demandChanges++
	for _, u := range c.fixedUsage {
		c.queue.demand[u.FR].Remove(demandItem{u.V, c})
	}
	c.fixedUsage = nil
	if e.anyVolatile(t) {
		t.usageChanges++
		e.enlist(t)
	}
}

// fixedUsage is what workloads of a request shape take in a queue, if only one answer is possible.
func (e *Engine) fixedUsage(q *queue, s *requestShape) []quota.Amount {
	if s.shrinks {
		return nil
	}
	var usage []quota.Amount
	for i, requests := range s.requests {
		for _, r := range requests {
			g := q.group(r.resource)
			switch {
			case g < 0 && (r.resource == 0 || r.v == 0 || e.opts.IgnoreUndeclared):
				continue
			case g < 0 || len(q.groups[g].flavors) != 1:
				return nil
			}
			if v := quota.Times(r.v, s.counts[i]); v > 0 {
				usage = quota.AddAmount(usage, q.groups[g].flavors[0].frs[slices.Index(q.groups[g].resources, r.resource)], v)
			}
		}
	}
	return usage
}
