package workload

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/gpu/request"
)

// Field managers of the status.
const (
	// AdmissionManager owns status.admission and the conditions about it.
	AdmissionManager = "kueue-admission"
	// JobManager owns what the job itself reports.
	JobManager = "kueue-job-controller"
)

// admissionConditions are the conditions AdmissionManager owns, and jobConditions those JobManager
// owns: an apply sends all of them, as those left out would be removed.
var (
	admissionConditions = []string{
		kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted, kueue.WorkloadEvicted,
		kueue.WorkloadPreempted, kueue.WorkloadRequeued, kueue.WorkloadDeactivationTarget, lastRunCondition, boughtCondition, pricedCondition, earlierRunsCondition, avoidNodesCondition, request.ElsewhereCondition,
		kueue.WorkloadBlockedOnPreemptionGates,
	}
	jobConditions = []string{kueue.WorkloadFinished, kueue.WorkloadPodsReady, kueue.WorkloadWaitingForReplacementPods}
)

// IsActive says that the workload takes part in queueing.
func IsActive(wl *kueue.Workload) bool { return ptr.Deref(wl.Spec.Active, true) }

// IsFinished says that the job has ended, successfully or not.
func IsFinished(wl *kueue.Workload) bool { return isTrue(wl, kueue.WorkloadFinished) }

// IsEvicted says that the workload has to release its quota.
func IsEvicted(wl *kueue.Workload) bool { return isTrue(wl, kueue.WorkloadEvicted) }

// IsAdmitted says that the job may run.
func IsAdmitted(wl *kueue.Workload) bool { return isTrue(wl, kueue.WorkloadAdmitted) }

// HasReservation says that the workload has quota reserved.
func HasReservation(wl *kueue.Workload) bool {
	return wl.Status.Admission != nil && isTrue(wl, kueue.WorkloadQuotaReserved)
}

func isTrue(wl *kueue.Workload, name string) bool {
	return apimeta.IsStatusConditionTrue(wl.Status.Conditions, name)
}

// set changes a condition and reports whether that changed anything.
func set(wl *kueue.Workload, name string, value bool, reason, message string, now time.Time) bool {
	status := metav1.ConditionFalse
	if value {
		status = metav1.ConditionTrue
	}
	return apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{
		Type: name, Status: status, Reason: reason, Message: truncate(message),
		LastTransitionTime: metav1.NewTime(now), ObservedGeneration: wl.Generation,
	})
}

// truncate limits a message to what the API accepts in a condition.
func truncate(message string) string {
	const most = 32768
	if len(message) > most {
		return message[:most-3] + "..."
	}
	return message
}

// Admit reserves quota in the status, and admits at once if there are no checks.
func Admit(wl *kueue.Workload, a *admission.Admission, checks []string, now time.Time) {
	reserve(wl, ForStatus(a), now)
	setAvoidNodes(wl, a.AvoidNodes, now)
	setCardsElsewhere(wl, elsewhereIn(a), now)
	SetChecks(wl, checks, now) // retry counts are preserved
	if len(checks) == 0 {
		set(wl, kueue.WorkloadAdmitted, true, "Admitted", "The workload is admitted", now)
	}
}

// reserve gives a workload quota; what it says of an earlier eviction is over.
func reserve(wl *kueue.Workload, a *kueue.Admission, now time.Time) {
	wl.Status.Admission, wl.Status.ResourceRequests = a, nil
	set(wl, kueue.WorkloadQuotaReserved, true, "QuotaReserved", "Quota reserved in ClusterQueue "+string(a.ClusterQueue), now)
	for _, old := range []string{kueue.WorkloadEvicted, kueue.WorkloadPreempted, kueue.WorkloadBlockedOnPreemptionGates} {
		if was := condition(wl, old); was != nil && was.Status == metav1.ConditionTrue {
			set(wl, old, false, "QuotaReserved", "Previously: "+was.Message, now)
		}
	}
	SetUncountable(wl, "", now)
	if again := condition(wl, kueue.WorkloadRequeued); again != nil && again.Status == metav1.ConditionFalse {
		// The reason for its eviction no longer holds, or it would not have been admitted.
		if reason, message := requeueReason(again.Reason, Queues{}); reason != "" {
			set(wl, kueue.WorkloadRequeued, true, reason, message, now)
		}
	}
}

