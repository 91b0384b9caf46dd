package queue

import (
	"context"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// A panic at any stage concerns the one workload that is handled: it is set aside and told so, the
// others go on, and it is looked at again once its spec changes.
func TestPanicSetsOneWorkloadAside(t *testing.T) {
	for _, stage := range []string{stageHandle, stageStep, stageWrite} {
		t.Run(stage, func(t *testing.T) {
			p := newHarness(t)
			p.oneQueue()
			p.faults = func(at string, key admission.Key) {
				if at == stage && key.Name == "poison" && !p.isAside(p.written["poison"]) {
					panic("no such thing")
				}
			}
			p.submit("poison", "main", "batch", 1, "1")
			p.submit("other", "main", "batch", 1, "1")
			if !workload.HasReservation(p.written["other"]) {
				t.Fatalf("the other one waits: %v", p.written["other"].Status.Conditions)
			}
			c := apimeta.FindStatusCondition(p.written["poison"].Status.Conditions, kueue.WorkloadQuotaReserved)
			if c == nil || c.Reason != "Misconfigured" || !strings.Contains(c.Message, "no such thing") {
				t.Fatalf("it was told %+v", c)
			}
			if status, _ := p.engine.Status("cq"); status.Reserving != 1 || status.Pending != 0 {
				t.Errorf("the engine counts %+v", status)
			}
			if n := p.scrape()["elastic_contained_panics_total{stage="+stage+"}"]; n < 1 {
				t.Errorf("%v panics counted", n)
			}
			p.faults = nil
			p.change("poison", func(wl *kueue.Workload) { wl.Generation++ })
			if !workload.HasReservation(p.written["poison"]) {
				t.Errorf("its spec changed, and it waits: %v", p.written["poison"].Status.Conditions)
			}
		})
	}
}

// A loop that is busy with one turn for minutes is not healthy; one that waits for work is.
func TestHealthTellsOfAStuckLoop(t *testing.T) {
	p := newHarness(t)
	if err := p.Healthy(nil); err != nil {
		t.Errorf("idle: %v", err)
	}
	p.turnBegan.Store(p.time.UnixNano())
	p.advance(time.Minute)
	if err := p.Healthy(nil); err != nil {
		t.Errorf("busy for a minute: %v", err)
	}
	p.advance(2 * time.Minute)
	if err := p.Healthy(nil); err == nil {
		t.Error("busy for three minutes, and healthy")
	}
}

// A panic that nothing contains ends Start: the process ends with it, rather than live on as a leader
// that decides nothing.
func TestPanicOfTheLoopEndsTheProgram(t *testing.T) {
	p := newHarness(t)
	p.options.Writers = 2
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		p.now = func() time.Time { panic("no clock") }
		p.inbox.Put(message{question: func() {}})
		p.work(context.Background())
	}()
	select {
	case v := <-ended:
		if v != "no clock" {
			t.Errorf("ended with %v", v)
		}
	case <-time.After(time.Minute):
		t.Fatal("the loop is gone, and its writers keep the program alive")
	}
}
