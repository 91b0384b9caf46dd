package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/test/sandbox"
)

// running makes a job of one pod that runs until it is stopped, and waits until
// it does.
func running(t *testing.T, ns, name string, edit ...func(*batchv1.Job)) (*batchv1.Job, *kueue.Workload) {
	t.Helper()
	job := sandbox.Job(ns, name, "main", 1, "1")
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	for _, e := range edit {
		e(job)
	}
	cluster.Make(t, job)
	wl := cluster.WorkloadOf(t, job)
	waitCondition(t, wl, kueue.WorkloadAdmitted, true)
	return job, wl
}

func patch(t *testing.T, obj client.Object, text string) {
	t.Helper()
	if err := cluster.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
		t.Fatal(err)
	}
}

// waitReason waits until a condition has a status and a reason.
func waitReason(t *testing.T, wl *kueue.Workload, name string, value bool, reason string) {
	t.Helper()
	sandbox.Eventually(t, fmt.Sprintf("%s=%t for %s of workload %s", name, value, reason, wl.Name), func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return err
		}
		found := apimeta.FindStatusCondition(wl.Status.Conditions, name)
		if found == nil || (found.Status == "True") != value || found.Reason != reason {
			return fmt.Errorf("conditions are %v", wl.Status.Conditions)
		}
		return nil
	})
}

// waitRefusal waits until a workload waits as pending, with a message that says why.
func waitRefusal(t *testing.T, wl *kueue.Workload, why string) {
	t.Helper()
	sandbox.Eventually(t, fmt.Sprintf("%q of workload %s", why, wl.Name), func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return err
		}
		found := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
		if found == nil || found.Reason != "Pending" || !strings.Contains(found.Message, why) {
			return fmt.Errorf("conditions are %v", wl.Status.Conditions)
		}
		return nil
	})
}

// A drained queue stops what runs; started again it takes it back. So does a
// LocalQueue.
func TestStoppedAndRestarted(t *testing.T) {
	ns := queueFor(t, "4")
	_, wl := running(t, ns, "one")
	cq := &kueue.ClusterQueue{}
	cq.Name = ns
	lq := sandbox.LocalQueue(ns, "main", ns)
	for _, test := range []struct {
		queue              client.Object
		stopped, restarted string
	}{
		{cq, kueue.WorkloadEvictedByClusterQueueStopped, kueue.WorkloadClusterQueueRestarted},
		{lq, kueue.WorkloadEvictedByLocalQueueStopped, kueue.WorkloadLocalQueueRestarted},
	} {
		patch(t, test.queue, `{"spec":{"stopPolicy":"HoldAndDrain"}}`)
		waitReason(t, wl, kueue.WorkloadEvicted, true, test.stopped)
		waitReason(t, wl, kueue.WorkloadRequeued, false, test.stopped)
		waitReason(t, wl, kueue.WorkloadQuotaReserved, false, kueue.WorkloadInadmissible)
		patch(t, test.queue, `{"spec":{"stopPolicy":"None"}}`)
		waitReason(t, wl, kueue.WorkloadRequeued, true, test.restarted)
		waitCondition(t, wl, kueue.WorkloadAdmitted, true)
	}
	if got := wl.Status.SchedulingStats.Evictions; len(got) != 2 || got[0].Count != 1 || got[1].Count != 1 {
		t.Errorf("evictions are counted by reason: %+v", got)
	}
}

// Deactivated by its user a workload stops; reactivated it starts again.
func TestDeactivatedAndReactivated(t *testing.T) {
	ns := queueFor(t, "4")
	job, wl := running(t, ns, "one")
	waitReason(t, wl, kueue.WorkloadPodsReady, true, kueue.WorkloadStarted)
	patch(t, wl, `{"spec":{"active":false}}`)
	waitReason(t, wl, kueue.WorkloadRequeued, false, kueue.WorkloadDeactivated)
	waitReason(t, wl, kueue.WorkloadPodsReady, false, kueue.WorkloadWaitForStart)
	waitJob(t, job, func(j *batchv1.Job) error {
		if !ptr.Deref(j.Spec.Suspend, false) {
			return fmt.Errorf("it runs")
		}
		return nil
	})
	waitUsage(t, ns, "0")
	patch(t, wl, `{"spec":{"active":true}}`)
	waitReason(t, wl, kueue.WorkloadRequeued, true, kueue.WorkloadReactivated)
	waitCondition(t, wl, kueue.WorkloadAdmitted, true)
}

// A job that ran for as long as it may is deactivated, and says why.
func TestMaximumExecutionTime(t *testing.T) {
	ns := queueFor(t, "4")
	_, wl := running(t, ns, "one", func(j *batchv1.Job) { j.Labels["kueue.x-k8s.io/max-exec-time-seconds"] = "1" })
	waitReason(t, wl, kueue.WorkloadEvicted, true, "DeactivatedDueToMaximumExecutionTimeExceeded")
	waitReason(t, wl, kueue.WorkloadQuotaReserved, false, "Pending")
	if ptr.Deref(wl.Spec.Active, true) {
		t.Error("the workload must be inactive")
	}
	if message := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted).Message; message != "The workload is deactivated due to exceeding the maximum execution time" {
		t.Errorf("the message is %q", message)
	}
	want := kueue.WorkloadSchedulingStatsEviction{Reason: "Deactivated", UnderlyingCause: "MaximumExecutionTimeExceeded", Count: 1}
	if got := wl.Status.SchedulingStats.Evictions; len(got) != 1 || got[0] != want {
		t.Errorf("evictions are %+v, want %+v", got, want)
	}
}

