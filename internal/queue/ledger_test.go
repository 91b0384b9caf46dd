package queue

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

// Kept by differences, the ledger is what counting from scratch would give,
// and empty when all are gone.
func TestLedgerByDifferencesIsLedgerFromScratch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kept := newLedger()
		world := map[int]*kueue.Workload{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			i := rapid.IntRange(0, 4).Draw(t, "workload")
			var next *kueue.Workload
			if rapid.IntRange(0, 3).Draw(t, "gone") > 0 {
				next = draw(t)
			}
			kept.move(world[i], next)
			world[i] = next
		}
		fresh := newLedger()
		for _, wl := range world {
			fresh.move(nil, wl)
		}
		same(t, kept, fresh)
		for _, wl := range world {
			kept.move(wl, nil)
		}
		same(t, kept, newLedger())
	})
}

func same(t *rapid.T, a, b *ledger) {
	for _, local := range []string{"main", "other"} {
		key := client.ObjectKey{Namespace: "ns", Name: local}
		sameAccount(t, local, a.localQueue(key), b.localQueue(key))
	}
	sameAccount(t, "cq", a.clusterQueue("cq"), b.clusterQueue("cq"))
}

func sameAccount(t *rapid.T, name string, a, b *account) {
	h100 := flavorResource{"h100", "nvidia.com/gpu"}
	if a.pending != b.pending || a.reserving != b.reserving || a.admitted != b.admitted ||
		a.reserved[h100] != b.reserved[h100] || a.used[h100] != b.used[h100] {
		t.Fatalf("%s: %+v, want %+v", name, a, b)
	}
}

// What a queue would be shown of one admitted workload.
func TestClusterQueueStatus(t *testing.T) {
	s := newStatuses(func(client.Object) {}, admission.Options{})
	engine := admission.New(admission.Options{})
	cq := &kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{ResourceGroups: []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{"nvidia.com/gpu"},
		Flavors: []kueue.FlavorQuotas{{Name: "h100", Resources: []kueue.ResourceQuota{{
			Name: "nvidia.com/gpu", NominalQuota: resource.MustParse("8"),
		}}}},
	}}}}
	cq.Name = "cq"
	s.saw(cq, false)
	engine.Apply(admission.QueueChanged{Queue: queueForEngine(cq)})
	var written []client.Object
	s.write = func(o client.Object) { written = append(written, o) }
	s.publish(engine, when)
	if len(written) != 1 {
		t.Fatalf("a new queue's status is written once, not %d times", len(written))
	}
	status := written[0].(*kueue.ClusterQueue).Status
	if c := status.Conditions[0]; c.Reason != kueue.ClusterQueueActiveReasonFlavorNotFound {
		t.Errorf("a queue whose flavor is missing: %+v", c)
	}
	s.wrote(&statusResult{queue: written[0]})
	flavor := &kueue.ResourceFlavor{}
	flavor.Name = "h100"
	s.saw(flavor, false)
	engine.Apply(eventOf(flavor))
	if again := s.publish(engine, when.Add(time.Millisecond)); !again.Equal(when.Add(statusInterval)) {
		t.Errorf("too soon after the last write: called again at %s", again)
	}
	s.publish(engine, when.Add(statusInterval))
	if len(written) != 2 || written[1].(*kueue.ClusterQueue).Status.Conditions[0].Reason != kueue.ClusterQueueActiveReasonReady {
		t.Fatalf("with its flavor the queue is active: %+v", written)
	}
	s.wrote(&statusResult{queue: written[1]})
	s.publish(engine, when.Add(time.Hour))
	if len(written) != 2 {
		t.Error("nothing changed, nothing is written")
	}
}
