package reconcile

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/managed"
	"github.com/elastic-ai/elastic/internal/jobs/podgroups"
	"github.com/elastic-ai/elastic/internal/jobs/remote"
)

// Options of the controllers.
type Options struct {
	// Kinds is kept up to date with the rows that can be used in this cluster.
	Kinds *kinds.InUse
	// Fixed are the rows beside those of JobKind objects.
	Fixed    []*kinds.Kind
	Filter   *managed.Filter
	Adapters *remote.Adapters
	PodCache cache.Cache
	// PublishWebhooks is called with the rows that are ready when these have changed.
	PublishWebhooks func(ctx context.Context, ready []*kinds.Kind) error

	CopyLabels    []string
	NoQueueLabels bool
	NoSliceLayers bool
	RequeuePods   bool
	Queued        func(kind string, after time.Duration)
	Concurrency   map[string]int
}

// Setup adds the registry, which starts a controller for each kind, to the manager.
func Setup(mgr ctrl.Manager, options Options) error {
	common := &controller{
		client: mgr.GetClient(), pods: options.PodCache, filter: options.Filter, now: time.Now, adapters: options.Adapters,
		recorder:      mgr.GetEventRecorder("elastic-queue-jobs"),
		builder:       kinds.WorkloadBuilder{Client: mgr.GetClient(), CopyLabels: options.CopyLabels, NoSliceLayers: options.NoSliceLayers},
		noQueueLabels: options.NoQueueLabels, requeuePods: options.RequeuePods, queued: options.Queued,
	}
	return newRegistry(mgr, common, options).setup(mgr)
}

// NewPodCache watches the pods of managed jobs and no others: a cluster has many.
func NewPodCache(ctx context.Context, mgr ctrl.Manager) (cache.Cache, error) {
	managed, err := labels.NewRequirement(kinds.ManagedLabel, selection.In, []string{"true", elasticPods, swapPods})
	if err != nil {
		return nil, err
	}
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultLabelSelector: labels.NewSelector().Add(*managed),
	})
	if err != nil {
		return nil, err
	}
	err = c.IndexField(ctx, &corev1.Pod{}, groupIndex, func(obj client.Object) []string {
		if group := podgroups.GroupName(obj); group != "" {
			return []string{group}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, mgr.Add(c)
}
