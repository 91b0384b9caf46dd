package job

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// A job that the queue gave up because it could not be started waits for nothing: it has failed, and says why. One whose
// workload ended for another reason gets the next one.
func TestJobThatCouldNotBeStartedHasFailed(t *testing.T) {
	for name, test := range map[string]struct {
		finished       metav1.Condition
		status, reason string
	}{
		"given up":    {metav1.Condition{Status: metav1.ConditionTrue, Reason: "FailedToStart", Message: "zone is a and b"}, Failed, "it could not be started: zone is a and b"},
		"out of sync": {metav1.Condition{Status: metav1.ConditionTrue, Reason: kueue.WorkloadFinishedReasonOutOfSync, Message: "another size"}, Queuing, ""},
		"not ended":   {metav1.Condition{Status: metav1.ConditionFalse, Reason: "FailedToStart", Message: "zone is a and b"}, Queuing, ""},
	} {
		wl := &kueue.Workload{}
		test.finished.Type = kueue.WorkloadFinished
		wl.Status.Conditions = []metav1.Condition{test.finished}
		j := &Job{Workload: wl, Kind: kinds.Table()[0]}
		if status, reason := j.standing(kinds.View{Suspended: true}, true, false); status != test.status || reason != test.reason {
			t.Errorf("%s: %s, %q", name, status, reason)
		}
	}
}
