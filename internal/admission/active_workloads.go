package admission

import "github.com/elastic-ai/elastic/internal/admission/quota"

// Active counts, by LocalQueue, the pending workloads of a ClusterQueue that Kueue would try in its next
// cycle. The others are inadmissible: they wait until something changes. It looks at every class, so it is
// for metrics.
func (e *Engine) Active(name string) map[Key]int {
	q := e.queues[name]
	if q == nil {
		return nil
	}
	e.rebuild()
	active := map[Key]int{}
	// The first one is next whatever changes, and nobody is tried behind it, in a StrictFIFO queue and
	// while victims leave for a workload of the queue.
	first := q.spec.StrictFIFO || len(q.nominated) > 0
	for _, w := range q.nominated {
		active[w.local.spec.Key]++
	}
	for _, c := range q.classes {
		if c.inadmissible && !first && !e.competes(c) {
			continue
		}
		for _, w := range c.members {
			active[w.local.spec.Key]++
		}
	}
	return active
}

// competes says that a class which was refused would fit if nothing was nominated or reserved for others.
// That a workload competes for quota which is there does not make it inadmissible.
func (e *Engine) competes(c *equivClass) bool {
	if c.verdict.reason == ReasonTopologyPlacementFailed {
		return false
	}
	s, q := c.shape, c.queue
	var total []podRequest
	for i := range s.podSets {
		for _, r := range s.requests[i] {
			if rg := q.group(r.resource); rg >= 0 {
				total = addRequest(total, r.resource, quota.Times(r.v, s.counts[i]))
			} else if r.resource != 0 && r.v > 0 && !e.opts.IgnoreUndeclared {
				return false
			}
		}
	}
	for rg := range q.groups {
		if !e.someFlavorFits(c, int32(rg), total) {
			return false
		}
	}
	return true
}

// someFlavorFits says that a flavor of a resource group is allowed for all pod sets and has what they ask
// for together.
func (e *Engine) someFlavorFits(c *equivClass, rg int32, total []podRequest) bool {
	q := c.queue
	for _, f := range q.groups[rg].flavors {
		fits := true
		for g := range c.shape.groups {
			fits = fits && c.shape.refuses(e, f.flavor, g, q.groups[rg].resources) == ""
		}
		for i, resource := range q.groups[rg].resources {
			for _, t := range total {
				fits = fits && (t.resource != resource || q.node.Fits(f.frs[i], t.v, quota.Now))
			}
		}
		if fits {
			return true
		}
	}
	return false
}
