package admission

import (
	"math"
	"time"
)

// usageHistory is what a local queue used lately, per resource: an exponential
// average of what it holds, so that old use is forgotten by half every half-life.
type usageHistory struct {
	at    time.Time
	past  []float64 // by resource index, as of at
	holds []int64   // by resource index, held since at
	delta []int64   // changes reported since; they count from the next decision on, for events carry no time
}

func (h *usageHistory) grow(n int) {
	for len(h.past) < n {
		h.past = append(h.past, 0)
		h.holds = append(h.holds, 0)
		h.delta = append(h.delta, 0)
	}
}

// seed starts from usage recorded before a restart.
func (h *usageHistory) seed(e *Engine, l LocalQueue) {
	if l.Consumed == nil || !h.at.IsZero() {
		return
	}
	h.at = l.ConsumedAt
	for _, r := range appendSorted(nil, l.Consumed) {
		res := e.resource(r)
		h.grow(len(e.resources))
		h.past[res] = l.Consumed[r]
	}
}

// age brings the averages up to date.
func (h *usageHistory) age(e *Engine, at time.Time) {
	if at.After(h.at) {
		keep := e.remembered(at.Sub(h.at))
		if h.at.IsZero() {
			keep = 1 // nothing to forget yet
		}
		for r := range h.past {
			h.past[r] = h.past[r]*keep + float64(h.holds[r])*(1-keep)
		}
		h.at = at
	}
	for r := range h.delta {
		h.holds[r] += h.delta[r]
		h.delta[r] = 0
	}
}

// remembered is the part of old usage that still counts after d.
func (e *Engine) remembered(d time.Duration) float64 {
	if e.opts.UsageHalfLife <= 0 {
		return 0
	}
	return math.Exp2(-float64(d) / float64(e.opts.UsageHalfLife))
}

// hold notes that the local queue holds more (sign 1) or less (-1) from now on.
func (h *usageHistory) hold(e *Engine, usage []amount, sign int64) {
	h.grow(len(e.resources))
	for _, u := range usage {
		h.delta[e.frs[u.fr].resource] += sign * u.v
	}
}

// charge counts part of an admission at once, so that a burst of admissions in
// one local queue does not all look free.
func (h *usageHistory) charge(e *Engine, usage []amount, sign float64) {
	now := sign * (1 - e.remembered(e.opts.UsageSampling))
	for _, u := range usage {
		h.past[e.frs[u.fr].resource] += now * float64(u.v)
	}
}

// refreshShares brings the queue's order up to date where it follows usage.
func (e *Engine) refreshShares(q *queue) {
	if !q.spec.UsageFairSharing {
		return
	}
	for _, l := range q.locals {
		l.usage.age(e, e.at)
		l.share = l.weighted(e)
	}
	for i := len(q.active)/2 - 1; i >= 0; i-- {
		q.classDown(i)
	}
}

func (l *localQueue) weighted(e *Engine) float64 {
	sum := 0.0
	for r, v := range l.usage.past {
		w := 1.0
		if x, ok := e.opts.UsageWeights[e.resources[r]]; ok {
			w = x
		}
		sum += w * v
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
