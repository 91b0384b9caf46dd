package cloudoffers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/elastic-ai/elastic/api/cloud/v1alpha1"
)

// Setup adds the controller to the manager. Price tables are read from ConfigMaps in a namespace. A cluster that was
// upgraded in the wrong order does not have CloudOffers, and no price either.
func Setup(mgr ctrl.Manager, namespace string) error {
	served, err := Served(mgr)
	if err != nil {
		return err
	}
	clusters, err := serves(mgr, kueue.SchemeGroupVersion.WithKind("MultiKueueCluster"))
	if err != nil {
		return err
	}
	if !served {
		mgr.GetLogger().Info("this cluster has no CloudOffers: their CRD is not installed")
		return nil
	}
	o := &offers{Tables: NewTables(mgr.GetClient(), namespace), client: mgr.GetClient(), clusters: clusters, now: time.Now}
	controller := ctrl.NewControllerManagedBy(mgr).Named("cloud-offers").
		For(&v1alpha1.CloudOffer{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.CloudOffer{}, handler.EnqueueRequestsFromMapFunc(o.all), builder.WithPredicates(learnedMore())).
		Watches(&kueue.ResourceFlavor{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(o.usersOf))
	if clusters {
		controller.Watches(&kueue.MultiKueueCluster{}, handler.EnqueueRequestsFromMapFunc(o.ofCluster), builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	}
	return controller.Complete(o)
}

// Served says that the cluster has CloudOffers.
func Served(mgr ctrl.Manager) (bool, error) {
	return serves(mgr, v1alpha1.GroupVersion.WithKind("CloudOffer"))
}

func serves(mgr ctrl.Manager, kind schema.GroupVersionKind) (bool, error) {
	_, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if apimeta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}

// learnedMore says that what is known of places changed.
func learnedMore() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, is := e.ObjectOld.(*v1alpha1.CloudOffer), e.ObjectNew.(*v1alpha1.CloudOffer)
			return !equality.Semantic.DeepEqual(was.Status.Places, is.Status.Places)
		},
	}
}

// offers writes the statuses of CloudOffers.
type offers struct {
	Tables
	client   client.Client
	clusters bool // there are MultiKueueClusters
	now      func() time.Time
}

// all are all CloudOffers: what one learns of a place counts for each that sells there.
func (o *offers) all(ctx context.Context, _ client.Object) []reconcile.Request {
	return o.that(ctx, func(*v1alpha1.CloudOffer) bool { return true })
}

func (o *offers) that(ctx context.Context, is func(*v1alpha1.CloudOffer) bool) (list []reconcile.Request) {
	all := &v1alpha1.CloudOfferList{}
	if o.client.List(ctx, all) != nil {
		return nil
	}
	for i := range all.Items {
		if is(&all.Items[i]) {
			list = append(list, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return list
}

// usersOf are the CloudOffers whose prices are in a ConfigMap.
func (o *offers) usersOf(ctx context.Context, table client.Object) []reconcile.Request {
	if table.GetNamespace() != o.namespace {
		return nil
	}
	return o.that(ctx, func(offer *v1alpha1.CloudOffer) bool {
		from := offer.Spec.Prices.ConfigMap
		return from != nil && from.Name == table.GetName()
	})
}

// ofCluster are the CloudOffers of another cluster.
func (o *offers) ofCluster(ctx context.Context, cluster client.Object) []reconcile.Request {
	return o.that(ctx, func(offer *v1alpha1.CloudOffer) bool { return offer.Spec.Cluster() == cluster.GetName() })
}

// Reconcile writes what a CloudOffer's table says into its status.
func (o *offers) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	was := &v1alpha1.CloudOffer{}
	if err := o.client.Get(ctx, request.NamespacedName, was); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	status, err := o.assess(ctx, was)
	if err != nil && !IsProblem(err) {
		return reconcile.Result{}, err
	}
	result := reconcile.Result{RequeueAfter: reopens(was.Status.Places, status.ClosedUntil, o.now())}
	is := was.DeepCopy()
	is.Status = status
	is.Status.ObservedGeneration, is.Status.Conditions = was.Generation, was.DeepCopy().Status.Conditions
	if err != nil {
		is.Status.Places = withPrices(was.Status.Places, nil)
	}
	c := condition(was, &status, err)
	c.LastTransitionTime = metav1.NewTime(o.now())
	apimeta.SetStatusCondition(&is.Status.Conditions, c)
	if equality.Semantic.DeepEqual(was.Status, is.Status) {
		return result, nil
	}
	// Places are written by the purchasing check, and from what other clusters report. They are in the patch only if a price in them
	// changed, and then nothing else may have.
	patch := client.MergeFrom(was)
	if !equality.Semantic.DeepEqual(was.Status.Places, is.Status.Places) {
		patch = client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})
	}
	err = o.client.Status().Patch(ctx, is, patch)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	return result, nil
}

// reopens is in how long the next of its places opens again, or the first of all, which other CloudOffers may have learned of;
// 0: none is closed.
func reopens(places []v1alpha1.PlaceStatus, first *metav1.Time, now time.Time) (wait time.Duration) {
	soonest := func(until *metav1.Time) {
		if until != nil && until.After(now) && (wait == 0 || until.Sub(now) < wait) {
			wait = until.Sub(now)
		}
	}
	soonest(first)
	for i := range places {
		soonest(places[i].ClosedUntil)
	}
	return wait
}

// assess is what a CloudOffer says with the objects that it names.
func (o *offers) assess(ctx context.Context, offer *v1alpha1.CloudOffer) (status v1alpha1.CloudOfferStatus, err error) {
	if err := o.target(ctx, offer); err != nil {
		return status, err
	}
	sells, err := o.sold(ctx, offer)
	if err != nil {
		return status, err
	}
	all := &v1alpha1.CloudOfferList{}
	if err := o.client.List(ctx, all); err != nil {
		return status, err
	}
	now := o.now()
	return assess(offer, sells, learnedFor(offer, all.Items, now), now)
}

// target is there: the flavor, or the cluster, that a CloudOffer is for; otherwise err is a problem.
func (o *offers) target(ctx context.Context, offer *v1alpha1.CloudOffer) error {
	if name := offer.Spec.Cluster(); name != "" {
		missing := problem{v1alpha1.ReasonNoCluster, fmt.Sprintf("spec.via.cluster: there is no MultiKueueCluster %s", name)}
		if !o.clusters {
			return missing
		}
		err := o.client.Get(ctx, client.ObjectKey{Name: name}, &kueue.MultiKueueCluster{})
		if apierrors.IsNotFound(err) {
			return missing
		}
		return err
	}
	err := o.client.Get(ctx, client.ObjectKey{Name: offer.Name}, &kueue.ResourceFlavor{})
	if apierrors.IsNotFound(err) {
		return problem{v1alpha1.ReasonNoFlavor, fmt.Sprintf("there is no ResourceFlavor %s: a CloudOffer has the name of the flavor that it is for", offer.Name)}
	}
	return err
}
