package admission

import (
	"slices"
	"time"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// The rules for preempting others, beyond Kueue's policies. Each is a function of the objects and
// the time, so a restart changes nothing.

// Preemption delay: a workload preempts only once it has waited for a time. Quota that comes free by
// itself meanwhile costs nobody's work.

// preemptsFrom is when a workload's preemption delay has passed.
func (w *workload) preemptsFrom(e *Engine) time.Time {
	delay := w.timing(e).Delay
	if delay <= 0 {
		return time.Time{}
	}
	return w.waitsSince().Add(delay)
}

// waitsSince is when a pending workload was created, or evicted last.
func (w *workload) waitsSince() time.Time {
	if w.spec.EvictedAt.After(w.spec.Created) {
		return w.spec.EvictedAt
	}
	return w.spec.Created
}

// delayed says until when the preemption delay keeps an assignment from preempting; the past: not at all.
func (e *Engine) delayed(a *assignment) time.Time {
	if a.how == afterDelay {
		return time.Time{}
	}
	return a.w.preemptsFrom(e)
}

// Minimum runtime: workloads that have only just started are not preempted, by the rules that say so. If others do
// not suffice, the preemptor waits: many end by themselves in that time, and it reserves what they free.

const (
	// minRuntimeFactor bounds how long minimum runtimes bind where nothing can be reserved, in the longest of the tree.
	minRuntimeFactor = 8
	// timeGrain is how much later than it says something may have happened: the API stores whole seconds.
	timeGrain = time.Second
)

// minRuntimeUntil is until when the minimum runtime of victims protects them from a; the past: not at all.
func (e *Engine) minRuntimeUntil(a *assignment, victims []victim) time.Time {
	var until time.Time
	for _, v := range victims {
		if at := e.safeUntil(a, v); at.After(until) {
			until = at
		}
	}
	return until
}

// safeUntil is until when a victim's minimum runtime protects it from a; the past: not at all. An admission of this
// decision is revoked, which costs nothing.
func (e *Engine) safeUntil(a *assignment, v victim) time.Time {
	run := v.w.timing(e).MinRuntime.by(v.why)
	if run <= 0 || v.w.spec.Extra || a.how == afterDelay || v.w.in.admitted == e.decision {
		return time.Time{}
	}
	until := v.w.minRuntimeEnd(run)
	if !until.After(e.at) || a.canReserve() {
		return until
	}
	if last := a.w.minRuntimeBinds(e); until.After(last) {
		return last
	}
	return until
}

// skips says whether a search passes over a victim: its minimum runtime protects it, or others give way first.
func (e *Engine) skips(s *search, v victim) bool {
	if s.extrasOnly {
		return !v.w.spec.Extra
	}
	if !s.pastMinRuntime || !e.safeUntil(s.a, v).After(e.at) {
		return false
	}
	s.skipped = true
	return true
}

// minRuntimeEnd is when a running workload has run for a minimum runtime; none at all ends before it begins.
func (w *workload) minRuntimeEnd(run time.Duration) time.Time {
	if run <= 0 {
		return time.Time{}
	}
	return time.Unix(0, w.reservedAt).Add(run + timeGrain)
}

// hadMinRuntime says whether a running workload may be preempted by some rule.
func (e *Engine) hadMinRuntime(w *workload) bool {
	if w.spec.Extra {
		return true
	}
	for _, run := range w.timing(e).MinRuntime.all() {
		if !w.minRuntimeEnd(run).After(e.at) {
			return true
		}
	}
	return false
}

// minRuntimeBinds is how long minimum runtimes bind a workload for which nothing can be reserved.
func (w *workload) minRuntimeBinds(e *Engine) time.Time {
	return w.waitsSince().Add(w.timing(e).Delay + minRuntimeFactor*w.queue.tree.longestMinRuntime(e))
}

// Preemption cooldown: a workload that another queue preempted leaves other queues alone for a time, so that who
// preempt each other in turn do so once in that time at most. Its queue's nominal quota it may reclaim all the same.

// cooldownEnds is when a preempted workload may preempt beyond its queue's nominal quota again.
func (w *workload) cooldownEnds(e *Engine) time.Time {
	cooldown := w.timing(e).Cooldown
	if cooldown <= 0 || !w.spec.PreemptedByOthers {
		return time.Time{}
	}
	return w.spec.EvictedAt.Add(cooldown)
}

// inCooldown says whether a workload must not preempt in other queues, nominal says whether it needs no more than its
// queue's nominal quota. A workload whose admission another queue had revoked in this decision must not in any case.
func (e *Engine) inCooldown(w *workload, nominal bool) bool {
	return w.in.cooldown == e.decision || !nominal && e.at.Before(w.cooldownEnds(e))
}

// checkCooldown is inCooldown, noted with the answer.
func (e *Engine) checkCooldown(a *assignment, nominal bool) bool {
	if !nominal && e.at.Before(a.w.cooldownEnds(e)) {
		a.refused.add(ruleCooldown)
	}
	return e.inCooldown(a.w, nominal)
}

// Futility: nobody is preempted who could come straight back on its queue's nominal quota.

// futile says whether a victim, or a workload like it, could come straight back.
func (e *Engine) futile(s *search) bool {
	if !e.opts.NoRings {
		return false
	}
	mark := e.tx.Checkpoint()
	e.tx.Add(s.a.w.queue.node, s.usage, quota.Future)
	back := slices.ContainsFunc(s.victims, func(v victim) bool {
		return v.w.queue != s.a.w.queue && (s.comesBack(v.w, v.w.usage) || e.queueComesBack(s, v.w.queue))
	})
	e.tx.Rollback(mark)
	if back {
		s.a.refused.add(ruleFutile)
	}
	return back
}

// queueComesBack says whether a pending workload of the victim's queue could come in for it so.
func (e *Engine) queueComesBack(s *search, q *queue) bool {
	for _, u := range s.usage {
		if int(u.FR) < len(q.demand) && !q.spec.StrictFIFO {
			e.scratch.contestants = q.demand[u.FR].within(e.scratch.contestants[:0], q.node.Available(u.FR, quota.Future), q.node.Cells[u.FR].Unused(), contestantLimit)
			if slices.ContainsFunc(e.scratch.contestants, func(c *equivClass) bool { return s.comesBack(c.members[0], c.fixedUsage) }) {
				return true
			}
		}
	}
	return false
}

// comesBack says whether w could reclaim the quota from the preemptor, once that is in.
func (s *search) comesBack(w *workload, usage []quota.Amount) bool {
	q, from := w.queue, s.a.w.queue.node
	if !q.spec.Preemption.ReclaimWithinCohort.allows(w, s.a.w) {
		return false
	}
	lacks, reclaims := false, false
	for _, u := range usage {
		if c := &q.node.Cells[u.FR]; c.Use[quota.Future]+u.V > c.Nominal {
			return false
		}
		lacks = lacks || !q.node.Fits(u.FR, u.V, quota.Future)
		reclaims = reclaims || quota.CanReclaim(q.node, from, u.FR)
	}
	return lacks && reclaims
}

// Shared victims: Kueue looks first at those that are being evicted already, so a workload that could preempt them
// waits until they have left. The first by then gets the quota, which may be another than they were preempted for.

// sharesVictims says whether a waits so. Admissions of this decision are revoked all the same.
func (e *Engine) sharesVictims(a *assignment) bool {
	if !e.opts.AwaitSharedVictims || !slices.ContainsFunc(a.victims, func(v victim) bool { return v.w.in.admitted != e.decision }) {
		return false
	}
	for p := range e.preemptors { // whether there is one: the order does not matter
		if p.queue != nil && p.queue.tree == a.w.queue.tree && a.couldPreemptEvicted(p) {
			return true
		}
	}
	return false
}

// couldPreemptEvicted says whether a could have preempted one that is being evicted for p.
func (a *assignment) couldPreemptEvicted(p *workload) bool {
	policies := &a.w.queue.spec.Preemption
	return slices.ContainsFunc(p.victims, func(v *workload) bool {
		policy := policies.ReclaimWithinCohort
		if v.queue == a.w.queue {
			policy = policies.WithinQueue
		}
		return v.phase == phaseEvicting && !v.moving && policy.allows(a.w, v) && v.uses(a.need)
	})
}

// Fair share: Kueue's strategies, and with NoRings the tables must not turn. The preemptor then ends up strictly
// below what the other had, and the other, unless it has no weight, not below what the preemptor
// had. Both end up between where they were, so there is an end to it.

// fairShareAllows checks a strategy for one victim.
func (e *Engine) fairShareAllows(s *search, t *tree, w *workload, x *sides, strategy FairStrategy) bool {
	below := x.then.Compare(x.theirs) < 0
	switch {
	case e.opts.NoRings && !below:
		return false
	case !e.opts.NoRings && strategy == LessThanInitialShare:
		return below
	}
	left := e.shareWithout(t, x.node, w.queue.node, w.usage)
	if strategy == LessThanInitialShare {
		return x.node.Weight == 0 || e.shareWithout(t, x.mine, s.a.w.queue.node, s.usage).Compare(left) <= 0
	}
	return x.then.Compare(left) <= 0
}

// Kueue's policies, as far as priorities and age tell.

// allows says whether the policy lets w preempt v.
func (p PreemptionPolicy) allows(w, v *workload) bool {
	if w.queue == v.queue && w.queue.spec.Order == OrderLeastAttainedService && w.spec.Priority == v.spec.Priority {
		return p != PreemptNever && mayPreemptByLevel(w, v)
	}
	equal := w.spec.Priority == v.spec.Priority && p == PreemptLowerOrNewerEqualPriority
	return p.covers(w.spec.Priority, v.spec.Priority) && (!equal || v.order-w.order > w.queue.newerBy)
}

// covers is allows as far as priorities tell.
func (p PreemptionPolicy) covers(priority, victim int64) bool {
	switch p {
	case PreemptLowerPriority:
		return victim < priority
	case PreemptLowerOrNewerEqualPriority:
		return victim <= priority
	}
	return p == PreemptAny
}
