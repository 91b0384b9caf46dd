package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

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
)

// usualConcurrency is how many jobs of one kind are looked at at once.
const usualConcurrency = 8

// registry keeps the rows in use in step with what is installed and declared:
// a kind sleeps while its CRD is away, and a JobKind counts from the moment it
// is there. It runs on every replica, for the webhook; controllers start on
// the leader.
type registry struct {
	mgr      ctrl.Manager
	kinds    *kinds
	common   *controller
	podCache cache.Cache
	fixed    []*Kind
	// concurrency by kind and group, where it is not the usual.
	concurrency map[string]int
	// withoutJobKinds: the cluster does not serve JobKind objects.
	withoutJobKinds bool

	crds    map[string]*apiextensionsv1.CustomResourceDefinition
	running map[string]*run
	lead    context.Context // ends with the manager, and with it every controller
	stopAll context.CancelFunc
}

// run is a kind whose controller was started.
type run struct {
	kind   *Kind
	crd    types.UID
	cancel context.CancelFunc
}

// candidate is a row that would be used, and whether it is.
type candidate struct {
	kind   *Kind
	object *v1alpha1.JobKind // of a declared one
	crd    *apiextensionsv1.CustomResourceDefinition

	// early: its CRD is there, but the cluster does not serve it yet.
	early           bool
	reason, message string
}

func newRegistry(mgr ctrl.Manager, inUse *kinds, common *controller, podCache cache.Cache, options Options) (*registry, error) {
	fixed, err := builtInKinds(options.BuiltIn)
	if err != nil {
		return nil, err
	}
	r := &registry{
		mgr: mgr, kinds: inUse, common: common, podCache: podCache, fixed: fixed, concurrency: options.Concurrency,
		crds: map[string]*apiextensionsv1.CustomResourceDefinition{}, running: map[string]*run{},
	}
	r.lead, r.stopAll = context.WithCancel(context.Background())
	for _, name := range slices.Sorted(maps.Keys(options.Declared)) {
		kind, err := Compile(name, options.Declared[name])
		if err != nil {
			return nil, fmt.Errorf("job kind %s of the configuration: %w", name, err)
		}
		r.fixed = append(r.fixed, kind)
	}
	// The webhook may be asked before the first look at the cluster.
	inUse.set(r.fixed)
	return r, nil
}

// builtInKinds are the rows of these names, all where there are none.
func builtInKinds(names []string) ([]*Kind, error) {
	if len(names) == 0 {
		return slices.Clone(Table()), nil
	}
	var out []*Kind
	for _, name := range names {
		at := slices.IndexFunc(Table(), func(k *Kind) bool { return k.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("integrations.frameworks: no kind of job is called %q; there are %s", name, strings.Join(Names(), ", "))
		}
		out = append(out, Table()[at])
	}
	return out, nil
}

// Names of the built-in kinds.
func Names() []string {
	var names []string
	for _, kind := range Table() {
		names = append(names, kind.Name)
	}
	return names
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

// Reconcile looks at everything: there is little of it, and it rarely changes.
func (r *registry) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	candidates, err := r.candidates(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	again := time.Duration(0)
	for _, c := range candidates {
		if c.reason == "" {
			if err := r.judge(ctx, c); err != nil {
				return ctrl.Result{}, err
			}
		}
		switch {
		case c.early:
			again = time.Second // nothing tells us of discovery
		case c.reason == v1alpha1.ReasonForbidden && again == 0:
			again = 5 * time.Second // nor of roles
		}
	}
	oneEach(candidates)
	r.use(candidates)
	result := ctrl.Result{RequeueAfter: again}
	select {
	case <-r.mgr.Elected():
		return result, errors.Join(r.runAll(ctx, candidates), r.publish(ctx, candidates))
	default:
		return result, nil
	}
}

func (r *registry) candidates(ctx context.Context) ([]*candidate, error) {
	var out []*candidate
	for _, kind := range r.fixed {
		out = append(out, &candidate{kind: kind})
	}
	if r.withoutJobKinds {
		return out, nil
	}
	list := &v1alpha1.JobKindList{}
	if err := r.mgr.GetClient().List(ctx, list); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.JobKind) int { return strings.Compare(a.Name, b.Name) })
	for i := range list.Items {
		c := &candidate{object: &list.Items[i]}
		kind, err := Compile(c.object.Name, c.object.Spec)
		c.kind = kind
		if err != nil {
			c.reason, c.message = v1alpha1.ReasonInvalid, err.Error()
		}
		out = append(out, c)
	}
	return out, nil
}

