package workload

import (
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// RanFor is how long a workload ran that succeeded, all its turns together; 0 for any other.
func RanFor(wl *kueue.Workload) time.Duration {
	finished, admitted := condition(wl, kueue.WorkloadFinished), condition(wl, kueue.WorkloadAdmitted)
	if !IsFinished(wl) || finished.Reason != kueue.WorkloadFinishedReasonSucceeded || admitted == nil || !isTrue(wl, kueue.WorkloadAdmitted) {
		return 0
	}
	return max(0, finished.LastTransitionTime.Sub(admitted.LastTransitionTime.Time)) + seconds(wl.Status.AccumulatedPastExecutionTimeSeconds)
}
