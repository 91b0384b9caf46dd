package status

import (
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

var when = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// draw makes a workload in any state of its life.
func draw(t *rapid.T) *kueue.Workload {
	wl := &kueue.Workload{}
	wl.Namespace, wl.Name = "ns", "wl"
	wl.Spec.QueueName = kueue.LocalQueueName(rapid.SampledFrom([]string{"main", "other"}).Draw(t, "queue"))
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1}}
	if rapid.Bool().Draw(t, "reserved") {
		cards := rapid.Int64Range(1, 8).Draw(t, "cards")
		checks := rapid.SampledFrom([][]string{nil, {"check"}}).Draw(t, "checks")
		workload.Admit(wl, &admission.Admission{Queue: "cq", PodSets: []admission.PodSetAssignment{{
			Name: "main", Count: 1, Flavors: map[string]string{"nvidia.com/gpu": "h100"}, Usage: admission.Requests{"nvidia.com/gpu": cards},
		}}}, checks, when)
	}
	if rapid.Bool().Draw(t, "finished") {
		workload.Finish(wl, "Succeeded", "", when)
	}
	if rapid.Bool().Draw(t, "inactive") {
		wl.Spec.Active = ptr.To(false)
	}
	return wl
}

// Updated by differences, usage is what counting from scratch would give, and zero when all workloads
// are deleted.
func TestUsageByDifferencesIsUsageFromScratch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		updated := newUsage(true)
		world := map[int]*kueue.Workload{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			i := rapid.IntRange(0, 4).Draw(t, "workload")
			var next *kueue.Workload
			if rapid.IntRange(0, 3).Draw(t, "gone") > 0 {
				next = draw(t)
			}
			updated.Move(world[i], next)
			world[i] = next
		}
		fresh := newUsage(true)
		for _, wl := range world {
			fresh.Move(nil, wl)
		}
		same(t, updated, fresh)
		for _, wl := range world {
			updated.Move(wl, nil)
		}
		same(t, updated, newUsage(true))
	})
}

func same(t *rapid.T, a, b *Usage) {
	for _, local := range []string{"main", "other"} {
		key := client.ObjectKey{Namespace: "ns", Name: local}
		sameUsage(t, local, a.LocalQueue(key), b.LocalQueue(key))
	}
	sameUsage(t, "cq", a.ClusterQueue("cq"), b.ClusterQueue("cq"))
}

func sameUsage(t *rapid.T, name string, a, b *QueueUsage) {
	h100 := FlavorResource{"h100", "nvidia.com/gpu"}
	if a.Pending != b.Pending || a.WithQuota != b.WithQuota || a.Admitted != b.Admitted ||
		a.Reserved[h100] != b.Reserved[h100] || a.Used[h100] != b.Used[h100] {
		t.Fatalf("%s: %+v, want %+v", name, a, b)
	}
}

// Pods that are done and will not be replaced use no quota, unless that is switched off.
func TestReclaimablePodsUseNothing(t *testing.T) {
	wl := &kueue.Workload{}
	wl.Namespace, wl.Spec.QueueName = "ns", "main"
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 4}}
	workload.Admit(wl, &admission.Admission{Queue: "cq", PodSets: []admission.PodSetAssignment{{
		Name: "main", Count: 4, Flavors: map[string]string{"nvidia.com/gpu": "h100"}, Usage: admission.Requests{"nvidia.com/gpu": 8},
	}}}, nil, when)
	for reclaimable, want := range map[int32]int64{0: 8, 1: 6, 4: 0, 9: 0, -1: 8} {
		wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: reclaimable}}
		for reclaim, want := range map[bool]int64{true: want, false: 8} {
			usage := newUsage(reclaim)
			usage.Move(nil, wl)
			h100, local := FlavorResource{"h100", "nvidia.com/gpu"}, usage.LocalQueue(client.ObjectKey{Namespace: "ns", Name: "main"})
			if a := usage.ClusterQueue("cq"); a.Used[h100] != want || a.Reserved[h100] != want || local.Used[h100] != want {
				t.Errorf("with %d of 4 pods done %d cards are used, want %d", reclaimable, a.Used[h100], want)
			}
		}
	}
}

