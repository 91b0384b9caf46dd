package queue

import (
	"context"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// readyTimeout is how long pods have to become ready; tests set times back instead of waiting for it.
const readyTimeout = 10 * time.Minute

// A workload whose pods are not ready in time gives its quota back and comes again after a pause, until it has done so often
// enough. Meanwhile nothing else starts. Pods that are no longer ready have their own time to recover.
func TestPodsReady(t *testing.T) {
	configure := func(wait *kueueconfig.WaitForPodsReady) {
		cluster.Reconfigure(t, func(cfg *v1alpha1.QueueConfiguration) { cfg.WaitForPodsReady = wait })
	}
	t.Cleanup(func() { configure(nil) })
	configure(&kueueconfig.WaitForPodsReady{
		Timeout: metav1.Duration{Duration: readyTimeout}, RecoveryTimeout: &metav1.Duration{Duration: readyTimeout}, BlockAdmission: ptr.To(true),
		RequeuingStrategy: &kueueconfig.RequeuingStrategy{BackoffLimitCount: ptr.To(int32(1)), BackoffBaseSeconds: ptr.To(int32(1))},
	})
	ns := queueFor(t, "4")

	_, stuck := running(t, ns, "stuck", func(j *batchv1.Job) { j.Spec.Template.Spec.SchedulerName = "nobody" })
	waitReason(t, stuck, kueue.WorkloadPodsReady, false, kueue.WorkloadWaitForStart)
	job := sandbox.Job(ns, "next", "main", 1, "1")
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	cluster.Make(t, job)
	next := cluster.WorkloadOf(t, job)
	waitReason(t, next, kueue.WorkloadQuotaReserved, false, "Waiting")

	sandbox.Eventually(t, "the next second: who is evicted stands behind who came before it", func(context.Context) error {
		if created := next.CreationTimestamp.Unix(); time.Now().Unix() <= created {
			return fmt.Errorf("it is still %d", created)
		}
		return nil
	})
	cluster.Backdate(t, stuck, kueue.WorkloadAdmitted, readyTimeout)
	waitReason(t, stuck, kueue.WorkloadEvicted, true, kueue.WorkloadEvictedByPodsReadyTimeout)
	waitReason(t, next, kueue.WorkloadPodsReady, true, kueue.WorkloadStarted)
	waitCondition(t, stuck, kueue.WorkloadAdmitted, true)
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(stuck), stuck); err != nil {
		t.Fatal(err)
	}
	if state := stuck.Status.RequeueState; state == nil || ptr.Deref(state.Count, 0) != 1 {
		t.Errorf("it came again once: %+v", state)
	}
	cluster.Backdate(t, stuck, kueue.WorkloadAdmitted, readyTimeout)
	waitReason(t, stuck, kueue.WorkloadEvicted, true, kueue.WorkloadDeactivated+"DueTo"+kueue.WorkloadRequeuingLimitExceeded)
	if ptr.Deref(stuck.Spec.Active, true) {
		t.Error("it tried often enough, and is still active")
	}
	counted(t, stuck, kueue.WorkloadEvictedByPodsReadyTimeout, kueue.WorkloadWaitForStart)
	counted(t, stuck, kueue.WorkloadDeactivated, kueue.WorkloadRequeuingLimitExceeded)

	cordon(t, true)
	t.Cleanup(func() { cordon(t, false) })
	if err := cluster.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(ns), client.MatchingLabels{"job-name": "next"}); err != nil {
		t.Fatal(err)
	}
	waitReason(t, next, kueue.WorkloadPodsReady, false, kueue.WorkloadWaitForRecovery)
	cluster.Backdate(t, next, kueue.WorkloadPodsReady, readyTimeout)
	waitReason(t, next, kueue.WorkloadEvicted, true, kueue.WorkloadEvictedByPodsReadyTimeout)
	counted(t, next, kueue.WorkloadEvictedByPodsReadyTimeout, kueue.WorkloadWaitForRecovery)
	cordon(t, false)
	waitReason(t, next, kueue.WorkloadPodsReady, true, kueue.WorkloadStarted)
}

// counted waits until a workload says that it was evicted once for a reason.
func counted(t *testing.T, wl *kueue.Workload, reason, cause string) {
	t.Helper()
	sandbox.Eventually(t, "one eviction for "+reason+", "+cause, func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return err
		}
		for _, e := range ptr.Deref(wl.Status.SchedulingStats, kueue.SchedulingStats{}).Evictions {
			if e.Reason == reason && string(e.UnderlyingCause) == cause && e.Count == 1 {
				return nil
			}
		}
		return fmt.Errorf("counted are %+v", wl.Status.SchedulingStats)
	})
}

// cordon keeps pods from all nodes, or lets them come.
func cordon(t *testing.T, unschedulable bool) {
	t.Helper()
	nodes := &corev1.NodeList{}
	if err := cluster.List(context.Background(), nodes); err != nil {
		t.Fatal(err)
	}
	for i := range nodes.Items {
		before := nodes.Items[i].DeepCopy()
		nodes.Items[i].Spec.Unschedulable = unschedulable
		if err := cluster.Patch(context.Background(), &nodes.Items[i], client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
}
