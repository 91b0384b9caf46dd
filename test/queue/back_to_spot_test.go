package queue

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/checks/machines"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// A job that runs on demand has spot nodes bought that are expected to cost it less, and runs on until they are there, also where one place
// refuses them and elastic-queue is killed. Then it is stopped, with a reason of its own, and goes on on those. That is counted, so it is
// not done more often than its CloudOffer says, and one that does not save its work runs on.
func backToSpot(t *testing.T) {
	ns := queueFor(t, "40")
	buying(t, ns, ns)
	offer := &cloud.CloudOffer{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	patch(t, offer, `{"spec":{"match":{"capacityType":"OnDemand"},"movesToSpot":1}}`)
	inRegion(t, offer, "eu-west-3")
	start := func(name string, saves bool) (*kueue.Workload, []machines.NodeClaim) {
		job := sandbox.Job(ns, name, "main", 8, "1")
		job.Labels["kueue.x-k8s.io/max-exec-time-seconds"] = "36000"
		job.Annotations = map[string]string{cloud.DeadlineAnnotation: time.Now().Add(40 * time.Hour).UTC().Format(time.RFC3339)}
		if saves {
			job.Annotations[cloud.CheckpointAnnotation] = "1h"
		}
		job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
		cluster.Make(t, job)
		wl := cluster.WorkloadOf(t, job)
		claims := claimsOf(t, wl, 1, 1)
		registers(t, claims...)
		waitCondition(t, wl, kueue.WorkloadAdmitted, true)
		ranFor(t, wl, 2*time.Hour+4*time.Minute) // it has just saved its work, if it does so as often as it says
		return wl, claims
	}
	stays, _ := start("stays", false)
	moves, was := start("moves", true)
	if !soldAs(&was[0], "on-demand") {
		t.Fatalf("NodeClaim %+v", was[0].Spec.Requirements)
	}
	patch(t, offer, `{"spec":{"match":{"capacityType":null}}}`)
	refused := claimsOf(t, moves, 2, 1, was...)
	deletes(t, &refused[0])
	next := claimsOf(t, moves, 3, 1, was...)
	if !soldAs(&refused[0], "spot") || !soldAs(&next[0], "spot") {
		t.Fatalf("NodeClaims %+v, %+v", refused[0].Spec.Requirements, next[0].Spec.Requirements)
	}
	if err := syscall.Kill(cluster.Queue(t).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	admitted := apimeta.FindStatusCondition(moves.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(moves), moves); err != nil {
		t.Fatal(err)
	}
	if now := apimeta.FindStatusCondition(moves.Status.Conditions, kueue.WorkloadAdmitted); now.Status != metav1.ConditionTrue || !now.LastTransitionTime.Equal(&admitted) {
		t.Fatalf("a place has refused, and it notices: %+v", now)
	}
	registers(t, next...)
	waitEvent(t, moves, "EvictedDueToBackToSpot", "1 spot node there: aws/eu-west-3/b p5.48xlarge spot")
	released(t, &was[0])
	waitCondition(t, moves, kueue.WorkloadAdmitted, true)
	if again := claimsOf(t, moves, 3, 1); again[0].UID != next[0].UID {
		t.Errorf("bought again: %+v", again)
	}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(moves), moves); err != nil {
		t.Fatal(err)
	}
	stats := moves.Status.SchedulingStats
	if stats == nil || !slices.ContainsFunc(stats.Evictions, func(e kueue.WorkloadSchedulingStatsEviction) bool {
		return e.Reason == cloud.ReasonBackToSpot && e.Count == 1
	}) {
		t.Errorf("counted %+v", stats)
	}
	// What it does again was not its choice, and is no part of its limit: an hour of two.
	if past := moves.Status.AccumulatedPastExecutionTimeSeconds; past == nil || *past < 3840 || *past > 4140 {
		t.Errorf("it ran for %v s", past)
	}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(stays), stays); err != nil || !apimeta.IsStatusConditionTrue(stays.Status.Conditions, kueue.WorkloadAdmitted) {
		t.Errorf("it does not save its work, and is stopped: %v %+v", err, stays.Status.Conditions)
	}
}

// soldAs says that a NodeClaim is for spot machines, or for those on demand.
func soldAs(n *machines.NodeClaim, kind string) bool {
	return slices.ContainsFunc(n.Spec.Requirements, func(r machines.Requirement) bool { return slices.Contains(r.Values, kind) })
}

// ranFor writes that a workload was admitted so long ago.
func ranFor(t *testing.T, wl *kueue.Workload, long time.Duration) {
	t.Helper()
	sandbox.Eventually(t, "its admission can be dated", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return err
		}
		apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime = metav1.NewTime(time.Now().Add(-long))
		return cluster.Status().Update(ctx, wl)
	})
}