// SetTopologyAssignments says where in a topology the pods of each set go.
func SetTopologyAssignments(wl *kueue.Workload, assignments map[string]*kueue.TopologyAssignment) {
	for i := range wl.Status.Admission.PodSetAssignments {
		set := &wl.Status.Admission.PodSetAssignments[i]
		set.TopologyAssignment = assignments[string(set.Name)]
	}
}

// SetChecks makes the checks those of a list; the states of those that stay are preserved.
func SetChecks(wl *kueue.Workload, names []string, now time.Time) {
	var checks []kueue.AdmissionCheckState
	for _, name := range names {
		i := slices.IndexFunc(wl.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return string(c.Name) == name })
		if i >= 0 {
			checks = append(checks, wl.Status.AdmissionChecks[i])
			continue
		}
		checks = append(checks, kueue.AdmissionCheckState{
			Name: kueue.AdmissionCheckReference(name), State: kueue.CheckStatePending, LastTransitionTime: metav1.NewTime(now),
		})
	}
	wl.Status.AdmissionChecks = checks
}

// Evict tells the job to stop; the workload has its quota until it has. Cause is the underlying
// cause, if there is more to say than the reason.
func Evict(wl *kueue.Workload, reason, cause, message string, now time.Time) {
	shown := reason
	if reason == kueue.WorkloadDeactivated && cause != "" {
		shown += "DueTo" + cause
	}
	set(wl, kueue.WorkloadEvicted, true, shown, message, now)
	count(wl, reason, kueue.EvictionUnderlyingCause(cause))
	noteBought(wl, now)
	restartChecks(wl, now)
	wl.Status.UnhealthyNodes = nil
}

// restartChecks has the checks of a workload that loses its quota begin anew.
func restartChecks(wl *kueue.Workload, now time.Time) {
	for i, check := range wl.Status.AdmissionChecks {
		if check.State == kueue.CheckStatePending {
			continue
		}
		reset := kueue.AdmissionCheckState{
			Name: check.Name, State: kueue.CheckStatePending, LastTransitionTime: metav1.NewTime(now),
			Message:             "Reset to Pending after eviction. Previously: " + string(check.State),
			RequeueAfterSeconds: check.RequeueAfterSeconds,
		}
		switch check.State {
		case kueue.CheckStateRetry:
			reset.RetryCount = ptr.To(ptr.Deref(check.RetryCount, 0) + 1)
		case kueue.CheckStateRejected:
			reset.RetryCount = check.RetryCount
		}
		wl.Status.AdmissionChecks[i] = reset
	}
}

// Preempt is Evict in favour of another workload.
func Preempt(wl *kueue.Workload, rule, message string, now time.Time) {
	Evict(wl, kueue.WorkloadEvictedByPreemption, "", message, now)
	set(wl, kueue.WorkloadPreempted, true, rule, message, now)
	if stopsWhenPreempted(wl) {
		set(wl, kueue.WorkloadDeactivationTarget, true, kueue.WorkloadEvictedByPreemption, "being preempted, after which it asked not to be requeued", now)
	}
}

// AddJobUID adds the job's UID to that of the workload in a preemption message, as Kueue writes it;
// "" is a workload without a job.
func AddJobUID(message, uid, job string) string {
	return strings.Replace(message, "(UID: "+uid+")", "(UID: "+uid+", JobUID: "+cmp.Or(job, "UNKNOWN")+")", 1)
}

// preemptor is the UID of the workload that a preemption message names.
func preemptor(message string) string {
	_, after, _ := strings.Cut(message, "(UID: ")
	end := strings.IndexAny(after, ",)")
	if end < 0 {
		return ""
	}
	return after[:end]
}

