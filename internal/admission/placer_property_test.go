package admission

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/elastic-ai/elastic/internal/admission/quota"
	"pgregory.net/rapid"
)

// With nodes behind the quota: no card is granted twice, every preemptor gets what it preempted for,
// and decisions come to an end.
func TestCardsAreNeverGrantedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newTestPlacer()
		s := newShell(Options{Placer: p})
		s.namespace("default", nil)
		s.flavor(Flavor{Name: "a", NodeLabels: map[string]string{"kind": "a"}, Topology: "dc"})
		s.flavor(Flavor{Name: "b", NodeLabels: map[string]string{"kind": "b"}, Topology: "dc"})
		for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
			p.node(fmt.Sprintf("n%d", i), rapid.IntRange(1, 6).Draw(t, "cards"), map[string]string{
				"kind": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "kind"),
				"rack": rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "rack"),
			})
		}
		for _, name := range []string{"x", "y"} {
			quotas := func(f string) FlavorQuotas {
				return FlavorQuotas{Flavor: f, Quotas: map[string]Quota{"gpu": {Nominal: rapid.Int64Range(0, 12).Draw(t, name+f)}}}
			}
			s.queue(Queue{
				Name: name, Cohort: "team", NamespaceSelector: &Term{},
				Groups:          []ResourceGroup{{Resources: []string{"gpu"}, Flavors: []FlavorQuotas{quotas("a"), quotas("b")}}},
				Defragmentation: rapid.SampledFrom([]*Defragmentation{nil, {Moves: 1, LostWork: time.Hour}, {Moves: 2, LostWork: time.Hour}}).Draw(t, "defragmentation"),
				Preemption: Preemption{
					WithinQueue:         rapid.SampledFrom([]PreemptionPolicy{PreemptNever, PreemptLowerPriority}).Draw(t, "within"),
					ReclaimWithinCohort: rapid.SampledFrom([]PreemptionPolicy{PreemptNever, PreemptLowerPriority, PreemptAny}).Draw(t, "reclaim"),
				},
			})
			s.local(LocalQueue{Key: Key{"default", name}, Queue: name})
		}
		for i := range rapid.IntRange(1, 25).Draw(t, "steps") {
			keys := sortedKeys(s.workloads)
			switch what := rapid.IntRange(0, 4).Draw(t, "step"); {
			case what < 3 || len(keys) == 0:
				name := fmt.Sprintf("w%02d", i)
				w := Workload{Key: Key{"default", name}, UID: name, LocalQueue: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "queue"),
					Priority: rapid.Int64Range(0, 2).Draw(t, "priority"), Created: s.now.Add(time.Duration(i) * time.Second),
					PodSets: []PodSet{{Name: "main", Count: rapid.Int32Range(1, 3).Draw(t, "count"), Requests: Requests{"gpu": rapid.Int64Range(1, 4).Draw(t, "gpu")}}}}
				if rapid.Bool().Draw(t, "one rack") {
					w.PodSets[0].Topology = &TopologyRequest{Mode: TopologyRequired, Level: "rack"}
				}
				s.workload(w)
			case what == 3:
				s.gone(rapid.SampledFrom(keys).Draw(t, "gone"))
			default:
				p.node("n0", p.nodes["n0"].cards+rapid.IntRange(1, 3).Draw(t, "more cards"), p.nodes["n0"].labels)
				s.e.Apply(CapacityChanged{})
			}
			s.decide()
			checkCards(t, s, p)
			for _, k := range s.leaving() {
				if rapid.Bool().Draw(t, "released") {
					s.release(k)
				}
			}
		}
		if _, quiet := s.settle(100); !quiet {
			t.Fatal("no end")
		}
		checkCards(t, s, p)
		for _, w := range s.e.workloads {
			if w.phase == phaseNominated {
				t.Fatalf("%s is nominated, but no workload is leaving", w.spec.Key)
			}
		}
	})
}

func checkCards(t *rapid.T, s *shell, p *testPlacer) {
	used := map[string]int{}
	for _, w := range s.workloads {
		if w.Admission == nil {
			continue
		}
		placed, cards := w.Admission.Placement.(testPlacement), 0
		for n, c := range placed {
			used[n] += c
			cards += c
			if p.nodes[n].labels["kind"] != w.Admission.PodSets[0].Flavors["gpu"] {
				t.Fatalf("%s got flavor %s and node %s", w.Name, w.Admission.PodSets[0].Flavors["gpu"], n)
			}
		}
		if want := int(w.PodSets[0].Count) * int(w.PodSets[0].Requests["gpu"]); cards != want {
			t.Fatalf("%s has %d cards, asked for %d", w.Name, cards, want)
		}
		if topo := w.PodSets[0].Topology; topo != nil {
			var racks []string
			for n := range placed {
				racks = append(racks, p.nodes[n].labels[topo.Level])
			}
			slices.Sort(racks)
			if len(slices.Compact(racks)) > 1 {
				t.Fatalf("%s is spread over %v", w.Name, racks)
			}
		}
	}
	for n, c := range used {
		if c > p.nodes[n].cards {
			t.Fatalf("node %s has %d cards and %d are in use", n, p.nodes[n].cards, c)
		}
	}
}

