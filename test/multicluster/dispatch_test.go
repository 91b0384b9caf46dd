package multicluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/workload"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// What is configured counts: which dispatcher says where workloads are sent, and whether what
// changes here is taken over there.
func TestConfigured(t *testing.T) {
	t.Cleanup(func() {
		manager.Reconfigure(t, func(cfg *v1alpha1.QueueConfiguration) {
			cfg.MultiKueue.DispatcherName, cfg.MultiKueue.IncrementalDispatcherConfig, cfg.FeatureGates = "", nil, nil
		})
	})
	manager.Reconfigure(t, func(cfg *v1alpha1.QueueConfiguration) {
		cfg.MultiKueue.DispatcherName = kueueconfig.MultiKueueDispatcherModeIncremental
		cfg.MultiKueue.IncrementalDispatcherConfig = &kueueconfig.IncrementalDispatcherConfig{StepSize: ptr.To(int32(1))}
		cfg.FeatureGates = map[string]bool{"MultiKueueRemoteSpecSync": false}
	})
	t.Run("nothing taken over", notForwarded) // by west, which is then known to answer
	t.Run("incremental dispatcher", incremental)
	manager.Reconfigure(t, func(cfg *v1alpha1.QueueConfiguration) {
		cfg.MultiKueue.DispatcherName, cfg.FeatureGates = "example.com/by-hand", nil
	})
	t.Run("dispatcher of somebody else's", external)
	manager.Reconfigure(t, func(cfg *v1alpha1.QueueConfiguration) {
		cfg.MultiKueue.DispatcherName, cfg.MultiKueue.IncrementalDispatcherConfig = v1alpha1.CheapestDispatcher, nil
	})
	t.Run("cheapest dispatcher", cheapest)
	t.Run("cost there", costThere)
}

// sentTo waits until copies of a workload are in these workers and in no other.
func sentTo(t *testing.T, wl *kueue.Workload, clusters ...string) *kueue.Workload {
	t.Helper()
	now := wait(t, manager, wl, fmt.Sprintf("being sent to %v", clusters), func(wl *kueue.Workload) error {
		if !slices.Equal(wl.Status.NominatedClusterNames, clusters) {
			return fmt.Errorf("status is %+v", wl.Status)
		}
		return nil
	})
	for name, worker := range map[string]*sandbox.Cluster{"east": east, "west": west} {
		if slices.Contains(clusters, name) {
			condition(t, worker, wl, kueue.WorkloadQuotaReserved, metav1.ConditionFalse)
			continue
		}
		gone(t, worker, wl.Namespace, &kueue.WorkloadList{}, &batchv1.JobList{})
	}
	return now
}

// The incremental dispatcher asks one cluster after the other, in the order they
// are configured in.
func incremental(t *testing.T) {
	ns := arena(t, "4", "0", "west", "east")
	job := forever(sandbox.Job(ns, "job", "main", 1, "1"))
	manager.Make(t, job)
	wl := sentTo(t, manager.WorkloadOf(t, job), "west")
	// A round later: nothing but the workload says when the first began.
	manager.Backdate(t, wl, kueue.WorkloadQuotaReserved, 5*time.Minute)
	runsIn(t, wl, "east")
	gone(t, west, ns, &kueue.WorkloadList{}, &batchv1.JobList{})
}

// An external dispatcher, which is the test, says where a workload is
// sent, and changes its mind.
func external(t *testing.T) {
	ns := arena(t, "4", "0", "east", "west")
	job := forever(sandbox.Job(ns, "job", "main", 1, "1"))
	manager.Make(t, job)
	wl := condition(t, manager, manager.WorkloadOf(t, job), kueue.WorkloadQuotaReserved, metav1.ConditionTrue)
	nominate := func(cluster string) {
		t.Helper()
		status(t, manager, wl, `{"nominatedClusterNames":["`+cluster+`"]}`)
	}
	nominate("west")
	sentTo(t, wl, "west")
	nominate("east")
	runsIn(t, wl, "east")
	gone(t, west, ns, &kueue.WorkloadList{}, &batchv1.JobList{})
}

