package admission

import (
	"math"
	"testing"
)

// Requests beyond what can be counted exceed every quota; they do not wrap around to what fits.
func TestRequestsBeyondCountingNeverFit(t *testing.T) {
	for name, sets := range map[string][]PodSet{
		"count times request":      {{Name: "a", Count: 4, Requests: Requests{CPU: math.MaxInt64/2 + 1}}},
		"as many pods as there go": {{Name: "a", Count: math.MaxInt32, Requests: Requests{CPU: 1 << 33}}},
		"pod sets together": {{Name: "a", Count: 1, Requests: Requests{CPU: math.MaxInt64}},
			{Name: "b", Count: 1, Requests: Requests{CPU: math.MaxInt64}}},
		"a group of pod sets": {{Name: "a", Group: "g", Count: 1, Requests: Requests{CPU: math.MaxInt64}},
			{Name: "b", Group: "g", Count: 1, Requests: Requests{CPU: math.MaxInt64}}},
		"fewer pods would do": {{Name: "a", Count: 1 << 20, MinCount: 1, Requests: Requests{CPU: math.MaxInt64 / 4}}},
	} {
		t.Run(name, func(t *testing.T) {
			e := New(Options{})
			fill(e, 1, 2, 1_000, reclaimAny)
			w := benchWorkload(1, "c0-q0", 1, 9)
			w.PodSets = sets
			e.Apply(WorkloadChanged{w})
			small := benchWorkload(2, "c0-q0", 1_000, 0)
			e.Apply(WorkloadChanged{small})
			plan := e.Decide(w.Created)
			if len(plan.Admit) != 1 || plan.Admit[0].Workload != small.Key {
				t.Fatalf("the plan is\n%s", planText(plan))
			}
			if len(plan.Pending) != 1 || plan.Pending[0].Reason != ReasonExceedsMaxQuota {
				t.Errorf("it was told %v", plan.Pending)
			}
			if status, _ := e.Status("c0-q0"); status.Usage[0].Used != 1_000 {
				t.Errorf("%d are used", status.Usage[0].Used)
			}
		})
	}
}
