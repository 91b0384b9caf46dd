package admission

import (
	"fmt"
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

// Shares of cohorts within cohorts come out even whichever workload asked first: what is being evicted is for the
// workload with the lowest share when it has left.
func TestSharedVictimsGoToTheLowestShare(t *testing.T) {
	s := newShell(Options{AwaitSharedVictims: true, Policy: PolicyDRF})
	s.flavor(Flavor{Name: "f"})
	s.namespace("default", nil)
	nominal := func(n int64) []ResourceGroup {
		return []ResourceGroup{{Resources: []string{"cpu"}, Flavors: []FlavorQuotas{{Flavor: "f", Quotas: map[string]Quota{"cpu": {Nominal: n}}}}}}
	}
	double, half := 2.0, 0.5
	s.cohort(Cohort{Name: "root", Groups: nominal(12)})
	s.cohort(Cohort{Name: "research", Parent: "root"})
	for name, c := range map[string]Cohort{
		"chemistry": {Parent: "research"}, "physics": {Parent: "research"}, "llm": {Parent: "research", FairWeight: &double}, "rest": {Parent: "root", FairWeight: &half},
	} {
		c.Name = name
		s.cohort(c)
		q := Queue{Name: name, Cohort: name, NamespaceSelector: &Term{}, Groups: nominal(0)}
		if name != "rest" {
			q.Preemption.ReclaimWithinCohort = PreemptLowerPriority
		}
		s.queue(q)
		s.local(LocalQueue{Key: Key{"default", name}, Queue: name})
	}
	serial := 0
	come := func(priority int64, queues ...string) {
		for range 6 {
			for _, queue := range queues {
				serial++
				name := fmt.Sprintf("%s%d", queue, serial)
				s.workload(Workload{
					Key: Key{"default", name}, UID: name, LocalQueue: queue, Created: s.now, Priority: priority,
					PodSets: []PodSet{{Name: "main", Count: 1, Requests: Requests{"cpu": 1}}},
				})
				s.now = s.now.Add(time.Second)
				s.decide()
			}
		}
	}
	come(-1, "rest", "physics")
	come(100, "chemistry", "physics", "llm", "rest")
	evicted := 0
	for ; len(s.leaving()) > 0; evicted++ {
		s.release(s.leaving()[0])
		s.decide()
	}
	has := map[string]int{}
	for _, w := range s.workloads {
		if w.Admission != nil {
			has[w.Admission.Queue]++
		}
	}
	if evicted != 6 || has["chemistry"] != 2 || has["physics"] != 2 || has["llm"] != 4 || has["rest"] != 4 {
		t.Errorf("%d were evicted, and there are %v", evicted, has)
	}
}
