package workload

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
)

// Kueue has a reason of its own for each thing that a workload waits for only behind a gate; its other
// reasons are what dashboards and scripts know.
func TestPendingReasons(t *testing.T) {
	for _, tc := range []struct {
		pending         admission.Pending
		plain, granular string
	}{
		{admission.Pending{Reason: admission.ReasonWaitingForQuota}, "Pending", "WaitingForQuota"},
		{admission.Pending{Reason: admission.ReasonExceedsMaxQuota}, "Pending", "ExceedsMaxQuota"},
		{admission.Pending{Reason: admission.ReasonPending}, "Pending", "PendingEvaluation"},
		{admission.Pending{Reason: admission.ReasonMisconfigured}, "Pending", "Misconfigured"},
		{admission.Pending{Reason: admission.ReasonMisconfigured, Blocked: true}, "Inadmissible", "Misconfigured"},
		{admission.Pending{Reason: admission.ReasonSuspended, Blocked: true}, "Inadmissible", "Suspended"},
		{admission.Pending{Reason: admission.ReasonWaitingForPodsReady}, "Waiting", "WaitingForPodsReady"},
		{admission.Pending{Reason: admission.ReasonAdmissionGated}, "AdmissionGated", "AdmissionGated"},
	} {
		wl := &kueue.Workload{}
		SetPending(wl, tc.pending, false, start)
		if got := condition(wl, kueue.WorkloadQuotaReserved).Reason; got != tc.plain || condition(wl, kueue.WorkloadAdmitted) != nil {
			t.Errorf("%+v: reason %s, want %s and no word of admission; conditions %+v", tc.pending, got, tc.plain, wl.Status.Conditions)
		}
		SetPending(wl, tc.pending, true, start)
		unadmitted := condition(wl, kueue.WorkloadAdmitted)
		if got := condition(wl, kueue.WorkloadQuotaReserved).Reason; got != tc.granular || unadmitted == nil || unadmitted.Reason != "NoReservation" {
			t.Errorf("%+v: reason %s, want %s; Admitted %+v", tc.pending, got, tc.granular, unadmitted)
		}
	}
}

// A deactivated workload says so in its spec; the granular reasons say it in the condition as well, unless
// it only waits to be deleted.
func TestDeactivatedHasAReasonOfItsOwn(t *testing.T) {
	why := admission.Pending{Reason: admission.ReasonDeactivated, Message: "The workload is deactivated"}
	wl := with(&kueue.Workload{}, func(wl *kueue.Workload) { wl.Spec.Active = new(bool) })
	if SetPending(wl, why, false, start) || SetPending(&kueue.Workload{}, why, true, start) {
		t.Errorf("conditions %+v", wl.Status.Conditions)
	}
	SetPending(wl, why, true, start)
	if got := condition(wl, kueue.WorkloadQuotaReserved); got == nil || got.Reason != "Deactivated" {
		t.Errorf("QuotaReserved is %+v", got)
	}
}

// While a workload backs off, its condition says why it was evicted; behind the gate that it is not evaluated yet.
func TestBackoffLeavesTheEvictionsMessage(t *testing.T) {
	wl := admitted()
	Evict(wl, kueue.WorkloadEvictedByPodsReadyTimeout, "", "Exceeded the PodsReady timeout ns/w", start)
	Release(wl, "", start)
	why := admission.Pending{Reason: admission.ReasonPending, Message: admission.BackingOff}
	if SetPending(wl, why, false, start) || condition(wl, kueue.WorkloadQuotaReserved).Message != "Exceeded the PodsReady timeout ns/w" {
		t.Errorf("QuotaReserved is %+v", condition(wl, kueue.WorkloadQuotaReserved))
	}
	SetPending(wl, why, true, start)
	if got := condition(wl, kueue.WorkloadQuotaReserved); got.Reason != "PendingEvaluation" || got.Message != admission.BackingOff {
		t.Errorf("with granular reasons: %+v", got)
	}
}

func TestGatedMessageNamesTheGates(t *testing.T) {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{GatedByAnnotation: "example.com/a,example.com/b"}}}
	SetPending(wl, admission.Pending{Reason: admission.ReasonAdmissionGated, Message: "gated"}, false, start)
	if got := condition(wl, kueue.WorkloadQuotaReserved).Message; got != "Admission is gated by: example.com/a,example.com/b" {
		t.Errorf("message %q", got)
	}
}

// Without its quota a workload is not admitted; the reason says whether its checks begin anew, too.
func TestUnadmittedReasons(t *testing.T) {
	for reason, wl := range map[string]*kueue.Workload{
		"NoReservation": admitted(),
		"NoReservationUnsatisfiedChecks": with(admitted(kueue.CheckStateReady), func(wl *kueue.Workload) {
			Step{Action: AdmitNow}.Apply(wl, start)
		}),
	} {
		Evict(wl, kueue.WorkloadEvictedByPreemption, "", "", after(time.Minute))
		Release(wl, "", after(time.Minute))
		got := condition(wl, kueue.WorkloadAdmitted)
		if got.Status != metav1.ConditionFalse || got.Reason != reason || *wl.Status.AccumulatedPastExecutionTimeSeconds != 60 {
			t.Errorf("Admitted is %+v, want %s", got, reason)
		}
		if reserved := condition(wl, kueue.WorkloadQuotaReserved); reserved.Reason != "Pending" {
			t.Errorf("QuotaReserved is %+v", reserved)
		}
	}
	wl := admitted(kueue.CheckStatePending)
	if ExplainUnadmitted(wl, start); condition(wl, kueue.WorkloadAdmitted).Reason != "UnsatisfiedAdmissionChecks" {
		t.Errorf("with checks under way: %+v", wl.Status.Conditions)
	}
}
