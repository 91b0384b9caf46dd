package admission

import (
	"testing"
	"time"
)

// A queue is deleted while workloads still have its quota reserved; they run on, and the engine must
// take in their end as well.
func TestQueueGoesBeforeItsWorkloads(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, cohort := range []string{"", "team"} {
		e := New(Options{})
		e.Apply(NamespaceChanged{Name: "ns"})
		e.Apply(FlavorChanged{Flavor: Flavor{Name: "h100"}})
		e.Apply(QueueChanged{Queue: Queue{
			Name: "cq", Cohort: cohort, NamespaceSelector: &Term{},
			Groups: []ResourceGroup{{
				Resources: []string{"nvidia.com/gpu"},
				Flavors:   []FlavorQuotas{{Flavor: "h100", Quotas: map[string]Quota{"nvidia.com/gpu": {Nominal: 8}}}},
			}},
		}})
		e.Apply(LocalQueueChanged{LocalQueue: LocalQueue{Key: Key{"ns", "main"}, Queue: "cq"}})
		w := Workload{
			Key: Key{"ns", "wl"}, UID: "1", LocalQueue: "main", Created: at,
			PodSets: []PodSet{{Name: "main", Count: 1, Requests: Requests{"nvidia.com/gpu": 4}}},
		}
		e.Apply(WorkloadChanged{Workload: w})
		plan := e.Decide(at)
		if len(plan.Admit) != 1 {
			t.Fatalf("cohort %q: the workload must be admitted", cohort)
		}
		w.Admission = plan.Admit[0].Admission
		e.Apply(WorkloadChanged{Workload: w})
		e.Apply(QueueGone{Name: "cq"})
		e.Decide(at)
		e.Apply(LocalQueueGone{Key: Key{"ns", "main"}})
		e.Apply(WorkloadGone{Key: w.Key})
		e.Decide(at.Add(time.Second))
		if _, exists := e.Status("cq"); exists {
			t.Errorf("cohort %q: the queue is gone", cohort)
		}
	}
}

// A workload has quota reserved in a queue that no event has described, where its flavor is new and where
// other queues have it.
func TestWorkloadOfAQueueThatNeverWas(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, known := range []bool{false, true} {
		e := New(Options{})
		e.Apply(NamespaceChanged{Name: "ns"})
		if known {
			e.Apply(FlavorChanged{Flavor: Flavor{Name: "h100"}})
			e.Apply(QueueChanged{Queue: Queue{Name: "other", Groups: []ResourceGroup{{
				Resources: []string{"nvidia.com/gpu"}, Flavors: []FlavorQuotas{{Flavor: "h100", Quotas: map[string]Quota{"nvidia.com/gpu": {Nominal: 8}}}},
			}}}})
			e.Decide(at)
		}
		e.Apply(LocalQueueChanged{LocalQueue: LocalQueue{Key: Key{"ns", "main"}, Queue: "cq"}})
		if !known {
			e.Decide(at)
		}
		w := Workload{
			Key: Key{"ns", "wl"}, UID: "1", LocalQueue: "main", Created: at,
			PodSets: []PodSet{{Name: "main", Count: 1, Requests: Requests{"nvidia.com/gpu": 4}}},
			Admission: &Admission{Queue: "cq", PodSets: []PodSetAssignment{{
				Name: "main", Count: 1, Flavors: map[string]string{"nvidia.com/gpu": "h100"}, Usage: Requests{"nvidia.com/gpu": 4},
			}}},
		}
		e.Apply(WorkloadChanged{Workload: w})
		e.Decide(at)
		e.Apply(WorkloadGone{Key: w.Key})
		e.Decide(at)
	}
}
