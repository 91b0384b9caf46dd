package admission

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// A hundred thousand workloads of different request shapes wait in one BestEffortFIFO
// queue. Changes that cannot help them touch none; the change that helps one, in the middle,
// finds it without looking at the rest.
func TestOneOfManyIsFoundWithoutTouchingTheRest(t *testing.T) {
	const n = 100_000
	e := New(Options{})
	fill(e, 2, 2, 1_000, Preemption{})
	at := time.Unix(1_000_000, 0)
	hog := benchWorkload(n, "c0-q0", 1_000, 9)
	lender := benchWorkload(n+1, "c0-q1", 1_000, 9)
	other := benchWorkload(n+2, "c1-q0", 1_000, 9)
	for _, w := range []Workload{hog, lender, other} {
		e.Apply(WorkloadChanged{w})
	}
	for i := range n {
		cpu := int64(1_001 + i) // more than either of them frees
		if i == n/2 {
			cpu = 900
		}
		e.Apply(WorkloadChanged{benchWorkload(i, "c0-q0", cpu, 0)})
	}
	e.Decide(at)
	if got := e.evals; got < n || got > n+10 {
		t.Fatalf("the first decision evaluated %d workloads", got)
	}
	expect := func(what string, most int64, admits ...string) {
		t.Helper()
		before := e.evals
		var got []string
		for _, a := range e.Decide(at).Admit {
			got = append(got, a.Workload.Name)
		}
		if fmt.Sprint(got) != fmt.Sprint(admits) {
			t.Fatalf("%s: admitted %v", what, got)
		}
		if did := e.evals - before; did > most {
			t.Fatalf("%s: %d workloads evaluated, want at most %d", what, did, most)
		}
	}
	e.Apply(WorkloadGone{other.Key})
	expect("a release in another tree", 0)
	newcomer := benchWorkload(n+3, "c1-q0", 100, 0)
	e.Apply(WorkloadChanged{newcomer})
	expect("an arrival in another tree", 1, newcomer.Name)
	small := benchWorkload(n+4, "c0-q1", 50, 0)
	e.Apply(WorkloadChanged{small})
	expect("an arrival that does not fit either", 1)
	e.Apply(WorkloadGone{lender.Key})
	expect("the release that helps", 2, small.Name, benchWorkload(n/2, "", 0, 0).Name)
	e.Apply(WorkloadGone{small.Key})
	expect("a release that helps nobody", 0)
}

// Members of an equivalence class share one evaluation.
func TestEqualWorkloadsShareTheirVerdict(t *testing.T) {
	const n = 1_000
	e := New(Options{})
	fill(e, 1, 1, 1_000, reclaimAny)
	for i := range n {
		e.Apply(WorkloadChanged{benchWorkload(i, "c0-q0", 900, 0)})
	}
	p := e.Decide(time.Unix(1, 0))
	if len(p.Admit) != 1 || len(p.Pending) != n-1 {
		t.Fatalf("%d admitted, %d reported pending", len(p.Admit), len(p.Pending))
	}
	if e.evals != 2 {
		t.Fatalf("%d evaluations, want one that fits and one that does not", e.evals)
	}
	if p = e.Decide(time.Unix(2, 0)); len(p.Pending) != 0 || e.evals != 2 {
		t.Fatalf("reported %d again, %d evaluations", len(p.Pending), e.evals)
	}
}

// The steady state allocates next to nothing beyond the admissions it returns.
func TestDecideAllocatesLittle(t *testing.T) {
	e := New(Options{})
	fill(e, 1, 10, 10_000, reclaimAny)
	for i := range 5_000 {
		e.Apply(WorkloadChanged{benchWorkload(i, fmt.Sprintf("c0-q%d", i%10), 1_000, 0)})
	}
	at := time.Unix(1, 0)
	var running []Key
	for _, a := range e.Decide(at).Admit {
		running = append(running, a.Workload)
	}
	allocs := testing.AllocsPerRun(200, func() {
		e.Apply(WorkloadGone{running[0]})
		p := e.Decide(at)
		if len(p.Admit) != 1 {
			t.Fatalf("%d admitted", len(p.Admit))
		}
		running = append(running[:0], append(running[1:], p.Admit[0].Workload)...)
	})
	// The Admission: itself, its pod sets, two maps with their tables, the usage.
	if allocs > 10 {
		t.Errorf("%v allocations per release and admission", allocs)
	}
}

