package admission

import (
	"fmt"
	"reflect"
	"testing"
	"time"
)

// considered is an engine with a queue of 8 cards, 6 of them in use, and pending workloads.
func considered(strict bool, pending int) *Engine {
	e := New(Options{})
	for _, event := range []Event{
		NamespaceChanged{Name: "default"},
		FlavorChanged{Flavor: Flavor{Name: "h100"}},
		QueueChanged{Queue: Queue{
			Name: "cq", StrictFIFO: strict, NamespaceSelector: &Term{}, Preemption: Preemption{WithinQueue: PreemptLowerPriority},
			Groups: []ResourceGroup{{Resources: []string{"gpu"}, Flavors: []FlavorQuotas{{Flavor: "h100", Quotas: map[string]Quota{"gpu": {Nominal: 8}}}}}},
		}},
		LocalQueueChanged{LocalQueue: LocalQueue{Key: Key{"default", "main"}, Queue: "cq"}},
	} {
		e.Apply(event)
	}
	e.Apply(WorkloadChanged{Workload: wanting("running", 6, 0, 0)})
	for i := range pending {
		e.Apply(WorkloadChanged{Workload: wanting(fmt.Sprintf("w%d", i), 3+int64(i%5), 0, i+1)})
	}
	e.Decide(noon)
	return e
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func wanting(name string, cards, priority int64, second int) Workload {
	return Workload{
		Key: Key{"default", name}, UID: name, LocalQueue: "main", Priority: priority, Created: noon.Add(time.Duration(second-1e6) * time.Second),
		PodSets: []PodSet{{Name: "main", Count: 1, Requests: Requests{"gpu": cards}}},
	}
}

func TestConsider(t *testing.T) {
	for _, c := range []struct {
		name            string
		strict          bool
		cards, priority int64
		starts          bool
		victims         int
		reason          Reason
	}{
		{"quota is free", false, 2, 0, true, 0, ReasonPending},
		{"too little quota is free", false, 3, 0, false, 0, ReasonWaitingForQuota},
		{"by preempting another", false, 3, 5, false, 1, ReasonPending},
		{"never", false, 9, 0, false, 0, ReasonExceedsMaxQuota},
		{"quota is free, but the queue is StrictFIFO", true, 2, 0, false, 0, ReasonPending},
	} {
		e, twin := considered(c.strict, 3), considered(c.strict, 3)
		x := e.Consider(wanting("asked", c.cards, c.priority, 100), noon)
		if starts := x.Would != nil && x.StartsAt.Equal(noon); starts != c.starts || len(x.PreemptionTargets) != c.victims || x.Reason != c.reason {
			t.Errorf("%s: would start %t, preempts %d, %s (%s)", c.name, starts, len(x.PreemptionTargets), x.Reason, x.Message)
		}
		if c.starts && x.Would.PodSets[0].Flavors["gpu"] != "h100" {
			t.Errorf("%s: it would get %+v", c.name, x.Would)
		}
		// The question leaves no trace: the next decision is the same without it.
		for _, engine := range []*Engine{e, twin} {
			engine.Apply(WorkloadGone{Key: Key{"default", "running"}})
		}
		if got, want := e.Decide(noon), twin.Decide(noon); !reflect.DeepEqual(got.Admit, want.Admit) || !reflect.DeepEqual(got.Evict, want.Evict) {
			t.Errorf("%s: the question changed what is decided: %+v, want %+v", c.name, got, want)
		}
		if x := e.Explain(Key{"default", "asked"}, noon); x.State != StateUnknown {
			t.Errorf("%s: it is still there: %s", c.name, x.State)
		}
	}
}

func BenchmarkExplain20000Pending(b *testing.B) {
	e := considered(false, 20000)
	last := Key{"default", "w19999"}
	for b.Loop() {
		if x := e.Explain(last, noon); x.Position != 20000 {
			b.Fatalf("position %d", x.Position)
		}
	}
}

func BenchmarkConsider20000Pending(b *testing.B) {
	e := considered(false, 20000)
	for b.Loop() {
		if x := e.Consider(wanting("asked", 3, 0, 30000), noon); x.Position == 0 {
			b.Fatal("no position")
		}
	}
}

// A workload that comes after an equal one that does not fit is told only that, if explicit statuses are asked for.
func TestSayBypassed(t *testing.T) {
	for _, say := range []bool{false, true} {
		e := considered(false, 1)
		e.opts.SayBypassed = say
		e.Apply(WorkloadChanged{Workload: wanting("equal", 3, 0, 50)})
		plan := e.Decide(noon)
		if len(plan.Pending) != 1 || plan.Pending[0].Reason != ReasonWaitingForQuota || (plan.Pending[0].Message == equivalentFailed) != say {
			t.Errorf("%t: %+v", say, plan.Pending)
		}
	}
}
