package workload

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
)

// Reasons of Kueue's conditions that it names in no API package, or has deprecated in favour of the
// granular ones.
const (
	reasonPending = "Pending"
	reasonWaiting = "Waiting"

	reasonNoReservationUnsatisfiedChecks = "NoReservationUnsatisfiedChecks"
)

// PendingReason is the reason of the QuotaReserved condition of a workload that waits: one of Kueue's
// granular reasons where they are switched on.
func PendingReason(p admission.Pending, granular bool) string {
	switch {
	case granular && p.Reason == admission.ReasonPending:
		return kueue.WorkloadQuotaReservedReasonPendingEvaluation
	case granular && p.Reason == admission.ReasonPreemptionGated:
		return kueue.WorkloadAdmissionGated
	case granular || p.Reason == admission.ReasonAdmissionGated || p.Awaits():
		return string(p.Reason)
	case p.Blocked:
		return kueue.WorkloadInadmissible
	case p.Reason == admission.ReasonWaitingForPodsReady:
		return reasonWaiting
	}
	return reasonPending
}

// isNominated says that the workload waits for others to leave that are evicted for it.
func isNominated(wl *kueue.Workload) bool {
	waits := condition(wl, kueue.WorkloadQuotaReserved)
	if waits == nil || waits.Status != metav1.ConditionFalse {
		return false
	}
	return waits.Reason == string(admission.ReasonWaitingForPreemptedWorkloads) ||
		waits.Reason == reasonPending && admission.IsNominated(waits.Message)
}

// awaitsPods says that the workload was told to wait until the pods of others are ready.
func awaitsPods(wl *kueue.Workload) bool {
	waits := condition(wl, kueue.WorkloadQuotaReserved)
	return waits != nil && waits.Status == metav1.ConditionFalse &&
		(waits.Reason == reasonWaiting || waits.Reason == string(admission.ReasonWaitingForPodsReady))
}

// ExplainUnadmitted says in the Admitted condition why the workload is not admitted, as Kueue does where
// granular reasons are switched on, and reports whether that changed anything.
func ExplainUnadmitted(wl *kueue.Workload, now time.Time) bool {
	switch {
	case IsAdmitted(wl) || condition(wl, kueue.WorkloadQuotaReserved) == nil:
		return false
	case !HasReservation(wl):
		return set(wl, kueue.WorkloadAdmitted, false, kueue.WorkloadAdmittedReasonNoReservation, "The workload has no reservation", now)
	case !ChecksReady(wl):
		return set(wl, kueue.WorkloadAdmitted, false, kueue.WorkloadAdmittedReasonUnsatisfiedAdmissionChecks, "The workload has not all checks ready", now)
	case hasDelayedTopologyRequest(wl):
		return set(wl, kueue.WorkloadAdmitted, false, kueue.WorkloadAdmittedReasonPendingDelayedTopologyRequests, "There are pending delayed topology requests", now)
	}
	return false
}

// unadmit takes an admission back, and adds up how long the job ran.
func unadmit(wl *kueue.Workload, now time.Time) bool {
	was := condition(wl, kueue.WorkloadAdmitted)
	if was == nil || was.Status != metav1.ConditionTrue {
		return false
	}
	took := now.Sub(was.LastTransitionTime.Time)
	ran := int32((took - doneAgain(wl, took)).Seconds())
	wl.Status.AccumulatedPastExecutionTimeSeconds = ptr.To(ptr.Deref(wl.Status.AccumulatedPastExecutionTimeSeconds, 0) + ran)
	if !ChecksReady(wl) {
		return set(wl, kueue.WorkloadAdmitted, false, reasonNoReservationUnsatisfiedChecks, "The workload has no reservation and not all checks ready", now)
	}
	return set(wl, kueue.WorkloadAdmitted, false, kueue.WorkloadAdmittedReasonNoReservation, "The workload has no reservation", now)
}

// SetResourceRequests says what the pods of a workload that waits ask for, as the engine counts it.
func SetResourceRequests(wl *kueue.Workload, w admission.Workload, quantity func(corev1.ResourceName, int64) resource.Quantity) {
	wl.Status.ResourceRequests = make([]kueue.PodSetRequest, len(w.PodSets))
	for i := range w.PodSets {
		set := &w.PodSets[i]
		asked := corev1.ResourceList{}
		for name := range set.Requests {
			asked[corev1.ResourceName(name)] = quantity(corev1.ResourceName(name), set.Asked(name))
		}
		wl.Status.ResourceRequests[i] = kueue.PodSetRequest{Name: kueue.PodSetReference(set.Name), Resources: asked}
	}
}

// SetPending says why the workload waits and reports whether that changed anything.
func SetPending(wl *kueue.Workload, p admission.Pending, granular bool, now time.Time) bool {
	message := p.Message
	switch {
	case p.Reason == admission.ReasonDeactivated && (!granular || IsActive(wl)):
		return false // it says so itself, or waits to be deleted
	case !granular && (message == admission.NotEvaluated || message == admission.BackingOff):
		return false // there is nothing to say yet, or it says why it was evicted
	case p.Reason == admission.ReasonAdmissionGated:
		message = "Admission is gated by: " + wl.Annotations[GatedByAnnotation]
	}
	changed := set(wl, kueue.WorkloadQuotaReserved, false, PendingReason(p, granular), message, now)
	if p.Reason == admission.ReasonPreemptionGated {
		changed = set(wl, kueue.WorkloadBlockedOnPreemptionGates, true, kueue.PreemptionGated, message, now) || changed
	}
	if granular {
		changed = ExplainUnadmitted(wl, now) || changed
	}
	return changed
}

// SetUncountable says in Requeued, as Kueue does, why the devices of a workload cannot be counted; "": they can, or it
// is not known. What the condition says of an eviction stays. It reports whether that changed anything.
func SetUncountable(wl *kueue.Workload, why string, now time.Time) bool {
	requeued := condition(wl, kueue.WorkloadRequeued)
	said := requeued != nil && requeued.Status == metav1.ConditionFalse
	switch {
	case said && requeued.Reason != kueue.WorkloadInadmissible:
		return false
	case why != "":
		return set(wl, kueue.WorkloadRequeued, false, kueue.WorkloadInadmissible, why, now)
	case said:
		return apimeta.RemoveStatusCondition(&wl.Status.Conditions, kueue.WorkloadRequeued)
	}
	return false
}
