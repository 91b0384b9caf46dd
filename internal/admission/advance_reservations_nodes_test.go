package admission

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Nobody starts on a node that is reserved for others and could still run then, no matter who leaves or moves for it; and a
// restart decides the same.
func TestReservedNodesAreForOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newTestPlacer()
		s := newShell(Options{Placer: p})
		s.namespace("default", nil)
		s.flavor(Flavor{Name: "a", NodeLabels: map[string]string{"kind": "a"}})
		for i := range 4 {
			p.node(fmt.Sprintf("n%d", i), rapid.IntRange(1, 4).Draw(t, "cards"), map[string]string{"kind": "a"})
		}
		for _, name := range []string{"x", "y"} {
			s.queue(Queue{
				Name: name, Cohort: rapid.SampledFrom([]string{"", "team"}).Draw(t, "cohort"), NamespaceSelector: &Term{}, StrictFIFO: rapid.Bool().Draw(t, "strict"),
				Groups:          []ResourceGroup{{Resources: []string{"gpu"}, Flavors: []FlavorQuotas{{Flavor: "a", Quotas: map[string]Quota{"gpu": {Nominal: 8}}}}}},
				Defragmentation: rapid.SampledFrom([]*Defragmentation{nil, {Moves: 2, LostWork: time.Hour}}).Draw(t, "defragmentation"),
				Preemption:      Preemption{WithinQueue: rapid.SampledFrom([]PreemptionPolicy{PreemptNever, PreemptLowerPriority}).Draw(t, "within")},
			})
			s.local(LocalQueue{Key: Key{"default", name}, Queue: name})
		}
		for i := range rapid.IntRange(1, 20).Draw(t, "steps") {
			stepOnNodes(t, s, i)
			checkReservedNodes(t, s, decideLikeRestarted(t, s, p))
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
	})
}

func stepOnNodes(t *rapid.T, s *shell, i int) {
	keys := sortedKeys(s.workloads)
	switch what := rapid.IntRange(0, 6).Draw(t, "step"); {
	case what < 3 || what == 3 && len(keys) == 0:
		name := fmt.Sprintf("w%02d", i)
		s.workload(Workload{
			Key: Key{"default", name}, UID: name, LocalQueue: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "queue"),
			Priority: rapid.Int64Range(0, 2).Draw(t, "priority"), Created: s.now.Add(time.Duration(i) * time.Second),
			ExpectedRunTime:    rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "runs"),
			AdvanceReservation: rapid.SampledFrom([]string{"", "", "r0"}).Draw(t, "names"),
			PodSets:            []PodSet{{Name: "main", Count: rapid.Int32Range(1, 3).Draw(t, "count"), Requests: Requests{"gpu": rapid.Int64Range(1, 3).Draw(t, "gpu")}}},
		})
	case what == 3:
		s.gone(rapid.SampledFrom(keys).Draw(t, "gone"))
	case what < 6:
		name := rapid.SampledFrom([]string{"r0", "r1", "r2"}).Draw(t, "reservation")
		from := s.now.Add(rapid.SampledFrom([]time.Duration{-time.Minute, time.Minute, 10 * time.Minute}).Draw(t, "begins in"))
		s.setAdvance(AdvanceReservation{
			Name: name, For: name, Queue: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "for"), Named: rapid.Bool().Draw(t, "named"), From: from,
			Until: from.Add(rapid.SampledFrom([]time.Duration{2 * time.Minute, time.Hour}).Draw(t, "lasts")),
			Nodes: rapid.SampledFrom([][]string{nil, {"n0"}, {"n0", "n1"}, {"n2", "n3"}}).Draw(t, "nodes"),
		})
	default:
		s.now = s.now.Add(rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour}).Draw(t, "later"))
	}
}

// decideLikeRestarted decides, and fails if an engine and nodes that know nothing but the objects decide otherwise.
func decideLikeRestarted(t *rapid.T, s *shell, p *testPlacer) Plan {
	o, nodes := s.opts, newTestPlacer()
	for _, n := range p.nodes {
		nodes.node(n.name, n.cards, n.labels)
	}
	o.Placer = nodes
	want := planText(s.rebuilt(o).Decide(s.now))
	plan := s.decide()
	// Who just got in moves for nobody, and those who wait for that are looked at after the next change, or a restart.
	moves := slices.ContainsFunc([]string{"x", "y"}, func(q string) bool { return s.queues[q].Defragmentation != nil })
	if got := planText(plan); got != want && !moves {
		t.Fatalf("the old engine says\n%s\nthe restarted one\n%s", got, want)
	}
	return plan
}

func checkReservedNodes(t *rapid.T, s *shell, plan Plan) {
	for _, a := range plan.Admit {
		w := s.workloads[a.Workload]
		avoid := map[string]bool{}
		for _, r := range s.advance {
			mine := r.Queue == w.LocalQueue && (!r.Named || w.AdvanceReservation == r.Name)
			over := w.ExpectedRunTime > 0 && !s.now.Add(w.ExpectedRunTime).After(r.From)
			if mine || over || !r.Until.After(s.now) {
				continue
			}
			for _, n := range r.Nodes {
				avoid[n] = true
				if a.Admission.Placement.(testPlacement)[n] > 0 {
					t.Fatalf("%s starts on %s at %s, which %+v reserves", w.Name, n, s.now, r)
				}
			}
		}
		if len(avoid) != len(a.Admission.AvoidNodes) || slices.ContainsFunc(a.Admission.AvoidNodes, func(n string) bool { return !avoid[n] }) {
			t.Fatalf("%s is to avoid %v, not %v", w.Name, a.Admission.AvoidNodes, avoid)
		}
	}
}

// Pods that come to a workload which runs already stay off what was reserved since.
func TestNodesReservedSinceTheStart(t *testing.T) {
	p := newTestPlacer()
	s := newShell(Options{Placer: p})
	s.namespace("default", nil)
	s.flavor(Flavor{Name: "a", NodeLabels: map[string]string{"kind": "a"}})
	p.node("n0", 4, map[string]string{"kind": "a"})
	s.queue(Queue{Name: "x", NamespaceSelector: &Term{}, Groups: []ResourceGroup{{Resources: []string{"gpu"}, Flavors: []FlavorQuotas{{Flavor: "a", Quotas: map[string]Quota{"gpu": {Nominal: 4}}}}}}})
	s.local(LocalQueue{Key: Key{"default", "x"}, Queue: "x"})
	s.local(LocalQueue{Key: Key{"default", "y"}, Queue: "x"})
	for name, run := range map[string]time.Duration{"short": time.Minute, "long": time.Hour, "unknown": 0} {
		s.workload(Workload{
			Key: Key{"default", name}, UID: name, LocalQueue: "x", Created: s.now, ExpectedRunTime: run,
			PodSets: []PodSet{{Name: "main", Count: 1, Requests: Requests{"gpu": 1}}},
		})
	}
	s.settle(10)
	s.setAdvance(AdvanceReservation{Name: "r", For: "r", LocalQueue: Key{"default", "y"}, From: s.now.Add(10 * time.Minute), Until: s.now.Add(time.Hour), Nodes: []string{"n0"}})
	for name, want := range map[string]string{"short": "[]", "long": "[n0]", "unknown": "[n0]", "nobody": "[]"} {
		if got := fmt.Sprint(s.e.AvoidNodes(Key{"default", name}, s.now)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got := s.e.AvoidNodes(Key{"default", "long"}, s.now.Add(2*time.Hour)); len(got) > 0 {
		t.Errorf("it is over, and %v", got)
	}
}
