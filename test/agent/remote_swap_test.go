package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// jobLeavesItsCard: a job with a card of another node is preempted for one that needs all cards of that node. What its server
// has there is moved to that node's host, its share is free and its quota given back; its program waits, also while both
// agents begin anew, and goes on when the other job has ended.
func jobLeavesItsCard(t *testing.T, f *far, claim *egpu.ElasticGPUClaim, device *egpu.ElasticGPU, server *corev1.Pod) {
	ns := claim.Namespace
	queue(t, ns, egpu.ResourceMemory)
	p := f.pod(ns, "moves", roundsImage, claim.Name)
	p.Spec.Containers[0].Stdin = true
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns, Name: "moves", Labels: map[string]string{"kueue.x-k8s.io/queue-name": "main"},
		Annotations: map[string]string{egpu.OnPreemptionAnnotation: egpu.OnPreemptionSwap},
	}}
	job.Spec.Suspend = ptr.To(true)
	job.Spec.Template.Annotations, job.Spec.Template.Spec = p.Annotations, p.Spec
	// A session of before may last half a minute; its context is most of the share.
	eventuallyMetric(t, "elastic_gpu_container_processes", server, func(v float64) bool { return v == 0 })
	cluster.Make(t, job)
	work := program{t, onlyPodOf(t, job)}
	work.says("ready 0")
	work.ask(1000, 100)
	work.goesOn()
	movable(t, work.pod)

	urgent := queued(ns, "urgent")
	urgent.Labels["kueue.x-k8s.io/priority-class"] = ns
	urgent.Spec.Template.Spec.Containers[0].Resources.Limits[egpu.ResourceCore] = resource.MustParse("200")
	cluster.Make(t, urgent)
	reported(t, work.pod, egpu.ReasonMovedOut)
	sandbox.Eventually(t, "its share is free", func(context.Context) error {
		if allocated(t, device) {
			return fmt.Errorf("GPU %s is allocated to it", device.Spec.RemoteGPU.GPUName)
		}
		return nil
	})
	other, saw := podOf(t, urgent)
	if saw.Backend != "whole" || saw.Error != "" {
		t.Fatalf("%+v: want whole cards", saw)
	}
	gpu := &egpu.GPU{}
	if err := cluster.Get(t.Context(), client.ObjectKey{Name: device.Spec.RemoteGPU.GPUName}, gpu); err != nil || gpu.Status.Allocated[other.Namespace+"/"+other.Name] == nil {
		t.Errorf("the card of which it had a part is allocated to %+v: %v", gpu.Status.Allocated, err)
	}
	if wl := cluster.WorkloadOf(t, job); apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved) {
		t.Errorf("it was swapped out and holds quota: %+v", wl.Status)
	}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(device), device); err != nil || device.Status.Reason != egpu.ReasonSwappedOut || !strings.Contains(device.Status.Message, "on the host") {
		t.Errorf("the ElasticGPU says %+v: %v", device.Status, err)
	}
	eventuallyMetric(t, "elastic_gpu_container_memory_swapped_bytes", server, func(v float64) bool { return v >= 9<<20 })
	f.killAgent(t)
	f.startAgent(t)
	kill(t, "the agent", agentPID)

	background := client.PropagationPolicy(metav1.DeletePropagationBackground)
	if err := cluster.Delete(t.Context(), urgent, background); err != nil {
		t.Fatal(err)
	}
	reported(t, work.pod, egpu.ReasonMovedIn)
	work.goesOn()
	eventuallyMetric(t, "elastic_gpu_container_memory_swapped_bytes", server, func(v float64) bool { return v == 0 })
	if !allocated(t, device) { // it was, before it came back
		t.Error("it has the card, and it is not recorded")
	}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil || ptr.Deref(job.Spec.Suspend, false) {
		t.Errorf("the job was stopped: %v", err)
	}
	if again := onlyPodOf(t, job); again.UID != work.pod.UID || again.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("its pod is another, or was restarted")
	}
	if err := cluster.Delete(t.Context(), job, background); err != nil {
		t.Fatal(err)
	}
	cluster.WaitGone(t, work.pod)
}

// movable waits until an agent has said that a pod could be swapped.
func movable(t *testing.T, p *corev1.Pod) {
	t.Helper()
	sandbox.Eventually(t, "it is said that it could be swapped", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == egpu.Swappable && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", p.Status.Conditions)
	})
}

// onlyPodOf a job, once it is there.
func onlyPodOf(t *testing.T, job *batchv1.Job) *corev1.Pod {
	t.Helper()
	found := &corev1.Pod{}
	sandbox.Eventually(t, "the pod of "+job.Name, func(ctx context.Context) error {
		list := &corev1.PodList{}
		if err := cluster.List(ctx, list, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("it has %d", len(list.Items))
		}
		*found = list.Items[0]
		return nil
	})
	return found
}
