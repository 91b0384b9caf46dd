package provisioning

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/elastic-ai/elastic/internal/checks"
)

// Setup adds the check's controllers to the manager. cleanUp removes the requests of evicted
// workloads.
func Setup(mgr ctrl.Manager, cleanUp bool) error {
	c, from := mgr.GetClient(), mgr.GetCache()
	s := &availability{client: c, cache: from}
	// Workloads are watched only once there is an active check of this controller.
	workloads, err := controller.New("provisioning", mgr, controller.Options{Reconciler: &workloads{
		client: c, recorder: mgr.GetEventRecorder("elastic-queue-provisioning"), now: time.Now, availability: s, cleanUp: cleanUp,
		made: map[types.NamespacedName]map[string]time.Time{},
	}})
	if err != nil {
		return err
	}
	users := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		return workloadsWith(ctx, c, obj.GetName())
	})
	usersOfConfig := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		var out []reconcile.Request
		for _, check := range checksWith(ctx, c, obj.GetName()) {
			out = append(out, workloadsWith(ctx, c, check.Name)...)
		}
		return out
	})
	s.watchWorkloads = func() error {
		return errors.Join(
			workloads.Watch(source.Kind(from, client.Object(&kueue.Workload{}), &handler.EnqueueRequestForObject{}, checked())),
			workloads.Watch(source.Kind(from, client.Object(&kueue.AdmissionCheck{}), users, checks.HasController(kueue.ProvisioningRequestControllerName))),
			workloads.Watch(source.Kind(from, client.Object(&kueue.ProvisioningRequestConfig{}), usersOfConfig)),
		)
	}
	s.watchRequests = func(ctx context.Context) error {
		if err := from.IndexField(ctx, &ProvisioningRequest{}, ownerIndex, ownerUID); err != nil {
			return err
		}
		return workloads.Watch(source.Kind(from, &ProvisioningRequest{}, handler.TypedEnqueueRequestsFromMapFunc(ownerOf)))
	}

	ours := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		return requestsFor(checksWith(ctx, c, ""))
	})
	configured := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		return requestsFor(checksWith(ctx, c, obj.GetName()))
	})
	crd := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetName() == crdName })
	return ctrl.NewControllerManagedBy(mgr).Named("provisioning-checks").
		For(&kueue.AdmissionCheck{}, builder.WithPredicates(checks.HasController(kueue.ProvisioningRequestControllerName))).
		Watches(&kueue.ProvisioningRequestConfig{}, configured).
		WatchesMetadata(&apiextensionsv1.CustomResourceDefinition{}, ours, builder.WithPredicates(crd)).
		Complete(s)
}

// ownerIndex finds the requests of a workload.
const ownerIndex = "metadata.ownerReferences.uid"

func ownerUID(request client.Object) []string {
	if owner := metav1.GetControllerOf(request); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

// ownerOf is the workload a request was made for.
func ownerOf(_ context.Context, request *ProvisioningRequest) []reconcile.Request {
	owner := metav1.GetControllerOf(request)
	if owner == nil || owner.Kind != "Workload" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: request.Namespace, Name: owner.Name}}}
}

// checked says that a workload has checks, or had: what was made for a check that no longer applies
// is to be removed.
func checked() predicate.Predicate {
	has := func(obj client.Object) bool { return len(obj.(*kueue.Workload).Status.AdmissionChecks) > 0 }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return has(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return has(e.ObjectOld) || has(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return has(e.Object) },
	}
}

// checksWith are our checks that name a configuration; "" for all of them.
func checksWith(ctx context.Context, c client.Client, config string) []kueue.AdmissionCheck {
	list := &kueue.AdmissionCheckList{}
	if err := c.List(ctx, list); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing admission checks failed")
		return nil
	}
	return slices.DeleteFunc(list.Items, func(check kueue.AdmissionCheck) bool {
		ref := check.Spec.Parameters
		return check.Spec.ControllerName != kueue.ProvisioningRequestControllerName || config != "" && (ref == nil || ref.Name != config)
	})
}

func requestsFor(list []kueue.AdmissionCheck) []reconcile.Request {
	var out []reconcile.Request
	for _, check := range list {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: check.Name}})
	}
	return out
}

// workloadsWith are those that must pass a check.
func workloadsWith(ctx context.Context, c client.Client, check string) []reconcile.Request {
	list := &kueue.WorkloadList{}
	if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing workloads failed")
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		wl := &list.Items[i]
		if slices.ContainsFunc(wl.Status.AdmissionChecks, func(s kueue.AdmissionCheckState) bool { return string(s.Name) == check }) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(wl)})
		}
	}
	return out
}

// availability knows whether the cluster has ProvisioningRequests, and writes whether the checks
// are active. Workloads and requests are watched from the moment there are both checks and
// requests.
type availability struct {
	client client.Client
	cache  cache.Cache

	watchWorkloads func() error
	watchRequests  func(context.Context) error

	mu      sync.Mutex
	began   bool      // workloads are watched
	watched types.UID // the CRD of the requests that are watched; "": there is none
}

// available says whether the cluster has ProvisioningRequests.
func (s *availability) available() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watched != ""
}

// Reconcile writes whether one check is active.
func (s *availability) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	s.mu.Lock()
	again, err := s.checkCRD(ctx)
	available := s.watched != ""
	s.mu.Unlock()
	if err != nil {
		return ctrl.Result{}, err
	}
	check := &kueue.AdmissionCheck{}
	if err := s.client.Get(ctx, request.NamespacedName, check); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	active := checks.Active()
	if err := checks.Parameters(ctx, s.client, check, &kueue.ProvisioningRequestConfig{}); err != nil {
		active = checks.Inactive("BadParametersRef", err.Error())
	} else if !available {
		active = checks.Inactive("ProvisioningRequestNotServed",
			"The cluster has no ProvisioningRequest ("+GroupVersion.String()+"): install cluster-autoscaler's CRD "+crdName)
	}
	return ctrl.Result{RequeueAfter: again}, checks.WriteActive(ctx, s.client, check, active)
}

// checkCRD finds out whether there are requests to watch, and when to check again: nothing tells
// when a CRD is served. One that is not after a minute lacks the version.
func (s *availability) checkCRD(ctx context.Context) (again time.Duration, err error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	err = s.client.Get(ctx, types.NamespacedName{Name: crdName}, crd)
	if client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	exists := err == nil && crd.DeletionTimestamp == nil
	if s.watched != "" && (!exists || s.watched != crd.UID) {
		s.watched = ""
		if err := s.cache.RemoveInformer(ctx, &ProvisioningRequest{}); err != nil {
			return 0, err
		}
	}
	if !exists || s.watched != "" {
		return 0, nil
	}
	_, err = s.client.RESTMapper().RESTMapping(GroupVersion.WithKind("ProvisioningRequest").GroupKind(), GroupVersion.Version)
	if apimeta.IsNoMatchError(err) {
		if time.Since(crd.CreationTimestamp.Time) < time.Minute {
			return time.Second, nil
		}
		return time.Minute, nil
	}
	if err != nil {
		return 0, err
	}
	if err := s.watchRequests(ctx); err != nil {
		return 0, err
	}
	s.watched = crd.UID
	if s.began {
		return 0, nil
	}
	s.began = true
	return 0, s.watchWorkloads()
}
