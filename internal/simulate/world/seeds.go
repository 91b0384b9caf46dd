package world

// OverSeeds is how figures of a run differ with what is drawn by chance: they are of one run for each of some seeds.
type OverSeeds struct {
	Seeds     int   `json:"seeds"`
	JCT       Range `json:"meanJobCompletionTime"`
	Delay     Range `json:"meanQueueingDelay"`
	DelayP99  Range `json:"p99QueueingDelay"`
	Makespan  Range `json:"makespanSeconds"`
	Evictions Range `json:"evictions"` // and preemptions
	LostHours Range `json:"workLostCardHours"`
}

// Range of a figure over runs.
type Range struct {
	Mean  float64 `json:"mean"`
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
}

// Over is how figures differ between reports of one cluster and trace.
func Over(reports []*Report) *OverSeeds {
	over := func(figure func(*Report) float64) Range {
		values := make([]float64, len(reports))
		for i, r := range reports {
			values[i] = figure(r)
		}
		s := spreadOf(values) // sorts them
		return Range{Mean: s.Mean, Least: values[0], Most: s.Max}
	}
	return &OverSeeds{
		Seeds: len(reports),
		JCT:   over(func(r *Report) float64 { return r.JCT.Mean }), Delay: over(func(r *Report) float64 { return r.Delay.Mean }),
		DelayP99:  over(func(r *Report) float64 { return r.Delay.P99 }),
		Makespan:  over(func(r *Report) float64 { return float64(r.Makespan) }),
		Evictions: over(func(r *Report) float64 { return float64(r.Preemptions + r.Evictions) }),
		LostHours: over(func(r *Report) float64 { return r.LostHours }),
	}
}

// Draws says whether anything is drawn by chance in the cluster, with these faults and its own.
func (c *Cluster) Draws(f Faults) bool {
	for _, change := range c.faults {
		change(&f)
	}
	return f.Every > 0 || len(f.Spot) > 0
}