func count(wl *kueue.Workload, reason string, cause kueue.EvictionUnderlyingCause) {
	if wl.Status.SchedulingStats == nil {
		wl.Status.SchedulingStats = &kueue.SchedulingStats{}
	}
	evictions := &wl.Status.SchedulingStats.Evictions
	for i := range *evictions {
		if (*evictions)[i].Reason == reason && (*evictions)[i].UnderlyingCause == cause {
			(*evictions)[i].Count++
			return
		}
	}
	*evictions = append(*evictions, kueue.WorkloadSchedulingStatsEviction{Reason: reason, UnderlyingCause: cause, Count: 1})
}

// Release gives the quota back after the job has stopped. A preempted workload is requeued at once,
// others when the reason of their eviction no longer holds. It reports whether that changed
// anything.
func Release(wl *kueue.Workload, message string, now time.Time) bool {
	changed := false
	if evicted := condition(wl, kueue.WorkloadEvicted); evicted != nil && evicted.Status == metav1.ConditionTrue {
		changed = set(wl, kueue.WorkloadRequeued, requeuesAtOnce(evicted.Reason), evicted.Reason, evicted.Message, now)
		message = evicted.Message
	}
	return release(wl, reasonPending, message, now) || changed
}

// Hold takes the quota of a workload away whose job has no pods for now. It waits until Unhold.
func Hold(wl *kueue.Workload, message string, now time.Time) bool {
	return release(wl, kueue.WorkloadOnHold, message, now)
}

// Unhold has a workload considered again.
func Unhold(wl *kueue.Workload, now time.Time) bool {
	return set(wl, kueue.WorkloadQuotaReserved, false, reasonPending, "Workload no longer on hold; waiting for quota reservation", now)
}

// IsOnHold: the job has no pods, or cannot have any, and its workload waits for a change of it.
func IsOnHold(wl *kueue.Workload) bool {
	reserved := condition(wl, kueue.WorkloadQuotaReserved)
	return reserved != nil && reserved.Status == metav1.ConditionFalse && reserved.Reason == kueue.WorkloadOnHold
}

// requeuesAtOnce says that nothing else has to happen before a workload with such an eviction is
// requeued.
func requeuesAtOnce(evicted string) bool {
	return evicted == kueue.WorkloadEvictedByPreemption || evicted == kueue.WorkloadEvictedDueToNodeFailures ||
		evicted == string(admission.ReasonBudgetSpent) // the engine says until when it waits
}

// PreventRequeue leaves an evicted workload out of the queue: its pod is being deleted, and the
// workload goes with it.
func PreventRequeue(wl *kueue.Workload, now time.Time) bool {
	evicted := condition(wl, kueue.WorkloadEvicted)
	return set(wl, kueue.WorkloadRequeued, false, evicted.Reason, evicted.Message, now)
}

// requeuePrevented says that PreventRequeue was called.
func requeuePrevented(wl *kueue.Workload) bool {
	requeued := condition(wl, kueue.WorkloadRequeued)
	return !HasReservation(wl) && requeued != nil && requeued.Status == metav1.ConditionFalse && requeuesAtOnce(requeued.Reason)
}

