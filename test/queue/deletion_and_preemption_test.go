package queue

import (
	"context"
	"fmt"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/test/sandbox"
)

// A workload that is deleted stays until its job has stopped, so that nobody
// gets its quota too early; the job then asks for another. Once it is finished
// nothing holds it.
func TestDeletedWorkloadStaysUntilItsJobStopped(t *testing.T) {
	ns := queueFor(t, "1")
	job, wl := running(t, ns, "one")
	if !slices.Contains(wl.Finalizers, kueue.ResourceInUseFinalizerName) {
		t.Fatalf("finalizers are %v", wl.Finalizers)
	}
	if err := cluster.Delete(t.Context(), wl); err != nil {
		t.Fatal(err)
	}
	again := &kueue.Workload{}
	sandbox.Eventually(t, "another workload of the job is admitted", func(ctx context.Context) error {
		list := &kueue.WorkloadList{}
		if err := cluster.List(ctx, list, client.InNamespace(ns)); err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].UID == wl.UID {
			return fmt.Errorf("workloads are %v", list.Items)
		}
		list.Items[0].DeepCopyInto(again)
		return nil
	})
	waitCondition(t, again, kueue.WorkloadPodsReady, true)
	pods := podsOf(t, job)
	live := 0
	for i := range pods {
		if pods[i].DeletionTimestamp == nil && pods[i].Status.Phase == corev1.PodRunning {
			live++
			cluster.Change(t, &pods[i], func() { pods[i].Annotations[sandbox.RunFor] = "0s" })
		}
	}
	if live != 1 {
		t.Errorf("%d pods run, want 1", live)
	}
	waitCondition(t, again, kueue.WorkloadFinished, true)
	sandbox.Eventually(t, "a finished workload is free to go", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(again), again); err != nil {
			return err
		}
		if len(again.Finalizers) > 0 {
			return fmt.Errorf("finalizers are %v", again.Finalizers)
		}
		return nil
	})
}

// A workload goes with its job, and one that has no job when it is deleted.
func TestWorkloadsThatNobodyNeedsGo(t *testing.T) {
	ns := queueFor(t, "1")
	job, wl := running(t, ns, "one")
	alone := bare(ns, "alone", 1, 0)
	alone.Finalizers = []string{kueue.ResourceInUseFinalizerName}
	cluster.Make(t, alone)
	for _, obj := range []client.Object{job, alone} {
		if err := cluster.Delete(t.Context(), obj, client.PropagationPolicy("Background")); err != nil {
			t.Fatal(err)
		}
	}
	for _, gone := range []*kueue.Workload{wl, alone} {
		sandbox.Eventually(t, "workload "+gone.Name+" is gone", func(ctx context.Context) error {
			err := cluster.Get(ctx, client.ObjectKeyFromObject(gone), gone)
			if err == nil {
				return fmt.Errorf("finalizers are %v", gone.Finalizers)
			}
			return client.IgnoreNotFound(err)
		})
	}
	waitUsage(t, ns, "0")
}

// Both sides of a preemption get an event, by the names of workload and job.
func TestEventsOfAPreemption(t *testing.T) {
	ns := queueFor(t, "1")
	patch(t, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: ns}}, `{"spec":{"preemption":{"withinClusterQueue":"LowerPriority"}}}`)
	urgent := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: ns}, Value: 1000}
	cluster.Make(t, urgent)
	_, low := running(t, ns, "low")
	high, by := running(t, ns, "high", func(j *batchv1.Job) { j.Labels["kueue.x-k8s.io/priority-class"] = ns })
	message := fmt.Sprintf("Preempted to accommodate a workload (UID: %s, JobUID: %s) due to prioritization in the ClusterQueue; preemptor path: /%s; preemptee path: /%s",
		by.UID, high.UID, ns, ns)
	priorities := "; preemptor effective priority: 1000 (base: 1000, boost: 0); preemptee effective priority: 0 (base: 0, boost: 0)"
	waitEvents(t, low, map[string]string{
		"EvictedDueToPreempted": message,
		"Preempted":             message + priorities,
	})
	waitEvents(t, by, map[string]string{
		"PreemptedWorkload": fmt.Sprintf("Preempted workload %s/%s (UID: %s) in ClusterQueue %s", ns, low.Name, low.UID, ns) + priorities,
	})
	if got := ptr.Deref(by.Spec.Priority, 0); got != 1000 {
		t.Errorf("priority %d", got)
	}
}

// waitEvents waits for events about a workload, by reason.
func waitEvents(t *testing.T, wl *kueue.Workload, want map[string]string) {
	t.Helper()
	sandbox.Eventually(t, "events of workload "+wl.Name, func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		if err := cluster.List(ctx, list, client.InNamespace(wl.Namespace)); err != nil {
			return err
		}
		reported := map[string]string{}
		for _, e := range list.Items {
			if e.Regarding.UID == wl.UID {
				reported[e.Reason] = e.Note
			}
		}
		for reason, text := range want {
			if got, there := reported[reason]; !there || got != text {
				return fmt.Errorf("%s: %q, want %q", reason, got, text)
			}
		}
		return nil
	})
}
