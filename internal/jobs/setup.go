package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/elastic-ai/elastic/api/jobs/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/managed"
	"github.com/elastic-ai/elastic/internal/jobs/reconcile"
	"github.com/elastic-ai/elastic/internal/jobs/remote"
	"github.com/elastic-ai/elastic/internal/jobs/webhooks"
)

// Options of the job controllers and webhooks.
type Options struct {
	// ManageJobsWithoutQueueName also manages jobs that name no queue.
	ManageJobsWithoutQueueName bool
	// Namespaces, if set, limits all this to namespaces with such labels.
	Namespaces *metav1.LabelSelector
	// BuiltIn limits the built-in kinds to these names; empty takes all.
	BuiltIn []string
	// External are kinds, as "Kind.version.group", whose own controllers queue them: their
	// children are not queued again.
	External []string
	// MultiKueue hands jobs over whose queue sends them to other clusters.
	MultiKueue bool
	// MultiKueueExternal are kinds, as "Kind.version.group", that can be dispatched although their
	// own controllers queue them.
	MultiKueueExternal []string
	// Declared are kinds beside the built-in ones, by name. More come and go as JobKind objects.
	Declared map[string]v1alpha1.JobKindSpec
	// CopyLabels are the keys of labels that a job's workload gets too.
	CopyLabels []string
	// CopyAnnotations are the same of annotations.
	CopyAnnotations []string
	// NoQueueLabels leaves the queues' names off the pods.
	NoQueueLabels bool
	// ResizableGroups allows the groups of an object that is in a queue to change in size, although
	// they were admitted with it.
	ResizableGroups bool
	// NoTopology ignores topology annotations; NoSliceLayers refuses jobs that ask for slices of slices.
	NoTopology, NoSliceLayers bool
	// NoGates ignores who must agree before a job's workload is considered.
	NoGates bool
	// RayAndSparkMayLeave lets running jobs of these kinds give up their queue name.
	RayAndSparkMayLeave bool
	// DefaultPriorityClass gives jobs that name no WorkloadPriorityClass the one called "default".
	DefaultPriorityClass bool
	// Rules are how jobs are named and counted.
	Rules kinds.Rules
	// NoPodsReady does not report whether a workload's pods are ready.
	NoPodsReady bool
	// WaitsForPods says of pending workloads, too, that their pods are not ready.
	WaitsForPods bool
	// RequeuePods requeues the workload of an evicted pod although it is deleted with that pod.
	RequeuePods bool
	// LeaveOrphans does not finish the workloads of jobs that are gone.
	LeaveOrphans bool
	// Queued, if set, is called with the kind of a job and its age when its workload was created.
	Queued func(kind string, after time.Duration)
	// GateRemoved, if set, is called when a pod that was held is started.
	GateRemoved func(gate string, wl *kueue.Workload, group bool)
	// Concurrency is how many jobs are reconciled at once, by "Kind.group".
	Concurrency map[string]int
}

// Setup adds the controllers and the webhooks to the manager, and returns the adapters that run
// jobs in other clusters.
func Setup(ctx context.Context, mgr ctrl.Manager, options Options) (*remote.Adapters, error) {
	kinds.SetRules(options.Rules)
	if err := kinds.IndexWorkloads(ctx, mgr.GetFieldIndexer()); err != nil {
		return nil, err
	}
	filter, err := options.filter(mgr)
	if err != nil {
		return nil, err
	}
	fixed, err := options.fixedKinds()
	if err != nil {
		return nil, err
	}
	podCache, err := reconcile.NewPodCache(ctx, mgr)
	if err != nil {
		return nil, err
	}
	adapters, err := remote.NewAdapters(mgr.GetClient(), podCache, filter.Kinds, options.MultiKueueExternal)
	if err != nil {
		return nil, err
	}
	webhooks.Register(mgr.GetWebhookServer(), webhooks.Options{
		Filter: filter, Kinds: filter.Kinds, MultiKueue: options.MultiKueue,
		ResizableGroups: options.ResizableGroups, NoTopology: options.NoTopology, NoSliceLayers: options.NoSliceLayers, NoGates: options.NoGates,
		RayAndSparkMayLeave: options.RayAndSparkMayLeave, DefaultPriorityClass: options.DefaultPriorityClass,
	})
	return adapters, reconcile.Setup(mgr, reconcile.Options{
		Kinds: filter.Kinds, Fixed: fixed, Filter: filter, Adapters: adapters, PodCache: podCache,
		CopyLabels: options.CopyLabels, CopyAnnotations: options.CopyAnnotations, NoQueueLabels: options.NoQueueLabels, NoSliceLayers: options.NoSliceLayers,
		NoGates: options.NoGates, NoPodsReady: options.NoPodsReady, WaitsForPods: options.WaitsForPods,
		RequeuePods: options.RequeuePods, LeaveOrphans: options.LeaveOrphans, Queued: options.Queued, GateRemoved: options.GateRemoved, Concurrency: options.Concurrency,
		PublishWebhooks: func(ctx context.Context, ready []*kinds.Kind) error {
			return webhooks.Publish(ctx, mgr.GetAPIReader(), mgr.GetClient(), ready,
				webhooks.Scope{Namespaces: options.Namespaces, AllPods: filter.Pods})
		},
	})
}

// pods: as in Kueue, pods that name no queue are jobs only where "pod" is named among the kinds. Most
// pods of a cluster are no jobs.
func (o Options) pods() bool { return slices.Contains(o.BuiltIn, "pod") }

func (o Options) filter(mgr ctrl.Manager) (*managed.Filter, error) {
	namespaces := labels.Everything()
	if o.Namespaces != nil {
		var err error
		if namespaces, err = metav1.LabelSelectorAsSelector(o.Namespaces); err != nil {
			return nil, err
		}
	}
	external, err := parseKinds(o.External)
	return &managed.Filter{
		Cached: mgr.GetClient(), Direct: mgr.GetAPIReader(), Kinds: &kinds.InUse{},
		WithoutQueueName: o.ManageJobsWithoutQueueName, Pods: o.pods(), Namespaces: namespaces, External: external,
	}, err
}

// fixedKinds are the rows that do not come and go: built-in ones and those of the configuration.
func (o Options) fixedKinds() ([]*kinds.Kind, error) {
	fixed, err := kinds.BuiltIn(o.BuiltIn)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(o.Declared)) {
		kind, err := kinds.Compile(name, o.Declared[name])
		if err != nil {
			return nil, fmt.Errorf("job kind %s of the configuration: %w", name, err)
		}
		fixed = append(fixed, kind)
	}
	return fixed, nil
}

// parseKinds reads kinds written as "Kind.version.group".
func parseKinds(names []string) (map[schema.GroupKind]bool, error) {
	out := make(map[schema.GroupKind]bool, len(names))
	for _, name := range names {
		gvk, _ := schema.ParseKindArg(name)
		if gvk == nil {
			return nil, fmt.Errorf("integrations.externalFrameworks: %q is not written as Kind.version.group", name)
		}
		out[gvk.GroupKind()] = true
	}
	return out, nil
}
