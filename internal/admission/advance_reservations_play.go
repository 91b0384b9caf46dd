package admission

import (
	"slices"
	"time"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// How things will be at a later moment, by the run times that are known, is asked for every workload that would start before
// what is reserved then. It is the same for all of them but those who preempt somebody, so it is found once.

// played is how things will be at moments, for as long as nothing changes.
type played struct {
	decision, version, phases uint64 // Engine.decision, tree.version and Engine.phaseChanges of all of them
	tree                      *tree
	moments                   map[int64]playedMoment // by when, in nanoseconds
}

// playedMoment is what those free who are over by then, by queue, and what the others use of each reservation in force.
type playedMoment struct {
	freed []queueAmounts
	used  [][]quota.Amount
}

type queueAmounts struct {
	queue   *queue
	amounts []quota.Amount
}

// playUntilMoment takes those out of the future (in a what-if) whose run time is over at a moment, and those who leave for
// a workload. It returns what the others use of what is reserved for them.
func (e *Engine) playUntilMoment(t *tree, moment time.Time, inForce []*advance, s *starting) (used [][]quota.Amount) {
	var m playedMoment
	switch {
	case len(s.victims)+len(s.overrides) > 0 || s.w.phase == phaseNominated || e.decision == noDecision || e.opts.unpruned:
		m = e.playMoment(t, moment, inForce, s)
	default:
		m = e.playedUntil(t, moment, inForce, s)
	}
	for i := range m.freed {
		e.tx.Sub(m.freed[i].queue.node, m.freed[i].amounts, quota.Future)
	}
	return m.used
}

// playedUntil is playMoment for all for whom nobody leaves.
func (e *Engine) playedUntil(t *tree, moment time.Time, inForce []*advance, s *starting) playedMoment {
	p := &e.played
	if p.tree != t || p.decision != e.decision || p.version != t.version || p.phases != e.phaseChanges {
		clear(p.moments)
		*p = played{decision: e.decision, version: t.version, phases: e.phaseChanges, tree: t, moments: p.moments}
	}
	m, known := p.moments[nanos(moment)]
	if !known {
		if p.moments == nil {
			p.moments = map[int64]playedMoment{}
		}
		m = e.playMoment(t, moment, inForce, s)
		p.moments[nanos(moment)] = m
	}
	m.used = slices.Clone(m.used) // others add what they would use
	for i := range m.used {
		m.used[i] = slices.Clone(m.used[i])
	}
	return m
}

// playMoment finds out who is over at a moment, or leaves for a workload. One that is overdue, or of which no end is known,
// could still run.
func (e *Engine) playMoment(t *tree, moment time.Time, inForce []*advance, s *starting) playedMoment {
	m := playedMoment{used: make([][]quota.Amount, len(inForce))}
	for _, q := range t.queues {
		freed := queueAmounts{queue: q}
		free := func(usage []quota.Amount) {
			for _, u := range usage {
				freed.amounts = quota.AddAmount(freed.amounts, u.FR, u.V)
			}
		}
		for _, v := range q.quotaReserved {
			if v.phase == phaseEvicting && !v.moving {
				continue
			}
			if s.leaves(v) || e.overWhenItRuns(v, moment) {
				free(v.usage)
			} else {
				countUsed(m.used, inForce, v, v.usage)
			}
		}
		for _, n := range q.nominated {
			switch {
			case n == s.w:
			case s.leaves(n) || e.overBy(n, moment):
				free(n.nominatedUsage)
			default:
				countUsed(m.used, inForce, n, n.nominatedUsage)
			}
		}
		if len(freed.amounts) > 0 {
			m.freed = append(m.freed, freed)
		}
	}
	return m
}

// overWhenItRuns says that a workload with quota is over at a moment. One that moves starts anew.
func (e *Engine) overWhenItRuns(v *workload, moment time.Time) bool {
	if v.phase == phaseEvicting {
		return e.overBy(v, moment)
	}
	end := v.endOf((*workload).runLimit)
	return end.After(e.at) && !end.After(moment)
}

// countUsed counts what a workload uses of the reservations that are for it.
func countUsed(used [][]quota.Amount, inForce []*advance, w *workload, usage []quota.Amount) {
	for i, r := range inForce {
		if b := r.beneficiaries(); b.includes(&w.spec, w.local, w.queue) {
			for _, u := range usage {
				used[i] = quota.AddAmount(used[i], u.FR, u.V)
			}
		}
	}
}
