package admission

import (
	"slices"
	"time"

	"github.com/elastic-ai/elastic/internal/admission/index"
	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// queue is a ClusterQueue with its pending workloads and those with quota reserved. It exists as
// soon as something names it; exists says it was described.
type queue struct {
	name   string
	spec   Queue
	exists bool
	node   *quota.Node
	at     *treeNode
	tree   *tree

	newerBy int64 // Options.NewerBy
	locals  []*localQueue

	groups  []group
	choice  bool    // some resource comes in more than one flavor
	groupOf []int32 // by resource index: its group, or -1

	// Pending workloads.
	classes      map[string]*equivClass
	active       index.Heap[*equivClass] // by the first member; in a StrictFIFO queue inadmissible ones too
	inadmissible int                     // how many classes are inadmissible
	pending      int                     // workloads in classes, nominated or revoked
	heldBack     int                     // workloads that are held back and count as pending all the same
	nominated    []*workload             // in the order of their nomination
	volatile     []*equivClass           // inadmissible, and looked at after any change of usage
	waits        [][]*waitList           // by flavor-resource: which classes wait for it
	hinted       []int32                 // flavor-resources with a hint that was not used up yet
	demand       []demand                // by flavor-resource: what pending classes request
	lastHint     queueingHint            // as of the last search for a class worth another look
	backfilled   uint64                  // tree version at the last search for backfill

	// Workloads with quota reserved.
	quotaReserved   []*workload  // in victimOrder
	reservedChanges uint64       // counts changes of that list; never 0
	preemptible     preemptible  // what they could give up
	sides           []borrowSide // by flavor-resource: where it stands in tree.borrowIndex
	fair            fairCursor
}

// equivClass is an equivalence class: a queue's pending workloads with the same request shape and
// priority. They get the same answer, so only the first one is evaluated.
type equivClass struct {
	key     string
	queue   *queue
	shape   *requestShape
	members index.Heap[*workload] // in queueOrder
	lead    *workload             // the first of them, by whose place the class waits
	pos     int                   // in queue.active; -1 when not there
	by      *localQueue           // under usage fair sharing: the LocalQueue all members share

	inadmissible bool
	refused      refusal   // by which rules
	canReserve   bool      // and whether what it needs can be reserved
	retryAt      time.Time // when time alone may change that; zero: never
	verdict      verdict
	reported     Reason      // what members were told
	unreported   []*workload // members that joined since
	outdated     bool        // what they were told names quotas that are others now

	refusedAt    uint64           // tree.improvements when it was refused last
	refusedUsage uint64           // tree.usageChanges likewise
	volatile     bool             // listed in queue.volatile
	apart        bool             // listed in Engine.apart
	needs        []quota.Amount   // what it waits for
	awaits       map[*flavor]bool // flavors on whose nodes it waits for capacity
	fixedUsage   []quota.Amount   // what a member takes, if only one answer is possible

	reservation       []quota.Amount // set aside for it
	liftedReservation []quota.Amount // what was, before it was looked at again
}

// verdict is the answer an inadmissible class got.
type verdict struct {
	reason  Reason
	message string
}

// Before: its first member comes before the other's.
func (c *equivClass) Before(o *equivClass) bool {
	if c.by != nil && o.by != nil && c.by != o.by && c.by.share != o.by.share {
		return c.by.share < o.by.share
	}
	return c.members[0].Before(o.members[0])
}

// SetPos notes the class's place in queue.active.
func (c *equivClass) SetPos(at int) { c.pos = at }

// Before orders a class's members.
func (w *workload) Before(o *workload) bool { return queueOrder(w, o) < 0 }

// SetPos notes the workload's place in its class.
func (w *workload) SetPos(at int) { w.pos = at }

// enqueue puts a workload into its class, active unless the class knows its answer already.
func (e *Engine) enqueue(w *workload) {
	q := w.queue
	e.setRank(w, q)
	c := e.classFor(w)
	q.pending++
	first := len(c.members) == 0
	w.class = c
	e.enter(w, phasePending)
	c.members.Push(w)
	q.follow(c)
	w.spec.PodSets = c.shape.podSets
	if c.reported != "" {
		// The others were told already, so it has yet to be told.
		if len(c.unreported) > 2*len(c.members)+16 {
			c.unreported = slices.DeleteFunc(c.unreported, func(u *workload) bool { return u.class != c })
		}
		c.unreported = append(c.unreported, w)
	}
	switch {
	case c.inadmissible && c.members[0] == w && (c.refused.by(rulesOfTime|ruleCooldown|rulesApart) || q.spec.Preemption.WithinQueue == PreemptLowerOrNewerEqualPriority):
		e.requeue(c) // being older, it may preempt more or sooner than the others could
	case c.inadmissible:
		if c.pos >= 0 {
			q.active.Fix(c.pos)
		} else {
			if e.opts.SayBypassed {
				e.reportPending(w, c.verdict.reason, equivalentFailed)
			}
			e.reportMembers(c)
			return
		}
	case first:
		q.active.Push(c)
	default:
		q.active.Fix(c.pos)
	}
	e.backfillAgain(q)
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
	c.members.Remove(w.pos)
	w.class = nil
	e.enter(w, phaseNew)
	if len(c.members) > 0 {
		q.follow(c)
	}
	if c.pos >= 0 {
		q.active.Fix(c.pos)
	}
	if wasFirst && c.inadmissible && c.refused.by(rulesOfTime|ruleCooldown|rulesApart) {
		e.requeue(c) // the next may preempt sooner
	}
	if wasFirst {
		e.unreserve(c)
		e.announceUnreserved(c)
	}
	if wasFirst && q.spec.StrictFIFO {
		if len(q.active) > 0 {
			e.requeue(q.active[0]) // it is the head now, and may reserve in turn
		}
		e.ready(q) // the head that blocked the queue may be gone
	}
}

// dissolve ends a class whose last member leaves.
func (e *Engine) dissolve(c *equivClass) {
	q := c.queue
	if c.pos >= 0 {
		q.active.Remove(c.pos)
	}
	if c.inadmissible {
		q.inadmissible--
	}
	c.inadmissible = false
	q.removeWaits(c)
	e.unwatch(c)
	e.unreserve(c)
	e.removeDemand(c)
	delete(q.classes, c.key)
	e.leaveShape(c.shape)
}

// head is the workload to evaluate next, nil if there is none or the queue is blocked.
func (q *queue) head() *workload {
	if w := q.first(); w != nil && !w.class.inadmissible {
		return w
	}
	return nil // StrictFIFO: an inadmissible head blocks those behind it
}

// first is the workload that comes first, nil if there is none or, in a StrictFIFO queue, one before it is nominated.
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
