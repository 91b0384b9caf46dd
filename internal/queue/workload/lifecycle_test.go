package workload

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
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

// delayed has a pod set wait for its places.
func delayed(wl *kueue.Workload) {
	wl.Status.Admission.PodSetAssignments = []kueue.PodSetAssignment{{Name: "main"}}
	DelayTopologyRequests(wl, []kueue.PodSetReference{"main"})
}

func inactive(wl *kueue.Workload) { wl.Spec.Active = ptr.To(false) }

// evicted is a workload that was evicted for a reason and has let go.
func evicted(reason string) *kueue.Workload {
	wl := admitted()
	Evict(wl, reason, "", "", start)
	Release(wl, "", start)
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
		Unmanaged: func(owner metav1.OwnerReference) bool { return owner.Kind == "LeftOut" },
		PodsReady: &PodsReadySettings{
			Timeout: 5 * time.Minute, Recovery: time.Minute,
			BackoffBase: time.Minute, BackoffMax: 3 * time.Minute, BackoffLimit: ptr.To(int32(3)),
		},
		FinishOrphans: true, RetainFinished: ptr.To(time.Hour), RetainDeactivated: ptr.To(2 * time.Hour),
	}
	for name, tc := range map[string]struct {
		wl     *kueue.Workload
		queues Queues
		now    time.Time
		want   Step
	}{
		"a new workload has its checks before it has quota": {
			wl: &kueue.Workload{}, queues: Queues{Checks: checkNames(1)}, now: start, want: Step{Action: ResetChecks, Checks: checkNames(1)},
		},
		"a new workload waits for the engine": {wl: &kueue.Workload{}, now: start, want: Step{}},
		"without checks it is admitted at once, then its pods have time": {
			wl: admitted(), now: after(time.Minute), want: Step{At: after(5 * time.Minute)},
		},
		"a pending check holds it": {wl: admitted(kueue.CheckStateReady, kueue.CheckStatePending), now: start, want: Step{}},
		"all checks ready admit it": {
			wl: admitted(kueue.CheckStateReady, kueue.CheckStateReady), now: start, want: Step{Action: AdmitNow},
		},
		"nodes have come with a check: its places are to be found": {
			wl: with(admitted(kueue.CheckStateReady), delayed), now: start, want: Step{Action: SecondPassNow},
		},
		"nodes are still to come": {wl: with(admitted(kueue.CheckStatePending), delayed), now: start, want: Step{}},
		"its nodes are in another cluster": {
			wl: with(admitted(kueue.CheckStateReady), func(wl *kueue.Workload) { delayed(wl); wl.Status.ClusterName = ptr.To("worker") }), now: start, want: Step{},
		},
		"it has its places": {
			wl: with(admitted(kueue.CheckStateReady), func(wl *kueue.Workload) {
				delayed(wl)
				Step{Action: SecondPassNow, Assignments: map[string]*kueue.TopologyAssignment{"main": {}}}.Apply(wl, start)
			}), now: start, want: Step{At: after(5 * time.Minute)},
		},
		"a check wants another try later": {
			wl: with(admitted(kueue.CheckStateRetry), func(wl *kueue.Workload) {
				wl.Status.AdmissionChecks[0].RequeueAfterSeconds = ptr.To(int32(30))
			}), now: start,
			want: Step{Action: EvictNow, Reason: "AdmissionCheck", Message: `Evicted due to AdmissionCheck in Retry state: "a" (because)`, After: ptr.To(30 * time.Second)},
		},
		"a check says no for good": {
			wl: admitted(kueue.CheckStateRejected), now: start,
			want: Step{Action: MarkForDeactivation, Reason: "AdmissionCheck", Message: `AdmissionCheck in Rejected state: "a" (because)`},
		},
		"a check changes its mind after the admission": {
			wl: with(admitted(), func(wl *kueue.Workload) {
				wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "a", State: kueue.CheckStateRetry, Message: "gone"}}
			}), now: start,
			want: Step{Action: EvictNow, Reason: "AdmissionCheck", Message: `Evicted due to AdmissionCheck in Retry state: "a" (gone)`},
		},
		"a node of it is lost": {
			wl: with(admitted(kueue.CheckStateReady, kueue.CheckStateRetry), func(wl *kueue.Workload) {
				wl.Status.AdmissionChecks[1].Message = "MachineLost: a node was lost"
			}), now: start,
			want: Step{Action: EvictNow, Reason: "MachineLost", Message: `Evicted due to AdmissionCheck in Retry state: "b" (MachineLost: a node was lost)`},
		},
		"a node of it is lost, and another check says Retry": {
			wl: with(admitted(kueue.CheckStateRetry, kueue.CheckStateRetry), func(wl *kueue.Workload) {
				wl.Status.AdmissionChecks[1].Message = "MachineLost: a node was lost"
			}), now: start,
			want: Step{Action: EvictNow, Reason: "AdmissionCheck", Message: `Evicted due to AdmissionChecks in Retry state: "a" (because); "b" (MachineLost: a node was lost)`},
		},
		"it goes back to spot": {
			wl: with(admitted(kueue.CheckStateReady, kueue.CheckStateRetry), func(wl *kueue.Workload) {
				wl.Status.AdmissionChecks[1].Message = "BackToSpot: spot nodes are sold"
			}), now: start,
			want: Step{Action: EvictNow, Reason: "BackToSpot", Message: `Evicted due to AdmissionCheck in Retry state: "b" (BackToSpot: spot nodes are sold)`},
		},
		"it has waited for spot for long enough": {
			wl: with(admitted(kueue.CheckStateReady, kueue.CheckStateRetry), func(wl *kueue.Workload) {
				wl.Status.AdmissionChecks[1].Message = "OnDemand: it is time"
			}), now: start,
			want: Step{Action: EvictNow, Reason: "OnDemand", Message: `Evicted due to AdmissionCheck in Retry state: "b" (OnDemand: it is time)`},
		},
		"checks of bought nodes say different things": {
			wl: with(admitted(kueue.CheckStateRetry, kueue.CheckStateRetry), func(wl *kueue.Workload) {
				wl.Status.AdmissionChecks[0].Message = "BackToSpot: spot nodes are sold"
				wl.Status.AdmissionChecks[1].Message = "MachineLost: a node was lost"
			}), now: start,
			want: Step{Action: EvictNow, Reason: "AdmissionCheck", Message: `Evicted due to AdmissionChecks in Retry state: "a" (BackToSpot: spot nodes are sold); "b" (MachineLost: a node was lost)`},
		},
		"pods that are up may run for ever": {
			wl: with(admitted(), func(wl *kueue.Workload) { PodsReady(wl, true, kueue.WorkloadStarted, "", after(time.Minute)) }), now: after(time.Hour), want: Step{},
		},
		"pods that never came up": {
			wl: admitted(), now: after(5 * time.Minute),
			want: Step{Action: EvictNow, Reason: "PodsReadyTimeout", Cause: "WaitForStart", Message: "Exceeded the PodsReady timeout team/wl", After: ptr.To(time.Minute), Counts: true},
		},
		"the third time the pause is capped": {
			wl:   with(admitted(), func(wl *kueue.Workload) { wl.Status.RequeueState = &kueue.RequeueState{Count: ptr.To(int32(2))} }),
			now:  after(5 * time.Minute),
			want: Step{Action: EvictNow, Reason: "PodsReadyTimeout", Cause: "WaitForStart", Message: "Exceeded the PodsReady timeout team/wl", After: ptr.To(3 * time.Minute), Counts: true},
		},
		"tried too often": {
			wl:   with(admitted(), func(wl *kueue.Workload) { wl.Status.RequeueState = &kueue.RequeueState{Count: ptr.To(int32(3))} }),
			now:  after(5 * time.Minute),
			want: Step{Action: MarkForDeactivation, Reason: "RequeuingLimitExceeded", Message: "exceeding the maximum number of re-queuing retries"},
		},
		"a pod was lost and may be replaced": {
			wl: with(admitted(), func(wl *kueue.Workload) {
				PodsReady(wl, false, kueue.WorkloadWaitForRecovery, "", after(time.Hour))
			}), now: after(time.Hour), want: Step{At: after(time.Hour + time.Minute)},
		},
		"the mark of deactivation is carried out": {
			wl: with(admitted(), func(wl *kueue.Workload) { Step{Action: MarkForDeactivation, Reason: "X"}.Apply(wl, start) }), now: start, want: Step{Action: Deactivate},
		},
		"a deactivated workload is evicted": {
			wl: with(admitted(), inactive), now: start, want: Step{Action: EvictNow, Reason: "Deactivated", Message: "The workload is deactivated"},
		},
		"the cause of the deactivation is in the reason": {
			wl: with(admitted(), func(wl *kueue.Workload) { ExecutionTimeExceeded().Apply(wl, start); inactive(wl) }), now: start,
			want: Step{
				Action: EvictNow, Reason: "Deactivated", Cause: "MaximumExecutionTimeExceeded",
				Message: "The workload is deactivated due to exceeding the maximum execution time",
			},
		},
		"deactivated after it was evicted, it forgets its backoff": {
			wl: with(admitted(), func(wl *kueue.Workload) {
				Evict(wl, kueue.WorkloadEvictedByPodsReadyTimeout, "", "", start)
				wl.Status.RequeueState = &kueue.RequeueState{Count: ptr.To(int32(1))}
				inactive(wl)
			}), now: start, want: Step{Action: ResetRequeueState},
		},
		"a workload its user deactivated is retained": {
			wl: with(admitted(), func(wl *kueue.Workload) {
				Evict(wl, kueue.WorkloadDeactivated, "", "", start)
				Release(wl, "", start)
				inactive(wl)
			}), now: after(24 * time.Hour), want: Step{},
		},
		"one that was deactivated by the queue is not for ever": {
			wl: with(admitted(), func(wl *kueue.Workload) {
				Evict(wl, kueue.WorkloadDeactivated, "RequeuingLimitExceeded", "", start)
				Release(wl, "", start)
				inactive(wl)
			}), now: after(2 * time.Hour), want: Step{Action: DeleteNow},
		},
		"deleted, its job is to let it go": {
			wl: with(admitted(), func(wl *kueue.Workload) {
				AddFinalizer(wl)
				wl.DeletionTimestamp = &metav1.Time{Time: start}
				wl.OwnerReferences = []metav1.OwnerReference{{Name: "job"}}
			}), now: start, want: Step{},
		},
		"deleted, and jobs of its kind are not queued any more": {
			wl: with(admitted(), func(wl *kueue.Workload) {
				AddFinalizer(wl)
				wl.DeletionTimestamp = &metav1.Time{Time: start}
				wl.OwnerReferences = []metav1.OwnerReference{{Kind: "LeftOut", Name: "job"}}
			}), now: start, want: Step{Action: RemoveFinalizerNow},
		},
		"deleted, and there is no job": {
			wl:  with(admitted(), func(wl *kueue.Workload) { AddFinalizer(wl); wl.DeletionTimestamp = &metav1.Time{Time: start} }),
			now: start, want: Step{Action: RemoveFinalizerNow},
		},
		"a workload without owner": {
			wl: with(admitted(), func(wl *kueue.Workload) { wl.Labels = map[string]string{kueuelabels.JobUID: "uid"} }), now: start,
			want: Step{Action: FinishNow, Reason: "OwnerNotFound", Message: "The workload's owner no longer exists"},
		},
		"checks stand between, and the queue stops": {
			wl: admitted(kueue.CheckStatePending), queues: Queues{ClusterQueue: "cq", Stopped: true, Checks: checkNames(1)}, now: start,
			want: Step{Action: ReleaseNow, Reason: "Inadmissible", Message: "ClusterQueue cq is stopped"},
		},
		"checks stand between, and the local queue goes": {
			wl: admitted(kueue.CheckStatePending), queues: Queues{LocalQueue: "lq", LocalGone: true, Checks: checkNames(1)}, now: start,
			want: Step{Action: ReleaseNow, Reason: "Inadmissible", Message: "LocalQueue lq is terminating or missing"},
		},
		"quota that another scheduler reserved in a queue that is not there": {
			wl: with(admitted(), func(wl *kueue.Workload) { wl.Status.Conditions = wl.Status.Conditions[:1] }), queues: Queues{LocalGone: true, Gone: true}, now: start,
			want: Step{Action: AdmitNow},
		},
		"a running workload goes on in a queue that is held": {
			wl: admitted(), queues: Queues{ClusterQueue: "cq", Stopped: true}, now: after(time.Minute), want: Step{At: after(5 * time.Minute)},
		},
		"the queue asks for another check": {
			wl: admitted(kueue.CheckStateReady), queues: Queues{Checks: checkNames(2)}, now: start,
			want: Step{Action: ResetChecks, Checks: checkNames(2)},
		},
		"drained and still stopped": {
			wl: evicted(kueue.WorkloadEvictedByClusterQueueStopped), queues: Queues{Stopped: true}, now: start, want: Step{},
		},
		"drained and started again": {
			wl: evicted(kueue.WorkloadEvictedByClusterQueueStopped), now: start,
			want: Step{Action: Requeue, Reason: "ClusterQueueRestarted", Message: "The ClusterQueue was restarted after being stopped"},
		},
		"the local queue started again": {
			wl: evicted(kueue.WorkloadEvictedByLocalQueueStopped), queues: Queues{Stopped: true}, now: start,
			want: Step{Action: Requeue, Reason: "LocalQueueRestarted", Message: "The LocalQueue was restarted after being stopped"},
		},
		"active again": {
			wl: evicted(kueue.WorkloadDeactivated), now: start,
			want: Step{Action: Requeue, Reason: "Reactivated", Message: "The workload was reactivated"},
		},
		"a check wanted a new try at once": {
			wl: evicted(kueue.WorkloadEvictedByAdmissionCheck), now: start,
			want: Step{Action: Requeue, Reason: "BackoffFinished", Message: "The workload backoff was finished"},
		},
		"a backoff ends while the job is stopping": {
			wl: with(admitted(), func(wl *kueue.Workload) {
				Evict(wl, kueue.WorkloadEvictedByPodsReadyTimeout, "", "", start)
				set(wl, kueue.WorkloadRequeued, false, kueue.WorkloadEvictedByPodsReadyTimeout, "", start)
				wl.Status.RequeueState = &kueue.RequeueState{RequeueAt: ptr.To(metav1.NewTime(after(time.Minute)))}
			}), now: after(time.Minute),
			want: Step{Action: Requeue, Reason: "BackoffFinished", Message: "The workload backoff was finished"},
		},
		"a preempted workload is pending already": {wl: evicted(kueue.WorkloadEvictedByPreemption), now: start, want: Step{}},
		"a finished workload is retained": {
			wl: with(admitted(), func(wl *kueue.Workload) { Finish(wl, "Succeeded", "", start) }), now: after(time.Minute), want: Step{At: after(time.Hour)},
		},
		"and deleted in the end": {
			wl: with(admitted(), func(wl *kueue.Workload) { Finish(wl, "Succeeded", "", start) }), now: after(time.Hour), want: Step{Action: DeleteNow},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.queues.Checks == nil {
				for _, check := range tc.wl.Status.AdmissionChecks {
					tc.queues.Checks = append(tc.queues.Checks, string(check.Name))
				}
			}
			got := NextStep(tc.wl, tc.queues, settings, tc.now)
			if !equal(got, tc.want) {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

func equal(a, b Step) bool {
	sameAfter := (a.After == nil) == (b.After == nil) && (a.After == nil || *a.After == *b.After)
	return a.Action == b.Action && a.Reason == b.Reason && a.Message == b.Message && a.Cause == b.Cause && slices.Equal(a.Checks, b.Checks) && sameAfter && a.Counts == b.Counts && a.At.Equal(b.At)
}

// A workload whose pods do not come up is evicted, backs off, and is back in
// line, with the conditions Kueue shows at each step.
func TestEvictionAndBackoff(t *testing.T) {
	settings := Settings{PodsReady: &PodsReadySettings{Timeout: time.Minute, BackoffBase: time.Minute, BackoffMax: time.Hour}}
	wl := admitted()
	now := after(time.Minute)
	if !NextStep(wl, Queues{}, settings, now).Apply(wl, now) {
		t.Fatal("it must be evicted")
	}
	Release(wl, "stopped", now)
	if got := condition(wl, kueue.WorkloadRequeued); got == nil || got.Status != metav1.ConditionFalse || got.Reason != "PodsReadyTimeout" {
		t.Errorf("Requeued is %+v, want false for PodsReadyTimeout", got)
	}
	if got := *wl.Status.AccumulatedPastExecutionTimeSeconds; got != 60 {
		t.Errorf("it ran for %d s, want 60", got)
	}
	want := []kueue.WorkloadSchedulingStatsEviction{{Reason: "PodsReadyTimeout", UnderlyingCause: "WaitForStart", Count: 1}}
	if got := wl.Status.SchedulingStats.Evictions; !slices.Equal(got, want) {
		t.Errorf("evictions %+v, want %+v", got, want)
	}
	if HasReservation(wl) || wl.Status.Admission != nil {
		t.Error("its quota must be free")
	}
	step := NextStep(wl, Queues{}, settings, now)
	if step.Action != Wait || !step.At.Equal(now.Add(time.Minute)) {
		t.Fatalf("during the backoff: %+v", step)
	}
	later := now.Add(time.Minute)
	if !NextStep(wl, Queues{}, settings, later).Apply(wl, later) {
		t.Fatal("after the backoff it must be requeued")
	}
	if got := condition(wl, kueue.WorkloadRequeued); got.Status != metav1.ConditionTrue || got.Reason != "BackoffFinished" {
		t.Errorf("Requeued is %+v, want true for BackoffFinished", got)
	}
	if *wl.Status.RequeueState.Count != 1 || wl.Status.RequeueState.RequeueAt != nil {
		t.Errorf("requeue state %+v: the count stays, the time goes", wl.Status.RequeueState)
	}
}

// With Kueue's gate for it a workload says at once that it is not admitted.
func TestExplicitStatus(t *testing.T) {
	wl, settings := &kueue.Workload{}, Settings{GranularReasons: true, ExplicitStatus: true}
	step := NextStep(wl, Queues{}, settings, start)
	if step.Action != ExplainNow || !step.Apply(wl, start) {
		t.Fatalf("step %+v", step)
	}
	if c := condition(wl, kueue.WorkloadQuotaReserved); c.Reason != "PendingEvaluation" || condition(wl, kueue.WorkloadAdmitted).Reason != "NoReservation" {
		t.Errorf("conditions %+v", wl.Status.Conditions)
	}
	if step := NextStep(wl, Queues{}, settings, start); step.Action != Wait {
		t.Errorf("then %+v", step)
	}
}

// A backoff that was not counted leaves no empty object behind.
func TestBackoffOfACheck(t *testing.T) {
	wl := admitted(kueue.CheckStateRetry)
	wl.Status.AdmissionChecks[0].RequeueAfterSeconds = ptr.To(int32(30))
	queues := Queues{Checks: checkNames(1)}
	NextStep(wl, queues, Settings{}, start).Apply(wl, start)
	Release(wl, "", start)
	later := after(30 * time.Second)
	NextStep(wl, queues, Settings{}, later).Apply(wl, later)
	if got := condition(wl, kueue.WorkloadRequeued); got.Reason != "BackoffFinished" || wl.Status.RequeueState != nil {
		t.Errorf("Requeued is %+v, requeue state %+v", got, wl.Status.RequeueState)
	}
}

// Who lost a bought node is requeued at once.
func TestRequeueAfterALostNode(t *testing.T) {
	wl := admitted(kueue.CheckStateRetry)
	wl.Status.AdmissionChecks[0].Message = "MachineLost: a node was lost"
	queues := Queues{Checks: checkNames(1)}
	NextStep(wl, queues, Settings{}, start).Apply(wl, start)
	if got := condition(wl, kueue.WorkloadEvicted); got.Reason != "MachineLost" {
		t.Errorf("Evicted is %+v", got)
	}
	Release(wl, "", start)
	if step := NextStep(wl, queues, Settings{}, start); step.Action == Requeue {
		step.Apply(wl, start)
	}
	if got := condition(wl, kueue.WorkloadRequeued); got != nil && got.Status != metav1.ConditionTrue {
		t.Errorf("Requeued is %+v", got)
	}
}

// A check that is asked again knows how often it was, and one that never
// answered is left alone.
func TestChecksAfterAnEviction(t *testing.T) {
	wl := admitted(kueue.CheckStateRetry, kueue.CheckStatePending, kueue.CheckStateReady)
	wl.Status.AdmissionChecks[0].RetryCount = ptr.To(int32(1))
	Evict(wl, kueue.WorkloadEvictedByAdmissionCheck, "", "", after(time.Minute))
	checks := wl.Status.AdmissionChecks
	if *checks[0].RetryCount != 2 || checks[0].State != kueue.CheckStatePending || checks[0].Message != "Reset to Pending after eviction. Previously: Retry" {
		t.Errorf("the one that wanted another try: %+v", checks[0])
	}
	if checks[1].Message != "because" || checks[2].State != kueue.CheckStatePending || checks[2].RetryCount != nil {
		t.Errorf("the others: %+v", checks[1:])
	}
}

// Admitted again in the moment its queue starts, a workload says so.
func TestAdmittedAfterARestart(t *testing.T) {
	wl := evicted(kueue.WorkloadEvictedByClusterQueueStopped)
	Admit(wl, &admission.Admission{Queue: "cq"}, nil, after(time.Hour))
	if got := condition(wl, kueue.WorkloadRequeued); got.Status != metav1.ConditionTrue || got.Reason != "ClusterQueueRestarted" {
		t.Errorf("Requeued is %+v", got)
	}
}

func TestPriorityBoostAndGates(t *testing.T) {
	wl := &kueue.Workload{}
	wl.Annotations = map[string]string{PriorityBoostAnnotation: "-30", GatedByAnnotation: "example.com/gate"}
	if got := ForEngine(wl, nil); PriorityBoost(wl) != -30 || !got.Gated {
		t.Errorf("boost %d, gated %t: want -30 and gated", PriorityBoost(wl), got.Gated)
	}
	wl.Annotations = map[string]string{PriorityBoostAnnotation: "much"}
	if got := ForEngine(wl, nil); PriorityBoost(wl) != 0 || got.Gated {
		t.Errorf("boost %d, gated %t: want none", PriorityBoost(wl), got.Gated)
	}
}

// How often a check was tried is known when it is tried again: the pause before
// the next try goes by it.
func TestRetriesAreCounted(t *testing.T) {
	wl := admitted(kueue.CheckStateRetry)
	names := []string{string(wl.Status.AdmissionChecks[0].Name)}
	for try := range int32(3) {
		wl.Status.AdmissionChecks[0].State = kueue.CheckStateRetry
		Evict(wl, kueue.WorkloadEvictedByAdmissionCheck, "", "", start)
		Release(wl, "", start)
		Admit(wl, &admission.Admission{Queue: "cq"}, names, start)
		if check := wl.Status.AdmissionChecks[0]; check.State != kueue.CheckStatePending || ptr.Deref(check.RetryCount, 0) != try+1 {
			t.Fatalf("after %d tries the check is %+v", try+1, check)
		}
	}
	Admit(wl, &admission.Admission{Queue: "cq"}, nil, start)
	if len(wl.Status.AdmissionChecks) != 0 {
		t.Errorf("checks of another queue stay: %v", wl.Status.AdmissionChecks)
	}
}

// Nominations and preemptors are in the objects: a restart finds them there.
func TestPreemptionNamesWhomItIsFor(t *testing.T) {
	wl := admitted()
	message := AddJobUID("Preempted to accommodate a workload (UID: 1-2-3) due to prioritization in the ClusterQueue", "1-2-3", "4-5-6")
	Preempt(wl, "InClusterQueue", message, start)
	if got := ForEngine(wl, nil); !got.Evicting || got.EvictedFor != "1-2-3" {
		t.Errorf("it leaves for %q", got.EvictedFor)
	}
	Release(wl, "", start)
	if got := ForEngine(wl, nil); got.Nominated {
		t.Error("it is not nominated")
	}
	waits := admission.Pending{Reason: admission.ReasonWaitingForPreemptedWorkloads, Message: "insufficient quota. Pending the preemption of 2 workload(s)"}
	for _, granular := range []bool{true, false} {
		SetPending(wl, waits, granular, start)
		if got := ForEngine(wl, nil); !got.Nominated {
			t.Errorf("it is nominated: it waits for preempted workloads; granular reasons %t", granular)
		}
	}
	SetPending(wl, admission.Pending{Reason: admission.ReasonWaitingForQuota, Message: "Pending the preemption of cards"}, false, start)
	if got := ForEngine(wl, nil); got.Nominated {
		t.Error("it is not nominated: it waits for quota")
	}
	if got := preemptor("Preempted by another"); got != "" {
		t.Errorf("%q is no UID", got)
	}
}

// Who moves to other nodes is known by its object until it is told of another reason to wait. Nobody moves who says so, asks
// for something else meanwhile, or was evicted by another rule.
func TestMovesAreKnownByTheObject(t *testing.T) {
	const message = "Preempted to accommodate a workload (UID: 1-2-3) due to defragmentation of nodes: it fits on others at once"
	moved := func() *kueue.Workload {
		wl := admitted()
		wl.Generation = 3
		Preempt(wl, string(admission.ReasonDefragmentation), message, start)
		return wl
	}
	for name, c := range map[string]struct {
		change func(*kueue.Workload)
		want   bool
	}{
		"evicted":  {func(*kueue.Workload) {}, true},
		"released": {func(wl *kueue.Workload) { Release(wl, "", start) }, true},
		"started again": {func(wl *kueue.Workload) {
			Release(wl, "", start)
			Admit(wl, &admission.Admission{Queue: "cq"}, nil, start)
		}, false},
		"another spec":      {func(wl *kueue.Workload) { Release(wl, "", start); wl.Generation++ }, false},
		"spec while it has": {func(wl *kueue.Workload) { wl.Generation++ }, false},
		"waits for others to leave": {func(wl *kueue.Workload) {
			Release(wl, "", start)
			SetPending(wl, admission.Pending{Reason: admission.ReasonWaitingForPreemptedWorkloads, Message: "Pending the preemption of 2 workload(s)"}, false, start)
		}, true},
		"waits for quota": {func(wl *kueue.Workload) {
			Release(wl, "", start)
			SetPending(wl, admission.Pending{Reason: admission.ReasonWaitingForQuota, Message: "insufficient quota"}, false, start)
		}, false},
		"stopped meanwhile": {func(wl *kueue.Workload) { Evict(wl, kueue.WorkloadDeactivated, "", "deactivated", start) }, false},
		"by its own words": {func(wl *kueue.Workload) {
			*wl = *admitted()
			wl.Annotations = map[string]string{"kueue.x-k8s.io/moving": "true"}
			Preempt(wl, kueue.InClusterQueueReason, message, start)
		}, false},
	} {
		wl := moved()
		c.change(wl)
		if got := ForEngine(wl, nil).Moving; got != c.want {
			t.Errorf("%s: moves %t", name, got)
		}
	}
}

// A pod that was evicted and is going gives its quota back, and its workload
// stands in no line; that of a job comes again.
func TestDepart(t *testing.T) {
	for name, leave := range map[string]func(*kueue.Workload){
		"goes":        func(wl *kueue.Workload) { PreventRequeue(wl, start) },
		"comes again": func(*kueue.Workload) {},
	} {
		wl := admitted()
		Step{Action: EvictNow, Reason: kueue.WorkloadEvictedByPreemption, Message: "preempted"}.Apply(wl, start)
		Release(wl, "", start)
		leave(wl)
		again := condition(wl, kueue.WorkloadRequeued)
		if goes := name == "goes"; HasReservation(wl) || again.Reason != kueue.WorkloadEvictedByPreemption ||
			(again.Status == metav1.ConditionFalse) != goes || ForEngine(wl, nil).Inactive != goes {
			t.Errorf("one that %s: conditions %+v", name, wl.Status.Conditions)
		}
		if step := NextStep(wl, Queues{}, Settings{}, after(time.Hour)); step.Action != Wait {
			t.Errorf("one that %s: %+v", name, step)
		}
	}
}

// A workload whose job has to change first gets no quota.
func TestWaitsForItsJob(t *testing.T) {
	for name, tc := range map[string]struct {
		conditions []metav1.Condition
		want       bool
	}{
		"nothing holds it": {conditions: []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "Pending"}}},
		"pods are missing": {conditions: []metav1.Condition{{Type: kueue.WorkloadWaitingForReplacementPods, Status: metav1.ConditionTrue}}, want: true},
		"they have come":   {conditions: []metav1.Condition{{Type: kueue.WorkloadWaitingForReplacementPods, Status: metav1.ConditionFalse}}},
		"it has no pods":   {conditions: []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: kueue.WorkloadOnHold}}, want: true},
		"it has quota yet": {conditions: []metav1.Condition{
			{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}, {Type: kueue.WorkloadWaitingForReplacementPods, Status: metav1.ConditionTrue},
		}},
	} {
		wl := &kueue.Workload{}
		wl.Status.Admission, wl.Status.Conditions = &kueue.Admission{}, tc.conditions
		if got := ForEngine(wl, nil).Inactive; got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