// The cheapest dispatcher asks the cluster first that its CloudOffer says is cheaper, and the next one a round later. Prices that
// change count for what is not chosen yet, and a cluster that is dearer than it may be is asked no more.
func cheapest(t *testing.T) {
	offer(t, "dear", "east", "5")
	offer(t, "cheap", "west", "2")
	ns := arena(t, "4", "0", "east", "west")
	job := forever(sandbox.Job(ns, "first", "main", 1, "1"))
	manager.Make(t, job)
	wl := sentTo(t, manager.WorkloadOf(t, job), "west")
	want := "Nominated west; expected cost for 1h0m0s in USD: west 2.20, east 5.50" // with 6 minutes of start-up
	if got := wl.Status.AdmissionChecks[0].Message; got != want {
		t.Errorf("the check says %q, want %q", got, want)
	}
	manager.Backdate(t, wl, kueue.WorkloadQuotaReserved, 5*time.Minute)
	runsIn(t, wl, "east")

	ns = arena(t, "0", "0", "east", "west")
	job = forever(sandbox.Job(ns, "second", "main", 1, "1"))
	manager.Make(t, job)
	wl = sentTo(t, manager.WorkloadOf(t, job), "west")
	patch(t, manager, &cloud.CloudOffer{ObjectMeta: metav1.ObjectMeta{Name: "cheap"}}, `{"spec":{"maxPricePerHour":"1"}}`)
	wl = sentTo(t, wl, "east")
	want = "Nominated east; expected cost for 1h0m0s in USD: east 5.50, west (it has no price, or costs more than it may)"
	if got := wl.Status.AdmissionChecks[0].Message; got != want {
		t.Errorf("the check says %q, want %q", got, want)
	}
	// Without a CloudOffer it is owned, and goes first.
	if err := manager.Delete(t.Context(), &cloud.CloudOffer{ObjectMeta: metav1.ObjectMeta{Name: "cheap"}}); err != nil {
		t.Fatal(err)
	}
	sentTo(t, wl, "east", "west")
	soldOutThere(t)
}

// A cluster that reports that all its places are sold out is asked after those that are dearer, until it sells again.
func soldOutThere(t *testing.T) {
	offer(t, "cheaper", "west", "1")
	theirs := &cloud.CloudOffer{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Spec: cloud.CloudOfferSpec{Prices: cloud.PriceTable{Inline: priceOf("3")}}}
	west.Make(t, theirs)
	at := func(long time.Duration) string { return time.Now().Add(long).UTC().Format(time.RFC3339) }
	status(t, west, theirs, fmt.Sprintf(`{"places":[{"cloud":"aws","region":"us-east-1","instanceType":"one","capacityType":"OnDemand",
		"obtainable":false,"lastSeen":%q,"since":%q,"closedUntil":%q,"closedFor":1,"failures":1}]}`, at(0), at(0), at(10*time.Minute)))
	closed := func(want bool) {
		t.Helper()
		wait(t, manager, &cloud.CloudOffer{ObjectMeta: metav1.ObjectMeta{Name: "cheaper"}}, fmt.Sprintf("closed is %t", want), func(o *cloud.CloudOffer) error {
			if (o.Status.ClosedUntil != nil) != want {
				return fmt.Errorf("status is %+v", o.Status)
			}
			return nil
		})
	}
	closed(true)
	ns := arena(t, "0", "0", "east", "west")
	job := forever(sandbox.Job(ns, "third", "main", 1, "1"))
	manager.Make(t, job)
	wl := sentTo(t, manager.WorkloadOf(t, job), "east")
	if got, want := wl.Status.AdmissionChecks[0].Message, "Nominated east; expected cost for 1h0m0s in USD: east 5.50, west 1.10 (not to be had until "; !strings.HasPrefix(got, want) {
		t.Errorf("the check says %q, want %q", got, want)
	}
	if err := west.Delete(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	closed(false)
	job = forever(sandbox.Job(ns, "fourth", "main", 1, "1"))
	manager.Make(t, job)
	wait(t, manager, manager.WorkloadOf(t, job), "being sent to west", func(wl *kueue.Workload) error {
		if !slices.Equal(wl.Status.NominatedClusterNames, []string{"west"}) {
			return fmt.Errorf("status is %+v", wl.Status)
		}
		return nil
	})
}

// What a job costs that runs in another cluster is known here from when that has admitted it, within what the CloudOffer of the cluster allows.
func costThere(t *testing.T) {
	offer(t, "bound", "east", "2")
	ns := arena(t, "4", "0", "east")
	theirs := &cloud.CloudOffer{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: cloud.CloudOfferSpec{
		Prices: cloud.PriceTable{Inline: priceOf("3")}, Resource: string(sandbox.GPU),
	}}
	east.Make(t, theirs)
	wait(t, east, theirs, "a price", func(o *cloud.CloudOffer) error {
		if o.Status.PricePerHour != "3" {
			return fmt.Errorf("status is %+v", o.Status)
		}
		return nil
	})
	job := forever(sandbox.Job(ns, "job", "main", 2, "1"))
	manager.Make(t, job)
	wl := runsIn(t, manager.WorkloadOf(t, job), "east")
	cost, known := workload.CostOf(wl)
	if !known || cost.PerHour != 4 { // and not twice 3
		t.Errorf("it costs %+v, %t: %+v", cost, known, wl.Status.Conditions)
	}
}

// priceOf is a table with one place, where a card costs so much an hour.
func priceOf(price string) string {
	return "cloud,region,zone,instance_type,gpu,gpu_count,price_usd_hour,spot_usd_hour\naws,us-east-1,,one,H100,1," + price + ",\n"
}

// offer makes a CloudOffer of a cluster, where a card costs so much an hour, and waits until it has a price.
func offer(t *testing.T, name, cluster, price string) {
	t.Helper()
	o := &cloud.CloudOffer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: cloud.CloudOfferSpec{
		Prices: cloud.PriceTable{Inline: priceOf(price)},
		Via:    &cloud.Via{Cluster: cluster}, StartUp: "6m", Resource: string(sandbox.GPU),
	}}
	manager.Make(t, o)
	wait(t, manager, o, "a price", func(o *cloud.CloudOffer) error {
		if o.Status.PricePerHour != price {
			return fmt.Errorf("status is %+v", o.Status)
		}
		return nil
	})
}

