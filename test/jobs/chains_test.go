package jobs

import (
	"context"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// TestOwnerChain: a Job made by a JobSet made by a TrainJob is one workload,
// though each of them names the queue.
func TestOwnerChain(t *testing.T) {
	if err := installed(); err != nil {
		t.Fatal(err)
	}
	a := newArena(t)
	objects := samples(t, "trainjob")
	runtime, train := objects[0], objects[len(objects)-1]
	runtime.SetName(a.namespace) // the sample's own name is in use by another test
	if err := unstructured.SetNestedField(train.Object, a.namespace, "spec", "runtimeRef", "name"); err != nil {
		t.Fatal(err)
	}
	cluster.Make(t, runtime)
	train.SetNamespace(a.namespace)
	cluster.Make(t, train)
	cluster.WorkloadOf(t, train)

	set := samples(t, "jobset")[0]
	set.SetNamespace(a.namespace)
	set.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(train, train.GroupVersionKind())})
	cluster.Make(t, set)
	job := newJob(a, "job", 1)
	job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, set.GroupVersionKind())}
	cluster.Make(t, job)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: a.namespace, Name: "pod", Labels: map[string]string{kinds.QueueNameLabel: "main"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/train:1"}}},
	}
	cluster.Make(t, pod)
	if suspended, _, _ := unstructured.NestedBool(set.Object, "spec", "suspend"); suspended {
		t.Error("the JobSet waits once more")
	}
	if ptr.Deref(job.Spec.Suspend, false) {
		t.Error("the Job waits once more")
	}
	if len(pod.Spec.SchedulingGates) > 0 {
		t.Error("the pod waits once more")
	}
	// A job that was created later has its workload: had those above got one, it would
	// exist by now.
	last := newJob(a, "last", 1)
	cluster.Make(t, last)
	cluster.WorkloadOf(t, last)
	list := &kueue.WorkloadList{}
	if err := cluster.List(t.Context(), list, client.InNamespace(a.namespace)); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 2 {
		t.Errorf("there are %d workloads, want that of the TrainJob and that of the last job", len(list.Items))
	}
}

// TestPodSetUpdates: the updates of an admission check are added to the pods, and
// removed when the job is stopped.
func TestPodSetUpdates(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}, Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/conformance"}}
	cluster.Make(t, check)
	sandbox.Eventually(t, "its controller says it is there", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(check), check); err != nil {
			return err
		}
		check.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Up", LastTransitionTime: metav1.Now()}}
		return cluster.Status().Update(ctx, check)
	})
	a.require(t, check.Name)
	a.open(t)
	job := newJob(a, "job", 1)
	job.Spec.Template.Labels = map[string]string{"mine": "too"}
	cluster.Make(t, job)
	wl := cluster.WorkloadOf(t, job)
	answer(t, wl, kueue.PodSetUpdate{
		Name: "main", Labels: map[string]string{"added-label": "x"}, Annotations: map[string]string{"added-annotation": "x"},
		NodeSelector: map[string]string{"added-selector": "x"}, Tolerations: []corev1.Toleration{{Key: "added-toleration", Operator: corev1.TolerationOpExists}},
	})
	waitJob(t, job, "it runs with what the check adds", func(job *batchv1.Job) error {
		template := &job.Spec.Template
		if template.Labels["added-label"] != "x" || template.Annotations["added-annotation"] != "x" || template.Spec.NodeSelector["added-selector"] != "x" ||
			len(template.Spec.Tolerations) != 2 {
			return fmt.Errorf("labels %v, annotations %v, node selector %v, tolerations %v",
				template.Labels, template.Annotations, template.Spec.NodeSelector, template.Spec.Tolerations)
		}
		return running(job)
	})
	a.intruder(t)
	waitJob(t, job, "it is as it was written", func(job *batchv1.Job) error {
		template := &job.Spec.Template
		_, label := template.Labels["added-label"]
		_, annotation := template.Annotations["added-annotation"]
		if !*job.Spec.Suspend || label || annotation || len(template.Spec.NodeSelector)+len(template.Spec.Tolerations) > 0 || template.Labels["mine"] != "too" {
			return fmt.Errorf("suspended %v, template %v %v", *job.Spec.Suspend, template.ObjectMeta, template.Spec.NodeSelector)
		}
		return nil
	})
}

