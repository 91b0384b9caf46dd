package machines

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
	"github.com/elastic-ai/elastic/internal/queue/cloudoffers"
)

// onSpotAlone is a workload on flavor h100, which sells spot alone; with a sibling, another flavor sells on demand.
func onSpotAlone(annotations map[string]string, sibling bool) *world {
	w := newWorld(asking(1, "4", "1"))
	w.wl.Spec.MaximumExecutionTimeSeconds = ptr.To(int32(3600))
	w.wl.Annotations, w.spotAlone, w.sibling = annotations, true, sibling
	return w
}

func dueIn(d time.Duration) map[string]string {
	return map[string]string{cloudv1.DeadlineAnnotation: noon.Add(d).Format(time.RFC3339), cloudv1.CheckpointAnnotation: "10m"}
}

// Where spot and on demand are two flavors, a workload with a deadline waits for spot as it would on one flavor that has both, and is then
// handed over. With too little slack for spot that is at once.
func TestHandedOverToOnDemand(t *testing.T) {
	w := onSpotAlone(dueIn(20*time.Hour), true)
	for _, o := range sold()[:2] {
		w.learned.StockOut(o.Place, 1, w.now)
	}
	if w.step(99); len(w.bought) > 0 || w.state.State != kueue.CheckStatePending || !waitsUntil.MatchString(w.state.Message) {
		t.Fatalf("%+v, bought %+v", w.state, w.bought)
	}
	w.now = noon.Add(19*time.Hour - 10*time.Minute)
	for _, o := range sold()[:2] {
		w.learned.StockOut(o.Place, 1, w.now)
	}
	if w.step(99); len(w.bought) > 0 || w.state.State != kueue.CheckStateRetry || ptr.Deref(w.state.RequeueAfterSeconds, 0) != 1 ||
		!strings.HasPrefix(w.state.Message, "OnDemand: ") || !strings.Contains(w.state.Message, "as flavor h100-on-demand sells them") {
		t.Fatalf("%+v, bought %+v", w.state, w.bought)
	}

	if w := onSpotAlone(dueIn(20*time.Hour), true); true {
		if w.step(99); len(w.bought) != 1 || !w.bought[0].Place.Spot {
			t.Errorf("spot can be had and there is time: %+v, bought %+v", w.state, w.bought)
		}
	}
	if w := onSpotAlone(dueIn(70*time.Minute), true); true {
		if w.step(99); len(w.bought) > 0 || w.state.State != kueue.CheckStateRetry {
			t.Errorf("a loss would make it late: %+v, bought %+v", w.state, w.bought)
		}
	}
}

// A deadline that has no effect is reported with the reason, as its user relies on it.
func TestDeadlinesThatDoNotCount(t *testing.T) {
	said := func(w *world) string {
		w.step(99)
		w.register()
		w.step(99)
		return w.state.Message
	}
	if got := said(onSpotAlone(dueIn(70*time.Minute), false)); !strings.HasSuffix(got, "spot; its deadline or price of delay does not count: neither flavor h100 nor another one of its queue sells nodes on demand") {
		t.Error(got)
	}
	inVain := onSpotAlone(dueIn(70*time.Minute), true)
	inVain.wl.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: cloudv1.ReasonOnDemand, Count: 1}}}
	if got := said(inVain); !strings.HasSuffix(got, "does not count: no flavor with nodes on demand had quota for it") {
		t.Error(got)
	}
	again := onSpotAlone(dueIn(70*time.Minute), true)
	again.wl.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: cloudv1.ReasonOnDemand, Count: 1}, {Reason: cloudv1.ReasonMachineLost, Count: 1}}}
	if got := said(again); !strings.HasPrefix(got, "OnDemand: ") {
		t.Errorf("it was evicted for another reason since, and may be handed over again: %s", got)
	}
	silent := onSpotAlone(dueIn(20*time.Hour), true)
	silent.wl.Spec.MaximumExecutionTimeSeconds = nil
	if got := said(silent); !strings.HasSuffix(got, "spot; it does not say how long it runs (maximumExecutionTimeSeconds): its deadline is reckoned with 1h0m0s") {
		t.Error(got)
	}
	if got := said(onSpotAlone(nil, false)); strings.Contains(got, ";") {
		t.Errorf("it has no deadline: %s", got)
	}
}

// Nodes on demand of other flavors count where the queue could give the workload those: in the same resource group, bought by the check, and
// large enough; and only for who may wait.
func TestOnDemandElsewhere(t *testing.T) {
	const table = "cloud,region,zone,instance_type,gpu,gpu_count,price_usd_hour,spot_usd_hour\naws,us-east-1,a,p5.48xlarge,H100,8,55,20\naws,us-east-1,a,small,H100,1,5,2\n"
	of := func(name string, capacityType cloudv1.CapacityType) cloudv1.CloudOffer {
		o := *h100()
		o.Name, o.Spec.Match.CapacityType, o.Spec.Prices.Inline = name, capacityType, table
		return o
	}
	byOthers, broken := of("by-others", cloudv1.OnDemand), of("broken", cloudv1.OnDemand)
	byOthers.Spec.Via, broken.Spec.Prices.Inline = nil, "?"
	offers := []cloudv1.CloudOffer{of("h100", cloudv1.Spot), of("on-demand", cloudv1.OnDemand), of("both", ""), of("other-group", ""), of("other-queue", ""), byOthers, broken}
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "cq"}, Spec: kueue.ClusterQueueSpec{ResourceGroups: []kueue.ResourceGroup{
		{Flavors: []kueue.FlavorQuotas{{Name: "h100"}, {Name: "on-demand"}, {Name: "both"}, {Name: "by-others"}, {Name: "broken"}, {Name: "free"}}},
		{Flavors: []kueue.FlavorQuotas{{Name: "other-group"}}},
	}}}
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cq).Build()
	handles := &workloads{client: c, tables: cloudoffers.NewTables(c, "")}
	for name, test := range map[string]struct {
		edit func(wl *kueue.Workload)
		want []string
	}{
		"a deadline":       {func(*kueue.Workload) {}, []string{"both p5.48xlarge", "on-demand p5.48xlarge"}},
		"a price of delay": {func(wl *kueue.Workload) { wl.Annotations = map[string]string{cloudv1.DelayPriceAnnotation: "2"} }, []string{"both p5.48xlarge", "on-demand p5.48xlarge"}},
		"nothing said":     {func(wl *kueue.Workload) { wl.Annotations = nil }, nil},
		"no such queue":    {func(wl *kueue.Workload) { wl.Status.Admission.ClusterQueue = "gone" }, nil},
		"handed over before": {func(wl *kueue.Workload) {
			wl.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: cloudv1.ReasonOnDemand, Count: 1}}}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			wl := asking(1, "8", "1")
			wl.Annotations, wl.Status.Admission.ClusterQueue = dueIn(20*time.Hour), "cq"
			test.edit(wl)
			parts, err := handles.parts(t.Context(), wl, offers, noon)
			if err != nil || len(parts) != 1 || len(parts[0].offers) != 1 {
				t.Fatalf("%+v, %v", parts, err)
			}
			var got []string
			for _, s := range parts[0].others {
				got = append(got, s.flavor+" "+s.InstanceType)
				if s.Spot || s.Machines != 1 || parts[0].sellerOf(&s.Offer) == "" {
					t.Errorf("%+v", s)
				}
			}
			if slices.Sort(got); !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
	both := part{offers: []cloud.Offer{{}}}
	if !both.sellsOnDemand() {
		t.Error("an offer that is not spot is on demand")
	}
}
