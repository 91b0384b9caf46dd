package placement

import (
	"slices"

	"github.com/elastic-ai/elastic/internal/placement/policy"
)

// demandTracker counts what the pods in the engine request. Scores use a snapshot of it, which is
// renewed once as many pods came and went as half of those it counted: scores stay comparable in
// between, and a snapshot depends on events alone, not on questions.
type demandTracker struct {
	now      *policy.Demand
	version  uint64
	fixed    bool
	counts   map[*shape]int
	order    []*shape // in the order they came
	total    int
	taken    int        // total at the last snapshot
	moved    int        // pods that came and went since
	priced   int        // moved when prices were last looked at
	measured []measured // by position of the node
	upTo     int        // changes of nodes that were measured, counted from the first
	usable   []*policy.Capacity
}

// measured is the free capacity of a node, as it was then.
type measured struct {
	of     *policy.Demand
	rev    uint64
	usable bool
	policy.Capacity
}

func (d *demandTracker) init(e *Engine, given []Demand) error {
	d.counts = map[*shape]int{}
	d.now = policy.NewDemand(nil)
	if len(given) == 0 {
		return nil
	}
	d.fixed = true
	asks := make([]policy.Ask, 0, len(given))
	for i := range given {
		s, err := e.shapeOf(&given[i].Pod)
		if err != nil {
			return err
		}
		asks = append(asks, s.ask(given[i].Weight))
	}
	d.now = policy.NewDemand(asks)
	return nil
}

func (d *demandTracker) count(e *Engine, h *holding, added bool) {
	if d.fixed {
		return
	}
	if added {
		if _, met := d.counts[h.shape]; !met {
			d.order = append(d.order, h.shape)
		}
		d.counts[h.shape]++
		d.total++
	} else {
		d.counts[h.shape]--
		d.total--
	}
	d.moved++
	switch {
	case d.moved*2 > d.taken:
		d.snapshot()
		d.reprice(e)
	case (d.moved-d.priced)*20 > d.taken:
		if d.reprice(e) {
			d.version++
		}
	}
}

func (d *demandTracker) snapshot() {
	asks := make([]policy.Ask, 0, len(d.order))
	met := d.order[:0]
	for _, s := range d.order {
		if count := d.counts[s]; count > 0 {
			asks = append(asks, s.ask(float64(count)))
			met = append(met, s)
		} else {
			delete(d.counts, s)
		}
	}
	clear(d.order[len(met):])
	d.order = met
	next := policy.NewDemand(asks)
	next.Replaces(d.now)
	d.now = next
	d.version++
	d.moved, d.taken = 0, d.total
}

// reprice looks at how scarce capacity for large pods has become, a few times between snapshots.
func (d *demandTracker) reprice(e *Engine) bool {
	d.priced = d.moved
	if all := len(d.measured) < len(e.nodes) || d.upTo < e.base || len(d.usable) == 0 || d.measured[0].of != d.now; all {
		d.measured = slices.Grow(d.measured, len(e.nodes)-len(d.measured))[:len(e.nodes)]
		for pos := range e.nodes {
			d.measure(e, int32(pos))
		}
		d.listUsable()
	} else {
		relist := false
		for _, pos := range e.changes[d.upTo-e.base:] {
			relist = d.measure(e, pos) || relist
		}
		if relist {
			d.listUsable()
		}
	}
	d.upTo = e.base + len(e.changes)
	return d.now.Reprice(d.usable)
}

// measure a node, and say whether it counts by now or counted until now.
func (d *demandTracker) measure(e *Engine, pos int32) bool {
	n, r := e.nodes[pos], &d.measured[pos]
	was := r.usable
	r.usable = n != nil && n.known && !n.desc.Unschedulable
	if r.usable && (r.of != d.now || r.rev != n.rev) {
		r.rev = n.rev
		d.now.Measure(&n.view, &r.Capacity)
	}
	r.of = d.now
	return was != r.usable
}

func (d *demandTracker) listUsable() {
	d.usable = d.usable[:0]
	for pos := range d.measured {
		if r := &d.measured[pos]; r.usable {
			d.usable = append(d.usable, &r.Capacity)
		}
	}
}

// ask sums a shape up as one kind of demand: a pod with unlike containers counts as its largest piece,
// on all its cards.
func (s *shape) ask(weight float64) policy.Ask {
	a := policy.Ask{CPU: s.request.Amount(policy.CPU), Cards: s.request.Cards, Weight: weight}
	if len(s.units) > 0 {
		n := &s.needs[s.units[0].need]
		a.Core, a.Memory, a.Exclusive, a.Models = n.core, n.mem, n.exclusive, n.models
		if n.exclusive {
			a.Core = policy.Whole
		}
	}
	return a
}
