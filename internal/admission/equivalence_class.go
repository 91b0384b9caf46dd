package admission

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// queue is a ClusterQueue with what is pending and what holds quota in it.
// It exists as soon as something names it; exists says it was described.
type queue struct {
	name   string
	spec   Queue
	exists bool
	node   *node

	groups  []group
	choice  bool    // some resource comes in more than one flavor
	groupOf []int32 // by resource index: its group, or -1

	classes      map[string]*equivClass
	active       heap[*equivClass] // by the first member's turn
	inadmissible int               // how many classes are parked
	pending      int               // workloads in classes or waiting with a claim

	quotaReserved   []*workload // by preemption order: low priority first, then newest
	locals          []*localQueue
	nominated       []*workload   // waiting for preempted workloads, granted order
	volatile        []*equivClass // parked, and to be looked at again after any change of usage
	reservedChanges uint64        // counts changes among the holders; never 0
	preemptible     preemptible   // what its holders could give up
	lastHint        queueingHint  // as of the last look at who may be helped
	hinted          []int32       // flavor-resources whose freeing was noted and not yet used up
	fair            fairCursor
	backfilled      uint64        // tree version at the last look for backfill
	waits           [][]*waitList // by flavor-resource: who is parked for lack of it
	demand          []demand      // by flavor-resource: what those in line ask for
}

// equivClass gathers a queue's pending workloads of one shape: same pods, same
// constraints, same priority. They get the same answer, so only the first one asks.
type equivClass struct {
	key          string
	queue        *queue
	shape        *requestShape
	members      heap[*workload] // by turn
	lead         *workload       // the first of them, by whose turn the class waits
	pos          int             // in queue.active; -1 when not there
	inadmissible bool
	delayed      bool      // parked while its first had to spare those it could displace
	canReserve   bool      // then, room can be kept for it
	retryAt      time.Time // when time alone may change that; zero: never
	cooldown     bool      // likewise, preempted too lately to displace others
	verdict      verdict
	refusedAt    uint64           // tree.helps when it was refused last
	volatile     bool             // listed in queue.fickle
	refusedUsage uint64           // tree.shifts when it was refused last
	needs        []amount         // how much it waits for; nil once it is dissolved
	awaits       map[*flavor]bool // flavors on whose nodes it waits for room
	unreported   []*workload      // joined since the verdict was told
	reported     Reason           // what the other members were told
	fixedUsage   []amount         // what a member takes, if only one answer is possible
	by           *localQueue      // under usage fair sharing: the local queue all members share

	reservation       []amount // kept from others meanwhile: of a blocked StrictFIFO head, or of one too new in line
	liftedReservation []amount // what was reserved before it was looked at again
}

// verdict is the answer a parked class got.
type verdict struct {
	reason  Reason
	message string
}

// queueOrder orders pending workloads: priority, then age, then names so that the
// order never depends on when we heard of them.
func queueOrder(a, b *workload) int {
	if a.spec.Priority != b.spec.Priority {
		return cmp.Compare(b.spec.Priority, a.spec.Priority)
	}
	if a.order != b.order {
		return cmp.Compare(a.order, b.order)
	}
	return tieOrder(a, b)
}

// tieOrder orders those who are equal in every other respect.
func tieOrder(a, b *workload) int {
	if c := strings.Compare(a.spec.UID, b.spec.UID); c != 0 {
		return c
	}
	if c := strings.Compare(a.spec.Namespace, b.spec.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.spec.Name, b.spec.Name)
}

// orderTime is when the workload joined the line: its creation, or the
// eviction that sent it to the back.
func (e *Engine) orderTime(w *Workload) int64 {
	t := w.Created
	switch w.EvictedBy {
	case evictedByPodsReadyTimeout:
		if !e.opts.RequeueByCreation {
			t = w.EvictedAt
		}
	case evictedByAdmissionCheck:
		t = w.EvictedAt
	}
	return nanos(t)
}

