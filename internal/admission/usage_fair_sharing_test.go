package admission

import (
	"testing"
	"time"
)

// Usage is noted in every queue once it has a half-life: a queue that is ordered by it later knows what
// was used, and LocalQueues show it.
func TestUsageIsNotedInEveryQueue(t *testing.T) {
	for halfLife, noted := range map[time.Duration]bool{0: false, time.Hour: true} {
		e := New(Options{UsageHalfLife: halfLife, UsageSampling: time.Minute})
		e.Apply(NamespaceChanged{Name: "ns"})
		e.Apply(FlavorChanged{Flavor: Flavor{Name: "f"}})
		e.Apply(QueueChanged{Queue: Queue{Name: "q", NamespaceSelector: &Term{}, Groups: []ResourceGroup{{
			Resources: []string{CPU}, Flavors: []FlavorQuotas{{Flavor: "f", Quotas: map[string]Quota{CPU: {Nominal: 4000}}}},
		}}}})
		local := Key{Namespace: "ns", Name: "main"}
		e.Apply(LocalQueueChanged{LocalQueue: LocalQueue{Key: local, Queue: "q"}})
		e.Apply(WorkloadChanged{Workload: Workload{
			Key: Key{Namespace: "ns", Name: "w"}, LocalQueue: "main", PodSets: []PodSet{{Name: "main", Count: 1, Requests: Requests{CPU: 2000}}},
		}})
		start := time.Unix(1000, 0)
		if plan := e.Decide(start); len(plan.Admit) != 1 {
			t.Fatalf("plan %+v", plan)
		}
		e.Decide(start.Add(time.Hour))
		if s, _ := e.LocalStatus(local); (s.Consumed[CPU] > 0.9) != noted || s.ConsumedAt.IsZero() == noted {
			t.Errorf("with a half-life of %s %v is noted, at %s", halfLife, s.Consumed, s.ConsumedAt)
		}
	}
}
