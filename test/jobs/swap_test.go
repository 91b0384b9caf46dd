package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// swapped is a job with the swap annotation that was started and then preempted. The test is the agent of its
// pods' nodes; test/agent has the real one.
type swapped struct {
	*arena
	wl       *kueue.Workload
	pods     []corev1.Pod
	intruder *kueue.Workload
}

func preempt(t *testing.T, a *arena, wl *kueue.Workload, pods int) *swapped {
	t.Helper()
	waitCondition(t, wl, kueue.WorkloadPodsReady, metav1.ConditionTrue)
	s := &swapped{arena: a, wl: wl, intruder: a.intruder(t)}
	s.pods = s.asked(t, pods, egpu.SwapOut)
	return s
}

// asked waits until the pods are asked to move.
func (s *swapped) asked(t *testing.T, pods int, where string) []corev1.Pod {
	t.Helper()
	return waitPods(t, s.arena, pods, func(pod *corev1.Pod) error {
		if got := pod.Annotations[egpu.SwapAnnotation]; got != where {
			return fmt.Errorf("pod %s was asked %q", pod.Name, got)
		}
		return nil
	})
}

// report writes what the agent of a pod's node would write.
func (s *swapped) report(t *testing.T, pod *corev1.Pod, out bool, reason string) {
	t.Helper()
	sandbox.Eventually(t, "the agent reports", func(ctx context.Context) error {
		now := &corev1.Pod{}
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
			return err
		}
		changed := now.DeepCopy()
		status := corev1.ConditionFalse
		if out {
			status = corev1.ConditionTrue
		}
		changed.Status.Conditions = append(slices.DeleteFunc(changed.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == egpu.SwappedOut }),
			corev1.PodCondition{Type: egpu.SwappedOut, Status: status, Reason: reason, Message: "because of the test", LastTransitionTime: metav1.Now()})
		return cluster.Status().Patch(ctx, changed, client.StrategicMergeFrom(now))
	})
}

// quota: the workload has quota reserved.
func (s *swapped) quota(t *testing.T) bool {
	t.Helper()
	now := &kueue.Workload{}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(s.wl), now); err != nil {
		t.Fatal(err)
	}
	return now.Status.Admission != nil
}

// out moves all pods out, one after the other: the last one completes the eviction.
func (s *swapped) out(t *testing.T) {
	t.Helper()
	for i := range s.pods {
		if !s.quota(t) {
			t.Fatalf("%d of %d pods are out, and its quota is gone", i, len(s.pods))
		}
		s.report(t, &s.pods[i], true, egpu.ReasonMovedOut)
	}
	waitCondition(t, s.wl, kueue.WorkloadQuotaReserved, metav1.ConditionFalse)
	waitCondition(t, s.intruder, kueue.WorkloadAdmitted, metav1.ConditionTrue)
}

// leave deletes the intruder, so that the job is admitted again.
func (s *swapped) leave(t *testing.T) {
	t.Helper()
	if err := cluster.Delete(t.Context(), s.intruder); err != nil {
		t.Fatal(err)
	}
	waitCondition(t, s.wl, kueue.WorkloadAdmitted, metav1.ConditionTrue)
}

func (s *swapped) uids(t *testing.T) map[types.UID]bool {
	t.Helper()
	pods, err := s.arena.pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[types.UID]bool{}
	for i := range pods {
		if pods[i].DeletionTimestamp == nil && pods[i].Status.Phase == corev1.PodRunning {
			found[pods[i].UID] = true
		}
	}
	return found
}

func (s *swapped) same(t *testing.T) {
	t.Helper()
	now := s.uids(t)
	for i := range s.pods {
		if !now[s.pods[i].UID] {
			t.Errorf("pod %s is gone: %v", s.pods[i].Name, now)
		}
	}
}

// swapping is a Job of two pods with the swap annotation.
func swapping(t *testing.T) (*batchv1.Job, *swapped) {
	t.Helper()
	a := newArena(t)
	a.open(t)
	job := sandbox.Job(a.namespace, "job", "main", 2, "1")
	job.Annotations = map[string]string{egpu.OnPreemptionAnnotation: egpu.OnPreemptionSwap}
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	cluster.Make(t, job)
	return job, preempt(t, a, cluster.WorkloadOf(t, job), 2)
}

