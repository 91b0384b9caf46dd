package agent

import (
	"context"
	"errors"
	"fmt"
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

// queue of a namespace with two cards, and enough of what else is named, in which the more important goes first.
func queue(t *testing.T, ns string, others ...corev1.ResourceName) {
	t.Helper()
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{egpu.ResourceCore},
		Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference(ns), Resources: []kueue.ResourceQuota{
			{Name: egpu.ResourceCore, NominalQuota: resource.MustParse("200")},
		}}},
	}}
	group := &cq.Spec.ResourceGroups[0]
	for _, name := range others {
		group.CoveredResources = append(group.CoveredResources, name)
		group.Flavors[0].Resources = append(group.Flavors[0].Resources, kueue.ResourceQuota{Name: name, NominalQuota: resource.MustParse("1M")})
	}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(ns)}}
	high := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: ns}, Value: 1000}
	middle := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: middleOf(ns)}, Value: 500}
	cluster.Make(t, flavor, cq, lq, high, middle)
}

// middleOf is the class of jobs that are more important than others, and less than those of the namespace's own.
func middleOf(ns string) string { return ns + "-middle" }

// queued is a job of one pod that has a card, with 200 MiB on it.
func queued(ns, name string) *batchv1.Job {
	p := pod(ns, name, []string{"stay", "200"}, egpu.ResourceCore, 100)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"kueue.x-k8s.io/queue-name": "main"}}}
	job.Spec.Suspend = ptr.To(true)
	job.Spec.Template.Spec = p.Spec
	return job
}

// podOf waits for the job's pod, and what its probe says.
func podOf(t *testing.T, job *batchv1.Job) (*corev1.Pod, seen) {
	t.Helper()
	found := onlyPodOf(t, job)
	return found, probed(t, found)
}

func reported(t *testing.T, p *corev1.Pod, reason string) {
	t.Helper()
	sandbox.Eventually(t, p.Name+": "+reason, func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == egpu.SwappedOut && c.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", p.Status.Conditions)
	})
}

// Two jobs have the node's cards. One more important comes: the less important of them is moved to the host, with its
// pod, until the other has ended, and goes on then.
func TestPreemptedJobIsSwapped(t *testing.T) {
	ns := cluster.Namespace(t)
	queue(t, ns)
	stays, moves := queued(ns, "stays"), queued(ns, "moves")
	moves.Annotations = map[string]string{egpu.OnPreemptionAnnotation: egpu.OnPreemptionSwap}
	stays.Labels["kueue.x-k8s.io/priority-class"] = middleOf(ns)
	cluster.Make(t, stays)
	podOf(t, stays)
	cluster.Make(t, moves)
	p, saw := podOf(t, moves)
	if saw.Backend != "gpushare" || saw.TotalMB != cardMB {
		t.Fatalf("%+v: want a whole card by the library", saw)
	}
	uid := p.UID
	urgent := queued(ns, "urgent")
	urgent.Labels["kueue.x-k8s.io/priority-class"] = ns
	cluster.Make(t, urgent)
	reported(t, p, egpu.ReasonMovedOut)
	if _, saw := podOf(t, urgent); saw.Backend != "whole" {
		t.Fatalf("%+v: want the card that was made free", saw)
	}
	wl := cluster.WorkloadOf(t, moves)
	if apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved) || wl.Status.Admission != nil {
		t.Fatalf("it was swapped out and holds quota: %+v", wl.Status)
	}
	eventuallyMetric(t, "elastic_gpu_container_memory_swapped_bytes", p, func(v float64) bool { return v >= 200<<20 })

	background := client.PropagationPolicy(metav1.DeletePropagationBackground)
	if err := cluster.Delete(t.Context(), urgent, background); err != nil {
		t.Fatal(err)
	}
	reported(t, p, egpu.ReasonMovedIn)
	eventuallyMetric(t, "elastic_gpu_container_memory_swapped_bytes", p, func(v float64) bool { return v == 0 })
	sandbox.Eventually(t, "it runs on", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(moves), moves); err != nil {
			return err
		}
		wl := cluster.WorkloadOf(t, moves)
		switch {
		case ptr.Deref(moves.Spec.Suspend, false) || moves.Status.Active != 1:
			return fmt.Errorf("the job: %+v", moves.Status)
		case !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted):
			return fmt.Errorf("the workload: %+v", wl.Status.Conditions)
		case p.UID != uid || p.Status.Phase != corev1.PodRunning || p.Status.ContainerStatuses[0].RestartCount != 0:
			return errors.New("its pod is another, or was restarted")
		}
		return nil
	})
}
