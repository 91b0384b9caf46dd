package admission

import (
	"testing"
	"time"
)

// Two queues reclaim their nominal quota from a third. Kueue lets the second wait until what the first preempts has left,
// unless it is told to preempt enough for both at once.
func TestAwaitSharedVictims(t *testing.T) {
	for _, await := range []bool{false, true} {
		s := newShell(Options{AwaitSharedVictims: await})
		s.flavor(Flavor{Name: "f"})
		s.namespace("default", nil)
		for _, name := range []string{"alpha", "beta", "gamma"} {
			s.queue(Queue{
				Name: name, Cohort: "all", NamespaceSelector: &Term{}, Preemption: Preemption{ReclaimWithinCohort: PreemptAny},
				Groups: []ResourceGroup{{Resources: []string{"cpu"}, Flavors: []FlavorQuotas{{Flavor: "f", Quotas: map[string]Quota{"cpu": {Nominal: 2}}}}}},
			})
			s.local(LocalQueue{Key: Key{"default", name}, Queue: name})
		}
		come := func(name, queue string) {
			s.workload(Workload{
				Key: Key{"default", name}, UID: name, LocalQueue: queue, Created: s.now,
				PodSets: []PodSet{{Name: "main", Count: 1, Requests: Requests{"cpu": 2}}},
			})
			s.now = s.now.Add(time.Second)
		}
		for _, name := range []string{"b0", "b1", "b2"} {
			come(name, "beta")
		}
		if p := s.decide(); len(p.Admit) != 3 {
			t.Fatalf("%+v", p)
		}
		come("a", "alpha")
		come("c", "gamma")
		var evicted []int
		admitted := map[string]bool{}
		for range 4 {
			p := s.decide()
			evicted = append(evicted, len(p.Evict))
			for _, a := range p.Admit {
				admitted[a.Workload.Name] = true
			}
			for _, v := range p.Evict { // they leave, and do not come back
				s.finish(v.Workload)
			}
		}
		first := 2
		if await {
			first = 1
		}
		if evicted[0] != first || evicted[0]+evicted[1]+evicted[2]+evicted[3] != 2 || !admitted["a"] || !admitted["c"] {
			t.Errorf("await %t: evictions %v, admitted %v", await, evicted, admitted)
		}
	}
}
