package admission

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Levels go down with service and up with waiting, and a timer is set for each change.
func TestLevelsFollowServiceAndWaiting(t *testing.T) {
	e := New(Options{Service: []CardsPerUnit{{"gpu", 1}, {"share", 0.01}}})
	start := time.Unix(1_700_000_000, 0)
	w := Workload{Created: start, PodSets: []PodSet{{Count: 2, Requests: Requests{"gpu": 3, "share": 100}}}} // 8 cards
	for _, c := range []struct {
		ran, waited time.Duration
		level       int
	}{
		{0, 0, 0}, {3 * time.Second, 0, 0}, {4 * time.Second, 0, 1}, {time.Hour, 0, 5}, {100 * time.Hour, 0, 8},
		{10000 * time.Hour, 0, lowestLevel}, {0, 23 * time.Hour, 0}, {0, 24 * time.Hour, -1}, {0, 119 * time.Hour, -1}, {0, 120 * time.Hour, -2},
		{0, 13 * 24 * time.Hour, -3}, {100 * time.Hour, 120 * time.Hour, 6}, {0, 2 * 365 * 24 * time.Hour, -8},
	} {
		w.RanBefore = c.ran
		e.at = start.Add(c.ran + c.waited)
		level, next := e.level(&w)
		if level != c.level {
			t.Errorf("ran %s, waited %s: level %d, want %d", c.ran, c.waited, level, c.level)
		}
		if !next.After(e.at) {
			t.Errorf("ran %s, waited %s: changes at %s, which is not after %s", c.ran, c.waited, next, e.at)
		}
		e.at = next
		if after, _ := e.level(&w); after != level-1 {
			t.Errorf("ran %s, waited %s: level %d when its timer fires, before %d", c.ran, c.waited, after, level)
		}
	}
	w.RanBefore, w.StartedAt, w.Admission = 0, start, &Admission{}
	e.at = start
	level, next := e.level(&w)
	if want := start.Add(3750 * time.Millisecond); level != 0 || !next.Equal(want) {
		t.Errorf("running: level %d until %s, want 0 until %s", level, next, want)
	}
}

// byService is one queue of eight cards, ordered by service, with workloads that come and go.
func byService() *shell {
	s := newShell(Options{Service: []CardsPerUnit{{"gpu", 1}}})
	s.namespace("default", nil)
	s.flavor(Flavor{Name: "f"})
	s.queue(Queue{
		Name: "q", NamespaceSelector: &Term{}, Order: OrderLeastAttainedService, Preemption: Preemption{WithinQueue: PreemptLowerPriority},
		Groups: []ResourceGroup{{Resources: []string{"gpu"}, Flavors: []FlavorQuotas{{Flavor: "f", Quotas: map[string]Quota{"gpu": {Nominal: 8}}}}}},
	})
	s.local(LocalQueue{Key: Key{"default", "q"}, Queue: "q"})
	return s
}

func submit(s *shell, name string, cards, priority int64) {
	s.workload(Workload{
		Key: Key{"default", name}, UID: name, LocalQueue: "q", Created: s.now, Priority: priority,
		PodSets: []PodSet{{Name: "main", Count: 1, Requests: Requests{"gpu": cards}}},
	})
}

func summary(p Plan) string {
	var out []string
	for _, a := range p.Admit {
		out = append(out, "admit "+a.Workload.Name)
	}
	for _, v := range p.Evict {
		out = append(out, "evict "+v.Workload.Name+" for "+v.Preemptor.Name)
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

// A restart changes no decision: levels follow from objects and the time.
func TestRestartChangesNoDecisionByService(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := byService()
		for i := range rapid.IntRange(5, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				submit(s, fmt.Sprintf("w%02d", i), rapid.Int64Range(1, 8).Draw(t, "cards"), rapid.Int64Range(0, 1).Draw(t, "priority"))
			case 2:
				for _, k := range sortedKeys(s.workloads) {
					if w := s.workloads[k]; w.Admission != nil && !w.Evicting && rapid.Bool().Draw(t, "ends") {
						s.finish(k)
						break
					}
				}
			}
			for _, k := range s.leaving() {
				s.release(k)
			}
			s.now = s.now.Add(time.Duration(rapid.SampledFrom([]int{1, 60, 3600, 86400, 400000}).Draw(t, "wait")) * time.Second)
			want := summary(s.rebuilt(s.opts).Decide(s.now))
			if got := summary(s.decide()); got != want {
				t.Fatalf("step %d: %s, after a restart %s", i, got, want)
			}
		}
	})
}

// Nobody starves: beside workloads that come for ever and each take all there is, one that has run for long gets its
// turn, and gets through.
func TestNobodyStarvesByService(t *testing.T) {
	s := byService()
	submit(s, "long", 8, 0)
	s.settle(10)
	s.now = s.now.Add(time.Hour / 2) // it is at level 4 by now: 29 days, and it is as good as new
	ran := func() time.Duration {
		w := s.workloads[Key{"default", "long"}]
		if w.Admission == nil {
			return w.RanBefore
		}
		return w.RanBefore + s.now.Sub(w.StartedAt)
	}
	before, last := ran(), Key{}
	for i := range 24 * 45 { // every hour a new one that runs for an hour
		if _, there := s.workloads[last]; there && s.workloads[last].Admission != nil {
			s.finish(last)
		}
		last = Key{"default", fmt.Sprintf("new%04d", i)}
		submit(s, last.Name, 8, 0)
		s.settle(10)
		s.now = s.now.Add(time.Hour)
	}
	if got := ran() - before; got < 6*time.Hour {
		t.Errorf("in 45 days it ran for %s", got)
	}
}
