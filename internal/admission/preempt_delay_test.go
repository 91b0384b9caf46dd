package admission

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The API stores whole seconds: an object says that quota was reserved a little earlier than the engine knew. The
// preemptor that waits for the minimum runtime is looked at all the same.
func TestMinimumRuntimeEndsEarlierThanKnown(t *testing.T) {
	s := newShell(Options{PreemptionDelay: time.Second})
	s.flavor(Flavor{Name: "f"})
	s.namespace("default", nil)
	s.queue(Queue{
		Name: "q", NamespaceSelector: &Term{}, Preemption: Preemption{WithinQueue: PreemptLowerPriority},
		Groups: []ResourceGroup{{Resources: []string{"cpu"}, Flavors: []FlavorQuotas{{Flavor: "f", Quotas: map[string]Quota{"cpu": {Nominal: 4}}}}}},
	})
	s.local(LocalQueue{Key: Key{"default", "q"}, Queue: "q"})
	come := func(name string, priority int64) {
		s.workload(Workload{
			Key: Key{"default", name}, UID: name, LocalQueue: "q", Created: s.now.Add(-time.Minute), Priority: priority,
			PodSets: []PodSet{{Name: "main", Count: 1, Requests: Requests{"cpu": 4}}},
		})
	}
	second := s.now.Truncate(time.Second)
	s.now = second.Add(270 * time.Millisecond)
	come("low", 0)
	if p := s.e.Decide(s.now); len(p.Admit) != 1 {
		t.Fatalf("plan %+v", p)
	}
	come("high", 1)
	s.e.Decide(s.now)
	low := s.workloads[Key{"default", "low"}]
	low.Admission = &Admission{Queue: "q", ReservedAt: second, PodSets: []PodSetAssignment{{Name: "main", Count: 1, Flavors: map[string]string{"cpu": "f"}, Usage: Requests{"cpu": 4}}}}
	s.workload(low)
	for range 10 {
		p := s.e.Decide(s.now)
		if len(p.Evict) > 0 {
			return
		}
		if p.NextAt.IsZero() {
			t.Fatalf("at %s nothing is left to wait for", s.now)
		}
		s.now = p.NextAt
	}
	t.Error("it is never preempted")
}

// However much short work comes and goes, the workload of the highest priority starts on its queue's
// nominal quota once its preemption delay and its victims' minimum runtime have passed and they have left.
func TestPreemptionDelayStarvesNobody(t *testing.T) {
	const tick = 100 * time.Millisecond
	const delay = time.Second
	const atLatest = 30 * time.Second
	const cards = "gpu"
	for name, policy := range map[string]CapacityPolicy{"fifo": PolicyFIFO, "drf": PolicyDRF, "maxmin": PolicyMaxMin, "node": PolicyFIFO} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				r := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed")))
				options := Options{PreemptionDelay: delay, Policy: policy}
				node := newTestPlacer()
				if name == "node" { // one node for all quota: with several, others may use the node it needs, on their own quota
					options.Placer = node
				}
				s := newShell(options)
				s.flavor(Flavor{Name: "f"})
				s.namespace("default", nil)
				queues := 1 + r.IntN(3)
				node.node("n", 8*queues, nil)
				for q := range queues {
					name := fmt.Sprint("q", q)
					s.queue(Queue{
						Name: name, Cohort: "team", NamespaceSelector: &Term{}, Preemption: reclaimAny,
						Groups: []ResourceGroup{{Resources: []string{cards}, Flavors: []FlavorQuotas{{Flavor: "f", Quotas: map[string]Quota{cards: {Nominal: 8}}}}}},
					})
					s.local(LocalQueue{Key: Key{"default", name}, Queue: name})
				}
				ends := map[Key]time.Time{}
				come := func(name string, queue int, n, priority int64) Key {
					w := Workload{
						Key: Key{"default", name}, UID: name, LocalQueue: fmt.Sprint("q", queue), Created: s.now, Priority: priority,
						PodSets: []PodSet{{Name: "main", Count: 1, Requests: Requests{cards: n}}},
					}
					s.workload(w)
					return w.Key
				}
				var large Key
				from := s.now.Add(time.Duration(r.IntN(150)) * tick)
				for i := 0; ; i++ {
					for j := range r.IntN(4) {
						come(fmt.Sprintf("s%d-%d", i, j), r.IntN(queues), int64(1+r.IntN(4)), int64(r.IntN(3)))
					}
					if large.Name == "" && !s.now.Before(from) {
						large = come("large", 0, int64(1+r.IntN(8)), 9)
					}
					for k, end := range ends {
						if w := s.workloads[k]; w.Admission != nil && !w.Evicting && !s.now.Before(end) {
							s.finish(k)
							delete(ends, k)
						}
					}
					for _, k := range s.leaving() {
						s.release(k)
					}
					for _, a := range s.decide().Admit {
						if a.Workload == large {
							return
						}
						ends[a.Workload] = s.now.Add(time.Duration(1+r.IntN(15)) * tick)
					}
					if s.now = s.now.Add(tick); large.Name != "" && s.now.After(s.workloads[large].Created.Add(atLatest)) {
						t.Fatalf("still waiting after %v", atLatest)
					}
				}
			})
		})
	}
}
