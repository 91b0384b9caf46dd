package workload

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
)

// Settings of a workload's lifecycle beside quota.
type Settings struct {
	// PodsReady evicts workloads whose pods do not become ready; nil: never.
	PodsReady *PodsReadySettings
	// RetainFinished and RetainDeactivated are how long such workloads are retained; nil: forever.
	RetainFinished, RetainDeactivated *time.Duration
	// FinishOrphans finishes workloads whose job no longer exists.
	FinishOrphans bool
	// GranularReasons are those of Kueue's gate UnadmittedWorkloadsObservability.
	GranularReasons bool
	// ExplicitStatus writes that a workload is not admitted as soon as it is there, with GranularReasons.
	ExplicitStatus bool
	// Unmanaged says that jobs of an owner's kind have no controller here; nil: all have one.
	Unmanaged func(metav1.OwnerReference) bool
}

// hasNoController says that no controller of ours will remove the workload's finalizer.
func (s Settings) hasNoController(wl *kueue.Workload) bool {
	return !slices.ContainsFunc(wl.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return s.Unmanaged == nil || !s.Unmanaged(owner)
	})
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

// Queues is what the lifecycle of a workload depends on in its queues.
type Queues struct {
	LocalQueue, ClusterQueue string
	// LocalGone and Gone: missing, or being deleted.
	LocalGone, Gone bool
	// LocalStopped and Stopped: by whichever stop policy.
	LocalStopped, Stopped bool
	// Checks the workload must pass in its ClusterQueue, as far as that is known before it has flavors.
	Checks []string
}

// closed says why a workload loses quota it does not use yet.
func (q Queues) closed() admission.Pending {
	switch {
	case q.LocalGone:
		return admission.Pending{Blocked: true, Reason: admission.ReasonMisconfigured, Message: "LocalQueue " + q.LocalQueue + " is terminating or missing"}
	case q.LocalStopped:
		return admission.Pending{Blocked: true, Reason: admission.ReasonSuspended, Message: "LocalQueue " + q.LocalQueue + " is stopped"}
	case q.Gone:
		return admission.Pending{Blocked: true, Reason: admission.ReasonMisconfigured, Message: "ClusterQueue " + q.ClusterQueue + " is terminating or missing"}
	case q.Stopped:
		return admission.Pending{Blocked: true, Reason: admission.ReasonSuspended, Message: "ClusterQueue " + q.ClusterQueue + " is stopped"}
	}
	return admission.Pending{}
}

// Action is what a step of the lifecycle does.
type Action uint8

// The actions. Decisions about quota are the engine's.
const (
	Wait                Action = iota // do nothing; Step.At says when to look again
	AdmitNow                          // all checks are ready
	SecondPassNow                     // all checks are ready; its pods are placed in the second pass
	EvictNow                          // its job has to stop
	ReleaseNow                        // release quota it does not use yet
	ResetChecks                       // its queue has other checks now
	ExplainNow                        // it says that it is not admitted, before there is a reason
	Requeue                           // it is pending again
	ResetRequeueState                 // deactivated, it starts from scratch if it is activated again
	MarkForDeactivation               // set the DeactivationTarget condition
	Deactivate                        // set spec.active to false
	FinishNow                         // its job, which should finish it, no longer exists
	DeleteNow                         // its retention has ended
	RemoveFinalizerNow                // it was deleted, and no job's controller will remove the finalizer

	// Those of concurrent admission.
	Activate           // set spec.active to true
	ReleaseEvicted     // release quota that its parent does not use any more
	MarkParent         // label it as a parent
	FollowVariant      // the parent is admitted as its variant is
	OpenPreemptionGate // the variant may preempt
	DeleteVariant      // its parent, or its flavor, is another one by now
)

// Step is an action with its reason.
type Step struct {
	Action          Action
	Reason, Message string
	// Cause is the underlying cause of an eviction.
	Cause string
	// After is when an evicted workload may be considered again; nil: at once.
	After *time.Duration
	// Counts says that the eviction counts against the requeuing limit.
	Counts bool
	// Checks are the ones it must pass from now on.
	Checks []string
	// Assignments are the topology assignments found in the second pass.
	Assignments map[string]*kueue.TopologyAssignment
	// Variant is the one that the parent follows.
	Variant *kueue.Workload
	// At is when to look again although nothing changed; zero: never.
	At time.Time
}

