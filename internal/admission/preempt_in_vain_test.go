package admission

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Workloads that differ in their run times alone ask for victims and moves in classes of their own, beside advance
// reservations, delays, minimum runtimes and cooldowns. The plans are those of an engine that makes every search anew.
func TestSearchesInVainAreMadeOnce(t *testing.T) {
	recalled, evicted := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p, other := newTestPlacer(), newTestPlacer()
		s := newShell(Options{
			Placer: p, Policy: rapid.SampledFrom([]CapacityPolicy{PolicyFIFO, PolicyDRF, PolicyMaxMin}).Draw(t, "policy"), NoRings: rapid.Bool().Draw(t, "no rings"),
			PreemptionDelay: rapid.SampledFrom([]time.Duration{0, 2 * time.Second}).Draw(t, "delay"), PreemptionCooldown: rapid.SampledFrom([]time.Duration{0, 3 * time.Second}).Draw(t, "cooldown"),
		})
		anew := s.opts
		anew.unpruned, anew.Placer = true, other
		s.mirror = New(anew)
		s.namespace("default", nil)
		s.flavor(Flavor{Name: "a", NodeLabels: map[string]string{"kind": "a"}})
		for i := range rapid.IntRange(2, 4).Draw(t, "nodes") {
			cards := rapid.IntRange(3, 5).Draw(t, "cards")
			p.node(fmt.Sprintf("n%d", i), cards, map[string]string{"kind": "a"})
			other.node(fmt.Sprintf("n%d", i), cards, map[string]string{"kind": "a"})
		}
		policies := []PreemptionPolicy{PreemptNever, PreemptLowerPriority, PreemptLowerOrNewerEqualPriority, PreemptAny}
		for _, name := range []string{"x", "y"} {
			s.queue(Queue{
				Name: name, Cohort: "team", NamespaceSelector: &Term{}, StrictFIFO: rapid.IntRange(0, 3).Draw(t, "strict") == 0, Backfill: rapid.Bool().Draw(t, "backfill"),
				Groups:          []ResourceGroup{{Resources: []string{"gpu"}, Flavors: []FlavorQuotas{{Flavor: "a", Quotas: map[string]Quota{"gpu": {Nominal: rapid.Int64Range(3, 10).Draw(t, name)}}}}}},
				Preemption:      Preemption{WithinQueue: rapid.SampledFrom(policies[:3]).Draw(t, "within"), ReclaimWithinCohort: rapid.SampledFrom(policies).Draw(t, "reclaim")},
				Defragmentation: rapid.SampledFrom([]*Defragmentation{nil, {Moves: 2, LostWork: time.Hour}}).Draw(t, "defragmentation"),
			})
			s.local(LocalQueue{Key: Key{"default", name}, Queue: name})
		}
		if rapid.IntRange(0, 3).Draw(t, "reserved") > 0 {
			from := s.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "from")) * time.Second)
			s.setAdvance(AdvanceReservation{Name: "r", Queue: "x", From: from, Until: from.Add(20 * time.Second), Amounts: map[string]Requests{"a": {"gpu": rapid.Int64Range(1, 8).Draw(t, "amount")}}})
		}
		for i := range rapid.IntRange(5, 40).Draw(t, "steps") {
			s.now = s.now.Add(time.Second)
			for n := range rapid.IntRange(1, 3).Draw(t, "new") {
				name := fmt.Sprintf("w%02d-%d", i, n)
				s.workload(Workload{
					Key: Key{"default", name}, UID: name, LocalQueue: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "queue"), Created: s.now,
					Priority: rapid.Int64Range(0, 1).Draw(t, "priority"), MaxRunTime: time.Duration(rapid.IntRange(0, 30).Draw(t, "limit")) * time.Second,
					PodSets: []PodSet{{Name: "main", Count: int32(rapid.IntRange(1, 2).Draw(t, "pods")), Requests: Requests{"gpu": rapid.Int64Range(1, 3).Draw(t, "gpu")}}},
				})
			}
			if keys := sortedKeys(s.workloads); rapid.Bool().Draw(t, "ends") {
				s.gone(rapid.SampledFrom(keys).Draw(t, "gone"))
			}
			want := planText(s.mirror.Decide(s.now))
			plan := s.e.Decide(s.now)
			if got := planText(plan); got != want {
				t.Fatalf("at step %d:\n%s\nwith every search made anew:\n%s", i, got, want)
			}
			recalled, evicted = recalled+s.e.vain.recalled, evicted+len(plan.Evict)
			s.e.vain.recalled = 0
			s.write(plan, func(Key) bool { return true })
			for _, k := range s.leaving() {
				if rapid.Bool().Draw(t, "released") {
					s.release(k)
				}
			}
		}
	})
	if recalled == 0 || evicted == 0 {
		t.Errorf("%d searches were recalled, and %d workloads evicted", recalled, evicted)
	}
}