// Objects come again with nothing changed but their status: nothing is evaluated.
func TestRepeatedEventsCostNothing(t *testing.T) {
	s := newShell(Options{})
	s.namespace("default", map[string]string{"a": "b"})
	s.flavor(Flavor{Name: "f", NodeLabels: map[string]string{"kind": "f"}})
	s.cohort(Cohort{Name: "team"})
	q := Queue{Name: "q", Cohort: "team", NamespaceSelector: &Term{}, Groups: []ResourceGroup{{Resources: []string{CPU}, Flavors: []FlavorQuotas{{Flavor: "f", Quotas: map[string]Quota{CPU: {Nominal: 1}}}}}}}
	s.queue(q)
	l := LocalQueue{Key: Key{"default", "q"}, Queue: "q"}
	s.local(l)
	w := benchWorkload(1, "q", 2, 0)
	s.workload(w)
	s.decide()
	evals := s.e.evals
	s.namespace("default", map[string]string{"a": "b"})
	s.flavor(Flavor{Name: "f", NodeLabels: map[string]string{"kind": "f"}})
	s.cohort(Cohort{Name: "team"})
	q.Groups = []ResourceGroup{{Resources: []string{CPU}, Flavors: []FlavorQuotas{{Flavor: "f", Quotas: map[string]Quota{CPU: {Nominal: 1}}}}}}
	s.queue(q)
	l.Consumed, l.ConsumedAt = map[string]float64{CPU: 1}, s.now
	s.local(l)
	s.workload(benchWorkload(1, "q", 2, 0))
	if s.e.relink || len(s.e.work) > 0 {
		t.Errorf("to be linked again: %v, trees to decide: %d", s.e.relink, len(s.e.work))
	}
	if p := s.decide(); s.e.evals != evals || len(p.Pending) > 0 {
		t.Errorf("%d evaluations, reported %v", s.e.evals-evals, p.Pending)
	}
}

// What a backlog takes to work off, counted in evaluations of workloads, grows no faster than n log n: with three
// request shapes, and with a thousand in queues that preempt in each other. Evaluating all that is pending
// whenever a workload ends would make it n².
func TestWorkGrowsNoFasterThanNLogN(t *testing.T) {
	shapes := map[string]func(r *rand.Rand) (cpu, priority int64){
		"three": func(r *rand.Rand) (int64, int64) {
			k := [...]int{0, 0, 0, 0, 0, 0, 0, 1, 1, 2}[r.IntN(10)]
			return [...]int64{1_000, 5_000, 20_000}[k], [...]int64{50, 100, 200}[k]
		},
		"a thousand": func(r *rand.Rand) (int64, int64) { return 200 * int64(1+r.IntN(100)), int64(10 * r.IntN(10)) },
	}
	const small, large = 1_000, 16_000
	for name, draw := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			evals := map[int]float64{}
			for _, n := range []int{small, large} {
				r := rand.New(rand.NewPCG(1, uint64(n)))
				e := New(Options{PreemptionDelay: time.Second})
				fill(e, 5, 6, 20_000, reclaimAny)
				specs := make(map[Key]*Workload, n)
				for i := range n {
					cpu, priority := draw(r)
					q := r.IntN(30)
					w := benchWorkload(i, fmt.Sprintf("c%d-q%d", q/6, q%6), cpu, priority)
					specs[w.Key] = &w
					e.Apply(WorkloadChanged{w})
				}
				drive(t, e, specs)
				evals[n] = float64(e.evals)
			}
			growth := evals[large] / evals[small] / (large * math.Log(large) / (small * math.Log(small)))
			t.Logf("%.1f evaluations each of %d, %.1f each of %d: %.2f of n log n", evals[small]/small, small, evals[large]/large, large, growth)
			if growth > 1 {
				t.Errorf("from %d to %d workloads the work grows %.2f times as fast as n log n", small, large, growth)
			}
		})
	}
}

// countingPlacer counts searches for nodes, and for moves.
type countingPlacer struct {
	*testPlacer
	places, plans int
}

func (p *countingPlacer) Defragment(r PlaceRequest, o DefragmentPlan) []Key {
	p.plans++
	return p.testPlacer.Defragment(r, o)
}

