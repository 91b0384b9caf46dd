package placement

import (
	"fmt"
	"testing"
)

// A decision costs the nodes that changed since the shape was last asked for, not the cluster.
func TestDecisionsScoreOnlyWhatChanged(t *testing.T) {
	e := newEngine(t, Options{Policy: "binpack"})
	for i := range 500 {
		apply(t, e, NodeChanged{gpuNode(fmt.Sprintf("n%03d", i), 8, "T4", 16000)})
	}
	pod, other := sharePod(t, "ns/a", 30), sharePod(t, "ns/b", 40)
	scored := func(ask func()) int {
		before := e.scored
		ask()
		return e.scored - before
	}
	best := func(p *Pod) func() {
		return func() {
			if _, err := e.Best(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := scored(best(&pod)); n != 500 {
		t.Fatalf("the first question scored %d nodes, want all 500", n)
	}
	if n := scored(best(&pod)); n != 0 {
		t.Fatalf("nothing changed and %d nodes were scored", n)
	}
	best(&other)()
	bind(t, e, sharePod(t, "ns/x", 10), "n007", 0)
	bind(t, e, sharePod(t, "ns/y", 10), "n007", 1)
	apply(t, e, CardLoad{Node: "n009", Index: 0, Load: Load{Core: 1}})
	for _, p := range []*Pod{&pod, &other} {
		if n := scored(best(p)); n != 2 {
			t.Fatalf("two nodes changed and %d were scored", n)
		}
	}
	gang := Gang{Key: "ns/g", PodSets: []PodSet{{Name: "s", Count: 64, Pod: sharePod(t, "", 100)}}}
	txn := e.Begin()
	if n := scored(func() { txn.Place(&gang) }); n > 500+64 {
		t.Fatalf("a gang of 64 scored %d nodes, want all once and one for each pod", n)
	}
	txn.Rollback()
}

func TestQuestionsDoNotAllocate(t *testing.T) {
	for _, policy := range []string{"fragmentation", "binpack", "spread", "random", "topology", "load", "fgd"} {
		e, names, shapes, _ := bigCluster(t, policy, 50, 0.5)
		verdicts, scores := make([]Verdict, 0, len(names)), make([]int64, 0, len(names))
		n := 0
		allocs := testing.AllocsPerRun(200, func() {
			pod := &shapes[n%24] // shares; all of them fit somewhere
			n++
			apply(t, e, CardLoad{Node: names[n%len(names)], Index: 0, Load: Load{Core: 0.5}})
			verdicts, _ = e.Filter(pod, names, verdicts[:0])
			scores, _ = e.Score(pod, names, scores[:0])
			if _, err := e.Best(pod); err != nil {
				t.Fatal(err)
			}
		})
		// The event itself is boxed: one allocation.
		if allocs > 1 {
			t.Errorf("%s: %.0f allocations per question", policy, allocs)
		}
	}
}

func TestShapesAreForgotten(t *testing.T) {
	e := newEngine(t, Options{}, gpuNode("a", 1, "T4", 16000))
	for i := range 3 * mostIndexed {
		pod := sharePod(t, "ns/p", 10)
		pod.Resources = map[string]int64{"cpu": int64(i + 1)}
		assign(t, e, &pod, "a")
		if _, err := e.Best(&pod); err != nil {
			t.Fatal(err)
		}
		e.Release("ns/p")
	}
	if len(e.indexed) > mostIndexed || len(e.shapes) > 2*mostIndexed {
		t.Fatalf("%d shapes with scores, %d in all", len(e.indexed), len(e.shapes))
	}
	for i := range 3 * mostIndexed {
		// Pods that other schedulers bound: their shapes are never asked for.
		bind(t, e, Pod{Key: "ns/q", Resources: map[string]int64{"cpu": int64(i + 1)}, Containers: []Container{{}}}, "a")
		apply(t, e, PodGone{"ns/q"})
	}
	if len(e.shapes) > 2*mostIndexed {
		t.Fatalf("%d shapes of pods that are gone", len(e.shapes))
	}
	if len(e.changes) > 4*len(e.nodes)+1025 {
		t.Fatalf("%d changes in the log", len(e.changes))
	}
}