// answer makes a workload's admission check ready.
func answer(t *testing.T, wl *kueue.Workload, updates ...kueue.PodSetUpdate) {
	t.Helper()
	sandbox.Eventually(t, "the check can be answered", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return err
		}
		if len(wl.Status.AdmissionChecks) != 1 {
			return fmt.Errorf("its checks are %v", wl.Status.AdmissionChecks)
		}
		wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady
		wl.Status.AdmissionChecks[0].Message = "ready"
		wl.Status.AdmissionChecks[0].PodSetUpdates = updates
		return cluster.Status().Update(ctx, wl)
	})
}

// groupPods are pods of a group as the sample has them, changed.
func groupPods(t *testing.T, a *arena, annotations map[string]string) []*unstructured.Unstructured {
	t.Helper()
	objects := samples(t, "pod-group")
	for _, object := range objects {
		object.SetNamespace(a.namespace)
		all := object.GetAnnotations()
		all[sandbox.RunFor] = "forever"
		for key, value := range annotations {
			all[key] = value
		}
		object.SetAnnotations(all)
	}
	return objects
}

// TestPodGroupFastAdmission: a group that does not wait for all its pods is
// admitted with the quota of all.
func TestPodGroupFastAdmission(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.open(t)
	pods := groupPods(t, a, map[string]string{kinds.GroupFastAdmission: "true"})
	cluster.Make(t, pods[0])
	waitPods(t, a, 1, func(pod *corev1.Pod) error { return wantGate(pod, false) })
	a.waitCards(t, 2)
	cluster.Make(t, pods[1])
	waitPods(t, a, 2, func(pod *corev1.Pod) error { return wantGate(pod, false) })
	a.waitCards(t, 2)
}

// TestPodGroupThatIsNotRetried: with a pod that must not be retried, the group ends
// with its last pod, in failure.
func TestPodGroupThatIsNotRetried(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.open(t)
	pods := groupPods(t, a, map[string]string{kinds.RetriableAnnotation: "false", sandbox.ExitCode: "1"})
	for _, pod := range pods {
		cluster.Make(t, pod)
	}
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "sample-group"}}
	waitCondition(t, wl, kueue.WorkloadPodsReady, metav1.ConditionTrue)
	for _, pod := range pods {
		endPod(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: pod.GetName()}}, "0s")
	}
	if finished := waitCondition(t, wl, kueue.WorkloadFinished, metav1.ConditionTrue); finished.Reason != kueue.WorkloadFinishedReasonFailed {
		t.Fatalf("it finished as %s", finished.Reason)
	}
	waitUsageZero(t, a)
}

// TestRedisCleanup: while KubeRay has a Job clean up Redis for a deleted RayService,
// the quota stays reserved and that Job may run.
func TestRedisCleanup(t *testing.T) {
	t.Parallel()
	if err := installed(); err != nil {
		t.Fatal(err)
	}
	a := newArena(t)
	a.open(t)
	service := samples(t, "rayservice")[0]
	service.SetNamespace(a.namespace)
	service.SetAnnotations(map[string]string{"ray.io/ft-enabled": "true"})
	service.SetFinalizers([]string{"ray.io/rayservice-finalizer"})
	cluster.Make(t, service)
	wl := cluster.WorkloadOf(t, service)
	waitCondition(t, wl, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	ray := samples(t, "raycluster")[0]
	ray.SetNamespace(a.namespace)
	ray.SetFinalizers([]string{"ray.io/gcs-ft-redis-cleanup-finalizer"})
	ray.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(service, service.GroupVersionKind())})
	cluster.Make(t, ray)
	if err := cluster.Delete(t.Context(), service, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}

	cleanup := sandbox.Job(a.namespace, "cleanup", "main", 1, "1")
	cleanup.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(ray, ray.GroupVersionKind())}
	cleanup.Spec.Template.Annotations[sandbox.RunFor] = "0s"
	cleanup.Spec.Template.Labels = map[string]string{kinds.QueueNameLabel: "main"}
	cluster.Make(t, cleanup)
	waitJob(t, cleanup, "it runs to its end", func(job *batchv1.Job) error {
		if job.Status.Succeeded != 1 {
			return fmt.Errorf("suspended %v, status %+v", job.Spec.Suspend, job.Status)
		}
		return nil
	})
	if err := cluster.Get(t.Context(), clientKey(wl), wl); err != nil || wl.Status.Admission == nil || wl.DeletionTimestamp != nil {
		t.Errorf("its quota is not reserved: %v, %s", err, describe(wl))
	}

	for _, obj := range []client.Object{ray, service} {
		if err := cluster.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			t.Fatal(err)
		}
	}
	waitUsageZero(t, a)
}