// NextStep says what the lifecycle of a workload asks for now. It depends on the object and its
// queues alone, so it can be called at any time and any number of times.
func NextStep(wl *kueue.Workload, queues Queues, settings Settings, now time.Time) Step {
	switch {
	case wl.DeletionTimestamp != nil && HasFinalizer(wl) && settings.hasNoController(wl):
		return Step{Action: RemoveFinalizerNow}
	case wl.DeletionTimestamp != nil:
		return Step{} // its job is stopping
	case IsFinished(wl):
		return deleteAfter(condition(wl, kueue.WorkloadFinished), settings.RetainFinished, now)
	case settings.FinishOrphans && len(wl.OwnerReferences) == 0 && wl.Labels[kueuelabels.JobUID] != "":
		return Step{Action: FinishNow, Reason: kueue.WorkloadFinishedReasonOwnerNotFound, Message: "The workload's owner no longer exists"}
	case !IsActive(wl):
		return deactivatedStep(wl, settings, now)
	case isTrue(wl, kueue.WorkloadDeactivationTarget):
		return Step{Action: Deactivate}
	case !HasReservation(wl):
		return pendingStep(wl, queues, settings, now)
	case IsEvicted(wl):
		return evictedStep(wl, now)
	case !sameChecks(wl, queues.Checks):
		return Step{Action: ResetChecks, Checks: queues.Checks}
	}
	step := checksStep(wl)
	if IsAdmitted(wl) && step.Action == Wait {
		return settings.PodsReady.step(wl, now)
	}
	waits := step.Action == Wait || step.Action == SecondPassNow // one that waits for nothing is admitted, whatever its queues
	if why := queues.closed(); why.Reason != "" && waits && !IsAdmitted(wl) {
		return Step{Action: ReleaseNow, Reason: PendingReason(why, settings.GranularReasons), Message: why.Message}
	}
	return step
}

// pendingStep requeues a workload without quota when it is time, and has its status say what it waits for.
func pendingStep(wl *kueue.Workload, queues Queues, settings Settings, now time.Time) Step {
	step := requeueStep(wl, queues, now)
	switch {
	case step.Action != Wait:
	case !sameChecks(wl, queues.Checks):
		return Step{Action: ResetChecks, Checks: queues.Checks}
	case settings.ExplicitStatus && condition(wl, kueue.WorkloadQuotaReserved) == nil:
		return Step{Action: ExplainNow}
	}
	return step
}

// deactivatedStep evicts a deactivated workload, with the cause, and deletes it in the end if it
// was not deactivated by its user.
func deactivatedStep(wl *kueue.Workload, settings Settings, now time.Time) Step {
	target := condition(wl, kueue.WorkloadDeactivationTarget)
	if !IsEvicted(wl) {
		step := Step{Action: EvictNow, Reason: kueue.WorkloadDeactivated, Message: "The workload is deactivated"}
		if target != nil {
			step.Cause, step.Message = target.Reason, step.Message+" due to "+target.Message
		}
		return step
	}
	if target != nil || wl.Status.RequeueState != nil {
		return Step{Action: ResetRequeueState}
	}
	evicted := condition(wl, kueue.WorkloadEvicted)
	if HasReservation(wl) || !strings.HasPrefix(evicted.Reason, kueue.WorkloadDeactivated+"DueTo") {
		return Step{}
	}
	return deleteAfter(evicted, settings.RetainDeactivated, now)
}

// DependsOnQueues says that the next step depends on the state of the workload's queues.
func DependsOnQueues(wl *kueue.Workload) bool { return !IsFinished(wl) && IsActive(wl) }

func sameChecks(wl *kueue.Workload, names []string) bool {
	return slices.EqualFunc(wl.Status.AdmissionChecks, names, func(state kueue.AdmissionCheckState, name string) bool {
		return string(state.Name) == name
	})
}

// deleteAfter deletes a workload whose retention has ended.
func deleteAfter(end *metav1.Condition, retention *time.Duration, now time.Time) Step {
	if retention == nil || end == nil {
		return Step{}
	}
	if at := end.LastTransitionTime.Add(*retention); now.Before(at) {
		return Step{At: at}
	}
	return Step{Action: DeleteNow}
}

// requeueStep says when an evicted workload is pending again.
func requeueStep(wl *kueue.Workload, queues Queues, now time.Time) Step {
	if state := wl.Status.RequeueState; state != nil && state.RequeueAt != nil && now.Before(state.RequeueAt.Time) {
		return Step{At: state.RequeueAt.Time}
	}
	requeued := condition(wl, kueue.WorkloadRequeued)
	if requeued == nil || requeued.Status != metav1.ConditionFalse {
		if backingOff(wl) {
			return Step{Action: Requeue, Reason: kueue.WorkloadBackoffFinished, Message: "The workload backoff was finished"}
		}
		return Step{}
	}
	reason, message := requeueReason(requeued.Reason, queues)
	if reason == "" {
		return Step{}
	}
	return Step{Action: Requeue, Reason: reason, Message: message}
}

