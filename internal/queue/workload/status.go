package workload

import (
	"encoding/json"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
)

// Field managers of the status.
const (
	// AdmissionManager owns status.admission and the conditions that tell of it.
	AdmissionManager = "kueue-admission"
	// JobManager owns what the job itself reports.
	JobManager = "kueue-job-controller"
)

// admissionConditions are the conditions AdmissionManager owns, and jobConditions the
// ones JobManager owns: an apply sends all of them, or the rest would be taken away.
var (
	admissionConditions = []string{
		kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted, kueue.WorkloadEvicted,
		kueue.WorkloadPreempted, kueue.WorkloadRequeued, kueue.WorkloadDeactivationTarget,
	}
	jobConditions = []string{kueue.WorkloadFinished, kueue.WorkloadPodsReady}
)

// IsActive says the workload takes part in queueing.
func IsActive(wl *kueue.Workload) bool { return ptr.Deref(wl.Spec.Active, true) }

// IsFinished says the job has ended, well or badly.
func IsFinished(wl *kueue.Workload) bool { return isTrue(wl, kueue.WorkloadFinished) }

// IsEvicted says the workload was told to let go of its quota.
func IsEvicted(wl *kueue.Workload) bool { return isTrue(wl, kueue.WorkloadEvicted) }

// IsAdmitted says the job may run.
func IsAdmitted(wl *kueue.Workload) bool { return isTrue(wl, kueue.WorkloadAdmitted) }

// HasReservation says the workload holds quota.
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

// truncate keeps a message within what the API accepts for a condition.
func truncate(message string) string {
	const most = 32768
	if len(message) > most {
		return message[:most-3] + "..."
	}
	return message
}

// Admit reserves quota in the status, and admits at once where no check stands
// between.
func Admit(wl *kueue.Workload, a *admission.Admission, checks []string, now time.Time) {
	wl.Status.Admission = ForStatus(a)
	set(wl, kueue.WorkloadQuotaReserved, true, "QuotaReserved", "Quota reserved in ClusterQueue "+a.Queue, now)
	for _, old := range []string{kueue.WorkloadEvicted, kueue.WorkloadPreempted} {
		if was := condition(wl, old); was != nil && was.Status == metav1.ConditionTrue {
			set(wl, old, false, "QuotaReserved", "Previously: "+was.Message, now)
		}
	}
	wl.Status.AdmissionChecks = nil
	for _, check := range checks {
		wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{
			Name: kueue.AdmissionCheckReference(check), State: kueue.CheckStatePending, LastTransitionTime: metav1.NewTime(now),
		})
	}
	if len(checks) == 0 {
		set(wl, kueue.WorkloadAdmitted, true, "Admitted", "The workload is admitted", now)
	}
}

// Park says why the workload waits and reports whether that is news.
func Park(wl *kueue.Workload, reason, message string, now time.Time) bool {
	return set(wl, kueue.WorkloadQuotaReserved, false, reason, message, now)
}

// Evict tells the job to stop; it keeps its quota until it has.
func Evict(wl *kueue.Workload, reason, message string, now time.Time) {
	set(wl, kueue.WorkloadEvicted, true, reason, message, now)
	count(wl, reason)
}

// Preempt is Evict for the sake of another workload.
func Preempt(wl *kueue.Workload, rule, message string, now time.Time) {
	Evict(wl, kueue.WorkloadEvictedByPreemption, message, now)
	set(wl, kueue.WorkloadPreempted, true, rule, message, now)
}

func count(wl *kueue.Workload, reason string) {
	if wl.Status.SchedulingStats == nil {
		wl.Status.SchedulingStats = &kueue.SchedulingStats{}
	}
	evictions := &wl.Status.SchedulingStats.Evictions
	for i := range *evictions {
		if (*evictions)[i].Reason == reason {
			(*evictions)[i].Count++
			return
		}
	}
	*evictions = append(*evictions, kueue.WorkloadSchedulingStatsEviction{Reason: reason, Count: 1})
}

// Release gives the quota back after the job has stopped, and puts the
// workload in line again. It reports whether that changed anything.
func Release(wl *kueue.Workload, message string, now time.Time) bool {
	changed := set(wl, kueue.WorkloadQuotaReserved, false, kueue.WorkloadQuotaReservedReasonPendingEvaluation, message, now)
	if condition(wl, kueue.WorkloadAdmitted) != nil {
		changed = set(wl, kueue.WorkloadAdmitted, false, kueue.WorkloadAdmittedReasonNoReservation, "The workload has no reservation", now) || changed
	}
	if evicted := condition(wl, kueue.WorkloadEvicted); evicted != nil && evicted.Status == metav1.ConditionTrue && !backingOff(wl) {
		changed = set(wl, kueue.WorkloadRequeued, true, evicted.Reason, evicted.Message, now) || changed
	}
	for i := range wl.Status.AdmissionChecks {
		wl.Status.AdmissionChecks[i] = kueue.AdmissionCheckState{
			Name: wl.Status.AdmissionChecks[i].Name, State: kueue.CheckStatePending, LastTransitionTime: metav1.NewTime(now),
			Message: "Reset to Pending after eviction. Previously: " + string(wl.Status.AdmissionChecks[i].State),
		}
	}
	changed = changed || wl.Status.Admission != nil
	wl.Status.Admission = nil
	return changed
}

// backingOff says the workload is not yet back in line.
func backingOff(wl *kueue.Workload) bool {
	return wl.Status.RequeueState != nil && wl.Status.RequeueState.RequeueAt != nil
}

// Finish records the end of the job and reports whether that is news.
func Finish(wl *kueue.Workload, reason, message string, now time.Time) bool {
	return set(wl, kueue.WorkloadFinished, true, reason, message, now)
}

// PodsReady records whether the job's pods are all up.
func PodsReady(wl *kueue.Workload, ready bool, reason, message string, now time.Time) bool {
	return set(wl, kueue.WorkloadPodsReady, ready, reason, message, now)
}

// HadPodsReady says the pods were all up at some time since the admission.
func HadPodsReady(wl *kueue.Workload) bool {
	ready := condition(wl, kueue.WorkloadPodsReady)
	return ready != nil && (ready.Status == metav1.ConditionTrue || ready.Reason == kueue.WorkloadWaitForRecovery)
}

// AdmissionPatch is what AdmissionManager applies for the status as it stands.
// It names the resource version: a status that changed meanwhile is a
// conflict, and the decision is taken anew on what is true now.
func AdmissionPatch(wl *kueue.Workload) ([]byte, error) {
	return patch(wl, kueue.WorkloadStatus{
		Admission:       wl.Status.Admission,
		Conditions:      pick(wl.Status.Conditions, admissionConditions),
		RequeueState:    wl.Status.RequeueState,
		SchedulingStats: wl.Status.SchedulingStats,
		AdmissionChecks: wl.Status.AdmissionChecks,
	})
}

// JobPatch is what JobManager applies for the status as it stands.
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
