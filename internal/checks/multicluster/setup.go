package multicluster

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/checks"
	"github.com/elastic-ai/elastic/internal/cloud"
	"github.com/elastic-ai/elastic/internal/features"
	"github.com/elastic-ai/elastic/internal/jobs/remote"
	"github.com/elastic-ai/elastic/internal/queue/cloudoffers"
)

// Options of the check.
type Options struct {
	Config v1alpha1.MultiKueue
	// Namespace has the Secrets with kubeconfigs.
	Namespace string
	Features  features.Set
	// Copies is how jobs are run in other clusters.
	Copies *remote.Adapters
	// Fence is what requests to other clusters pass, too: they follow from a leader's decisions.
	Fence func(http.RoundTripper) http.RoundTripper
	// RunTimes are those that were learned, for the dispatcher that asks.
	RunTimes checks.RunTimes
	// Dispatched and Admitted are called for every copy that was created, and that won.
	Dispatched, Admitted func(queue, cluster string)
}

// atOnce is how many workloads are reconciled at the same time.
const atOnce = 8

// Setup adds the check's controllers to the manager.
func Setup(mgr ctrl.Manager, options Options) error {
	settings, err := settingsOf(options.Config, options.Features)
	if err != nil {
		return err
	}
	requeues, connections := make(chan event.TypedGenericEvent[types.NamespacedName]), make(chan event.TypedGenericEvent[types.NamespacedName])
	all := &clusters{
		client: mgr.GetClient(), origin: settings.origin, log: mgr.GetLogger().WithName("multikueue"),
		fence:   options.Fence,
		sources: sources{reader: mgr.GetAPIReader(), namespace: options.Namespace},
		known:   map[string]*connection{}, missing: map[string]time.Time{},
	}
	all.lead, all.end = context.WithCancel(context.Background())
	all.seen = func(key types.NamespacedName) { send(all.lead, requeues, key) }
	if settings.forward {
		options.Copies.OnJobChange(all.seen)
	}
	if options.Features.Enabled(features.MultiKueueKubeConfigPathValidation) {
		all.sources.folder = kubeconfigDir
	}
	all.changed = func(name string) {
		send(all.lead, connections, types.NamespacedName{Name: name})
		for _, request := range workloadsThat(all.lead, mgr.GetClient(), concerns) {
			all.seen(request.NamespacedName)
		}
	}
	if options.Features.Enabled(features.MultiKueueManagerQuotaAutomation) {
		if err := all.automateQuotas(mgr); err != nil {
			return err
		}
	}
	if err := all.setup(mgr, options, source.Channel(connections, enqueue)); err != nil {
		return err
	}
	activity := &checkActivity{mgr.GetClient()}
	err = ctrl.NewControllerManagedBy(mgr).Named("multikueue-checks").
		For(&kueue.AdmissionCheck{}, builder.WithPredicates(checks.HasController(kueue.MultiKueueControllerName))).
		Watches(&kueue.MultiKueueConfig{}, activity.all()).
		Watches(&kueue.MultiKueueCluster{}, activity.all()).
		Complete(activity)
	if err != nil {
		return err
	}
	w := &workloads{
		client: mgr.GetClient(), clusters: all, copies: options.Copies, recorder: mgr.GetEventRecorder("elastic-queue-multikueue"), now: time.Now,
		runTimes: options.RunTimes, settings: settings, dispatched: options.Dispatched, admitted: options.Admitted,
	}
	served, err := cloudoffers.Served(mgr)
	if err != nil {
		return err
	}
	tables := cloudoffers.NewTables(mgr.GetClient(), options.Namespace)
	if served {
		w.dearest = tables.Dearest
	}
	if err := w.setup(mgr, source.Channel(requeues, enqueue), served); err != nil {
		return err
	}
	if w.offers != nil {
		reports := &workerReports{clusters: all, tables: tables, now: time.Now}
		if err := mgr.Add(manager.RunnableFunc(reports.run)); err != nil {
			return err
		}
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		defer all.end()
		if settings.gcInterval > 0 {
			all.collectGarbage(ctx, settings.gcInterval)
		}
		<-ctx.Done()
		return nil
	}))
}

// setup adds the controller of workloads. The cluster may have CloudOffers.
func (w *workloads) setup(mgr ctrl.Manager, requeues source.Source, served bool) error {
	those := func(is func(client.Object) bool) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
			return workloadsThat(ctx, w.client, is)
		})
	}
	workloads := ctrl.NewControllerManagedBy(mgr).Named("multikueue").
		For(&kueue.Workload{}, builder.WithPredicates(predicate.NewPredicateFuncs(concerns))).
		Watches(&kueue.MultiKueueConfig{}, those(concerns)).
		Watches(&kueue.Workload{}, handler.EnqueueRequestsFromMapFunc(siblingsOf(w.copies)), builder.WithPredicates(moved)).
		WatchesRawSource(requeues).
		WithOptions(controller.Options{MaxConcurrentReconciles: atOnce})
	if served && w.dispatcher.name == v1alpha1.CheapestDispatcher {
		w.offers = func(ctx context.Context) ([]cloud.ClusterOffer, error) { return cloudoffers.OfClusters(ctx, w.client) }
		workloads.Watches(&cloudv1.CloudOffer{}, those(undispatched), builder.WithPredicates(cloudoffers.ClusterPriceChanged()))
	}
	return workloads.Complete(w)
}

