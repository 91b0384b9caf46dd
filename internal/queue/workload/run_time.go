package workload

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
)

// RanFor is how long a workload ran that succeeded, all its turns together; 0 for any other.
func RanFor(wl *kueue.Workload) time.Duration {
	finished, admitted := condition(wl, kueue.WorkloadFinished), condition(wl, kueue.WorkloadAdmitted)
	if !IsFinished(wl) || finished.Reason != kueue.WorkloadFinishedReasonSucceeded || admitted == nil || !isTrue(wl, kueue.WorkloadAdmitted) {
		return 0
	}
	return max(0, finished.LastTransitionTime.Sub(admitted.LastTransitionTime.Time)) + seconds(wl.Status.AccumulatedPastExecutionTimeSeconds)
}

// RanBefore is how long a workload ran in its earlier turns, as far as that counts against its limit.
func RanBefore(wl *kueue.Workload) time.Duration {
	return seconds(wl.Status.AccumulatedPastExecutionTimeSeconds)
}

// AdmittedAt is since when a workload is admitted; zero: it is not.
func AdmittedAt(wl *kueue.Workload) time.Time {
	if !IsAdmitted(wl) {
		return time.Time{}
	}
	return condition(wl, kueue.WorkloadAdmitted).LastTransitionTime.Time
}

// Evictions is how often a workload was evicted for a reason.
func Evictions(wl *kueue.Workload, reason string) (n int) {
	if wl.Status.SchedulingStats == nil {
		return 0
	}
	for _, e := range wl.Status.SchedulingStats.Evictions {
		if e.Reason == reason {
			n += int(e.Count)
		}
	}
	return n
}

// MayBeHandedOver says that a workload may be evicted to get nodes on demand: it was not, or was evicted as often for other reasons. So
// where the flavor that it is handed over to has no quota for it, it is not handed over again and again.
func MayBeHandedOver(wl *kueue.Workload) bool {
	if wl.Status.SchedulingStats == nil {
		return true
	}
	all := 0
	for _, e := range wl.Status.SchedulingStats.Evictions {
		all += int(e.Count)
	}
	return 2*Evictions(wl, cloudv1.ReasonOnDemand) <= all
}

// EvictedAt is when a workload was evicted for a reason, if it has had no quota since; zero: it was not.
func EvictedAt(wl *kueue.Workload, reason string) time.Time {
	evicted := condition(wl, kueue.WorkloadEvicted)
	if evicted == nil || evicted.Status != metav1.ConditionTrue || evicted.Reason != reason {
		return time.Time{}
	}
	return evicted.LastTransitionTime.Time
}

// doneAgain is what a workload that was stopped to go back to spot nodes must do again, at most. It did not ask for that, so it
// does not count against its limit.
func doneAgain(wl *kueue.Workload, ran time.Duration) time.Duration {
	if EvictedAt(wl, cloudv1.ReasonBackToSpot).IsZero() {
		return 0
	}
	terms, _ := PurchaseTermsOf(wl.Annotations)
	return min(terms.Checkpoint, ran)
}
