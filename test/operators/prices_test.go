package operators

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
)

// The cheapest zone has three of the eight machines that a gang needs. All eight are ordered at once, so three are bought and given back; once
// one was refused, none is bought there any more, for this gang or the next.
func gangOfEight(t *testing.T) {
	m := market(t.TempDir())
	table := strings.ReplaceAll(threeZones, "us-east-1", "eu-west-1") // of which nothing was learned
	m.sells(t, table)
	m.soldOut(t, "a/spot/3")
	karpenter(t, m)
	ns := buying(t, "128")
	change(t, ns, fmt.Sprintf(`{"spec":{"prices":{"inline":%q}}}`, table))
	job, wl := gang(t, ns, "eight", 8, "forever")
	wait(t, wl, kueue.WorkloadPodsReady)
	waitPods(t, ns, 8)
	other, next := gang(t, ns, "next", 8, "forever")
	wait(t, next, kueue.WorkloadPodsReady)

	var refused time.Time
	bought := map[string]int{}
	for _, e := range m.ledger(t) {
		switch {
		case e.Event == "refused" && (refused.IsZero() || e.At.Before(refused)):
			refused = e.At
		case e.Event == "bought":
			bought[e.Zone]++
		}
		if e.Event == "refused" && e.Zone != "a" {
			t.Errorf("zone %s has enough: %+v", e.Zone, e)
		}
	}
	for _, e := range m.ledger(t) {
		if e.Event == "bought" && e.Zone == "a" && e.At.After(refused) {
			t.Errorf("bought after the refusal at %v: %+v", refused, e)
		}
		if e.Zone == "a" && e.Workload == string(next.UID) {
			t.Errorf("the next gang tries zone a: %+v", e)
		}
	}
	if refused.IsZero() || bought["a"] > 3 || bought["b"] != 16 || bought["c"] > 0 {
		t.Errorf("bought %v, refused at %v: %+v", bought, refused, m.ledger(t))
	}
	for _, j := range []client.Object{job, other} {
		if err := cluster.Delete(t.Context(), j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
	}
	m.waitEnded(t)
}

// Prices change while a job runs: it stays, at the price that it was bought for, and the next one goes where it is cheapest now. Nodes have what
// the table says of their machines.
func priceChanges(t *testing.T) {
	m := market(t.TempDir())
	before := strings.ReplaceAll(threeZones, "us-east-1", "eu-west-2")
	after := strings.NewReplacer("H100,8,192,2048,96,40", "H100,8,192,2048,96,61", "H100,8,192,2048,96,48", "H100,8,96,1024,96,31").Replace(before)
	m.sells(t, before)
	karpenter(t, m)
	ns := buying(t, "64")
	change(t, ns, fmt.Sprintf(`{"spec":{"prices":{"inline":%q}}}`, before))
	first, early := gang(t, ns, "early", 1, "forever")
	wait(t, early, kueue.WorkloadPodsReady)
	m.sells(t, after)
	change(t, ns, fmt.Sprintf(`{"spec":{"prices":{"inline":%q}}}`, after))
	second, late := gang(t, ns, "late", 1, "forever")
	wait(t, late, kueue.WorkloadPodsReady)
	paid := map[string]string{}
	for _, e := range m.ledger(t) {
		paid[e.Workload] += fmt.Sprintf("%s %s at %v ", e.Event, e.Zone, e.Price)
	}
	if paid[string(early.UID)] != "bought a at 40 " || paid[string(late.UID)] != "bought c at 31 " {
		t.Errorf("paid %v", paid)
	}
	for wl, want := range map[*kueue.Workload]string{early: "40.00 192 2Ti", late: "31.00 96 1Ti"} {
		if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); err != nil {
			t.Fatal(err)
		}
		update := wl.Status.AdmissionChecks[0].PodSetUpdates[0]
		nodes := &corev1.NodeList{}
		if err := cluster.List(t.Context(), nodes, client.MatchingLabels{cloud.PurchaseLabel: update.NodeSelector[cloud.PurchaseLabel]}); err != nil || len(nodes.Items) != 1 {
			t.Fatalf("%d nodes, %v", len(nodes.Items), err)
		}
		has := nodes.Items[0].Status.Capacity
		if got := fmt.Sprintf("%s %s %s", update.Annotations[cloud.PriceAnnotation], has.Cpu(), has.Memory()); got != want {
			t.Errorf("%s: %s, want %s", wl.Name, got, want)
		}
	}
	for _, j := range []client.Object{first, second} {
		if err := cluster.Delete(t.Context(), j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
	}
	m.waitEnded(t)
}