// onFourNodes is an engine with a queue of 64 cards on four nodes of eight.
func onFourNodes(moves *Defragmentation) (*Engine, *countingPlacer) {
	p := &countingPlacer{testPlacer: newTestPlacer()}
	for i := range 4 {
		p.node(fmt.Sprint("n", i), 8, nil)
	}
	e := New(Options{Placer: p})
	e.Apply(NamespaceChanged{Name: "ns"})
	e.Apply(FlavorChanged{Flavor{Name: "f"}})
	e.Apply(QueueChanged{Queue{Name: "q", NamespaceSelector: &Term{}, Defragmentation: moves, Groups: []ResourceGroup{{Resources: []string{"gpu"}, Flavors: []FlavorQuotas{{Flavor: "f", Quotas: map[string]Quota{"gpu": {Nominal: 64}}}}}}}})
	e.Apply(LocalQueueChanged{LocalQueue{Key: Key{"ns", "lq"}, Queue: "q"}})
	return e, p
}

// Moves are looked for once in a decision for all who ask the nodes for the same, whatever else tells them apart.
func TestMovesAreSoughtOnce(t *testing.T) {
	e, p := onFourNodes(&Defragmentation{Moves: 2, LostWork: time.Hour})
	at := time.Unix(1_000_000, 0)
	e.Apply(AdvanceReservationsChanged{[]AdvanceReservation{{Name: "far", Queue: "q", From: at.Add(999 * time.Hour), Until: at.Add(1000 * time.Hour), Amounts: map[string]Requests{"f": {"gpu": 1}}}}})
	for i := range 4 {
		name := fmt.Sprint("stays", i)
		e.Apply(WorkloadChanged{Workload{
			Key: Key{"ns", name}, UID: name, LocalQueue: "lq", Created: at, Stays: true,
			PodSets: []PodSet{{Name: "main", Count: 1, Requests: Requests{"gpu": 5}}},
		}})
	}
	e.Decide(at)
	for i := range 20 {
		name := fmt.Sprint("w", i)
		e.Apply(WorkloadChanged{Workload{
			Key: Key{"ns", name}, UID: name, LocalQueue: "lq", Created: at.Add(time.Duration(i) * time.Second), Priority: int64(i % 2), MaxRunTime: time.Duration(i+1) * time.Minute,
			PodSets: []PodSet{{Name: "main", Count: 1, Requests: Requests{"gpu": int64(4 + 2*(i/10))}}},
		}})
	}
	if plan := e.Decide(at); len(plan.Admit) > 0 || len(e.queues["q"].classes) != 20 || p.plans != 4 {
		t.Fatalf("%d admitted, %d classes, %d searches for moves, want one for each of two sizes and two priorities", len(plan.Admit), len(e.queues["q"].classes), p.plans)
	}
	p.node("n3", 9, nil)
	e.Apply(CapacityChanged{})
	if plan := e.Decide(at); len(plan.Admit) != 1 || p.plans == 4 {
		t.Fatalf("with more cards: %d admitted, %d searches for moves", len(plan.Admit), p.plans)
	}
}

func (p *countingPlacer) Place(r PlaceRequest) (any, *Refusal) {
	p.places++
	return p.testPlacer.Place(r)
}

func (p *countingPlacer) Find(r PlaceRequest) (any, *Refusal) { return p.Place(r) }

// Nodes are looked for once: what an evaluation found is what the admission holds.
func TestNodesAreSoughtOnce(t *testing.T) {
	e, p := onFourNodes(nil)
	at := time.Unix(1_000_000, 0)
	for i := range 5 {
		name := fmt.Sprint("w", i)
		e.Apply(WorkloadChanged{Workload{
			Key: Key{"ns", name}, UID: name, LocalQueue: "lq", Created: at.Add(time.Duration(i) * time.Second),
			PodSets: []PodSet{{Name: "main", Count: 1, Requests: Requests{"gpu": 5}}},
		}})
		plan := e.Decide(at)
		if i < 4 != (len(plan.Admit) == 1) || p.places != i+1 {
			t.Fatalf("workload %d: %d admitted, %d searches", i, len(plan.Admit), p.places)
		}
		if i < 4 && fmt.Sprint(plan.Admit[0].Admission.Placement) != fmt.Sprintf("n%d:5", i) || len(p.held) != min(i+1, 4) {
			t.Fatalf("%v, held %v", plan.Admit, p.held)
		}
	}
}
