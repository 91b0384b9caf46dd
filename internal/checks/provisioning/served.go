package provisioning

import (
	"context"
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
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/elastic-ai/elastic/internal/checks"
)

// Setup adds the check's controllers to the manager. cleanUp takes the requests
// of evicted workloads away.
func Setup(mgr ctrl.Manager, cleanUp bool) error {
	s := &served{client: mgr.GetClient(), cache: mgr.GetCache()}
	w := &workloads{client: mgr.GetClient(), recorder: mgr.GetEventRecorder("elastic-queue-provisioning"), now: time.Now, served: s, cleanUp: cleanUp, made: map[types.NamespacedName]map[string]time.Time{}}
	users := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		return workloadsWith(ctx, mgr.GetClient(), obj.GetName())
	})
	usersOfConfig := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		var out []reconcile.Request
		for _, check := range checksWith(ctx, mgr.GetClient(), obj.GetName()) {
			out = append(out, workloadsWith(ctx, mgr.GetClient(), check.Name)...)
		}
		return out
	})
	workloads, err := ctrl.NewControllerManagedBy(mgr).Named("provisioning").
		For(&kueue.Workload{}, builder.WithPredicates(checked())).
		Watches(&kueue.AdmissionCheck{}, users, builder.WithPredicates(checks.Named(kueue.ProvisioningRequestControllerName))).
		Watches(&kueue.ProvisioningRequestConfig{}, usersOfConfig).
		Build(w)
	if err != nil {
		return err
	}
	s.watch = func() error {
		return workloads.Watch(source.Kind(mgr.GetCache(), &ProvisioningRequest{}, handler.TypedEnqueueRequestsFromMapFunc(ownerOf)))
	}

	ours := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		return requestsFor(checksWith(ctx, mgr.GetClient(), ""))
	})
	configured := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		return requestsFor(checksWith(ctx, mgr.GetClient(), obj.GetName()))
	})
	crd := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetName() == crdName })
	return ctrl.NewControllerManagedBy(mgr).Named("provisioning-checks").
		For(&kueue.AdmissionCheck{}, builder.WithPredicates(checks.Named(kueue.ProvisioningRequestControllerName))).
		Watches(&kueue.ProvisioningRequestConfig{}, configured).
		WatchesMetadata(&apiextensionsv1.CustomResourceDefinition{}, ours, builder.WithPredicates(crd)).
		Complete(s)
}

// ownerOf is the workload a request was made for.
func ownerOf(_ context.Context, request *ProvisioningRequest) []reconcile.Request {
	owner := metav1.GetControllerOf(request)
	if owner == nil || owner.Kind != "Workload" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: request.Namespace, Name: owner.Name}}}
}

// checked says a workload has checks, or had: what was made for one that it need
// not pass any more is to go.
func checked() predicate.Predicate {
	has := func(obj client.Object) bool { return len(obj.(*kueue.Workload).Status.AdmissionChecks) > 0 }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return has(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return has(e.ObjectOld) || has(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return has(e.Object) },
	}
}

// checksWith are our checks that name a configuration; "" is all of them.
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

// served knows whether the cluster has ProvisioningRequests, and says of the
// checks whether they work. It watches the requests from the moment they can be.
type served struct {
	client client.Client
	cache  cache.Cache
	watch  func() error

	mu      sync.Mutex
	looked  bool
	watched types.UID // of the CRD; "": there are no requests
}

// now says whether there are requests, as far as anybody looked.
func (s *served) now(ctx context.Context) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.looked {
		if _, err := s.look(ctx); err != nil {
			return false, err
		}
	}
	return s.watched != "", nil
}

// Reconcile looks at one check.
func (s *served) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	s.mu.Lock()
	coming, err := s.look(ctx)
	there := s.watched != ""
	s.mu.Unlock()
	if err != nil {
		return ctrl.Result{}, err
	}
	check := &kueue.AdmissionCheck{}
	if err := s.client.Get(ctx, request.NamespacedName, check); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	active, result := checks.Active(), ctrl.Result{}
	if err := checks.Parameters(ctx, s.client, check, &kueue.ProvisioningRequestConfig{}); err != nil {
		active = checks.Inactive("BadParametersRef", err.Error())
	} else if !there {
		active = checks.Inactive("ProvisioningRequestNotServed",
			"The cluster has no ProvisioningRequest ("+GroupVersion.String()+"): install cluster-autoscaler's CRD "+crdName)
	}
	if coming {
		result.RequeueAfter = time.Second // nothing else tells when it is served
	}
	return result, checks.Publish(ctx, s.client, check, active)
}

// look finds out whether there are requests to watch, or will be soon.
func (s *served) look(ctx context.Context) (coming bool, err error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	err = s.client.Get(ctx, types.NamespacedName{Name: crdName}, crd)
	if client.IgnoreNotFound(err) != nil {
		return false, err
	}
	s.looked = true
	there := err == nil && crd.DeletionTimestamp == nil
	if s.watched != "" && (!there || s.watched != crd.UID) {
		s.watched = ""
		if err := s.cache.RemoveInformer(ctx, &ProvisioningRequest{}); err != nil {
			return false, err
		}
	}
	if !there || s.watched != "" {
		return false, nil
	}
	_, err = s.client.RESTMapper().RESTMapping(GroupVersion.WithKind("ProvisioningRequest").GroupKind(), GroupVersion.Version)
	if apimeta.IsNoMatchError(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if err := s.watch(); err != nil {
		return false, err
	}
	s.watched = crd.UID
	return false, nil
}
