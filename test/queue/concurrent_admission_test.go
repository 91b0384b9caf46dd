package queue

import (
	"context"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/test/sandbox"
)

// A job that had to start on a less favorable flavor moves to a better one when that has quota, with all that belongs to it:
// node selectors, quota, cards.
func TestJobMovesToABetterFlavor(t *testing.T) {
	ns := cluster.Namespace(t)
	cq := sandbox.ClusterQueue(ns, ns, "0")
	cq.Spec.ConcurrentAdmissionPolicy = &kueue.ConcurrentAdmissionPolicy{Migration: kueue.ConcurrentAdmissionMigration{Mode: kueue.ConcurrentAdmissionTryPreferredFlavors}}
	second := sandbox.ClusterQueue(ns, ns+"-a100", "4").Spec.ResourceGroups[0].Flavors
	cq.Spec.ResourceGroups[0].Flavors = append(cq.Spec.ResourceGroups[0].Flavors, second...)
	cluster.Make(t,
		sandbox.Flavor(ns, map[string]string{"elasticgpu.io/gpu-model": "H100-80G"}),
		sandbox.Flavor(ns+"-a100", map[string]string{"elasticgpu.io/gpu-model": "A100-40G"}),
		cq, sandbox.LocalQueue(ns, "main", ns),
	)
	job, other := sandbox.Job(ns, "moves", "main", 3, "1"), sandbox.Job(ns, "stays", "main", 1, "1")
	job.Spec.Template.Annotations[sandbox.RunFor], other.Spec.Template.Annotations[sandbox.RunFor] = "forever", "forever"
	cluster.Make(t, job)
	wl := cluster.WorkloadOf(t, job)
	waitCondition(t, wl, kueue.WorkloadAdmitted, true)
	waitNodes(t, job, "a100-40g-0", 3)
	cluster.Make(t, other) // on the last card of the node
	waitNodes(t, other, "a100-40g-0", 1)
	waitReserved(t, ns, map[string]string{ns: "0", ns + "-a100": "4"})

	cluster.Change(t, cq, func() {
		cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("3")
	})
	waitNodes(t, job, "h100-80g-0", 3)
	waitReserved(t, ns, map[string]string{ns: "3", ns + "-a100": "1"})
	waitCondition(t, wl, kueue.WorkloadAdmitted, true)

	for _, one := range []client.Object{job, other} {
		if err := cluster.Delete(t.Context(), one, client.PropagationPolicy("Background")); err != nil {
			t.Fatal(err)
		}
	}
	waitReserved(t, ns, map[string]string{ns: "0", ns + "-a100": "0"})
	sandbox.Eventually(t, "no workload is left", func(ctx context.Context) error {
		list := &kueue.WorkloadList{}
		if err := cluster.List(ctx, list, client.InNamespace(ns)); err != nil || len(list.Items) > 0 {
			return fmt.Errorf("%d: %w", len(list.Items), err)
		}
		return nil
	})
}

// waitNodes waits until so many pods of a job are ready, all of them on one node.
func waitNodes(t *testing.T, job *batchv1.Job, node string, pods int32) {
	t.Helper()
	waitJob(t, job, func(j *batchv1.Job) error {
		if ptr.Deref(j.Status.Ready, 0) != pods {
			return fmt.Errorf("%d of %d pods are ready", ptr.Deref(j.Status.Ready, 0), pods)
		}
		list := &corev1.PodList{}
		if err := cluster.List(t.Context(), list, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
			return err
		}
		for i := range list.Items {
			if at := list.Items[i].Spec.NodeName; at != node {
				return fmt.Errorf("pod %s is on %q", list.Items[i].Name, at)
			}
		}
		return nil
	})
}

// waitReserved waits until a queue says that so many cards of its flavors are reserved.
func waitReserved(t *testing.T, queue string, cards map[string]string) {
	t.Helper()
	sandbox.Eventually(t, fmt.Sprintf("reservations %v in %s", cards, queue), func(ctx context.Context) error {
		cq := &kueue.ClusterQueue{}
		if err := cluster.Get(ctx, client.ObjectKey{Name: queue}, cq); err != nil {
			return err
		}
		for _, flavor := range cq.Status.FlavorsReservation {
			for _, r := range flavor.Resources {
				if r.Total.String() != cards[string(flavor.Name)] {
					return fmt.Errorf("reserved: %v", cq.Status.FlavorsReservation)
				}
			}
		}
		return nil
	})
}
