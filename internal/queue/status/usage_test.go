package status

import (
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
		updated := newUsage()
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
		fresh := newUsage()
		for _, wl := range world {
			fresh.Move(nil, wl)
		}
		same(t, updated, fresh)
		for _, wl := range world {
			updated.Move(wl, nil)
		}
		same(t, updated, newUsage())
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

// What a queue would be shown of one admitted workload.
func TestClusterQueueStatus(t *testing.T) {
	objects := engineview.NewObjects()
	s := New(objects, func(client.Object) {}, workload.Quantity, admission.Options{})
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
