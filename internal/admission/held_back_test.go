package admission

import (
	"testing"
	"time"
)

// Where another scheduler decides, a workload whose queue comes to be has nothing to say of itself but
// that it waits to be looked at.
func TestNoLongerHeldBack(t *testing.T) {
	for evictOnly, want := range map[bool]string{true: NotEvaluated, false: ""} {
		e := New(Options{EvictOnly: evictOnly})
		e.Apply(NamespaceChanged{Name: "ns"})
		e.Apply(QueueChanged{Queue: Queue{Name: "q", NamespaceSelector: &Term{}}})
		e.Apply(WorkloadChanged{Workload: Workload{Key: Key{Namespace: "ns", Name: "w"}, LocalQueue: "main", PodSets: []PodSet{{Name: "main", Count: 1}}}})
		if plan := e.Decide(time.Unix(1, 0)); len(plan.Pending) != 1 || !plan.Pending[0].Blocked {
			t.Fatalf("without its LocalQueue: %+v", plan.Pending)
		}
		e.Apply(LocalQueueChanged{LocalQueue: LocalQueue{Key: Key{Namespace: "ns", Name: "main"}, Queue: "q"}})
		got := ""
		for _, p := range e.Decide(time.Unix(2, 0)).Pending {
			got += p.Message
		}
		if got != want {
			t.Errorf("evicting only %t: %q, want %q", evictOnly, got, want)
		}
	}
}
