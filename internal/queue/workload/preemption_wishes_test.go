package workload

import (
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// One that asks not to be requeued is deactivated as it is preempted, and goes on if it is activated again.
func TestStopsWhenPreempted(t *testing.T) {
	wl := admitted()
	wl.Annotations = map[string]string{egpu.OnPreemptionAnnotation: egpu.OnPreemptionStop}
	Preempt(wl, kueue.InClusterQueueReason, "for another", start)
	if step := NextStep(wl, Queues{}, Settings{}, start); step.Action != Deactivate {
		t.Fatalf("%+v, and it should be deactivated", step)
	}
	wl.Spec.Active = new(bool)
	if step := NextStep(wl, Queues{}, Settings{}, start); !step.Apply(wl, start) || step.Action != ResetRequeueState {
		t.Fatalf("%+v", step)
	}
	Release(wl, "", start)
	if step := NextStep(wl, Queues{}, Settings{}, after(time.Hour)); step.Action != Wait || !WasStoppedByPreemption(wl) || !ForEngine(wl, nil).Inactive {
		t.Errorf("%+v, conditions %+v", step, wl.Status.Conditions)
	}
	*wl.Spec.Active = true
	if step := NextStep(wl, Queues{}, Settings{}, after(time.Hour)); step.Action != Wait || WasStoppedByPreemption(wl) || ForEngine(wl, nil).Inactive {
		t.Errorf("activated again: %+v, conditions %+v", step, wl.Status.Conditions)
	}
}

// Others are requeued, whatever else they say.
func TestIsRequeuedWhenPreempted(t *testing.T) {
	wl := admitted()
	wl.Annotations = map[string]string{egpu.OnPreemptionAnnotation: egpu.OnPreemptionSwap}
	Preempt(wl, kueue.InClusterQueueReason, "for another", start)
	if step := NextStep(wl, Queues{}, Settings{}, start); step.Action != Wait {
		t.Errorf("%+v", step)
	}
}

func TestCheckpointedAt(t *testing.T) {
	for text, want := range map[string]time.Time{
		"2026-01-02T03:04:05Z": time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), "2026-01-02T03:04:05+01:00": time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC),
		"": {}, "yesterday": {}, "1767323045": {},
	} {
		wl := admitted()
		wl.Annotations = map[string]string{v1alpha1.CheckpointedAtAnnotation: text}
		if got := ForEngine(wl, nil).CheckpointedAt; !got.Equal(want) {
			t.Errorf("%q is %s", text, got)
		}
	}
}
