package queue

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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
	scheme := leaderScheme(t)
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

func leaderScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kueue.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// While many workloads are made, the cache of a new leader is behind by hundreds. They are not read one by one, which
// would take seconds at the client's limit, but taken from the cache when they come there.
func TestNewLeaderWaitsForItsCache(t *testing.T) {
	scheme := leaderScheme(t)
	made := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "made", UID: "made"}}
	looked, read := 0, 0
	next := newHarness(t)
	next.cache = readCache{Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(made).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if looked++; looked < 3 {
				return apierrors.NewNotFound(kueue.Resource("workloads"), key.Name)
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}).Build()}
	next.options.Direct = fake.NewClientBuilder().WithScheme(scheme).WithObjects(made).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			read++
			return c.Get(ctx, key, obj, opts...)
		},
	}).Build()
	newer, err := next.readNewer(t.Context())
	if err != nil || len(newer) != 1 || newer[0].Name != "made" || read > 0 {
		t.Errorf("%d were taken in, %d of them read one by one: %v", len(newer), read, err)
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
