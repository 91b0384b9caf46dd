package world

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
