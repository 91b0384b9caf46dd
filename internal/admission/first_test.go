package admission

import (
	"testing"
	"time"
)

func TestPriorityThenAge(t *testing.T) {
	e := New(Options{})
	t0 := time.Unix(1000, 0)
	e.Apply(FlavorChanged{Flavor{Name: "default"}})
	e.Apply(NamespaceChanged{Name: "ns"})
	e.Apply(QueueChanged{Queue{Name: "cq", NamespaceSelector: &Term{}, Groups: []ResourceGroup{{Resources: []string{CPU}, Flavors: []FlavorQuotas{{Flavor: "default", Quotas: map[string]Quota{CPU: {Nominal: 2000}}}}}}}})
	e.Apply(LocalQueueChanged{LocalQueue{Key: Key{"ns", "lq"}, Queue: "cq"}})
	for i, name := range []string{"old", "new", "urgent"} {
		w := Workload{Key: Key{"ns", name}, UID: name, LocalQueue: "lq", Created: t0.Add(time.Duration(i) * time.Second),
			PodSets: []PodSet{{Name: "main", Count: 1, Requests: Requests{CPU: 1000}}}}
		if name == "urgent" {
			w.Priority = 10
		}
		e.Apply(WorkloadChanged{w})
	}
	p := e.Decide(t0)
	if len(p.Admit) != 2 || p.Admit[0].Workload.Name != "urgent" || p.Admit[1].Workload.Name != "old" {
		t.Fatalf("admitted %+v", p.Admit)
	}
	if len(p.Park) != 1 || p.Park[0].Workload.Name != "new" || p.Park[0].Reason != ReasonWaitingForQuota {
		t.Fatalf("parked %+v", p.Park)
	}
	e.Apply(WorkloadGone{Key{"ns", "old"}})
	p = e.Decide(t0)
	if len(p.Admit) != 1 || p.Admit[0].Workload.Name != "new" {
		t.Fatalf("admitted %+v", p.Admit)
	}
}
