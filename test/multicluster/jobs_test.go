package multicluster

import (
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/test/sandbox"
)

// A job is sent to the cluster that has quota, runs there and not here, and ends
// here as it ended there, leaving nothing behind.
func TestJobRunsElsewhere(t *testing.T) {
	ns := arena(t, "4", "0", "east", "west")
	job := forever(sandbox.Job(ns, "first", "main", 2, "1"))
	manager.Make(t, job)
	if by := ptr.Deref(job.Spec.ManagedBy, ""); by != kueue.MultiKueueControllerName {
		t.Fatalf("the job is managed by %q: its queue sends it to other clusters", by)
	}
	wl := runsIn(t, manager.WorkloadOf(t, job), "east")
	here := wait(t, manager, job, "a status from there", func(j *batchv1.Job) error {
		if j.Status.Active != 2 || ptr.Deref(j.Status.Ready, 0) != 2 || ptr.Deref(j.Spec.Suspend, false) {
			return fmt.Errorf("suspend is %v, status %+v", j.Spec.Suspend, j.Status)
		}
		return nil
	})
	if len(here.Spec.Template.Spec.NodeSelector) > 0 {
		t.Errorf("the job here has node selectors %v", here.Spec.Template.Spec.NodeSelector)
	}
	gone(t, manager, ns, &corev1.PodList{})
	gone(t, west, ns, &kueue.WorkloadList{}, &batchv1.JobList{})
	there := &batchv1.Job{}
	if err := east.Get(t.Context(), client.ObjectKeyFromObject(job), there); err != nil {
		t.Fatal(err)
	}
	if there.Spec.ManagedBy != nil || there.Labels[kueue.MultiKueueOriginLabel] != "multikueue" || there.Labels["kueue.x-k8s.io/prebuilt-workload-name"] != wl.Name ||
		there.Annotations[kueue.MultiKueueOriginUIDAnnotation] != string(job.UID) {
		t.Errorf("the job there is managed by %v and has labels %v and annotations %v", there.Spec.ManagedBy, there.Labels, there.Annotations)
	}
	pods := &corev1.PodList{}
	if err := east.List(t.Context(), pods, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		if pods.Items[i].Labels[kueue.MultiKueueWorkerWorkloadPodLabel] != "true" {
			t.Errorf("a pod there has labels %v", pods.Items[i].Labels)
		}
		patch(t, east, &pods.Items[i], `{"metadata":{"annotations":{"`+sandbox.RunFor+`":"0s"}}}`)
	}
	wl = condition(t, manager, wl, kueue.WorkloadFinished, metav1.ConditionTrue)
	if end := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished); end.Reason != kueue.WorkloadFinishedReasonSucceeded {
		t.Errorf("it ended with %s: %s", end.Reason, end.Message)
	}
	wait(t, manager, job, "completion", func(j *batchv1.Job) error {
		if j.Status.Succeeded != 2 || j.Status.CompletionTime == nil {
			return fmt.Errorf("status is %+v", j.Status)
		}
		return nil
	})
	cleared(t, ns)
}

// What is deleted here is stopped there, also before it runs.
func TestDeletedHere(t *testing.T) {
	ns := arena(t, "1", "1", "east", "west")
	running, waiting := forever(sandbox.Job(ns, "running", "main", 1, "1")), forever(sandbox.Job(ns, "waiting", "main", 4, "1"))
	manager.Make(t, running)
	wl := manager.WorkloadOf(t, running)
	wait(t, manager, wl, "running somewhere", func(wl *kueue.Workload) error {
		if wl.Status.ClusterName == nil {
			return fmt.Errorf("status is %+v", wl.Status)
		}
		return nil
	})
	manager.Make(t, waiting)
	copied := manager.WorkloadOf(t, waiting)
	for _, worker := range []*sandbox.Cluster{east, west} {
		condition(t, worker, copied, kueue.WorkloadQuotaReserved, metav1.ConditionFalse)
	}
	for _, job := range []*batchv1.Job{running, waiting} {
		if err := manager.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
	}
	cleared(t, ns)
	gone(t, manager, ns, &kueue.WorkloadList{})
}

