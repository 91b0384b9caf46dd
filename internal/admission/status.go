package admission

import (
	"slices"
	"time"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// QueueStatus is a queue's numbers, for status and metrics.
type QueueStatus struct {
	Pending   int // in the queue, nominated ones and those that the queue holds back included
	Reserving int // workloads with quota reserved
	Usage     []FlavorUsage
	FairShare float64 // weighted share; +Inf when it borrows on no weight
}

// FlavorUsage is one resource in one flavor.
type FlavorUsage struct {
	Flavor, Resource        string
	Nominal, Used, Borrowed int64
}

// Status returns a ClusterQueue's numbers, false if there is no such queue.
func (e *Engine) Status(name string) (QueueStatus, bool) {
	q := e.queues[name]
	if q == nil || !q.exists {
		return QueueStatus{}, false
	}
	e.rebuild()
	s := QueueStatus{Pending: q.pending + q.heldBack, Reserving: len(q.quotaReserved)}
	s.Usage = e.usageBy(q, func(fr int32) int64 { return q.node.Cells[fr].Use[quota.Now] })
	for i := range s.Usage {
		u := &s.Usage[i]
		c := &q.node.Cells[e.intern(u.Flavor, u.Resource)]
		u.Nominal = c.Nominal
		if q.node.Parent != nil {
			u.Borrowed = max(0, u.Used-c.Nominal)
		}
	}
	s.FairShare = e.shareNow(q.tree, q.node)
	return s, true
}

// shareNow is a share as people see it: with what evicted workloads still use, and without what is
// nominated.
func (e *Engine) shareNow(t *tree, n *quota.Node) float64 {
	return e.shares.Of(n, e.frs, t.policy == PolicyMaxMin, quota.Now).Value()
}

// PendingIn is QueueStatus.Pending alone, which costs nothing.
func (e *Engine) PendingIn(name string) (int, bool) {
	q := e.queues[name]
	if q == nil || !q.exists {
		return 0, false
	}
	return q.pending + q.heldBack, true
}

// usageBy lists what a queue offers with the amounts given.
func (e *Engine) usageBy(q *queue, used func(fr int32) int64) []FlavorUsage {
	var list []FlavorUsage
	for _, g := range q.groups {
		for _, f := range g.flavors {
			for i, fr := range f.frs {
				list = append(list, FlavorUsage{Flavor: e.flavors[f.flavor].spec.Name, Resource: e.resources[g.resources[i]], Used: used(fr)})
			}
		}
	}
	return list
}

// LocalStatus is a LocalQueue's numbers.
type LocalStatus struct {
	Pending, Reserving int // as in QueueStatus
	Usage              []FlavorUsage
	// Consumed is the decayed usage of admission fair sharing as it was noted last, at ConsumedAt, and Share
	// what it weighed. Write it, and hand it back in LocalQueue after a restart: thousandths and seconds are enough.
	Consumed   map[string]float64
	ConsumedAt time.Time
	Share      float64
}

// LocalStatus returns a LocalQueue's numbers, false if there is no such queue.
func (e *Engine) LocalStatus(k Key) (LocalStatus, bool) {
	l := e.locals[k]
	if l == nil || !l.exists {
		return LocalStatus{}, false
	}
	var s LocalStatus
	held := map[int32]int64{}
	for _, w := range l.members {
		switch {
		case w.hasQuota():
			s.Reserving++
			for _, u := range w.usage {
				held[u.FR] += u.V
			}
		case w.waits():
			s.Pending++
		case w.countedIn != nil:
			s.Pending++
		}
	}
	s.Usage = e.usageBy(l.queue, func(fr int32) int64 { return held[fr] })
	s.Consumed, s.ConsumedAt = map[string]float64{}, l.usage.NotedAt()
	for r, v := range l.usage.Noted(&e.usageRules) {
		s.Consumed[e.resources[r]] = v
	}
	s.Share = l.weightedUsage(e, s.ConsumedAt)
	return s, true
}

// CohortStatus is a cohort's numbers.
type CohortStatus struct {
	FairShare float64
	Subtree   []SubtreeUsage
}

// SubtreeUsage is one resource in one flavor over a whole subtree: what there is, guaranteed parts of the
// children left out, and how much all queues below use, guaranteed parts included.
type SubtreeUsage struct {
	Flavor, Resource string
	Quota, Used      int64
}

// CohortStatus returns a cohort's numbers, false if nobody names it.
func (e *Engine) CohortStatus(name string) (CohortStatus, bool) {
	e.rebuild()
	n := e.cohorts[name]
	if n == nil {
		return CohortStatus{}, false
	}
	s := CohortStatus{FairShare: e.shareNow(n.top.tree, n.Node)}
	for fr := range n.Cells {
		if subtree, used := n.Cells[fr].Subtree, n.Used(int32(fr), quota.Now); subtree > 0 || used > 0 {
			k := e.frs[fr]
			s.Subtree = append(s.Subtree, SubtreeUsage{e.flavors[k.Flavor].spec.Name, e.resources[k.Resource], subtree, used})
		}
	}
	return s, true
}

// PendingWorkload is a pending workload with its position.
type PendingWorkload struct {
	Workload      Key
	LocalQueue    string
	Priority      int64
	Position      int // in the ClusterQueue, from 0
	LocalPosition int // in the LocalQueue, from 0
}

// PendingWorkloads lists a ClusterQueue's pending workloads in order, with their positions.
func (e *Engine) PendingWorkloads(name string) []PendingWorkload {
	q := e.queues[name]
	if q == nil {
		return nil
	}
	local := map[*localQueue]int{}
	line := q.pendingInOrder()
	places := make([]PendingWorkload, len(line))
	for i, w := range line {
		places[i] = PendingWorkload{w.spec.Key, w.spec.LocalQueue, w.spec.Priority, i, local[w.local]}
		local[w.local]++
	}
	return places
}

// Pending lists a ClusterQueue's pending workloads in order.
func (e *Engine) Pending(name string) []Key {
	q := e.queues[name]
	if q == nil {
		return nil
	}
	line := q.pendingInOrder()
	keys := make([]Key, len(line))
	for i, w := range line {
		keys[i] = w.spec.Key
	}
	return keys
}

func (q *queue) pendingInOrder() []*workload {
	line := make([]*workload, 0, q.pending)
	line = append(line, q.nominated...)
	for _, c := range q.classes {
		line = append(line, c.members...)
	}
	slices.SortFunc(line, q.pendingOrder)
	return line
}
