package provisioning

import (
	"context"
	"errors"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/elastic-ai/elastic/internal/checks"
	"github.com/elastic-ai/elastic/internal/queue/cloudoffers"
)

// Setup adds the check's controllers to the manager. cleanUp removes the requests of evicted
// workloads. What comes of requests is remembered by CloudOffers, whose price tables are in ConfigMaps of a namespace.
func Setup(mgr ctrl.Manager, namespace string, cleanUp bool) error {
	learns, err := cloudoffers.Served(mgr)
	if err != nil {
		return err
	}
	c, from := mgr.GetClient(), mgr.GetCache()
	s := &checks.Availability{
		Client: c, Cache: from, CRD: crdName, Kind: GroupVersion.WithKind("ProvisioningRequest"), Object: &ProvisioningRequest{},
		Missing: checks.Inactive("ProvisioningRequestNotServed",
			"The cluster has no ProvisioningRequest ("+GroupVersion.String()+"): install cluster-autoscaler's CRD "+crdName),
		Problem: func(ctx context.Context, check *kueue.AdmissionCheck) *metav1.Condition {
			if err := checks.Parameters(ctx, c, check, &kueue.ProvisioningRequestConfig{}); err != nil {
				return ptr.To(checks.Inactive("BadParametersRef", err.Error()))
			}
			return nil
		},
	}
	// Workloads are watched only once there is an active check of this controller.
	workloads, err := controller.New("provisioning", mgr, controller.Options{Reconciler: &workloads{
		client: c, recorder: mgr.GetEventRecorder("elastic-queue-provisioning"), now: time.Now, available: s.Available, cleanUp: cleanUp,
		tables: cloudoffers.NewTables(c, namespace), learns: learns,
		made: map[types.NamespacedName]map[string]time.Time{},
	}})
	if err != nil {
		return err
	}
	users := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		return checks.WorkloadsWith(ctx, c, obj.GetName())
	})
	usersOfConfig := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		var out []reconcile.Request
		for _, check := range checksWith(ctx, c, obj.GetName()) {
			out = append(out, checks.WorkloadsWith(ctx, c, check.Name)...)
		}
		return out
	})
	s.WatchWorkloads = func() error {
		return errors.Join(
			workloads.Watch(source.Kind(from, client.Object(&kueue.Workload{}), &handler.EnqueueRequestForObject{}, checks.Checked())),
			workloads.Watch(source.Kind(from, client.Object(&kueue.AdmissionCheck{}), users, checks.HasController(kueue.ProvisioningRequestControllerName))),
			workloads.Watch(source.Kind(from, client.Object(&kueue.ProvisioningRequestConfig{}), usersOfConfig)),
		)
	}
	s.WatchObjects = func(ctx context.Context) error {
		if err := from.IndexField(ctx, &ProvisioningRequest{}, ownerIndex, ownerUID); err != nil {
			return err
		}
		return workloads.Watch(source.Kind(from, &ProvisioningRequest{}, handler.TypedEnqueueRequestsFromMapFunc(ownerOf)))
	}

	ours := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		return checks.RequestsFor(checksWith(ctx, c, ""))
	})
	configured := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		return checks.RequestsFor(checksWith(ctx, c, obj.GetName()))
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

// checksWith are our checks that name a configuration; "" for all of them.
func checksWith(ctx context.Context, c client.Client, config string) []kueue.AdmissionCheck {
	return slices.DeleteFunc(checks.Of(ctx, c, kueue.ProvisioningRequestControllerName), func(check kueue.AdmissionCheck) bool {
		ref := check.Spec.Parameters
		return config != "" && (ref == nil || ref.Name != config)
	})
}