func suspended(t *testing.T, job *batchv1.Job) bool {
	t.Helper()
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil {
		t.Fatal(err)
	}
	return ptr.Deref(job.Spec.Suspend, false)
}

// The job releases its quota when all its pods are out, and continues with the same pods.
func TestSwappedJobGoesOn(t *testing.T) {
	t.Parallel()
	job, s := swapping(t)
	s.out(t)
	if suspended(t, job) {
		t.Fatal("it was suspended, and its pods with it")
	}
	s.leave(t)
	for _, pod := range s.asked(t, 2, egpu.SwapIn) {
		s.report(t, &pod, false, egpu.ReasonMovedIn)
	}
	sandbox.Eventually(t, "it is said that it goes on", func(ctx context.Context) error { return s.event(ctx, job, "SwappedIn") })
	if suspended(t, job) {
		t.Fatal("it was suspended")
	}
	s.same(t)
}

// event of that reason about an object.
func (s *swapped) event(ctx context.Context, about client.Object, reason string) error {
	list := &corev1.EventList{}
	if err := cluster.List(ctx, list, client.InNamespace(s.namespace)); err != nil {
		return err
	}
	for _, e := range list.Items {
		if e.InvolvedObject.UID == about.GetUID() && e.Reason == reason {
			return nil
		}
	}
	return errors.New("there is no event " + reason)
}

// If one pod cannot be moved, the job is stopped like any other.
func TestJobThatCannotBeSwappedIsStopped(t *testing.T) {
	t.Parallel()
	job, s := swapping(t)
	s.report(t, &s.pods[0], true, egpu.ReasonMovedOut)
	s.report(t, &s.pods[1], false, egpu.ReasonCannotMoveOut)
	waitCondition(t, s.wl, kueue.WorkloadQuotaReserved, metav1.ConditionFalse)
	if !suspended(t, job) {
		t.Fatal("it goes on without quota")
	}
	if err := s.event(t.Context(), job, "NotSwappedOut"); err != nil {
		t.Error(err)
	}
	waitCondition(t, s.intruder, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	s.leave(t)
	s.restarted(t)
}

// If a pod cannot be moved back, or its card is in use, the job is restarted.
func TestSwappedJobStartsAnew(t *testing.T) {
	t.Parallel()
	_, s := swapping(t)
	s.out(t)
	s.leave(t)
	s.asked(t, 2, egpu.SwapIn)
	s.report(t, &s.pods[1], true, egpu.ReasonCannotMoveIn)
	s.restarted(t)
}

// restarted waits until new pods have replaced those that were asked to move.
func (s *swapped) restarted(t *testing.T) {
	t.Helper()
	sandbox.Eventually(t, "other pods run", func(ctx context.Context) error {
		pods, err := s.arena.pods(ctx)
		if err != nil {
			return err
		}
		others := 0
		for i := range pods {
			old := slices.ContainsFunc(s.pods, func(p corev1.Pod) bool { return p.UID == pods[i].UID })
			if !old && pods[i].Status.Phase == corev1.PodRunning && pods[i].Annotations[egpu.SwapAnnotation] == "" {
				others++
			}
		}
		if others != len(s.pods) {
			return fmt.Errorf("%d of them", others)
		}
		return nil
	})
	waitCondition(t, s.wl, kueue.WorkloadPodsReady, metav1.ConditionTrue)
}

// A single pod is swapped like a job.
func TestSwappedPod(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.open(t)
	object := samples(t, "pod")[0]
	object.SetNamespace(a.namespace)
	object.SetAnnotations(map[string]string{sandbox.RunFor: "forever", egpu.OnPreemptionAnnotation: egpu.OnPreemptionSwap})
	cluster.Make(t, object)
	s := preempt(t, a, workloadOf(t, object), 1)
	s.out(t)
	s.leave(t)
	s.asked(t, 1, egpu.SwapIn)
	s.report(t, &s.pods[0], false, egpu.ReasonMovedIn)
	sandbox.Eventually(t, "it is said that it goes on", func(ctx context.Context) error { return s.event(ctx, &s.pods[0], "SwappedIn") })
	s.same(t)
}

func workloadOf(t *testing.T, object *unstructured.Unstructured) *kueue.Workload {
	t.Helper()
	pod := &corev1.Pod{}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(object), pod); err != nil {
		t.Fatal(err)
	}
	return cluster.WorkloadOf(t, pod)
}