// judge says whether a row can be used.
func (r *registry) judge(ctx context.Context, c *candidate) error {
	c.reason, c.message = v1alpha1.ReasonReady, "Jobs of this kind are queued"
	if !strings.Contains(c.kind.GVK.Group, ".") {
		return nil // Kubernetes' own
	}
	crd, err := r.crd(ctx, c.kind.Spec.Resource+"."+c.kind.GVK.Group)
	if err != nil {
		return err
	}
	if crd != nil && serves(crd, c.kind.GVK.Version) {
		// A CRD is established a moment before discovery knows of it.
		if _, err := r.mgr.GetRESTMapper().RESTMapping(c.kind.GVK.GroupKind(), c.kind.GVK.Version); apimeta.IsNoMatchError(err) {
			c.early = true
		} else if err != nil {
			return err
		}
	}
	if crd == nil || c.early || !serves(crd, c.kind.GVK.Version) {
		c.reason, c.message = v1alpha1.ReasonNotInstalled, fmt.Sprintf("The cluster does not serve %s of %s", c.kind.Spec.Resource, c.kind.GVK.GroupVersion())
		return nil
	}
	c.crd = crd
	if c.object == nil && slices.Contains(Table(), c.kind) {
		return nil // tested; a CRD that leaves fields out is still the kind
	}
	if err := c.kind.Check(crd); err != nil {
		c.reason, c.message = v1alpha1.ReasonInvalid, err.Error()
		return nil
	}
	return r.checkAccess(ctx, c)
}

// crd fetches a CRD anew only when it changed: schemas are big.
func (r *registry) crd(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(crdKind)
	err := r.mgr.GetClient().Get(ctx, types.NamespacedName{Name: name}, meta)
	if apierrors.IsNotFound(err) {
		delete(r.crds, name)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if known := r.crds[name]; known != nil && known.ResourceVersion == meta.ResourceVersion {
		return known, nil
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	err = r.mgr.GetAPIReader().Get(ctx, types.NamespacedName{Name: name}, crd)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	r.crds[name] = crd
	return crd, nil
}

func serves(crd *apiextensionsv1.CustomResourceDefinition, version string) bool {
	established := slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
	return established && crd.DeletionTimestamp == nil && slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == version && v.Served
	})
}

// checkAccess asks whether we may do with a declared kind what we have to. A
// watch that is refused would only fill the log.
func (r *registry) checkAccess(ctx context.Context, c *candidate) error {
	for _, verb := range []string{"list", "watch", "patch"} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: c.kind.GVK.Group, Resource: c.kind.Spec.Resource, Verb: verb},
		}}
		if err := r.mgr.GetClient().Create(ctx, review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			c.reason = v1alpha1.ReasonForbidden
			c.message = fmt.Sprintf("elastic-queue may not %s %s.%s: grant it in a ClusterRole with the label %s",
				verb, c.kind.Spec.Resource, c.kind.GVK.Group, AggregateLabel)
			return nil
		}
	}
	return nil
}

// AggregateLabel on a ClusterRole makes it part of what elastic-queue may do.
const AggregateLabel = "elasticai.io/aggregate-to-queue"

