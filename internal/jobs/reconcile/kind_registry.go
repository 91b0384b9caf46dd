package reconcile

import (
	"context"
	"errors"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/elastic-ai/elastic/api/jobs/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// registry keeps the rows in use up to date with what is installed and declared: a kind is not
// queued while its CRD is missing, and a JobKind counts as soon as it exists. It runs on every
// replica, because the webhooks need it; controllers are started on the leader only.
type registry struct {
	mgr      ctrl.Manager
	kinds    *kinds.InUse
	common   *controller
	podCache cache.Cache
	fixed    []*kinds.Kind
	// concurrency by kind and group, where it is not the default.
	concurrency map[string]int
	// publishWebhooks is called with the rows that are ready.
	publishWebhooks func(ctx context.Context, ready []*kinds.Kind) error
	// withoutJobKinds: the cluster does not serve JobKind objects.
	withoutJobKinds bool

	crds      map[string]*apiextensionsv1.CustomResourceDefinition
	running   map[string]*run
	leaderCtx context.Context // its end stops every controller
	stopAll   context.CancelFunc
}

// run is a kind whose controller was started.
type run struct {
	kind   *kinds.Kind
	crd    types.UID
	cancel context.CancelFunc
}

func newRegistry(mgr ctrl.Manager, common *controller, options Options) *registry {
	r := &registry{
		mgr: mgr, kinds: options.Kinds, common: common, podCache: options.PodCache, fixed: options.Fixed, concurrency: options.Concurrency,
		publishWebhooks: options.PublishWebhooks,
		crds:            map[string]*apiextensionsv1.CustomResourceDefinition{}, running: map[string]*run{},
	}
	r.leaderCtx, r.stopAll = context.WithCancel(context.Background())
	// The webhook may be called before the first reconciliation.
	r.kinds.Set(r.fixed)
	return r
}

func (r *registry) setup(mgr ctrl.Manager) error {
	everything := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "kinds"}}}
	})
	elected := make(chan event.GenericEvent, 1)
	err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		select {
		case <-mgr.Elected(): // closed only after this has been started
			elected <- event.GenericEvent{Object: &v1alpha1.JobKind{}}
			<-ctx.Done()
		case <-ctx.Done():
		}
		r.stopAll()
		return nil
	}))
	if err != nil {
		return err
	}
	builder := ctrl.NewControllerManagedBy(mgr).Named("job-kinds").
		WithOptions(ctrlcontroller.Options{NeedLeaderElection: ptr.To(false)}).
		WatchesMetadata(&apiextensionsv1.CustomResourceDefinition{}, everything).
		WatchesRawSource(source.Channel(elected, everything))
	_, err = mgr.GetRESTMapper().RESTMapping(v1alpha1.GroupVersion.WithKind("JobKind").GroupKind(), v1alpha1.GroupVersion.Version)
	if r.withoutJobKinds = apimeta.IsNoMatchError(err); r.withoutJobKinds {
		mgr.GetLogger().Info("no JobKind objects here: install their CRD and start again to declare kinds of jobs")
	} else {
		builder = builder.Watches(&v1alpha1.JobKind{}, everything)
	}
	return builder.Complete(r)
}

var crdKind = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")

// Reconcile looks at all kinds at once: there are few, and they rarely change.
func (r *registry) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	candidates, err := r.candidates(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	again := time.Duration(0)
	for _, c := range candidates {
		if c.reason == "" {
			if err := r.check(ctx, c); err != nil {
				return ctrl.Result{}, err
			}
		}
		switch {
		case c.notYetServed:
			again = time.Second // discovery has no events
		case c.reason == v1alpha1.ReasonForbidden && again == 0:
			again = 5 * time.Second // nor have access reviews
		}
	}
	chooseVersions(candidates)
	r.kinds.Set(readyKinds(candidates))
	result := ctrl.Result{RequeueAfter: again}
	select {
	case <-r.mgr.Elected():
		return result, errors.Join(r.syncControllers(ctx, candidates), r.publish(ctx, candidates))
	default:
		return result, nil
	}
}

func readyKinds(candidates []*candidate) []*kinds.Kind {
	var rows []*kinds.Kind
	for _, c := range candidates {
		if c.ready() {
			rows = append(rows, c.kind)
		}
	}
	return rows
}

// publish writes the status of each JobKind, and the webhook configuration of declared kinds.
func (r *registry) publish(ctx context.Context, candidates []*candidate) error {
	var errs []error
	for _, c := range candidates {
		if c.object == nil {
			continue
		}
		status := metav1.ConditionFalse
		if c.ready() {
			status = metav1.ConditionTrue
		}
		changed := c.object.DeepCopy()
		if apimeta.SetStatusCondition(&changed.Status.Conditions, metav1.Condition{
			Type: v1alpha1.Active, Status: status, Reason: c.reason, Message: c.message, ObservedGeneration: c.object.Generation,
		}) {
			errs = append(errs, client.IgnoreNotFound(r.mgr.GetClient().Status().Patch(ctx, changed, client.MergeFrom(c.object))))
		}
	}
	return errors.Join(append(errs, r.publishWebhooks(ctx, readyKinds(candidates)))...)
}