// evictedStep ends the backoff of a workload whose job is still stopping, if it is marked as not requeued.
func evictedStep(wl *kueue.Workload, now time.Time) Step {
	requeued := condition(wl, kueue.WorkloadRequeued)
	if requeued == nil || requeued.Status != metav1.ConditionFalse || !endsByBackoff(requeued.Reason) {
		return Step{}
	}
	return requeueStep(wl, Queues{}, now)
}

// endsByBackoff says that a workload with such an eviction is requeued after its backoff.
func endsByBackoff(evicted string) bool {
	switch evicted {
	case kueue.WorkloadEvictedByPodsReadyTimeout, kueue.WorkloadEvictedByAdmissionCheck, cloudv1.ReasonMachineLost, cloudv1.ReasonBackToSpot, cloudv1.ReasonOnDemand:
		return true
	}
	return false
}

// requeueReason is why a workload that was evicted for some reason is requeued; "" while that
// reason still holds.
func requeueReason(evicted string, queues Queues) (reason, message string) {
	switch {
	case strings.HasPrefix(evicted, kueue.WorkloadDeactivated):
		return kueue.WorkloadReactivated, "The workload was reactivated"
	case evicted == kueue.WorkloadEvictedByClusterQueueStopped && !queues.Stopped && !queues.Gone:
		return kueue.WorkloadClusterQueueRestarted, "The ClusterQueue was restarted after being stopped"
	case evicted == kueue.WorkloadEvictedByLocalQueueStopped && !queues.LocalStopped && !queues.LocalGone:
		return kueue.WorkloadLocalQueueRestarted, "The LocalQueue was restarted after being stopped"
	case endsByBackoff(evicted):
		return kueue.WorkloadBackoffFinished, "The workload backoff was finished"
	}
	return "", ""
}

// checksStep looks at the admission checks of a workload with quota reserved.
func checksStep(wl *kueue.Workload) Step {
	if message := checksIn(wl, kueue.CheckStateRejected); message != "" {
		return Step{Action: MarkForDeactivation, Reason: kueue.WorkloadEvictedByAdmissionCheck, Message: message}
	}
	if message := checksIn(wl, kueue.CheckStateRetry); message != "" {
		step := Step{Action: EvictNow, Reason: retryReason(wl), Message: "Evicted due to " + message}
		longest := int32(0)
		for _, check := range wl.Status.AdmissionChecks {
			if check.State == kueue.CheckStateRetry {
				longest = max(longest, ptr.Deref(check.RequeueAfterSeconds, 0))
			}
		}
		if longest > 0 {
			step.After = ptr.To(time.Duration(longest) * time.Second)
		}
		return step
	}
	switch {
	case !ChecksReady(wl) || IsAdmitted(wl):
		return Step{}
	case hasDelayedTopologyRequest(wl) && wl.Status.ClusterName != nil:
		return Step{} // it runs in another cluster, which reports its admission
	case hasDelayedTopologyRequest(wl):
		return Step{Action: SecondPassNow}
	}
	return Step{Action: AdmitNow}
}

// retryReason is why a workload is evicted whose checks say Retry: what became of its bought nodes, if all of them say the same.
func retryReason(wl *kueue.Workload) (reason string) {
	for _, check := range wl.Status.AdmissionChecks {
		if check.State != kueue.CheckStateRetry {
			continue
		}
		own, _, _ := strings.Cut(check.Message, ": ")
		if own != cloudv1.ReasonMachineLost && own != cloudv1.ReasonBackToSpot && own != cloudv1.ReasonOnDemand || reason != "" && reason != own {
			return kueue.WorkloadEvictedByAdmissionCheck
		}
		reason = own
	}
	return reason
}

// ChecksReady says that all its checks are ready.
func ChecksReady(wl *kueue.Workload) bool {
	return !slices.ContainsFunc(wl.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return c.State != kueue.CheckStateReady })
}

// checksIn names the checks in a state with their messages; "" if there are none.
func checksIn(wl *kueue.Workload, state kueue.CheckState) string {
	var names []string
	for _, check := range wl.Status.AdmissionChecks {
		if check.State != state {
			continue
		}
		text := strconv.Quote(string(check.Name))
		if check.Message != "" {
			text += " (" + check.Message + ")"
		}
		names = append(names, text)
	}
	slices.Sort(names)
	switch len(names) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("AdmissionCheck in %s state: %s", state, names[0])
	}
	return fmt.Sprintf("AdmissionChecks in %s state: %s", state, strings.Join(names, "; "))
}

