package admission

import (
	"math"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// A workload may ask never to be preempted, where its queue's policy honours that. Others must not pay for it with
// their nominal quota, so it does not live on borrowed quota: those of a queue who ask so have together at most the
// queue's nominal quota. Their own queue never preempts them. Others take back what the queue borrows, and of all that
// they may preempt there, these come last: their turn comes only if the queue would still use more than its nominal
// quota, because that was lowered, or because the rest must not be preempted.

// setVictimPlace notes what a workload's place among victims follows from.
func (w *workload) setVictimPlace(s *Workload, reserved int64) {
	w.reservedAt, w.savedAt, w.safe = reserved, s.savedAt(reserved), s.NeverPreempt
}

// savedAt is since when work would be lost, of a workload whose quota was reserved at a time; of one that is swapped when it
// is preempted, none ever is. One that lies about its checkpoints is only preempted sooner, or as if it had said nothing.
func (s *Workload) savedAt(reserved int64) int64 {
	if s.Stays {
		return math.MaxInt64
	}
	return max(reserved, nanos(s.CheckpointedAt))
}

// anySafe says whether one of a queue's running workloads asked not to be preempted: they come last.
func (q *queue) anySafe() bool {
	n := len(q.quotaReserved)
	return n > 0 && q.quotaReserved[n-1].safe
}

// mostOf is the most of a quota that the workload could ever have.
func (w *workload) mostOf(c *quota.Cell) int64 {
	if w.spec.NeverPreempt {
		return min(c.Max, c.Nominal)
	}
	return c.Max
}

// beyondSafe is by how much v more would be too much for those of the queue who asked not to be preempted; 0: it is not,
// or w did not ask.
func (w *workload) beyondSafe(fr int32, v int64) int64 {
	if !w.spec.NeverPreempt {
		return 0
	}
	q := w.queue
	for i := len(q.quotaReserved) - 1; i >= 0 && q.quotaReserved[i].safe; i-- {
		v = quota.Sum(v, quota.AmountOf(q.quotaReserved[i].usage, fr))
	}
	for _, o := range q.nominated {
		if o != w && o.spec.NeverPreempt {
			v = quota.Sum(v, quota.AmountOf(o.nominatedUsage, fr))
		}
	}
	return max(0, v-q.node.Cells[fr].Nominal)
}

// explainNeverPreempt says so if a workload waits only because of what it asks for.
func (e *Engine) explainNeverPreempt(x *Explanation, w *workload) {
	if !w.spec.NeverPreempt {
		return
	}
	w.spec.NeverPreempt = false
	defer func() { w.spec.NeverPreempt = true }()
	a := e.newAssignment()
	defer e.recycle(a)
	e.evaluate(w, w.class.shape, a, asIs)
	if a.admissible() {
		x.Suggestions = append(x.Suggestions, "letting others preempt it: those who ask that nobody does have together at most the nominal quota of "+w.queue.name)
	}
}
