package reconcile

import (
	"context"
	"crypto/rand"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/tools/events"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

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

	CopyLabels      []string
	CopyAnnotations []string
	NoQueueLabels   bool
	NoSliceLayers   bool
	NoGates         bool // ignores who must agree before a job's workload is considered
	NoPodsReady     bool // does not report whether pods are ready
	WaitsForPods    bool // says of pending workloads, too, that their pods are not ready
	RequeuePods     bool
	LeaveOrphans    bool // does not finish the workloads of jobs that are gone
	Queued          func(kind string, after time.Duration)
	GateRemoved     func(gate string, wl *kueue.Workload, group bool)
	Concurrency     map[string]int
}

// Setup adds the registry, which starts a controller for each kind, to the manager.
func Setup(mgr ctrl.Manager, options Options) error {
	if err := (&priorityClassReconciler{mgr.GetClient()}).setup(mgr); err != nil {
		return err
	}
	elastic, err := newElasticPods(mgr)
	if err != nil {
		return err
	}
	common := newController(mgr.GetClient(), mgr.GetEventRecorder("elastic-queue-jobs"), time.Now, options)
	common.elastic = elastic
	return newRegistry(mgr, common, options).setup(mgr)
}

func newController(c client.Client, recorder events.EventRecorder, now func() time.Time, options Options) *controller {
	return &controller{
		client: c, pods: options.PodCache, filter: options.Filter, now: now, adapters: options.Adapters,
		recorder: recorder, identity: rand.Text(),
		builder:       kinds.WorkloadBuilder{Client: c, CopyLabels: options.CopyLabels, CopyAnnotations: options.CopyAnnotations, NoSliceLayers: options.NoSliceLayers, NoGates: options.NoGates},
		noQueueLabels: options.NoQueueLabels, noPodsReady: options.NoPodsReady, waitsForPods: options.WaitsForPods, requeuePods: options.RequeuePods, leaveOrphans: options.LeaveOrphans, queued: options.Queued, gateRemoved: options.GateRemoved,
	}
}

// NewReconciler is the reconciler of one kind with a suspend flag, for a caller that has its own watches
// and calls it when a job or its workload changed.
func NewReconciler(kind *kinds.Kind, c client.Client, recorder events.EventRecorder, now func() time.Time, options Options) reconcile.Reconciler {
	return &objectReconciler{controller: newController(c, recorder, now, options), kind: kind}
}

// NewPodCache watches the pods of managed jobs and no others: a cluster has many.
func NewPodCache(ctx context.Context, mgr ctrl.Manager) (cache.Cache, error) {
	managed, err := labels.NewRequirement(kinds.ManagedLabel, selection.In, []string{"true", swapPods})
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