// A CloudOffer says either of which nodes it is, or of which cluster, and one whose cluster does not exist says so until it does.
func TestCloudOfferOfACluster(t *testing.T) {
	for name, via := range map[string]*cloud.Via{
		"neither": {},
		"both":    {Cluster: "east", NodeClass: &cloud.NodeClass{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "gpu"}},
	} {
		o := &cloud.CloudOffer{ObjectMeta: metav1.ObjectMeta{GenerateName: "refused-"}, Spec: cloud.CloudOfferSpec{Prices: cloud.PriceTable{Inline: "x"}, Via: via}}
		if err := manager.Create(t.Context(), o); !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	idle := &cloud.CloudOffer{ObjectMeta: metav1.ObjectMeta{GenerateName: "refused-"}, Spec: cloud.CloudOfferSpec{
		Prices: cloud.PriceTable{Inline: "x"}, Via: &cloud.Via{Cluster: "east"}, KeepIdle: "10m",
	}}
	if err := manager.Create(t.Context(), idle); !apierrors.IsInvalid(err) {
		t.Errorf("keepIdle of another cluster: %v", err)
	}
	o := &cloud.CloudOffer{ObjectMeta: metav1.ObjectMeta{Name: "nowhere"}, Spec: cloud.CloudOfferSpec{
		Prices: cloud.PriceTable{Inline: "cloud,region,zone,instance_type,gpu,gpu_count,price_usd_hour,spot_usd_hour\naws,us-east-1,,one,H100,1,3,\n"},
		Via:    &cloud.Via{Cluster: "north"},
	}}
	manager.Make(t, o)
	reason := func(want string) {
		t.Helper()
		wait(t, manager, o, want, func(o *cloud.CloudOffer) error {
			if c := apimeta.FindStatusCondition(o.Status.Conditions, cloud.Priced); c == nil || c.Reason != want {
				return fmt.Errorf("status is %+v", o.Status)
			}
			return nil
		})
	}
	reason(cloud.ReasonNoCluster)
	manager.Make(t, clusterBySecret("north", "no-such-secret"))
	reason(cloud.ReasonPriced)
}

// A RayService that has changed here goes on there as it was.
func notForwarded(t *testing.T) {
	here, there := served(t, "west")
	patch(t, manager, here, `{"spec":{"serveConfigV2":"second"}}`)
	for _, reported := range []string{"first", "second"} { // when one status is here, what came of the change with the one before is over
		text := `{"serviceStatus":"` + reported + `"}`
		status(t, west, there, text)
		wait(t, manager, here, "the status from there", same(text))
	}
	if err := west.Get(t.Context(), client.ObjectKeyFromObject(there), there); err != nil {
		t.Fatal(err)
	}
	if config := at(there, "spec.serveConfigV2"); config != "first" {
		t.Errorf("the one there serves %v", config)
	}
}
