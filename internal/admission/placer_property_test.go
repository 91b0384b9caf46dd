package admission

import (
	"fmt"
	"slices"
	"testing"
	"time"

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
			quota := func(f string) FlavorQuotas {
				return FlavorQuotas{Flavor: f, Quotas: map[string]Quota{"gpu": {Nominal: rapid.Int64Range(0, 12).Draw(t, name+f)}}}
			}
			s.queue(Queue{
				Name: name, Cohort: "team", NamespaceSelector: &Term{},
				Groups:          []ResourceGroup{{Resources: []string{"gpu"}, Flavors: []FlavorQuotas{quota("a"), quota("b")}}},
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
