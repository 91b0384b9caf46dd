package world

import (
	"math"

	"github.com/elastic-ai/elastic/internal/admission"
)

// FairShare is a queue's share of what its cohort can lend, against its weight, over the run. Under fair sharing those
// who ask for more than they have come to equal ones.
type FairShare struct {
	Weight float64 `json:"weight"`
	// Mean over time and Most of its weighted share, in thousandths, by samples.
	Mean float64 `json:"mean"`
	Most float64 `json:"most"`
}

// weightedShares of the queues that are in a cohort, as the engine has them now.
func (w *World) weightedShares() map[string]float64 {
	var out map[string]float64
	for i := range w.cluster.Queues {
		q := &w.cluster.Queues[i]
		if q.Cohort == "" {
			continue
		}
		if s, there := w.engine.Status(q.Name); there && !math.IsInf(s.FairShare, 1) {
			if out == nil {
				out = map[string]float64{}
			}
			out[q.Name] = s.FairShare
		}
	}
	return out
}

// fairShare of a queue over the samples; nil for one that is in no cohort.
func (w *World) fairShare(q *admission.Queue) *FairShare {
	if q.Cohort == "" {
		return nil
	}
	out := &FairShare{Weight: 1}
	if q.FairWeight != nil {
		out.Weight = *q.FairWeight
	}
	samples := w.figures.samples
	var sum, time float64
	for i := range samples {
		share, there := samples[i].Shares[q.Name]
		if !there {
			continue
		}
		until := w.figures.at
		if i+1 < len(samples) {
			until = samples[i+1].At
		}
		d := float64(until - samples[i].At)
		sum, time, out.Most = sum+d*share, time+d, max(out.Most, share)
	}
	if time > 0 {
		out.Mean = sum / time
	}
	return out
}

// Alone is finish-time fairness: what sharing made of a queue's jobs, against the same jobs on the queue's own quota.
type Alone struct {
	// Ratio of completion times, shared against alone: above 1, sharing made it later.
	Ratio Spread `json:"finishTimeFairness"`
	// Later is the part of jobs that end later than alone.
	Later float64 `json:"later"`
	// Never is how many jobs end that alone never would.
	Never int `json:"neverAlone,omitempty"`
}

// Alone is the cluster in which each queue has its nominal quota and no other.
func (c *Cluster) Alone() *Cluster {
	out := c.clone()
	out.Cohorts = nil
	for i := range out.Queues {
		out.Queues[i].Cohort = ""
	}
	return out
}

// Against adds to a report how each queue fared against a run in which it was alone.
func (w *World) Against(alone *World, r *Report) {
	ratios, never := map[string][]float64{}, map[string]int{}
	for i := range w.jobs {
		j, here, there := &w.trace.Jobs[i], &w.jobs[i], &alone.jobs[i]
		switch {
		case j.Found != nil || here.phase != over:
		case there.phase != over:
			never[j.Queue]++
		case there.ended > j.Submit:
			ratios[j.Queue] = append(ratios[j.Queue], float64(here.ended-j.Submit)/float64(there.ended-j.Submit))
		}
	}
	for i := range r.ByQueue {
		g := &r.ByQueue[i]
		of, later := ratios[g.Name], 0
		for _, ratio := range of {
			if ratio > 1 {
				later++
			}
		}
		g.Alone = &Alone{Ratio: spreadOf(of), Later: float64(later) / float64(max(1, len(of))), Never: never[g.Name]}
	}
}
