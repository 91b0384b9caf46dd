package admission

import "time"

// Timing is how preemption goes in time. The zero value is Kueue's: at once, whatever its victims have run.
type Timing struct {
	// Delay is how long a workload waits before it preempts others.
	Delay time.Duration
	// MinRuntime is how long a workload that has started is safe.
	MinRuntime MinRuntime
	// Cooldown is how long a workload that another queue preempted leaves other queues alone.
	Cooldown time.Duration
}

// MinRuntime is a minimum runtime by the rule that would allow preempting the workload.
type MinRuntime struct {
	WithinQueue time.Duration // by its own ClusterQueue
	Reclaim     time.Duration // by who reclaims nominal quota
	Borrowed    time.Duration // by who would borrow it: borrowWithinCohort, fair sharing
}

// all are the minimum runtimes of every rule.
func (m *MinRuntime) all() [3]time.Duration {
	return [3]time.Duration{m.WithinQueue, m.Reclaim, m.Borrowed}
}

// by is the minimum runtime against a rule.
func (m *MinRuntime) by(rule Reason) time.Duration {
	switch rule {
	case ReasonInClusterQueue:
		return m.WithinQueue
	case ReasonInCohortReclamation:
		return m.Reclaim
	}
	return m.Borrowed
}

// Timing is that of queues which have none of their own.
func (o *Options) Timing() Timing {
	return Timing{
		Delay: o.PreemptionDelay, Cooldown: o.PreemptionCooldown,
		MinRuntime: MinRuntime{o.PreemptionDelay, o.PreemptionDelay, o.PreemptionDelay},
	}
}

// timing that counts for a workload: its LocalQueue's, its ClusterQueue's, or the options'.
func (w *workload) timing(e *Engine) *Timing {
	if t := w.local.spec.Timing; t != nil {
		return t
	}
	q := w.queue
	if q == nil {
		q = w.local.queue
	}
	if q != nil && q.spec.Timing != nil {
		return q.spec.Timing
	}
	return &e.timing
}

// longestMinRuntime is that of a tree's workloads; a queue or LocalQueue that changes resets it.
func (t *tree) longestMinRuntime(e *Engine) time.Duration {
	if t.minRuntimeKnown {
		return t.minRuntimeLongest
	}
	longest := time.Duration(0)
	see := func(timing *Timing) {
		for _, d := range timing.MinRuntime.all() {
			longest = max(longest, d)
		}
	}
	for _, q := range t.queues {
		see(q.timing(e))
		for _, l := range q.locals {
			if l.spec.Timing != nil {
				see(l.spec.Timing)
			}
		}
	}
	t.minRuntimeKnown, t.minRuntimeLongest = true, longest
	return longest
}

func (q *queue) timing(e *Engine) *Timing {
	if q.spec.Timing != nil {
		return q.spec.Timing
	}
	return &e.timing
}

// timingChanged has a tree decided anew in which a LocalQueue has another timing: its workloads may preempt at
// other times, and be preempted at others. Those that wait are classed anew when they are requeued.
func (e *Engine) timingChanged(l *localQueue) {
	if l.queue == nil {
		return
	}
	l.queue.at.changed, e.relink = true, true
	for _, w := range l.members {
		if w.phase == phasePending {
			e.dequeue(w)
		}
	}
}

// whyNotNow says in words which rule of time keeps a workload from preempting.
func (e *Engine) whyNotNow(w *workload, r *refusal) string {
	switch {
	case r.by(ruleDelay):
		return ": its preemption delay is " + w.timing(e).Delay.String()
	case r.by(ruleMinRuntime):
		return ": until then they have their minimum runtime"
	}
	return ""
}