// oneEach leaves one row per kind: where several versions are served, that in
// which the objects are stored, and else the first.
func oneEach(candidates []*candidate) {
	chosen := map[schema.GroupKind]*candidate{}
	for _, c := range candidates {
		if c.reason != v1alpha1.ReasonReady {
			continue
		}
		before := chosen[c.kind.GVK.GroupKind()]
		switch {
		case before == nil:
		case c.stored() && !before.stored() && c.object == nil:
			before.take(c)
		default:
			c.take(before)
			continue
		}
		chosen[c.kind.GVK.GroupKind()] = c
	}
}

func (c *candidate) take(by *candidate) {
	c.reason, c.message = v1alpha1.ReasonTaken, fmt.Sprintf("%s describes %s already", by.kind.Name, by.kind.GVK.GroupKind())
}

func (c *candidate) stored() bool {
	return c.crd == nil || slices.ContainsFunc(c.crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Storage && v.Name == c.kind.GVK.Version
	})
}

func (c *candidate) ready() bool { return c.reason == v1alpha1.ReasonReady }

// use tells the webhook.
func (r *registry) use(candidates []*candidate) {
	var rows []*Kind
	for _, c := range candidates {
		if c.ready() {
			rows = append(rows, c.kind)
		}
	}
	r.kinds.set(rows)
}

// runAll starts and stops controllers.
func (r *registry) runAll(ctx context.Context, candidates []*candidate) error {
	wanted := map[string]*candidate{}
	for _, c := range candidates {
		if c.ready() {
			wanted[c.kind.Name] = c
		}
	}
	for name, running := range r.running {
		c := wanted[name]
		if c != nil && reflect.DeepEqual(c.kind.Spec, running.kind.Spec) && c.uid() == running.crd {
			continue
		}
		running.cancel()
		delete(r.running, name)
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(running.kind.GVK)
		if err := r.mgr.GetCache().RemoveInformer(ctx, obj); err != nil {
			return err
		}
		if err := r.common.abandon(ctx, running.kind); err != nil {
			return err
		}
		r.mgr.GetLogger().Info("a kind of job is no longer queued", "kind", running.kind.GVK.String())
	}
	for _, c := range candidates {
		if !c.ready() || r.running[c.kind.Name] != nil {
			continue
		}
		if err := r.start(c); err != nil {
			return fmt.Errorf("starting %s: %w", c.kind.Name, err)
		}
	}
	return nil
}

func (c *candidate) uid() types.UID {
	if c.crd == nil {
		return ""
	}
	return c.crd.UID
}

// start runs the controller of a row, if it needs one.
func (r *registry) start(c *candidate) error {
	kind := c.kind
	var reconciler reconcile.Reconciler
	var sources []source.Source
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind.GVK)
	shared := r.mgr.GetCache()
	pods := &pods{controller: r.common, reader: r.podCache, kinds: r.kinds, kind: podKind()}
	switch {
	case kind.isPod():
		reconciler = pods
		sources = []source.Source{
			source.Kind(r.podCache, client.Object(&corev1.Pod{}), handler.EnqueueRequestsFromMapFunc(
				func(_ context.Context, obj client.Object) []reconcile.Request { return requestFor(obj) })),
			source.Kind(shared, client.Object(&kueue.Workload{}), handler.EnqueueRequestsFromMapFunc(
				func(_ context.Context, obj client.Object) []reconcile.Request { return requestForWorkload(obj) })),
		}
	case kind.suspends():
		reconciler = &objects{controller: r.common, kind: kind}
		sources = []source.Source{
			source.Kind(shared, client.Object(obj), &handler.EnqueueRequestForObject{}),
			source.Kind(shared, client.Object(&kueue.Workload{}), handler.EnqueueRequestsFromMapFunc(r.jobsOf(kind))),
			source.Kind(r.podCache, client.Object(&corev1.Pod{}), handler.EnqueueRequestsFromMapFunc(r.watched(kind))),
		}
	case kind.group != nil:
		// The object tells how many pods its groups are to have.
		reconciler = pods
		sources = []source.Source{source.Kind(shared, client.Object(obj), handler.EnqueueRequestsFromMapFunc(r.groupsOf))}
	}
	ctx, cancel := context.WithCancel(r.lead)
	r.running[kind.Name] = &run{kind: kind, crd: c.uid(), cancel: cancel}
	if reconciler == nil {
		return nil // its pods are all there is to look at
	}
	ctl, err := ctrlcontroller.NewUnmanaged("job-"+kind.Name, ctrlcontroller.Options{
		Reconciler: reconciler, MaxConcurrentReconciles: cmp.Or(r.concurrency[kind.GVK.GroupKind().String()], usualConcurrency), SkipNameValidation: ptr.To(true), Logger: r.mgr.GetLogger(),
	})
	if err != nil {
		return err
	}
	for _, s := range sources {
		if err := ctl.Watch(s); err != nil {
			return err
		}
	}
	go func() {
		if err := ctl.Start(ctx); err != nil && ctx.Err() == nil {
			r.mgr.GetLogger().Error(err, "the controller of a kind of job ended", "kind", kind.GVK.String())
		}
	}()
	return nil
}

