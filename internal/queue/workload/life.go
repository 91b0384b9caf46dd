package workload

import (
	"fmt"
	"math"
	"time"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Settings of a workload's life beside quota.
type Settings struct {
	// PodsReady evicts workloads whose pods do not come up; nil waits forever.
	PodsReady *PodsReadySettings
	// How long finished and deactivated workloads are kept; nil: forever.
	RetainFinished, RetainDeactivated *time.Duration
}

// PodsReadySettings are those of Kueue's waitForPodsReady.
type PodsReadySettings struct {
	// Timeout from admission until all pods are ready; Recovery from the moment
	// one of them no longer is (0: no limit).
	Timeout, Recovery time.Duration
	// Backoff before the n-th requeuing is Base*2^(n-1), Max at most; after
	// Limit requeuings (nil: any number) the workload is deactivated.
	BackoffBase, BackoffMax time.Duration
	BackoffLimit            *int32
}

// Act is what a workload's life asks for next.
type Act uint8

// The acts, beside which the engine decides about quota.
const (
	Wait       Act = iota // nothing; Step.At says when to look again
	AdmitNow              // all checks are ready
	EvictNow              // it must let go
	Requeue               // its backoff has passed
	Target                // mark it for deactivation
	Deactivate            // make spec.active false
	Delete                // it was kept long enough
)

// Step is an act with its reason.
type Step struct {
	Act             Act
	Reason, Message string
	// After is when an evicted workload may be considered again; nil: at once.
	After *time.Duration
	// Counts says the eviction counts against the requeuing limit.
	Counts bool
	// At is when to look again although nothing changed; zero: never.
	At time.Time
}

// Next says what a workload's life asks for now. It decides on the object
// alone, so it can be asked at any time and as often as one likes.
func Next(wl *kueue.Workload, settings Settings, now time.Time) Step {
	switch {
	case IsFinished(wl):
		return retire(condition(wl, kueue.WorkloadFinished), settings.RetainFinished, now)
	case !IsActive(wl):
		if HasReservation(wl) {
			return Step{} // the engine evicts it
		}
		return retire(condition(wl, kueue.WorkloadEvicted), settings.RetainDeactivated, now)
	case isTrue(wl, kueue.WorkloadDeactivationTarget):
		return Step{Act: Deactivate}
	case !HasReservation(wl):
		return backoff(wl, now)
	case IsEvicted(wl):
		return Step{} // its job is stopping
	case !IsAdmitted(wl):
		return checked(wl)
	}
	if step := checked(wl); step.Act == EvictNow || step.Act == Target {
		return step
	}
	return settings.PodsReady.watch(wl, now)
}

// retire deletes a workload that has been over for long enough.
func retire(end *metav1.Condition, keep *time.Duration, now time.Time) Step {
	if keep == nil || end == nil {
		return Step{}
	}
	if at := end.LastTransitionTime.Add(*keep); now.Before(at) {
		return Step{At: at}
	}
	return Step{Act: Delete}
}

func backoff(wl *kueue.Workload, now time.Time) Step {
	state := wl.Status.RequeueState
	if state == nil || state.RequeueAt == nil {
		return Step{}
	}
	if now.Before(state.RequeueAt.Time) {
		return Step{At: state.RequeueAt.Time}
	}
	return Step{Act: Requeue, Reason: kueue.WorkloadBackoffFinished, Message: "The workload backoff was finished"}
}

// checked looks at the admission checks of a workload with quota.
func checked(wl *kueue.Workload) Step {
	ready := true
	for _, check := range wl.Status.AdmissionChecks {
		switch check.State {
		case kueue.CheckStateRejected:
			return Step{
				Act: Target, Reason: kueue.WorkloadEvictedByAdmissionCheck,
				Message: fmt.Sprintf("Admission check(s): %s, were rejected", check.Name),
			}
		case kueue.CheckStateRetry:
			step := Step{
				Act: EvictNow, Reason: kueue.WorkloadEvictedByAdmissionCheck,
				Message: fmt.Sprintf("At least one admission check is false: %s: %s", check.Name, check.Message),
			}
			if seconds := ptr.Deref(check.RequeueAfterSeconds, 0); seconds > 0 {
				step.After = ptr.To(time.Duration(seconds) * time.Second)
			}
			return step
		case kueue.CheckStateReady:
		default:
			ready = false
		}
	}
	if ready && !IsAdmitted(wl) {
		return Step{Act: AdmitNow}
	}
	return Step{}
}

// watch evicts an admitted workload whose pods are not all up in time.
func (s *PodsReadySettings) watch(wl *kueue.Workload, now time.Time) Step {
	ready := condition(wl, kueue.WorkloadPodsReady)
	if s == nil || (ready != nil && ready.Status == metav1.ConditionTrue) {
		return Step{}
	}
	since, limit := condition(wl, kueue.WorkloadAdmitted).LastTransitionTime.Time, s.Timeout
	if ready != nil && ready.Reason == kueue.WorkloadWaitForRecovery {
		since, limit = ready.LastTransitionTime.Time, s.Recovery
	}
	if limit == 0 {
		return Step{}
	}
	if at := since.Add(limit); now.Before(at) {
		return Step{At: at}
	}
	tried := int32(0)
	if state := wl.Status.RequeueState; state != nil {
		tried = ptr.Deref(state.Count, 0)
	}
	if s.BackoffLimit != nil && tried >= *s.BackoffLimit {
		return Step{
			Act: Target, Reason: kueue.WorkloadRequeuingLimitExceeded,
			Message: "exceeding the maximum number of re-queuing retries",
		}
	}
	pause := min(float64(s.BackoffBase)*math.Pow(2, float64(tried)), float64(s.BackoffMax))
	return Step{
		Act: EvictNow, Reason: kueue.WorkloadEvictedByPodsReadyTimeout, Counts: true,
		Message: fmt.Sprintf("Exceeded the PodsReady timeout %s/%s", wl.Namespace, wl.Name),
		After:   ptr.To(time.Duration(pause)),
	}
}

// Take puts a step into the status. Deactivate and Delete are not of the
// status: they report false.
func (s Step) Take(wl *kueue.Workload, now time.Time) bool {
	switch s.Act {
	case AdmitNow:
		return set(wl, kueue.WorkloadAdmitted, true, "Admitted", "The workload is admitted", now)
	case EvictNow:
		Evict(wl, s.Reason, s.Message, now)
		s.delay(wl, now)
		return true
	case Requeue:
		wl.Status.RequeueState.RequeueAt = nil
		set(wl, kueue.WorkloadRequeued, true, s.Reason, s.Message, now)
		return true
	case Target:
		return set(wl, kueue.WorkloadDeactivationTarget, true, s.Reason, s.Message, now)
	}
	return false
}

// delay keeps an evicted workload out of the line for a while.
func (s Step) delay(wl *kueue.Workload, now time.Time) {
	if s.After == nil {
		return
	}
	if wl.Status.RequeueState == nil {
		wl.Status.RequeueState = &kueue.RequeueState{}
	}
	state := wl.Status.RequeueState
	if s.Counts {
		state.Count = ptr.To(ptr.Deref(state.Count, 0) + 1)
	}
	state.RequeueAt = ptr.To(metav1.NewTime(now.Add(*s.After)))
	set(wl, kueue.WorkloadRequeued, false, s.Reason, s.Message, now)
}