// workloadsThat are something.
func workloadsThat(ctx context.Context, c client.Client, are func(client.Object) bool) (requests []reconcile.Request) {
	list := &kueue.WorkloadList{}
	if err := c.List(ctx, list); err != nil {
		return nil
	}
	for i := range list.Items {
		if are(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// setup adds the controller of clusters.
func (c *clusters) setup(mgr ctrl.Manager, options Options, connections source.Source) error {
	controller := ctrl.NewControllerManagedBy(mgr).Named("multikueue-clusters").
		For(&kueue.MultiKueueCluster{}).
		WatchesMetadata(&corev1.Secret{}, c.usersOf(options.Namespace, bySecret)).
		WatchesRawSource(connections)
	if options.Features.Enabled(features.MultiKueueClusterProfile) {
		c.sources.profiles = &profiles{namespace: options.Namespace, providers: options.Config.ClusterProfile.AccessProviders}
		watched, err := watchProfiles(mgr, options.Namespace)
		if err != nil {
			return err
		}
		if watched != nil {
			c.sources.profiles.reader = watched
			controller.WatchesRawSource(source.Kind(watched, emptyProfile(), c.usersOf(options.Namespace, byProfile)))
		}
	}
	return controller.Complete(c)
}

// siblingsOf finds the workloads that share one job with another.
func siblingsOf(copies *remote.Adapters) handler.MapFunc {
	return func(ctx context.Context, obj client.Object) (requests []reconcile.Request) {
		wl, ok := obj.(*kueue.Workload)
		if !ok {
			return nil
		}
		kind, _ := copies.For(wl)
		if kind == nil || !kind.SharesJob() {
			return nil
		}
		all, err := copies.WorkloadsOf(ctx, wl.Namespace, kind.GVK.GroupKind(), wl.OwnerReferences[0].Name)
		if err != nil {
			return nil
		}
		for i := range all {
			if all[i].Name != wl.Name && concerns(&all[i]) {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all[i])})
			}
		}
		return requests
	}
}

// moved is when the siblings of a workload may follow it, or be dispatched before it.
var moved = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*kueue.Workload)
		after, same := e.ObjectNew.(*kueue.Workload)
		return ok && same && (stays(before) != stays(after) || !ptr.Equal(before.Status.ClusterName, after.Status.ClusterName))
	},
}

// settings are the configuration, validated, with Kueue's defaults.
type settings struct {
	// origin marks what is ours in other clusters.
	origin     string
	dispatcher dispatcher
	// workerLostTimeout is how long a cluster that runs something may not answer, and gcInterval
	// how often garbage is collected; 0: never.
	workerLostTimeout, gcInterval time.Duration
	// forward has jobs in other clusters updated when the original changes.
	forward bool
	// orchestrated: one cluster at a time preempts others for a workload.
	orchestrated bool
}

func settingsOf(config v1alpha1.MultiKueue, gates features.Set) (settings, error) {
	s := settings{
		origin: cmp.Or(config.Origin, kueueconfig.DefaultMultiKueueOrigin),
		dispatcher: dispatcher{
			name: cmp.Or(config.DispatcherName, kueueconfig.MultiKueueDispatcherModeAllAtOnce), step: 3,
			inOrder: gates.Enabled(features.MultiKueueIncrementalDispatcherRespectConfigOrder),
		},
		forward:           gates.Enabled(features.MultiKueueRemoteSpecSync),
		orchestrated:      gates.Enabled(features.MultiKueueOrchestratedPreemption),
		workerLostTimeout: ptr.Deref(config.WorkerLostTimeout, metav1.Duration{Duration: kueueconfig.DefaultMultiKueueWorkerLostTimeout}).Duration,
		gcInterval:        ptr.Deref(config.GCInterval, metav1.Duration{Duration: kueueconfig.DefaultMultiKueueGCInterval}).Duration,
	}
	if c := config.IncrementalDispatcherConfig; c != nil && gates.Enabled(features.MultiKueueIncrementalDispatcherConfig) {
		s.dispatcher.step = int(ptr.Deref(c.StepSize, 3))
	}
	if err := validateProviders(config.ClusterProfile.AccessProviders); err != nil {
		return s, err
	}
	switch errs := validation.IsValidLabelValue(s.origin); {
	case len(errs) > 0:
		return s, fmt.Errorf("multiKueue.origin: %q: %s", s.origin, strings.Join(errs, ", "))
	case s.workerLostTimeout < 0:
		return s, fmt.Errorf("multiKueue.workerLostTimeout: %s must not be negative", s.workerLostTimeout)
	case s.gcInterval < 0:
		return s, fmt.Errorf("multiKueue.gcInterval: %s must not be negative", s.gcInterval)
	case s.dispatcher.step < 1:
		return s, fmt.Errorf("multiKueue.incrementalDispatcherConfig.stepSize: %d must be greater than or equal to 1", s.dispatcher.step)
	}
	return s, nil
}

// enqueue requests that come through a channel.
var enqueue = handler.TypedFuncs[types.NamespacedName, reconcile.Request]{
	GenericFunc: func(_ context.Context, e event.TypedGenericEvent[types.NamespacedName], queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		queue.Add(reconcile.Request{NamespacedName: e.Object})
	},
}

func send(ctx context.Context, to chan<- event.TypedGenericEvent[types.NamespacedName], key types.NamespacedName) {
	select {
	case to <- event.TypedGenericEvent[types.NamespacedName]{Object: key}:
	case <-ctx.Done():
	}
}
