package multicluster

import (
	"context"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/test/sandbox"
)

// An elastic job that another cluster runs grows and shrinks there, in the quotas of both, and none of its pods is stopped
// for it.
func TestElasticJobElsewhere(t *testing.T) {
	ns := arena(t, "4", "4", "east", "west")
	job := forever(sandbox.Job(ns, "elastic", "main", 1, "1"))
	job.Annotations = map[string]string{"kueue.x-k8s.io/elastic-job": "true"}
	job.Spec.Completions = ptr.To(int32(8))
	manager.Make(t, job)
	wl := manager.WorkloadOf(t, job)
	sandbox.Eventually(t, "it runs somewhere", func(ctx context.Context) error {
		if err := manager.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadPodsReady) {
			return fmt.Errorf("status is %+v", wl.Status)
		}
		return nil
	})
	there := map[string]*sandbox.Cluster{"east": east, "west": west}[*wl.Status.ClusterName]
	first := ""
	for name := range podsOf(t, there, ns, 1) {
		first = name
	}
	for _, pods := range []int32{3, 4, 2} {
		patch(t, manager, job, fmt.Sprintf(`{"spec":{"parallelism":%d}}`, pods))
		now := podsOf(t, there, ns, int(pods))
		if pods > 2 && !now[first] { // which pods a Job that shrinks stops is its own affair
			t.Errorf("with %d pods the first one, %s, is not among %v", pods, first, now)
		}
		for name, c := range map[string]*sandbox.Cluster{"here": manager, "there": there} {
			sandbox.Eventually(t, fmt.Sprintf("quota for %d pods %s", pods, name), func(ctx context.Context) error {
				cq := &kueue.ClusterQueue{}
				if err := c.Get(ctx, client.ObjectKey{Name: ns}, cq); err != nil {
					return err
				}
				if used := cq.Status.FlavorsReservation[0].Resources[0].Total; cq.Status.ReservingWorkloads != 1 || used.Value() != int64(pods) {
					return fmt.Errorf("%d workloads use %s", cq.Status.ReservingWorkloads, &used)
				}
				return nil
			})
		}
		wait(t, manager, job, "a status from there", func(j *batchv1.Job) error {
			if j.Status.Active != pods || ptr.Deref(j.Spec.Suspend, false) {
				return fmt.Errorf("suspend is %v, status %+v", j.Spec.Suspend, j.Status)
			}
			return nil
		})
	}
	if err := manager.Delete(t.Context(), job, client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}
	cleared(t, ns)
}

// podsOf waits until so many pods of a namespace run, and returns their names.
func podsOf(t *testing.T, c client.Client, ns string, want int) map[string]bool {
	t.Helper()
	var names map[string]bool
	sandbox.Eventually(t, fmt.Sprintf("%d running pods", want), func(ctx context.Context) error {
		names = map[string]bool{}
		list := &corev1.PodList{}
		if err := c.List(ctx, list, client.InNamespace(ns)); err != nil {
			return err
		}
		for i := range list.Items {
			if pod := &list.Items[i]; pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
				names[pod.Name] = true
			}
		}
		if len(names) != want {
			return fmt.Errorf("%d run", len(names))
		}
		return nil
	})
	return names
}
