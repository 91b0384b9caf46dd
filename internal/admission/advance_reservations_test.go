package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// setAdvance puts an advance reservation in the place of the one of its name, and tells the engine.
func (s *shell) setAdvance(r AdvanceReservation) {
	s.advance = slices.DeleteFunc(slices.Clone(s.advance), func(o AdvanceReservation) bool { return o.Name == r.Name })
	s.advance = append(s.advance, r)
	s.apply(AdvanceReservationsChanged{s.advance})
}

func (s *shell) dropAdvance(name string) {
	s.advance = slices.DeleteFunc(slices.Clone(s.advance), func(o AdvanceReservation) bool { return o.Name == name })
	s.apply(AdvanceReservationsChanged{s.advance})
}

func (sc *scenario) advanceStatement(name string, a arguments) {
	s := sc.shell
	r := AdvanceReservation{Name: name, Named: a.has("named"), From: s.now.Add(a.duration("in")), Amounts: map[string]Requests{}}
	r.Until = r.From.Add(a.duration("lasts"))
	if a.has("nodes") {
		r.Nodes = strings.Split(a.str("nodes"), "|")
	}
	for _, amount := range a["amount"] {
		p := strings.Split(amount, ":")
		if r.Amounts[p[0]] == nil {
			r.Amounts[p[0]] = Requests{}
		}
		r.Amounts[p[0]][p[1]] = parseAmount(p[1], p[2])
	}
	kind, on, _ := strings.Cut(a.str("on"), ":")
	if r.For = on; kind == "queue" {
		r.Queue = on
	} else {
		r.LocalQueue = Key{"default", on}
	}
	s.setAdvance(r)
}

// drawAdvance draws an advance reservation for some of the workloads.
func (w *world) drawAdvance(name string) {
	r := AdvanceReservation{
		Name: name, For: name, Named: rapid.IntRange(0, 3).Draw(w.t, name+" is for those who name it") == 0,
		From: w.now.Add(rapid.SampledFrom([]time.Duration{-time.Minute, time.Minute, 5 * time.Minute, time.Hour}).Draw(w.t, name+" begins in")),
		Amounts: map[string]Requests{
			fmt.Sprintf("f%d", rapid.IntRange(0, 1).Draw(w.t, name+" flavor")): {CPU: rapid.Int64Range(0, 8).Draw(w.t, name+" amount")},
		},
	}
	r.Until = r.From.Add(rapid.SampledFrom([]time.Duration{time.Minute, 10 * time.Minute}).Draw(w.t, name+" lasts"))
	r.Nodes = rapid.SampledFrom([][]string{nil, {"n1"}, {"n1", "n2"}, {"n3"}}).Draw(w.t, name+" nodes")
	if rapid.Bool().Draw(w.t, name+" is for a queue") {
		r.Queue = fmt.Sprintf("q%d", rapid.IntRange(0, 2).Draw(w.t, name+" queue"))
	} else {
		r.LocalQueue = rapid.SampledFrom(sortedKeys(w.locals)).Draw(w.t, name+" local queue")
	}
	w.setAdvance(r)
}

// Whatever is decided, no more is lacking of what is reserved ahead of time than before.
func TestWhatIsReservedAheadIsThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, worldConfig{flavors: 2, policy: PolicyFIFO, preemption: true, strict: true, backfill: true, partial: true, advance: true})
		for range rapid.IntRange(1, 20).Draw(t, "times") {
			for range rapid.IntRange(1, 4).Draw(t, "steps") {
				w.step()
			}
			before := w.e.AdvanceLacking(w.now)
			p := w.decide()
			if len(p.Evict) > 0 {
				continue // one that it was for may have left, and its part is reserved again
			}
			for _, lacks := range w.e.AdvanceLacking(w.now) {
				i := slices.IndexFunc(before, func(o AdvanceLacking) bool {
					return o.Name == lacks.Name && o.From.Equal(lacks.From) && o.Flavor == lacks.Flavor && o.Resource == lacks.Resource
				})
				if i < 0 || before[i].Amount < lacks.Amount {
					t.Fatalf("%+v, before the decision %+v:\n%s\n%+v", lacks, before, planText(p), w.advance)
				}
			}
		}
	})
}

// A workload of which nobody knows how long it runs starts beside what is reserved, and not on it, however far ahead that is.
func TestUnknownRunTimeCouldStillRun(t *testing.T) {
	s := newShell(Options{})
	s.namespace("default", nil)
	s.flavor(Flavor{Name: "f0"})
	s.queue(Queue{Name: "q0", NamespaceSelector: &Term{}, Groups: []ResourceGroup{{Resources: []string{"gpu"}, Flavors: []FlavorQuotas{{Flavor: "f0", Quotas: map[string]Quota{"gpu": {Nominal: 8}}}}}}})
	s.local(LocalQueue{Key: Key{"default", "main"}, Queue: "q0"})
	s.local(LocalQueue{Key: Key{"default", "other"}, Queue: "q0"})
	year := s.now.AddDate(1, 0, 0)
	s.setAdvance(AdvanceReservation{Name: "r", LocalQueue: Key{"default", "main"}, From: year, Until: year.Add(time.Hour), Amounts: map[string]Requests{"f0": {"gpu": 6}}})
	for i, gpus := range []int64{2, 1} {
		s.workload(Workload{Key: Key{"default", fmt.Sprint("w", i)}, UID: fmt.Sprint(i), LocalQueue: "other", Created: s.now, PodSets: []PodSet{{Name: "main", Count: 1, Requests: Requests{"gpu": gpus}}}})
	}
	p := s.decide()
	if len(p.Admit) != 1 || p.Admit[0].Workload.Name != "w0" || len(p.Pending) != 1 || p.Pending[0].Reason != ReasonReservedForOthers || !p.NextAt.Equal(year.Add(time.Hour)) {
		t.Fatal(planText(p), p.NextAt)
	}
}