// IsOfPods says that the workload is that of a pod, or of a group of them: they end when it is evicted.
func IsOfPods(wl *kueue.Workload) bool {
	return slices.ContainsFunc(wl.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Pod" && o.APIVersion == "v1" })
}

// IsSinglePod says that the workload is that of one pod, and ends with it.
func IsSinglePod(wl *kueue.Workload) bool {
	return len(wl.OwnerReferences) == 1 && wl.OwnerReferences[0].Kind == "Pod" && wl.OwnerReferences[0].APIVersion == "v1" &&
		wl.Annotations[GroupAnnotation] != "true"
}

// release takes the quota away.
func release(wl *kueue.Workload, reason, message string, now time.Time) bool {
	changed := wl.Status.Admission != nil
	reportLastRun(wl, now)
	noteRunCost(wl, now)
	forgetNoted(wl, now)
	wl.Status.Admission, wl.Status.UnhealthyNodes = nil, nil
	setAvoidNodes(wl, nil, now)
	setCardsElsewhere(wl, nil, now)
	changed = set(wl, kueue.WorkloadQuotaReserved, false, reason, message, now) || changed
	return unadmit(wl, now) || changed
}

// backingOff says that the workload is not requeued yet.
func backingOff(wl *kueue.Workload) bool {
	return wl.Status.RequeueState != nil && wl.Status.RequeueState.RequeueAt != nil
}

// Finish records the end of the job and reports whether that changed anything.
func Finish(wl *kueue.Workload, reason, message string, now time.Time) bool {
	return set(wl, kueue.WorkloadFinished, true, reason, message, now)
}

// PodsReady records whether the job's pods are all ready.
func PodsReady(wl *kueue.Workload, ready bool, reason, message string, now time.Time) bool {
	return set(wl, kueue.WorkloadPodsReady, ready, reason, message, now)
}

// WaitForReplacementPods records whether pods of a group have to be replaced, and why. The words are
// Kueue's.
func WaitForReplacementPods(wl *kueue.Workload, waits bool, now time.Time) bool {
	const waiting = kueue.WorkloadWaitingForReplacementPods
	switch evicted := condition(wl, kueue.WorkloadEvicted); {
	case !waits && !isTrue(wl, waiting):
		return false
	case !waits:
		return set(wl, waiting, false, kueue.WorkloadPodsReady, "No pods need replacement", now)
	case evicted != nil && evicted.Status == metav1.ConditionTrue:
		return set(wl, waiting, true, evicted.Reason, evicted.Message, now)
	case isTrue(wl, waiting):
		return false
	}
	return set(wl, waiting, true, "PodsFailed", "Some Failed pods need replacement", now)
}

// HadPodsReady says that the pods were all ready at some time since the admission.
func HadPodsReady(wl *kueue.Workload) bool {
	ready := condition(wl, kueue.WorkloadPodsReady)
	return ready != nil && (ready.Status == metav1.ConditionTrue || ready.Reason == kueue.WorkloadWaitForRecovery)
}

// AdmissionPatch is what AdmissionManager applies for the current status. It names the resource
// version: if the status changed meanwhile that is a conflict, and the engine decides again.
func AdmissionPatch(wl *kueue.Workload) ([]byte, error) {
	return patch(wl, kueue.WorkloadStatus{
		Admission:        wl.Status.Admission,
		Conditions:       pick(wl.Status.Conditions, admissionConditions),
		RequeueState:     wl.Status.RequeueState,
		ResourceRequests: wl.Status.ResourceRequests,
		SchedulingStats:  wl.Status.SchedulingStats,
		AdmissionChecks:  wl.Status.AdmissionChecks,
		UnhealthyNodes:   wl.Status.UnhealthyNodes,
		// Other controllers set these, but Kueue writes them under this field manager.
		NominatedClusterNames: wl.Status.NominatedClusterNames,
		ClusterName:           wl.Status.ClusterName,
		PreemptionGates:       wl.Status.PreemptionGates,

		AccumulatedPastExecutionTimeSeconds: wl.Status.AccumulatedPastExecutionTimeSeconds,
	})
}

// JobPatch is what JobManager applies for the current status.
func JobPatch(wl *kueue.Workload) ([]byte, error) {
	return patch(wl, kueue.WorkloadStatus{
		Conditions:      pick(wl.Status.Conditions, jobConditions),
		ReclaimablePods: wl.Status.ReclaimablePods,
	})
}

func patch(wl *kueue.Workload, status kueue.WorkloadStatus) ([]byte, error) {
	return json.Marshal(struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        map[string]string    `json:"metadata"`
		Status          kueue.WorkloadStatus `json:"status"`
	}{
		TypeMeta: metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "Workload"},
		Metadata: map[string]string{
			"name": wl.Name, "namespace": wl.Namespace, "uid": string(wl.UID), "resourceVersion": wl.ResourceVersion,
		},
		Status: status,
	})
}

func pick(conditions []metav1.Condition, types []string) []metav1.Condition {
	var out []metav1.Condition
	for _, c := range conditions {
		if slices.Contains(types, c.Type) {
			out = append(out, c)
		}
	}
	return out
}
