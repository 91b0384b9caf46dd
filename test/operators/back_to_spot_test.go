package operators

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// A gang on demand moves to spot machines. The cheapest zone has one of the two that it needs: that one is given back, the next zone is
// tried, and elastic-queue is killed meanwhile. The machines on demand end only after all spot machines were there, and nothing is
// bought twice or left.
func movesToSpot(t *testing.T) {
	m := market(t.TempDir())
	m.soldOut(t, "a/spot/1")
	table := strings.ReplaceAll(threeZones, "us-east-1", "us-west-2") // of which nothing was learned
	m.sells(t, table+strings.TrimPrefix(threeZones, tableHeader))
	karpenter(t, m)
	ns := buying(t, "64")
	change(t, ns, fmt.Sprintf(`{"spec":{"prices":{"inline":%q},"match":{"capacityType":"OnDemand"},"movesToSpot":1}}`, table))
	job := sandbox.Job(ns, "moves", "main", 2, "8")
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	job.Labels["kueue.x-k8s.io/max-exec-time-seconds"] = "36000"
	job.Annotations = map[string]string{
		cloud.DeadlineAnnotation: time.Now().Add(40 * time.Hour).UTC().Format(time.RFC3339), cloud.CheckpointAnnotation: "1h",
	}
	cluster.Make(t, job)
	wl := cluster.WorkloadOf(t, job)
	wait(t, wl, kueue.WorkloadPodsReady)
	waitPods(t, ns, 2)
	sandbox.Eventually(t, "its admission can be dated", func(ctx context.Context) error { // it has just saved its work
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return err
		}
		apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime = metav1.NewTime(time.Now().Add(-2*time.Hour - 4*time.Minute))
		return cluster.Status().Update(ctx, wl)
	})
	change(t, ns, `{"spec":{"match":{"capacityType":null}}}`)
	sandbox.Eventually(t, "zone a has refused a machine", func(context.Context) error {
		if !slices.ContainsFunc(m.ledger(t), func(e entry) bool { return e.Event == "refused" && e.Zone == "a" }) {
			return errors.New("it has not")
		}
		return nil
	})
	if err := syscall.Kill(cluster.Queue(t).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "it runs on spot nodes of zone b", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := cluster.List(ctx, pods, client.InNamespace(ns)); err != nil {
			return err
		}
		on := 0
		for _, pod := range pods.Items {
			node := &corev1.Node{}
			if err := cluster.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node); err != nil {
				return err
			}
			if pod.Status.Phase == corev1.PodRunning && node.Labels["karpenter.sh/capacity-type"] == "spot" && node.Labels[corev1.LabelTopologyZone] == "b" {
				on++
			}
		}
		if on != 2 || len(pods.Items) != 2 {
			return fmt.Errorf("%d of %d do", on, len(pods.Items))
		}
		return nil
	})
	m.movedOnce(t, wl)
	if err := cluster.Delete(t.Context(), job, client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}
	m.waitEnded(t)
}

// movedOnce checks the ledger of a gang of two: two machines on demand, at most one at zone a that ended again, two at zone b, and the
// machines on demand ended after those were bought.
func (m market) movedOnce(t *testing.T, wl *kueue.Workload) {
	t.Helper()
	bought, first, last := map[string]int{}, -1, -1
	spot := map[string]bool{}
	for i, e := range m.ledger(t) {
		kind := e.Zone + "/on-demand"
		if e.Spot {
			kind = e.Zone + "/spot"
		}
		spot[e.Claim] = spot[e.Claim] || e.Spot
		switch {
		case e.Workload != string(wl.UID):
			t.Errorf("a machine of %s: %+v", e.Workload, e)
		case e.Event == "bought":
			if bought[kind]++; e.Spot && e.Zone == "b" {
				last = i
			}
		case e.Event == "ended" && !spot[e.Claim] && first < 0:
			first = i
		}
	}
	if bought["a/on-demand"]+bought["b/on-demand"] != 2 || bought["b/spot"] != 2 || bought["a/spot"] > 1 || first >= 0 && first < last {
		t.Errorf("bought %v; the first machine on demand ended as entry %d, the last spot machine was bought as entry %d: %+v", bought, first, last, m.ledger(t))
	}
	now := &kueue.Workload{}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(wl), now); err != nil {
		t.Fatal(err)
	}
	stats := now.Status.SchedulingStats
	if stats == nil || len(stats.Evictions) != 1 || stats.Evictions[0].Reason != cloud.ReasonBackToSpot || stats.Evictions[0].Count != 1 {
		t.Errorf("evictions %+v", stats)
	}
}

func change(t *testing.T, offer, patch string) {
	t.Helper()
	if err := cluster.Patch(t.Context(), &cloud.CloudOffer{ObjectMeta: metav1.ObjectMeta{Name: offer}}, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}
