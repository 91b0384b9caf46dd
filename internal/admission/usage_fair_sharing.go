package admission

import (
	"math"
	"time"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// Admission fair sharing: where a queue says so, its workloads are ordered by what their LocalQueues
// used lately. A note of that usage is taken when a workload is admitted and whenever UsageSampling
// has passed; the shell writes it into the LocalQueue's status. With a half-life it is taken in all queues,
// as in Kueue: one that is switched over later knows what was used.

// usageSampling is how often usage is noted unless the options say otherwise.
const usageSampling = 5 * time.Minute

// usageScale: amounts are noted in thousandths, and cpu is counted in them anyway.
func usageScale(resource string) float64 {
	if resource == CPU {
		return 1
	}
	return 1000
}

// seedUsage starts from the note in a LocalQueue's status.
func (l *localQueue) seedUsage(e *Engine, spec LocalQueue) {
	if spec.ConsumedAt.IsZero() || !l.usage.NotedAt().IsZero() {
		return
	}
	values := make(map[int32]float64, len(spec.Consumed))
	for _, r := range appendSorted(nil, spec.Consumed) {
		values[e.resource(r)] = spec.Consumed[r]
	}
	l.usage.Seed(&e.usageRules, spec.ConsumedAt, values)
}

// reserveUsage notes that a LocalQueue's workloads have more quota (sign 1) or less (-1).
func (l *localQueue) reserveUsage(e *Engine, usage []quota.Amount, sign int64) {
	for _, u := range usage {
		l.usage.Reserve(&e.usageRules, e.frs[u.FR].Resource, sign*u.V)
	}
}

// charge counts an admission at once (sign 1), or takes that back.
func (l *localQueue) charge(e *Engine, usage []quota.Amount, sign int64) {
	for _, u := range usage {
		l.usage.Charge(&e.usageRules, e.frs[u.FR].Resource, sign*u.V)
	}
}

// uncharge takes the charge for an admission back that did not come about.
func (e *Engine) uncharge(w *workload) {
	if e.samplesUsage(w.queue) {
		w.local.charge(e, w.usage, -1)
	}
}

func (e *Engine) samplesUsage(q *queue) bool {
	return q.spec.UsageFairSharing || e.opts.UsageHalfLife > 0
}

// noteUsage takes the notes that are due, and sets when the next one is.
func (e *Engine) noteUsage() {
	if len(e.sampled) == 0 || e.notesAt.After(e.at) {
		return
	}
	every := usageSampling
	if e.opts.UsageSampling > 0 {
		every = e.opts.UsageSampling
	}
	e.notesAt = time.Time{}
	for _, q := range e.sampled {
		for _, l := range q.locals {
			h := &l.usage
			if h.Idle() {
				continue
			}
			if h.NotedAt().IsZero() || !h.NotedAt().Add(every).After(e.at) {
				h.Note(&e.usageRules, e.at)
			}
			if next := h.NotedAt().Add(every); e.notesAt.IsZero() || next.Before(e.notesAt) {
				e.notesAt = next
			}
		}
	}
}

// reorderByUsage has trees decided in which a queue's head may have changed since, as old usage counts less.
func (e *Engine) reorderByUsage() {
	for _, q := range e.byUsage {
		if q.spec.StrictFIFO && q.pending > 0 {
			e.enlist(q.tree)
		}
	}
}

// refreshShares brings a queue's order up to date where it follows usage.
func (e *Engine) refreshShares(q *queue) {
	if !q.spec.UsageFairSharing {
		return
	}
	for _, l := range q.locals {
		l.share = l.weightedUsage(e, e.at)
	}
	q.active.Init()
}

// weightedUsage is what a LocalQueue's usage weighs at a time; added up by resource name, so that it is
// the same to the last bit after a restart.
func (l *localQueue) weightedUsage(e *Engine, at time.Time) float64 {
	sum := 0.0
	for _, r := range e.byName {
		w := 1.0
		if x, ok := e.opts.UsageWeights[e.resources[r]]; ok {
			w = x
		}
		sum += w * l.usage.Value(&e.usageRules, r, at)
	}
	fw := weight(l.spec.FairWeight)
	if fw == 0 {
		if sum == 0 {
			return 0
		}
		return math.Inf(1)
	}
	return sum / fw
}