// step evicts an admitted workload whose pods are not all ready in time.
func (s *PodsReadySettings) step(wl *kueue.Workload, now time.Time) Step {
	ready := condition(wl, kueue.WorkloadPodsReady)
	if s == nil || (ready != nil && ready.Status == metav1.ConditionTrue) {
		return Step{}
	}
	since, limit, cause := condition(wl, kueue.WorkloadAdmitted).LastTransitionTime.Time, s.Timeout, kueue.WorkloadWaitForStart
	if ready != nil && ready.Reason == kueue.WorkloadWaitForRecovery {
		since, limit, cause = ready.LastTransitionTime.Time, s.Recovery, kueue.WorkloadWaitForRecovery
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
			Action: MarkForDeactivation, Reason: kueue.WorkloadRequeuingLimitExceeded,
			Message: "exceeding the maximum number of re-queuing retries",
		}
	}
	pause := min(float64(s.BackoffBase)*math.Pow(2, float64(tried)), float64(s.BackoffMax))
	return Step{
		Action: EvictNow, Reason: kueue.WorkloadEvictedByPodsReadyTimeout, Cause: cause, Counts: true,
		Message: fmt.Sprintf("Exceeded the PodsReady timeout %s/%s", wl.Namespace, wl.Name),
		After:   ptr.To(time.Duration(pause)),
	}
}

// ExecutionTimeExceeded marks a workload for deactivation that has reached its maximum execution
// time.
func ExecutionTimeExceeded() Step {
	return Step{Action: MarkForDeactivation, Reason: kueue.WorkloadMaximumExecutionTimeExceeded, Message: "exceeding the maximum execution time"}
}

// Apply writes a step into the workload and reports whether that changed it. What deletes it, or its finalizer, does not.
func (s Step) Apply(wl *kueue.Workload, now time.Time) bool {
	switch s.Action {
	case SecondPassNow:
		placeDelayedTopologyRequests(wl, s.Assignments)
		return set(wl, kueue.WorkloadAdmitted, true, "Admitted", "The workload is admitted", now)
	case AdmitNow:
		return set(wl, kueue.WorkloadAdmitted, true, "Admitted", "The workload is admitted", now)
	case EvictNow:
		Evict(wl, s.Reason, s.Cause, s.Message, now)
		if s.ResetsRequeueState() {
			resetRequeueState(wl)
		}
		s.delay(wl, now)
		return true
	case ReleaseNow:
		restartChecks(wl, now)
		return release(wl, s.Reason, s.Message, now)
	case ResetChecks:
		SetChecks(wl, s.Checks, now)
		return true
	case ExplainNow:
		return SetPending(wl, admission.Pending{Reason: admission.ReasonPending, Message: admission.NotEvaluated}, true, now)
	case Requeue:
		if state := wl.Status.RequeueState; state != nil {
			if state.RequeueAt = nil; state.Count == nil {
				wl.Status.RequeueState = nil // an object without fields cannot be applied
			}
		}
		set(wl, kueue.WorkloadRequeued, true, s.Reason, s.Message, now)
		return true
	case ResetRequeueState:
		resetRequeueState(wl)
		return true
	case MarkForDeactivation:
		if s.Reason == kueue.WorkloadMaximumExecutionTimeExceeded {
			wl.Status.AccumulatedPastExecutionTimeSeconds = nil // activated again it has its full time
		}
		return set(wl, kueue.WorkloadDeactivationTarget, true, s.Reason, s.Message, now)
	case FinishNow:
		return Finish(wl, s.Reason, s.Message, now)
	case Activate, Deactivate:
		wl.Spec.Active = ptr.To(s.Action == Activate)
		return true
	}
	return s.applyToFamily(wl, now)
}

// ResetsRequeueState says that the step deletes status.requeueState, also what another field manager wrote there.
func (s Step) ResetsRequeueState() bool {
	return s.Action == ResetRequeueState || s.Action == EvictNow && s.Reason == kueue.WorkloadDeactivated
}

// resetRequeueState lets a deactivated workload start from scratch if it is activated again.
func resetRequeueState(wl *kueue.Workload) {
	apimeta.RemoveStatusCondition(&wl.Status.Conditions, kueue.WorkloadDeactivationTarget)
	wl.Status.RequeueState = nil
}

// delay sets the backoff of an evicted workload.
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
}
