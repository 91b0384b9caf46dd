package workload

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
)

// Who was stopped to go back to spot is requeued at once, is counted, and has the time back that it must run again: at most what lies
// between two checkpoints, and not for any other stop.
func TestTimeThatIsDoneAgain(t *testing.T) {
	for name, test := range map[string]struct {
		message, checkpoint string
		ran                 time.Duration
		want                int32
	}{
		"back to spot":                     {"BackToSpot: spot nodes are sold", "30m", 2 * time.Hour, 5400},
		"it ran for less than that":        {"BackToSpot: spot nodes are sold", "30m", 10 * time.Minute, 0},
		"it says nothing that can be read": {"BackToSpot: spot nodes are sold", "always", 2 * time.Hour, 7200},
		"a node was lost":                  {"MachineLost: a node was lost", "30m", 2 * time.Hour, 7200},
	} {
		t.Run(name, func(t *testing.T) {
			wl := admitted()
			wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "a", State: kueue.CheckStateRetry, Message: test.message}}
			wl.Annotations = map[string]string{cloudv1.CheckpointAnnotation: test.checkpoint}
			queues, now := Queues{Checks: checkNames(1)}, after(test.ran)
			NextStep(wl, queues, Settings{}, now).Apply(wl, now)
			Release(wl, "", now)
			if got := *wl.Status.AccumulatedPastExecutionTimeSeconds; got != test.want {
				t.Errorf("it ran for %d s, want %d", got, test.want)
			}
			reason, _, _ := strings.Cut(test.message, ":")
			if got := Evictions(wl, reason); got != 1 {
				t.Errorf("counted %d", got)
			}
			now = now.Add(time.Second)
			NextStep(wl, queues, Settings{}, now).Apply(wl, now)
			if step := NextStep(wl, queues, Settings{}, now); condition(wl, kueue.WorkloadRequeued).Status != metav1.ConditionTrue {
				t.Errorf("it waits for %+v", step)
			}
		})
	}
}

// A workload is handed over to nodes on demand until it has quota again, and not a second time unless it was evicted for something else
// meanwhile: where the other flavor has no quota for it, it would go to and fro. Its conditions and statistics say so, which its user does
// not write; what an annotation says of a deadline lets it wait, and costs nobody else.
func TestHandedOver(t *testing.T) {
	wl := admitted()
	wl.Annotations = map[string]string{cloudv1.DeadlineAnnotation: "2026-01-02T15:04:05Z"}
	if w := ForEngine(wl, nil); !w.Waits || w.HandedOver || !MayBeHandedOver(wl) {
		t.Errorf("before: %+v", w)
	}
	evict := func(reason string) {
		now := after(time.Hour)
		Evict(wl, reason, "", "because", now)
		Release(wl, "", now)
	}
	evict(cloudv1.ReasonOnDemand)
	if w := ForEngine(wl, nil); !w.HandedOver || MayBeHandedOver(wl) {
		t.Errorf("evicted for that: %+v, %+v", w.HandedOver, wl.Status.SchedulingStats)
	}
	Admit(wl, &admission.Admission{Queue: "cq"}, nil, after(2*time.Hour))
	if w := ForEngine(wl, nil); w.HandedOver || MayBeHandedOver(wl) {
		t.Errorf("with quota again: %+v", w.HandedOver)
	}
	evict(cloudv1.ReasonMachineLost)
	if w := ForEngine(wl, nil); w.HandedOver || !MayBeHandedOver(wl) {
		t.Errorf("evicted for something else: %+v", w.HandedOver)
	}
	wl.Annotations[cloudv1.DeadlineAnnotation] = "soon"
	if w := ForEngine(wl, nil); w.Waits {
		t.Error("a deadline that cannot be read is none")
	}
}
