package admission

import (
	"fmt"
	"reflect"
	"testing"
	"time"
)

// twoTeams share a cohort of 12 cards; a's jobs run for an hour each, b's run for ever.
func twoTeams(options Options, pending int) *Engine {
	e := New(options)
	quotas := func(nominal int64) []ResourceGroup {
		return []ResourceGroup{{Resources: []string{"gpu"}, Flavors: []FlavorQuotas{{Flavor: "h100", Quotas: map[string]Quota{"gpu": {Nominal: nominal}}}}}}
	}
	e.Apply(NamespaceChanged{Name: "default"})
	e.Apply(FlavorChanged{Flavor: Flavor{Name: "h100"}})
	for name, nominal := range map[string]int64{"a": 8, "b": 4} {
		e.Apply(QueueChanged{Queue: Queue{Name: name, Cohort: "all", NamespaceSelector: &Term{}, Groups: quotas(nominal)}})
		e.Apply(LocalQueueChanged{LocalQueue: LocalQueue{Key: Key{"default", name}, Queue: name}})
	}
	add := func(team string, n int, cards int64, run time.Duration) {
		for i := range n {
			w := wanting(fmt.Sprintf("%s%d", team, i), cards, 0, i)
			w.LocalQueue, w.MaxRunTime = team, run
			e.Apply(WorkloadChanged{Workload: w})
		}
	}
	add("a", 2+pending, 4, time.Hour)
	add("b", 2, 4, 0)
	e.Decide(noon)
	return e
}

func TestWhatIf(t *testing.T) {
	e, twin := twoTeams(Options{}, 3), twoTeams(Options{}, 3)
	ask := func(queue string, nominal int64) (starts []StartForecast) {
		t.Helper()
		starts, complete, err := e.WhatIf([]QuotaChange{{queue, "h100", "gpu", nominal}}, noon, noon.Add(90*time.Minute))
		if err != nil || !complete {
			t.Fatalf("complete %t, %v", complete, err)
		}
		return starts
	}
	in := func(d time.Duration) time.Time { return noon.Add(d) }
	never := time.Time{}
	for name, test := range map[string]struct {
		queue   string
		nominal int64
		// by workload: as things are, and then
		want map[string][2]time.Time
	}{
		// 12 cards run a0, a1 and b0. After an hour a2, b1 have the two places that a gives back, or those after them.
		"as it is": {"a", 8, map[string][2]time.Time{"b1": {in(time.Hour), in(time.Hour)}, "a2": {in(time.Hour), in(time.Hour)}, "a3": {never, never}, "a4": {never, never}}},
		"8 more":   {"a", 16, map[string][2]time.Time{"b1": {in(time.Hour), noon}, "a2": {in(time.Hour), noon}, "a3": {never, in(time.Hour)}, "a4": {never, in(time.Hour)}}},
		"4 less":   {"a", 4, map[string][2]time.Time{"b1": {in(time.Hour), in(time.Hour)}, "a2": {in(time.Hour), never}, "a3": {never, never}, "a4": {never, never}}},
		"none":     {"a", 0, map[string][2]time.Time{"b1": {in(time.Hour), never}, "a2": {in(time.Hour), never}, "a3": {never, never}, "a4": {never, never}}},
	} {
		got := map[string][2]time.Time{}
		for _, s := range ask(test.queue, test.nominal) {
			got[s.Workload.Name] = [2]time.Time{s.Now, s.Then}
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v\nwant %v", name, got, test.want)
		}
	}
	// The questions leave no trace: what is decided next is the same without them.
	for _, engine := range []*Engine{e, twin} {
		engine.Apply(WorkloadGone{Key: Key{"default", "a0"}})
	}
	if got, want := e.Decide(noon), twin.Decide(noon); !reflect.DeepEqual(got, want) {
		t.Errorf("the question changed what is decided: %+v, want %+v", got, want)
	}
	for _, bad := range []QuotaChange{{"c", "h100", "gpu", 1}, {"a", "a100", "gpu", 1}, {"a", "h100", "cpu", 1}} {
		if _, _, err := e.WhatIf([]QuotaChange{bad}, noon, noon.Add(time.Hour)); err == nil {
			t.Errorf("%+v is answered", bad)
		}
	}
}

// A job larger than all quota waits for ever, until there is more.
func TestWhatIfBeyondAllQuota(t *testing.T) {
	e := twoTeams(Options{}, 0)
	w := wanting("huge", 16, 100, 50)
	w.LocalQueue = "a"
	e.Apply(WorkloadChanged{Workload: w})
	e.Decide(noon)
	starts, _, err := e.WhatIf([]QuotaChange{{"b", "h100", "gpu", 20}}, noon, noon.Add(2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range starts {
		if s.Workload.Name == "huge" && (!s.Now.IsZero() || s.Then.IsZero()) {
			t.Errorf("%+v", s)
		}
	}
}

func BenchmarkWhatIf20000Pending(b *testing.B) {
	e := twoTeams(Options{}, 20_000)
	for b.Loop() {
		if _, _, err := e.WhatIf([]QuotaChange{{"a", "h100", "gpu", 800}}, noon, noon.Add(24*time.Hour)); err != nil {
			b.Fatal(err)
		}
	}
}
