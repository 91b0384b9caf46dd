package workload

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
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
