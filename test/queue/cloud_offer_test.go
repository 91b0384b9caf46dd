package queue

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/test/sandbox"
)

const priceHeader = "cloud,region,zone,instance_type,gpu,gpu_count,price_usd_hour,spot_usd_hour\n"

// twoFlavors is a queue that tries the flavors NS-first and NS-second in this order.
func twoFlavors(t *testing.T) (ns, first, second string) {
	t.Helper()
	ns = cluster.Namespace(t)
	first, second = ns+"-first", ns+"-second"
	cq := sandbox.ClusterQueue(ns, first, "100")
	group := &cq.Spec.ResourceGroups[0]
	other := *group.Flavors[0].DeepCopy()
	other.Name = kueue.ResourceFlavorReference(second)
	group.Flavors = append(group.Flavors, other)
	cluster.Make(t, sandbox.Flavor(first, nil), sandbox.Flavor(second, nil), cq, sandbox.LocalQueue(ns, "main", ns))
	return ns, first, second
}

// waitPriced waits for a reason of the Priced condition, and returns the CloudOffer.
func waitPriced(t *testing.T, name, reason, price string) *cloud.CloudOffer {
	t.Helper()
	offer := &cloud.CloudOffer{}
	sandbox.Eventually(t, "CloudOffer "+name+" is "+reason, func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKey{Name: name}, offer); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(offer.Status.Conditions, cloud.Priced)
		if c == nil || c.Reason != reason || c.ObservedGeneration != offer.Generation || offer.Status.PricePerHour != price {
			return fmt.Errorf("condition is %+v, price %q", c, offer.Status.PricePerHour)
		}
		return nil
	})
	return offer
}

// admittedWith waits until a new workload has quota, and fails if it is not of the flavor. The queue may not have seen a
// price that was written a moment ago, so workloads are sent until one has it.
func admittedWith(t *testing.T, ns, name, flavor string) {
	t.Helper()
	for try := 0; ; try++ {
		wl := bare(ns, fmt.Sprintf("%s-%d", name, try), 1, 0)
		cluster.Make(t, wl)
		waitCondition(t, wl, kueue.WorkloadQuotaReserved, true)
		if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); err != nil {
			t.Fatal(err)
		}
		got := wl.Status.Admission.PodSetAssignments[0].Flavors[sandbox.GPU]
		if string(got) == flavor {
			return
		}
		if try == 20 {
			t.Fatalf("%s is admitted with flavor %s, want %s", wl.Name, got, flavor)
		}
	}
}

// A queue takes the flavor whose machines cost least now, follows prices, and does so after it was killed.
func TestCloudOffersChooseTheFlavor(t *testing.T) {
	ns, first, second := twoFlavors(t)
	table := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "elastic-queue", Name: ns}}
	table.Data = map[string]string{"prices.csv": priceHeader + "aws,us-east-1,,p5.48xlarge,H100,8,96,40\nmoon,sea,,p5.48xlarge,H100,8,1,\ngcp,us-central1,,a3-highgpu-8g,H100,8,88,52\n"}
	cluster.Make(t, table)
	for flavor, name := range map[string]string{first: "gcp", second: "aws"} {
		offer := &cloud.CloudOffer{ObjectMeta: metav1.ObjectMeta{Name: flavor}}
		offer.Spec.Prices.ConfigMap = &cloud.ConfigMapKey{Name: ns}
		offer.Spec.Match = cloud.Match{Clouds: []string{name}, CapacityType: cloud.Spot}
		cluster.Make(t, offer)
	}
	waitPriced(t, first, cloud.ReasonRowsLeftOut, "6.5")
	offer := waitPriced(t, second, cloud.ReasonRowsLeftOut, "5")
	if rows := offer.Status.RowProblems; offer.Status.RowsLeftOut != 1 || len(rows) != 1 || !strings.Contains(rows[0], `line 3, column cloud: unknown cloud "moon"`) {
		t.Errorf("rows left out: %d, %q", offer.Status.RowsLeftOut, rows)
	}
	admittedWith(t, ns, "cheaper", second)

	if err := syscall.Kill(cluster.Queue(t).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cluster.Change(t, table, func() { table.Data["prices.csv"] = strings.ReplaceAll(table.Data["prices.csv"], ",40\n", ",90\n") })
	waitPriced(t, second, cloud.ReasonRowsLeftOut, "11.25")
	admittedWith(t, ns, "price-rose", first)

	if err := cluster.Delete(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	waitPriced(t, second, cloud.ReasonNoTable, "")
	waitPriced(t, first, cloud.ReasonNoTable, "")
	admittedWith(t, ns, "as-written", first)
}

// What is wrong is refused, or told.
func TestCloudOffersThatAreWrong(t *testing.T) {
	ns, first, _ := twoFlavors(t)
	offer := &cloud.CloudOffer{ObjectMeta: metav1.ObjectMeta{Name: first}}
	if err := cluster.Create(t.Context(), offer); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "either configMap or inline") {
		t.Errorf("without a table: %v", err)
	}
	offer.Spec.Prices.Inline, offer.Spec.StartUp = priceHeader, "-3m"
	if err := cluster.Create(t.Context(), offer); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "at least 0s") {
		t.Errorf("a start-up that is no time: %v", err)
	}
	offer.Spec.StartUp, offer.Spec.Prices.Inline = "", strings.Replace(priceHeader, ",zone", "", 1)
	cluster.Make(t, offer)
	waitPriced(t, first, cloud.ReasonInvalid, "")
	cluster.Change(t, offer, func() { offer.Spec.Prices.Inline = priceHeader + "aws,us-east-1,,p5.48xlarge,H100,8,96,40\n" })
	waitPriced(t, first, cloud.ReasonPriced, "5")
	stray := offer.DeepCopy()
	stray.ObjectMeta = metav1.ObjectMeta{Name: ns + "-none"}
	cluster.Make(t, stray)
	waitPriced(t, stray.Name, cloud.ReasonNoFlavor, "")
	for _, role := range []string{"kueue-batch-user-role", "admin"} {
		mine := offer.DeepCopy()
		mine.ObjectMeta = metav1.ObjectMeta{Name: ns + "-mine"}
		if err := as(t, ns+"-"+role, role, ns).Create(t.Context(), mine, client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("creating a CloudOffer as %s: %v", role, err)
		}
	}
}