func podKind() *Kind {
	for _, kind := range Table() {
		if kind.isPod() {
			return kind
		}
	}
	panic("jobs: the table has no row for pods")
}

// jobsOf finds the job a workload belongs to: the one that owns it, or those
// that name it as theirs.
func (r *registry) jobsOf(kind *Kind) handler.MapFunc {
	return func(ctx context.Context, wl client.Object) []reconcile.Request {
		key := types.NamespacedName{Namespace: wl.GetNamespace()}
		if owner := metav1.GetControllerOf(wl); owner != nil {
			if schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind() != kind.GVK.GroupKind() {
				return nil
			}
			key.Name = owner.Name
			return []reconcile.Request{{NamespacedName: key}}
		}
		if w, ok := wl.(*kueue.Workload); !ok || len(w.Status.Conditions) > 0 {
			return nil // whoever waited for it heard of it when it came
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GVK.GroupVersion().WithKind(kind.GVK.Kind + "List"))
		err := r.mgr.GetClient().List(ctx, list, client.InNamespace(key.Namespace))
		if err != nil {
			return nil // the job itself is looked at whenever it changes
		}
		var out []reconcile.Request
		for i := range list.Items {
			if PrebuiltName(&list.Items[i]) == wl.GetName() {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}
		return out
	}
}

// watched finds the job a pod belongs to whose job looks after each of its pods, as it grows or is swapped: by the
// workloads that job has.
func (r *registry) watched(kind *Kind) handler.MapFunc {
	return func(ctx context.Context, pod client.Object) []reconcile.Request {
		if how := pod.GetLabels()[ManagedLabel]; how != elasticPods && how != swapPods {
			return nil
		}
		list := &kueue.WorkloadList{}
		err := r.mgr.GetClient().List(ctx, list, client.InNamespace(pod.GetNamespace()), client.MatchingFields{ownerIndex: pod.GetLabels()[JobUIDLabel]})
		if err != nil || len(list.Items) == 0 {
			return nil // its workload wakes the job
		}
		return r.jobsOf(kind)(ctx, &list.Items[0])
	}
}

// groupsOf finds the groups of pods an object stands behind.
func (r *registry) groupsOf(ctx context.Context, obj client.Object) []reconcile.Request {
	list := &kueue.WorkloadList{}
	if err := r.mgr.GetClient().List(ctx, list, client.InNamespace(obj.GetNamespace()), client.MatchingFields{ownerIndex: string(obj.GetUID())}); err != nil {
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		out = append(out, requestForWorkload(&list.Items[i])...)
	}
	return out
}

// publish writes each JobKind's status and the webhook that holds declared
// kinds.
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
	return errors.Join(append(errs, r.publishWebhook(ctx, candidates))...)
}
