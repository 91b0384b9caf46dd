package workload

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func after(d time.Duration) time.Time { return start.Add(d) }

// admitted is a workload that got its quota at the start, with these checks.
func admitted(checks ...kueue.CheckState) *kueue.Workload {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "wl"}}
	Admit(wl, &admission.Admission{Queue: "cq"}, checkNames(len(checks)), start)
	for i, state := range checks {
		wl.Status.AdmissionChecks[i].State = state
		wl.Status.AdmissionChecks[i].Message = "because"
	}
	return wl
}

func checkNames(n int) []string {
	return []string{"a", "b", "c"}[:n]
}

func with(wl *kueue.Workload, change func(*kueue.Workload)) *kueue.Workload {
	change(wl)
	return wl
}

func TestNext(t *testing.T) {
	settings := Settings{
		PodsReady: &PodsReadySettings{
			Timeout: 5 * time.Minute, Recovery: time.Minute,
			BackoffBase: time.Minute, BackoffMax: 3 * time.Minute, BackoffLimit: ptr.To(int32(3)),
		},
		RetainFinished: ptr.To(time.Hour), RetainDeactivated: ptr.To(2 * time.Hour),
	}
	for name, tc := range map[string]struct {
		wl   *kueue.Workload
		now  time.Time
		want Step
	}{
		"a new workload waits for the engine": {wl: &kueue.Workload{}, now: start, want: Step{}},
		"without checks it is admitted at once, then its pods have time": {
			wl: admitted(), now: after(time.Minute), want: Step{At: after(5 * time.Minute)},
		},
		"a pending check holds it": {wl: admitted(kueue.CheckStateReady, kueue.CheckStatePending), now: start, want: Step{}},
		"all checks ready admit it": {
			wl: admitted(kueue.CheckStateReady, kueue.CheckStateReady), now: start, want: Step{Act: AdmitNow},
		},
		"a check wants another try later": {
			wl: with(admitted(kueue.CheckStateRetry), func(wl *kueue.Workload) {
				wl.Status.AdmissionChecks[0].RequeueAfterSeconds = ptr.To(int32(30))
			}), now: start,
			want: Step{Act: EvictNow, Reason: "AdmissionCheck", Message: "At least one admission check is false: a: because", After: ptr.To(30 * time.Second)},
		},
		"a check says no for good": {
			wl: admitted(kueue.CheckStateRejected), now: start,
			want: Step{Act: Target, Reason: "AdmissionCheck", Message: "Admission check(s): a, were rejected"},
		},
		"a check changes its mind after the admission": {
			wl: with(admitted(), func(wl *kueue.Workload) {
				wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "a", State: kueue.CheckStateRetry, Message: "gone"}}
			}), now: start,
			want: Step{Act: EvictNow, Reason: "AdmissionCheck", Message: "At least one admission check is false: a: gone"},
		},
		"pods that are up may run for ever": {
			wl: with(admitted(), func(wl *kueue.Workload) { PodsReady(wl, true, kueue.WorkloadStarted, "", after(time.Minute)) }), now: after(time.Hour), want: Step{},
		},
		"pods that never came up": {
			wl: admitted(), now: after(5 * time.Minute),
			want: Step{Act: EvictNow, Reason: "PodsReadyTimeout", Message: "Exceeded the PodsReady timeout team/wl", After: ptr.To(time.Minute), Counts: true},
		},
		"the third time the pause is capped": {
			wl:   with(admitted(), func(wl *kueue.Workload) { wl.Status.RequeueState = &kueue.RequeueState{Count: ptr.To(int32(2))} }),
			now:  after(5 * time.Minute),
			want: Step{Act: EvictNow, Reason: "PodsReadyTimeout", Message: "Exceeded the PodsReady timeout team/wl", After: ptr.To(3 * time.Minute), Counts: true},
		},
		"tried too often": {
			wl:   with(admitted(), func(wl *kueue.Workload) { wl.Status.RequeueState = &kueue.RequeueState{Count: ptr.To(int32(3))} }),
			now:  after(5 * time.Minute),
			want: Step{Act: Target, Reason: "RequeuingLimitExceeded", Message: "exceeding the maximum number of re-queuing retries"},
		},
		"a pod was lost and may be replaced": {
			wl: with(admitted(), func(wl *kueue.Workload) {
				PodsReady(wl, false, kueue.WorkloadWaitForRecovery, "", after(time.Hour))
			}), now: after(time.Hour), want: Step{At: after(time.Hour + time.Minute)},
		},
		"the mark of deactivation is carried out": {
			wl: with(admitted(), func(wl *kueue.Workload) { Step{Act: Target, Reason: "X"}.Take(wl, start) }), now: start, want: Step{Act: Deactivate},
		},
		"a deactivated workload that holds quota is the engine's": {
			wl: with(admitted(), func(wl *kueue.Workload) { wl.Spec.Active = ptr.To(false) }), now: after(time.Hour * 24), want: Step{},
		},
		"a finished workload is kept": {
			wl: with(admitted(), func(wl *kueue.Workload) { Finish(wl, "Succeeded", "", start) }), now: after(time.Minute), want: Step{At: after(time.Hour)},
		},
		"and deleted in the end": {
			wl: with(admitted(), func(wl *kueue.Workload) { Finish(wl, "Succeeded", "", start) }), now: after(time.Hour), want: Step{Act: Delete},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Next(tc.wl, settings, tc.now)
			if !equal(got, tc.want) {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

func equal(a, b Step) bool {
	sameAfter := (a.After == nil) == (b.After == nil) && (a.After == nil || *a.After == *b.After)
	return a.Act == b.Act && a.Reason == b.Reason && a.Message == b.Message && sameAfter && a.Counts == b.Counts && a.At.Equal(b.At)
}

// A workload whose pods do not come up is evicted, backs off, and is back in
// line, with the conditions Kueue shows at each step.
func TestEvictionAndBackoff(t *testing.T) {
	settings := Settings{PodsReady: &PodsReadySettings{Timeout: time.Minute, BackoffBase: time.Minute, BackoffMax: time.Hour}}
	wl := admitted()
	now := after(time.Minute)
	if !Next(wl, settings, now).Take(wl, now) {
		t.Fatal("it must be evicted")
	}
	if got := condition(wl, kueue.WorkloadRequeued); got == nil || got.Status != metav1.ConditionFalse || got.Reason != "PodsReadyTimeout" {
		t.Errorf("Requeued is %+v, want false for PodsReadyTimeout", got)
	}
	Release(wl, "stopped", now)
	if HasReservation(wl) || wl.Status.Admission != nil {
		t.Error("its quota must be free")
	}
	step := Next(wl, settings, now)
	if step.Act != Wait || !step.At.Equal(now.Add(time.Minute)) {
		t.Fatalf("during the backoff: %+v", step)
	}
	later := now.Add(time.Minute)
	if !Next(wl, settings, later).Take(wl, later) {
		t.Fatal("after the backoff it must be requeued")
	}
	if got := condition(wl, kueue.WorkloadRequeued); got.Status != metav1.ConditionTrue || got.Reason != "BackoffFinished" {
		t.Errorf("Requeued is %+v, want true for BackoffFinished", got)
	}
	if *wl.Status.RequeueState.Count != 1 || wl.Status.RequeueState.RequeueAt != nil {
		t.Errorf("requeue state %+v: the count stays, the time goes", wl.Status.RequeueState)
	}
}