// A workload that is deactivated here stops there before its quota is another's
// here, and runs again when it is activated.
func TestEvictedHere(t *testing.T) {
	ns := arena(t, "4", "0", "east")
	job := forever(sandbox.Job(ns, "job", "main", 1, "1"))
	manager.Make(t, job)
	wl := runsIn(t, manager.WorkloadOf(t, job), "east")
	patch(t, manager, wl, `{"spec":{"active":false}}`)
	wait(t, manager, wl, "no quota and no cluster", func(wl *kueue.Workload) error {
		if wl.Status.Admission != nil || wl.Status.ClusterName != nil {
			return fmt.Errorf("status is %+v", wl.Status)
		}
		return nil
	})
	cleared(t, ns)
	wait(t, manager, job, "a job that stands still", func(j *batchv1.Job) error {
		if !ptr.Deref(j.Spec.Suspend, false) || j.Status.Active > 0 || j.Status.StartTime != nil {
			return fmt.Errorf("suspend is %v, status %+v", j.Spec.Suspend, j.Status)
		}
		return nil
	})
	patch(t, manager, wl, `{"spec":{"active":true}}`)
	runsIn(t, wl, "east")
}

// A workload that is evicted there is sent out again. What it counted there is not
// forgotten: the API allows no count to go backwards.
func TestEvictedThere(t *testing.T) {
	ns := arena(t, "4", "0", "east", "west")
	job := forever(sandbox.Job(ns, "job", "main", 1, "1"))
	manager.Make(t, job)
	wl := runsIn(t, manager.WorkloadOf(t, job), "east")
	end(t, east, ns, "1")
	counts := func(failed, active, succeeded int32) {
		t.Helper()
		wait(t, manager, job, "its counts", func(j *batchv1.Job) error {
			if j.Status.Failed != failed || j.Status.Active != active || j.Status.Succeeded != succeeded {
				return fmt.Errorf("status is %+v", j.Status)
			}
			return nil
		})
	}
	counts(1, 1, 0)
	patch(t, west, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: ns}}, quotaOf(ns, "4"))
	patch(t, east, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: ns}}, `{"spec":{"stopPolicy":"HoldAndDrain"}}`)
	wl = runsIn(t, wl, "west")
	gone(t, east, ns, &kueue.WorkloadList{}, &batchv1.JobList{}, &corev1.PodList{})
	if n := wl.Status.SchedulingStats.Evictions; len(n) != 1 || n[0].Reason != kueue.WorkloadEvictedByAdmissionCheck || n[0].Count != 1 {
		t.Errorf("evictions are %+v", n)
	}
	counts(1, 1, 0)
	end(t, west, ns, "0")
	condition(t, manager, wl, kueue.WorkloadFinished, metav1.ConditionTrue)
	counts(1, 0, 1)
}

// end the pods that run in a namespace.
func end(t *testing.T, c *sandbox.Cluster, ns, code string) {
	t.Helper()
	pods := podsIn(t, c, ns)
	for i := range pods {
		patch(t, c, &pods[i], `{"metadata":{"annotations":{"`+sandbox.RunFor+`":"0s","`+sandbox.ExitCode+`":"`+code+`"}}}`)
	}
}

// What a manager with Kueue sends here is run: it names the workload in an
// annotation.
func TestCopyOfKueues(t *testing.T) {
	ns := arena(t, "4", "0", "east")
	job := forever(sandbox.Job(ns, "job", "main", 1, "1"))
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sent", Labels: map[string]string{kueue.MultiKueueOriginLabel: "another"}},
		Spec:       kueue.WorkloadSpec{QueueName: "main", PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: job.Spec.Template}}},
	}
	east.Make(t, wl)
	condition(t, east, wl, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	job.Labels[kueue.MultiKueueOriginLabel] = "another"
	job.Annotations = map[string]string{"kueue.x-k8s.io/prebuilt-workload-name": "sent"}
	east.Make(t, job)
	if wl = condition(t, east, wl, kueue.WorkloadPodsReady, metav1.ConditionTrue); !metav1.IsControlledBy(wl, job) {
		t.Errorf("the workload belongs to %+v", wl.OwnerReferences)
	}
}