// A LocalQueue shows every flavor of its ClusterQueue, used or not, and follows it when it changes or goes.
func TestLocalQueueStatus(t *testing.T) {
	objects := engineview.NewObjects()
	var written *kueue.LocalQueue
	s := New(objects, nil, workload.Quantity, admission.Options{}, true)
	s.write = func(o client.Object) {
		if lq, ok := o.(*kueue.LocalQueue); ok {
			written = lq
		}
		s.Written(o, nil)
	}
	engine, now := admission.New(admission.Options{}), when
	see := func(obj client.Object, deleted bool) {
		objects.Set(obj, deleted)
		s.ObjectChanged(obj)
		if cq, ok := obj.(*kueue.ClusterQueue); ok && !deleted {
			engine.Apply(admission.QueueChanged{Queue: objects.Queue(cq)})
		}
		now = now.Add(time.Hour)
		s.Publish(engine, now)
	}
	quotas := func(flavor kueue.ResourceFlavorReference) kueue.FlavorQuotas {
		return kueue.FlavorQuotas{Name: flavor, Resources: []kueue.ResourceQuota{{Name: "memory"}, {Name: "cpu"}}}
	}
	cq := named(&kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{ResourceGroups: []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{"memory", "cpu"}, Flavors: []kueue.FlavorQuotas{quotas("spot"), quotas("reserved")},
	}}}}, "cq")
	lq := named(&kueue.LocalQueue{Spec: kueue.LocalQueueSpec{ClusterQueue: "cq"}}, "main")
	lq.Namespace = "ns"
	see(lq, false)
	see(cq, false)
	flavors := written.Status.FlavorsReservation
	if len(flavors) != 2 || flavors[0].Name != "spot" || len(flavors[0].Resources) != 2 || flavors[0].Resources[0].Name != "cpu" ||
		len(written.Status.FlavorsUsage) != 2 {
		t.Errorf("flavors %+v", flavors)
	}
	reason := func() string { return written.Status.Conditions[0].Reason }
	if reason() != "ClusterQueueIsInactive" {
		t.Errorf("its ClusterQueue lacks flavors: %+v", written.Status.Conditions)
	}
	see(named(&kueue.ResourceFlavor{}, "spot"), false)
	see(named(&kueue.ResourceFlavor{}, "reserved"), false)
	if reason() != "Ready" {
		t.Errorf("its ClusterQueue has its flavors: %+v", written.Status.Conditions)
	}
	fewer := cq.DeepCopy()
	fewer.Generation, fewer.Spec.ResourceGroups[0].Flavors = 2, []kueue.FlavorQuotas{quotas("spot")}
	see(fewer, false)
	if len(written.Status.FlavorsUsage) != 1 {
		t.Errorf("flavors %+v", written.Status.FlavorsUsage)
	}
	s.Usage().LocalQueue(client.ObjectKeyFromObject(lq)).WithQuota = 3
	see(fewer, true)
	if reason() != "ClusterQueueDoesNotExist" || written.Status.FlavorsUsage != nil || written.Status.ReservingWorkloads != 0 {
		t.Errorf("its ClusterQueue is gone: %+v", written.Status)
	}
}

// What is borrowed is more than nominal quota, of what is reserved and of what is used each; shares are
// rounded up, and without a cohort there is nothing to borrow.
func TestBorrowedAndShares(t *testing.T) {
	for cohort, want := range map[string]string{"team": "3 1", "": "0 0"} {
		s := New(engineview.NewObjects(), nil, workload.Quantity, admission.Options{Policy: admission.PolicyDRF}, true)
		cq := &kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{CohortName: kueue.CohortReference(cohort)}}
		engine := admission.QueueStatus{FairShare: 428.1, Usage: []admission.FlavorUsage{{Flavor: "h100", Resource: "nvidia.com/gpu", Nominal: 8, Used: 11, Borrowed: 3}}}
		if cohort == "" {
			engine.Usage[0].Borrowed = 0
		}
		status := s.clusterQueueStatus(cq, &QueueUsage{Used: map[FlavorResource]int64{{"h100", "nvidia.com/gpu"}: 9}}, engine, when).Status
		reserved, used := status.FlavorsReservation[0].Resources[0].Borrowed, status.FlavorsUsage[0].Resources[0].Borrowed
		if got := reserved.String() + " " + used.String(); got != want || status.FairSharing.WeightedShare != 429 {
			t.Errorf("in cohort %q: borrowed %s, want %s; share %+v", cohort, got, want, status.FairSharing)
		}
	}
	if got := weighted(math.Inf(1)); got != math.MaxInt64 {
		t.Errorf("a queue of no weight that borrows has a share of %d", got)
	}
}

// What a queue would be shown of one admitted workload.
func TestClusterQueueStatus(t *testing.T) {
	objects := engineview.NewObjects()
	s := New(objects, func(client.Object) {}, workload.Quantity, admission.Options{}, true)
	engine := admission.New(admission.Options{})
	cq := &kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{ResourceGroups: []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{"nvidia.com/gpu"},
		Flavors: []kueue.FlavorQuotas{{Name: "h100", Resources: []kueue.ResourceQuota{{
			Name: "nvidia.com/gpu", NominalQuota: resource.MustParse("8"),
		}}}},
	}}}}
	cq.Name = "cq"
	objects.Set(cq, false)
	s.ObjectChanged(cq)
	engine.Apply(admission.QueueChanged{Queue: objects.Queue(cq)})
	var written []client.Object
	s.write = func(o client.Object) { written = append(written, o) }
	s.Publish(engine, when)
	if len(written) != 1 {
		t.Fatalf("a new queue's status is written once, not %d times", len(written))
	}
	status := written[0].(*kueue.ClusterQueue).Status
	if c := status.Conditions[0]; c.Reason != kueue.ClusterQueueActiveReasonFlavorNotFound {
		t.Errorf("a queue whose flavor is missing: %+v", c)
	}
	s.Written(written[0], nil)
	flavor := &kueue.ResourceFlavor{}
	flavor.Name = "h100"
	objects.Set(flavor, false)
	s.ObjectChanged(flavor)
	engine.Apply(engineview.ChangedEvent(flavor))
	if again := s.Publish(engine, when.Add(time.Millisecond)); !again.Equal(when.Add(statusInterval)) {
		t.Errorf("too soon after the last write: called again at %s", again)
	}
	s.Publish(engine, when.Add(statusInterval))
	if len(written) != 2 || written[1].(*kueue.ClusterQueue).Status.Conditions[0].Reason != kueue.ClusterQueueActiveReasonReady {
		t.Fatalf("with its flavor the queue is active: %+v", written)
	}
	s.Written(written[1], nil)
	s.Publish(engine, when.Add(time.Hour))
	if len(written) != 2 {
		t.Error("nothing changed, nothing is written")
	}
}