// A check that says no takes the workload out of the line for good.
func TestRejectedByACheck(t *testing.T) {
	ns := queueFor(t, "4")
	activeCheck(t, ns)
	cq := &kueue.ClusterQueue{}
	cq.Name = ns
	patch(t, cq, fmt.Sprintf(`{"spec":{"admissionChecksStrategy":{"admissionChecks":[{"name":%q}]}}}`, ns))
	job := sandbox.Job(ns, "checked", "main", 1, "1")
	cluster.Make(t, job)
	wl := cluster.WorkloadOf(t, job)
	setCheck(t, wl, kueue.CheckStateRejected)
	waitReason(t, wl, kueue.WorkloadEvicted, true, "DeactivatedDueToAdmissionCheck")
	waitUsage(t, ns, "0")

	// Held by a stopped queue, quota that waits for a check goes back.
	second := sandbox.Job(ns, "second", "main", 1, "1")
	cluster.Make(t, second)
	wl = cluster.WorkloadOf(t, second)
	waitCondition(t, wl, kueue.WorkloadQuotaReserved, true)
	patch(t, cq, `{"spec":{"stopPolicy":"Hold"}}`)
	waitReason(t, wl, kueue.WorkloadQuotaReserved, false, kueue.WorkloadInadmissible)
	waitUsage(t, ns, "0")
	// Without its check the queue admits at once.
	patch(t, cq, `{"spec":{"stopPolicy":"None","admissionChecksStrategy":null}}`)
	waitCondition(t, wl, kueue.WorkloadAdmitted, true)
}

// collected waits until Kubernetes' garbage collector minds workloads: it learns of new kinds twice a minute, and what it
// does not know it does not orphan.
func collected(t *testing.T, ns string) {
	t.Helper()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "owner"}}
	cluster.Make(t, owner)
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns, Name: "owned",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}},
	}}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "example.com/train:1"}},
	}}}}
	cluster.Make(t, wl)
	if err := cluster.Delete(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "the garbage collector minds workloads", func(ctx context.Context) error {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), wl)
		if err == nil {
			return errors.New("the one whose owner is gone is there")
		}
		return client.IgnoreNotFound(err)
	})
}

// A workload whose job was taken away from it gives its quota back.
func TestOwnerNotFound(t *testing.T) {
	ns := queueFor(t, "4")
	collected(t, ns)
	job, wl := running(t, ns, "one")
	if err := cluster.Delete(t.Context(), job, client.PropagationPolicy("Orphan")); err != nil {
		t.Fatal(err)
	}
	waitReason(t, wl, kueue.WorkloadFinished, true, kueue.WorkloadFinishedReasonOwnerNotFound)
	waitUsage(t, ns, "0")
}

// A waiting job that becomes more important overtakes, by another class.
func TestPriorityChangesWhilePending(t *testing.T) {
	ns := queueFor(t, "1")
	for name, value := range map[string]int32{ns + "-low": 1, ns + "-high": 100} {
		class := &kueue.WorkloadPriorityClass{Value: value}
		class.Name = name
		cluster.Make(t, class)
	}
	first, _ := running(t, ns, "first")
	var waiting []*batchv1.Job
	for _, name := range []string{"early", "late"} {
		job := sandbox.Job(ns, name, "main", 1, "1")
		job.Labels["kueue.x-k8s.io/priority-class"] = ns + "-low"
		job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
		cluster.Make(t, job)
		waitCondition(t, cluster.WorkloadOf(t, job), kueue.WorkloadQuotaReserved, false)
		waiting = append(waiting, job)
	}
	late := cluster.WorkloadOf(t, waiting[1])
	patch(t, waiting[1], fmt.Sprintf(`{"metadata":{"labels":{"kueue.x-k8s.io/priority-class":%q}}}`, ns+"-high"))
	sandbox.Eventually(t, "the workload has the new priority", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(late), late); err != nil {
			return err
		}
		if ptr.Deref(late.Spec.Priority, 0) != 100 {
			return fmt.Errorf("it has %d", ptr.Deref(late.Spec.Priority, 0))
		}
		return nil
	})
	if err := cluster.Delete(t.Context(), first, client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}
	waitCondition(t, late, kueue.WorkloadAdmitted, true)
	if early := cluster.WorkloadOf(t, waiting[0]); apimeta.IsStatusConditionTrue(early.Status.Conditions, kueue.WorkloadAdmitted) {
		t.Error("the less important one must wait")
	}
}

// What a queue refers to may be missing; it says so and admits nothing.
func TestQueueWithoutItsParts(t *testing.T) {
	ns := cluster.Namespace(t)
	cluster.Make(t, sandbox.ClusterQueue(ns, ns, "1"), sandbox.LocalQueue(ns, "main", ns))
	waitActive(t, ns, kueue.ClusterQueueActiveReasonFlavorNotFound)
	job := sandbox.Job(ns, "one", "main", 1, "1")
	cluster.Make(t, job)
	wl := cluster.WorkloadOf(t, job)
	waitReason(t, wl, kueue.WorkloadQuotaReserved, false, kueue.WorkloadInadmissible)
	cluster.Make(t, sandbox.Flavor(ns, nil))
	waitActive(t, ns, kueue.ClusterQueueActiveReasonReady)
	waitCondition(t, wl, kueue.WorkloadAdmitted, true)
}
