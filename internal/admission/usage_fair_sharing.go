package admission

import (
	"math"
	"time"
)

// usageHistory is what a local queue used lately, per resource, in thousandths of what people write: an exponential
// average of what it holds, so that old use is forgotten by half every half-life.
//
// It is a function of what the objects say: of the note in the LocalQueue's status, in whole seconds and
// thousandths as the status has it, and of what is held now, which counts since the note. A note is taken when
// somebody is admitted and whenever UsageSampling has passed. Who came and went in between has been
// charged at its admission, as in Kueue.
type usageHistory struct {
	at       time.Time // of the note; zero: none yet
	noted    []int64   // by resource index
	reserved []int64   // by resource index, in the engine's units
}

// sampling is how often usage is noted unless the options say otherwise.
const sampling = 5 * time.Minute

func (h *usageHistory) grow(n int) {
	for len(h.noted) < n {
		h.noted = append(h.noted, 0)
		h.reserved = append(h.reserved, 0)
	}
}

// forget drops the history, not what is held.
func (h *usageHistory) forget() {
	h.at = time.Time{}
	clear(h.noted)
}

// seed starts from usage noted before a restart.
func (h *usageHistory) seed(e *Engine, l LocalQueue) {
	if l.ConsumedAt.IsZero() || !h.at.IsZero() {
		return
	}
	h.at = l.ConsumedAt
	for _, r := range appendSorted(nil, l.Consumed) {
		res := e.resource(r)
		h.grow(len(e.resources))
		h.noted[res] = int64(math.Round(l.Consumed[r] * e.thousandths(res)))
	}
}

// thousandths is how many of them an amount of one is; cpu is counted in thousandths anyway.
func (e *Engine) thousandths(res int32) float64 {
	if e.resources[res] == CPU {
		return 1
	}
	return 1000
}

// value is the average of a resource at a time.
func (h *usageHistory) value(e *Engine, r int32, at time.Time) float64 {
	if h.at.IsZero() {
		return 0 // it counts from its first note on
	}
	keep := e.remembered(max(0, at.Sub(h.at)))
	return float64(h.noted[r])*keep + float64(h.reserved[r])*e.thousandths(r)*(1-keep)
}

// note brings the averages up to date.
func (h *usageHistory) note(e *Engine) {
	h.grow(len(e.resources))
	for r := range h.noted {
		h.noted[r] = int64(math.Round(h.value(e, int32(r), e.at)))
	}
	h.at = e.at.Truncate(time.Second)
}

// remembered is the part of old usage that still counts after d.
func (e *Engine) remembered(d time.Duration) float64 {
	if e.opts.UsageHalfLife <= 0 {
		return 0
	}
	return math.Exp2(-float64(d) / float64(e.opts.UsageHalfLife))
}

// add notes that the local queue holds more (sign 1) or less (-1).
func (h *usageHistory) add(e *Engine, usage []amount, sign int64) {
	h.grow(len(e.resources))
	for _, u := range usage {
		h.reserved[e.frs[u.fr].resource] += sign * u.v
	}
}

// charge counts part of an admission at once, so that a burst of admissions in
// one local queue does not all look free.
func (h *usageHistory) charge(e *Engine, usage []amount, sign int64) {
	part := 1 - e.remembered(e.opts.UsageSampling)
	for _, u := range usage {
		r := e.frs[u.fr].resource
		h.noted[r] += sign * int64(math.Round(part*float64(u.v)*e.thousandths(r)))
	}
}

// uncharge takes the charge for an admission back that did not come about.
func (e *Engine) uncharge(w *workload) {
	if w.queue.spec.UsageFairSharing {
		w.local.usage.charge(e, w.usage, -1)
	}
}

func (h *usageHistory) idle() bool {
	for r := range h.noted {
		if h.noted[r] != 0 || h.reserved[r] != 0 {
			return false
		}
	}
	return true
}

// noteUsage takes the notes that are due, and says for when the next one is.
func (e *Engine) noteUsage() {
	if len(e.byUsage) == 0 || e.notesAt.After(e.at) {
		return
	}
	every := sampling
	if e.opts.UsageSampling > 0 {
		every = e.opts.UsageSampling
	}
	e.notesAt = time.Time{}
	for _, q := range e.byUsage {
		for _, l := range q.locals {
			h := &l.usage
			if h.idle() {
				continue
			}
			if h.at.IsZero() || !h.at.Add(every).After(e.at) {
				h.note(e)
			}
			if next := h.at.Add(every); e.notesAt.IsZero() || next.Before(e.notesAt) {
				e.notesAt = next
			}
		}
	}
}

// reorderByUsage has the queues looked at whose head may have changed since, because what was used is forgotten.
func (e *Engine) reorderByUsage() {
	for _, q := range e.byUsage {
		if q.spec.StrictFIFO && q.pending > 0 {
			e.enlist(q.node.root.tree)
		}
	}
}

// refreshShares brings the queue's order up to date where it follows usage.
func (e *Engine) refreshShares(q *queue) {
	if !q.spec.UsageFairSharing {
		return
	}
	for _, l := range q.locals {
		l.share = l.weighted(e, e.at)
	}
	for i := len(q.active)/2 - 1; i >= 0; i-- {
		q.active.down(i)
	}
}

// weighted is what the usage weighs at a time; added up by name, so that it is the same to the last bit after a restart.
func (l *localQueue) weighted(e *Engine, at time.Time) float64 {
	sum := 0.0
	l.usage.grow(len(e.resources))
	for _, r := range e.byName {
		w := 1.0
		if x, ok := e.opts.UsageWeights[e.resources[r]]; ok {
			w = x
		}
		sum += w * l.usage.value(e, r, at) / e.thousandths(r)
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