const (
	evictedByPodsReadyTimeout = "PodsReadyTimeout"
	evictedByAdmissionCheck   = "AdmissionCheck"
)

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// victimOrder sorts those who hold quota by who is displaced first: lower
// priority, then the latest admitted, then by UID.
func victimOrder(a, b *workload) int {
	if a.spec.Priority != b.spec.Priority {
		return cmp.Compare(a.spec.Priority, b.spec.Priority)
	}
	if a.reservedAt != b.reservedAt {
		return cmp.Compare(b.reservedAt, a.reservedAt)
	}
	return tieOrder(a, b)
}

// before: its first member has its turn before the other's.
func (c *equivClass) before(o *equivClass) bool {
	if c.by != nil && o.by != nil && c.by != o.by && c.by.share != o.by.share {
		return c.by.share < o.by.share
	}
	return c.members[0].before(o.members[0])
}

func (c *equivClass) setPos(at int) { c.pos = at }

func (w *workload) before(o *workload) bool { return queueOrder(w, o) < 0 }

func (w *workload) setPos(at int) { w.pos = at }

// enqueue puts a pending workload into its class, active unless the class
// knows its answer already.
func (e *Engine) enqueue(w *workload) {
	q := w.queue
	c := e.classFor(w)
	q.pending++
	first := len(c.members) == 0
	w.class = c
	c.members.push(w)
	q.follow(c)
	w.spec.PodSets = c.shape.podSets
	if c.reported != "" {
		// Who joins after the others were told, parked or not, has yet to hear it.
		if len(c.unreported) > 2*len(c.members)+16 {
			c.unreported = slices.DeleteFunc(c.unreported, func(u *workload) bool { return u.class != c })
		}
		c.unreported = append(c.unreported, w)
	}
	switch {
	case c.inadmissible && c.members[0] == w && (c.delayed || c.cooldown || q.spec.Preemption.WithinQueue == PreemptLowerOrNewerEqualPriority):
		e.requeue(c) // being older, it may displace more or sooner than the others could
	case c.inadmissible:
		if c.pos >= 0 {
			q.active.fix(c.pos)
		} else {
			e.reportMembers(c)
			return
		}
	case first:
		q.active.push(c)
	default:
		q.active.fix(c.pos)
	}
	e.ready(q)
}

// dequeue takes a pending workload out of its class.
func (e *Engine) dequeue(w *workload) {
	c := w.class
	q := c.queue
	wasFirst := c.members[0] == w
	q.pending--
	if len(c.members) == 1 {
		e.dissolve(c)
	}
	c.members.remove(w.pos)
	w.class = nil
	if len(c.members) > 0 {
		q.follow(c)
	}
	if c.pos >= 0 {
		q.active.fix(c.pos)
	}
	if wasFirst && c.inadmissible && (c.delayed || c.cooldown) {
		e.requeue(c) // the next may displace others sooner
	}
	if wasFirst {
		e.unreserve(c)
		e.announceUnreserved(c)
	}
	if wasFirst && q.spec.StrictFIFO {
		if len(q.active) > 0 {
			e.requeue(q.active[0]) // it is first now, and may reserve in turn
		}
		e.ready(q) // the one that blocked the line may be gone
	}
}

// dissolve ends a class whose last member leaves.
func (e *Engine) dissolve(c *equivClass) {
	q := c.queue
	if c.pos >= 0 {
		q.active.remove(c.pos)
	}
	if c.inadmissible {
		q.inadmissible--
	}
	c.inadmissible = false
	q.waitNoMore(c)
	e.unwatch(c)
	e.unreserve(c)
	e.removeDemand(c)
	delete(q.classes, c.key)
	if c.shape.classes--; c.shape.classes == 0 {
		delete(e.shapes, c.shape.key)
	}
}

// head is the workload whose turn it is, nil if there is none or the line is blocked.
func (q *queue) head() *workload {
	if w := q.first(); w != nil && !w.class.inadmissible {
		return w
	}
	return nil // StrictFIFO: who is parked blocks those behind it
}

// first is who stands first in line, nil if nobody does or, in a StrictFIFO queue, who comes before waits for its room.
func (q *queue) first() *workload {
	if len(q.active) == 0 {
		return nil
	}
	w := q.active[0].members[0]
	if q.spec.StrictFIFO {
		for _, p := range q.nominated {
			if queueOrder(p, w) < 0 {
				return nil
			}
		}
	}
	return w
}
