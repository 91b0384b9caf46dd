package queue

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// readCache is a cache of which only reads are used.
type readCache struct {
	cache.Cache
	client.Reader
}

func (c readCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.Reader.Get(ctx, key, obj, opts...)
}

func (c readCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.Reader.List(ctx, list, opts...)
}

// Quota that the last leader reserved is not given out again, although the new one's cache has yet to see
// it.
func TestNewLeaderKnowsWhatItsCacheHasNotSeen(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kueue.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	last := newHarness(t)
	last.oneQueue()
	last.submit("runs", "main", "", 0, "4")
	runs := last.written["runs"].DeepCopy()
	if !workload.HasReservation(runs) {
		t.Fatalf("it has no quota: %v", runs.Status.Conditions)
	}

	next := newHarness(t)
	next.options.Direct = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(runs).WithObjects(runs).Build()
	next.cache = readCache{Reader: fake.NewClientBuilder().WithScheme(scheme).Build()}
	if !next.catchUp(t.Context()) {
		t.Fatal("it did not catch up")
	}
	next.version = 1000
	next.oneQueue()
	next.submit("waits", "main", "", 0, "1")
	if workload.HasReservation(next.written["waits"]) {
		t.Error("quota in use was given out again")
	}
}

// Events of a workload that was deleted come after the read of one that was created in its place.
func TestEventsOfAnEarlierWorkloadOfThatName(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	old := p.workload("again", "main", "", 0, "4")
	old.UID, old.ResourceVersion = "old", "3"
	p.version = 10
	p.submit("again", "main", "", 0, "4")
	if !workload.HasReservation(p.written["again"]) {
		t.Fatal("it has no quota")
	}
	gone := old.DeepCopy()
	gone.ResourceVersion = "4"
	p.turn([]message{{object: old}})
	p.turn([]message{{object: gone, deleted: true}})
	p.submit("waits", "main", "", 0, "1")
	if workload.HasReservation(p.written["waits"]) {
		t.Error("quota in use was given out again")
	}
}
