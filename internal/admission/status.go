package admission

import (
	"cmp"
	"slices"
)

// QueueStatus is a queue's numbers, for status and metrics.
type QueueStatus struct {
	Pending   int // in line, waiting for preempted workloads included
	Active    int // of those, not known to be inadmissible
	Reserving int // workloads that hold quota
	Usage     []FlavorUsage
	FairShare float64 // weighted share; +Inf when it borrows on no weight
}

// FlavorUsage is one resource in one flavor.
type FlavorUsage struct {
	Flavor, Resource string
	Used, Borrowed   int64
}

// Status returns a ClusterQueue's numbers, false if there is no such queue.
func (e *Engine) Status(name string) (QueueStatus, bool) {
	q := e.queues[name]
	if q == nil || !q.exists {
		return QueueStatus{}, false
	}
	e.rebuild()
	s := QueueStatus{Pending: q.pending, Reserving: len(q.holders)}
	for _, c := range q.active {
		if !c.parked {
			s.Active += len(c.members)
		}
	}
	s.Active += len(q.claims)
	for _, g := range q.groups {
		for _, f := range g.flavors {
			for i, fr := range f.frs {
				c := &q.node.cells[fr]
				s.Usage = append(s.Usage, FlavorUsage{
					Flavor: e.flavors[f.flavor].spec.Name, Resource: e.resources[g.resources[i]],
					Used: c.use[now], Borrowed: max(0, c.use[now]-c.nominal),
				})
			}
		}
	}
	s.FairShare = e.share(q.node).value()
	return s, true
}

// Pending lists a ClusterQueue's workloads in line, in order.
func (e *Engine) Pending(name string) []Key {
	q := e.queues[name]
	if q == nil {
		return nil
	}
	line := q.line()
	keys := make([]Key, len(line))
	for i, w := range line {
		keys[i] = w.spec.Key
	}
	return keys
}

func (q *queue) line() []*workload {
	line := make([]*workload, 0, q.pending)
	line = append(line, q.claims...)
	for _, c := range q.classes {
		line = append(line, c.members...)
	}
	slices.SortFunc(line, q.lineOrder)
	return line
}

// lineOrder is turn, after the local queues' usage where that counts.
func (q *queue) lineOrder(a, b *workload) int {
	if q.spec.UsageFairSharing && a.local != b.local && a.local.share != b.local.share {
		return cmp.Compare(a.local.share, b.local.share)
	}
	return turn(a, b)
}
