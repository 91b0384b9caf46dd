package admission

import (
	"fmt"
	"testing"
	"time"
)

// brokenPlacer panics at one call for one workload.
type brokenPlacer struct {
	*testPlacer
	workload string
	calls    int // of Place for it, until it panics
}

func (p *brokenPlacer) Place(r PlaceRequest) (any, *Refusal) {
	if r.Workload.Name == p.workload {
		if p.calls--; p.calls < 0 {
			p.Hold(r.Workload, testPlacement{"n0": 1}) // and leaves something behind
			panic("no such card")
		}
	}
	return p.testPlacer.Place(r)
}

func (p *brokenPlacer) Find(r PlaceRequest) (any, *Refusal) { return p.Place(r) }

// A panic while one workload is evaluated concerns that one alone: it waits as misconfigured, nothing of
// it is left behind, and the others are decided as if it could not be admitted.
func TestPanicConcernsOneWorkload(t *testing.T) {
	p := &brokenPlacer{testPlacer: newTestPlacer(), workload: "w1"}
	p.node("n0", 4, map[string]string{"kind": "a"})
	s := newShell(Options{Placer: p})
	s.namespace("default", nil)
	s.flavor(Flavor{Name: "a", NodeLabels: map[string]string{"kind": "a"}})
	s.queue(Queue{Name: "q", NamespaceSelector: &Term{}, Groups: []ResourceGroup{{Resources: []string{"gpu"},
		Flavors: []FlavorQuotas{{Flavor: "a", Quotas: map[string]Quota{"gpu": {Nominal: 4}}}}}}})
	s.local(LocalQueue{Key: Key{"default", "q"}, Queue: "q"})
	for i := range 4 {
		name := fmt.Sprintf("w%d", i)
		s.workload(Workload{Key: Key{"default", name}, UID: name, LocalQueue: "q", Created: s.now.Add(time.Duration(i) * time.Second),
			PodSets: []PodSet{{Name: "main", Count: 1, Requests: Requests{"gpu": int64(1 + i%2)}}}}) // w1 and w3 are of one class
	}
	plan := s.decide()
	admitted := map[string]bool{}
	for _, a := range plan.Admit {
		admitted[a.Workload.Name] = true
	}
	if len(admitted) != 2 || !admitted["w0"] || !admitted["w2"] {
		t.Errorf("admitted are %v", admitted)
	}
	if len(plan.Panics) == 0 || plan.Panics[0].Workload.Name != "w1" || plan.Panics[0].Value != "no such card" || len(plan.Panics[0].Stack) == 0 {
		t.Errorf("panics are %+v", plan.Panics)
	}
	for _, waits := range plan.Pending {
		if waits.Reason != ReasonMisconfigured {
			t.Errorf("%s waits for %s: %s", waits.Workload.Name, waits.Reason, waits.Message)
		}
	}
	if used := p.nodes["n0"].used; used != 2 || s.e.tx.Checkpoint() != 0 {
		t.Errorf("%d cards are used, %d changes are left standing", used, s.e.tx.Checkpoint())
	}
	if x := s.e.Explain(Key{"default", "w1"}, s.now); x.Reason != ReasonMisconfigured || len(x.Suggestions) == 0 {
		t.Errorf("explained as %+v", x)
	}
	p.workload = "" // it was repaired, and something changes
	s.e.Apply(CapacityChanged{})
	s.workload(Workload{Key: Key{"default", "w1"}, UID: "w1", LocalQueue: "q", Created: s.now, Priority: 1,
		PodSets: []PodSet{{Name: "main", Count: 1, Requests: Requests{"gpu": 2}}}})
	if plan := s.decide(); len(plan.Admit) != 1 || plan.Admit[0].Workload.Name != "w1" || len(plan.Panics) > 0 {
		t.Errorf("then the plan is %s with %v", planText(plan), plan.Panics)
	}
}