// Workloads move for others while others wait for quota, and the engine is started anew at any time: it knows who moves, and
// lets the same ones come back. What they had stays counted until they are back, or wait like others.
func TestRestartKnowsWhoMoves(t *testing.T) {
	moving, back := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := newTestPlacer()
		s := newShell(Options{Placer: p, Policy: rapid.SampledFrom([]CapacityPolicy{PolicyFIFO, PolicyDRF}).Draw(t, "policy")})
		s.namespace("default", nil)
		s.flavor(Flavor{Name: "a", NodeLabels: map[string]string{"kind": "a"}})
		for i := range rapid.IntRange(2, 4).Draw(t, "nodes") {
			p.node(fmt.Sprintf("n%d", i), rapid.IntRange(3, 5).Draw(t, "cards"), map[string]string{"kind": "a"})
		}
		for _, name := range []string{"x", "y"} {
			s.queue(Queue{
				Name: name, Cohort: "team", NamespaceSelector: &Term{}, StrictFIFO: rapid.IntRange(0, 3).Draw(t, "strict") == 0,
				Groups:          []ResourceGroup{{Resources: []string{"gpu"}, Flavors: []FlavorQuotas{{Flavor: "a", Quotas: map[string]Quota{"gpu": {Nominal: rapid.Int64Range(3, 8).Draw(t, name)}}}}}},
				Defragmentation: &Defragmentation{Moves: 2, LostWork: time.Hour},
			})
			s.local(LocalQueue{Key: Key{"default", name}, Queue: name})
		}
		for i := range rapid.IntRange(5, 30).Draw(t, "steps") {
			s.now = s.now.Add(time.Second)
			if keys := sortedKeys(s.workloads); rapid.IntRange(0, 2).Draw(t, "new") < 2 || len(keys) == 0 {
				name := fmt.Sprintf("w%02d", i)
				s.workload(Workload{Key: Key{"default", name}, UID: name, LocalQueue: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "queue"),
					Priority: rapid.Int64Range(0, 1).Draw(t, "priority"), Created: s.now,
					PodSets: []PodSet{{Name: "main", Count: 1, Requests: Requests{"gpu": rapid.Int64Range(1, 4).Draw(t, "gpu")}}}})
			} else {
				s.gone(rapid.SampledFrom(keys).Draw(t, "gone"))
			}
			movers := s.movers()
			o := s.opts
			o.Placer = p.empty()
			restarted := s.rebuilt(o)
			restarted.Decide(s.now)
			s.decide()
			checkFuture(t, s.e)
			checkFuture(t, restarted)
			for _, k := range movers {
				w, other := s.e.workloads[k], restarted.workloads[k]
				if w.hasQuota() != other.hasQuota() || w.moving != other.moving {
					t.Fatalf("%s is %s and moves %t; after a restart it is %s and moves %t", k, w.phase, w.moving, other.phase, other.moving)
				}
				if moving++; w.phase == phaseReserved {
					back++
				}
			}
			for _, k := range s.leaving() {
				if rapid.Bool().Draw(t, "released") {
					s.release(k)
				}
			}
		}
		if _, quiet := s.settle(100); !quiet {
			t.Fatal("no end")
		}
	})
	if moving == 0 || back == 0 {
		t.Errorf("%d times somebody was moving, and %d came back", moving, back)
	}
}

// movers are those that move, by their objects.
func (s *shell) movers() []Key {
	return slices.DeleteFunc(sortedKeys(s.workloads), func(k Key) bool { return !s.workloads[k].Moving })
}

// checkFuture: the future has what is reserved, nominated or set aside, and what is on its way, and nothing else.
func checkFuture(t *rapid.T, e *Engine) {
	for _, tr := range e.trees {
		checkSums(t, tr.root.Node)
		checkBorrowIndex(t, tr)
	}
	for _, q := range e.queues {
		var used []quota.Amount
		add := func(amounts []quota.Amount) {
			for _, u := range amounts {
				used = quota.AddAmount(used, u.FR, u.V)
			}
		}
		for _, w := range q.quotaReserved {
			if w.phase == phaseReserved || w.moving {
				add(w.usage)
			}
		}
		for _, w := range q.nominated {
			add(w.nominatedUsage)
		}
		for _, c := range q.classes {
			add(c.reservation)
		}
		for fr := range q.node.Cells {
			if got, want := q.node.Cells[fr].Use[quota.Future], quota.AmountOf(used, int32(fr)); got != want {
				t.Fatalf("queue %s has %d in the future, not %d", q.name, got, want)
			}
		}
	}
}
