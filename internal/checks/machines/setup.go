package machines

import (
	"context"
	"errors"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/checks"
	"github.com/elastic-ai/elastic/internal/queue/cloudoffers"
)

// Indexes of NodeClaims.
const (
	workloadIndex = "workload" // those of a workload
	idleIndex     = "idle"     // those of a flavor that wait for a workload
	labelIndex    = "label"    // those whose nodes have a value of the label that pods select
	attemptIndex  = "attempt"  // those that have attempts of a workload's UID in their names and labels
)

// Setup adds the check's controllers to the manager, unless the cluster has no CloudOffers. Price tables are in ConfigMaps
// of a namespace. NodeClaims are watched from the moment that the cluster has them, also without a check: what was bought
// for one that is gone must go, too.
//
// What it returns counts what was bought, by flavor and state, at each call; nil: nothing ever is.
func Setup(mgr ctrl.Manager, namespace string, runTimes checks.RunTimes) (func(report func(flavor, state string, nodes int)), error) {
	if served, err := cloudoffers.Served(mgr); err != nil || !served {
		return nil, err
	}
	c, from := mgr.GetClient(), mgr.GetCache()
	s := &checks.Availability{
		Client: c, Cache: from, CRD: crdName, Kind: GroupVersion.WithKind("NodeClaim"), Object: &NodeClaim{},
		Missing: checks.Inactive("NodeClaimNotServed", "The cluster has no NodeClaim ("+GroupVersion.String()+"): install Karpenter"),
		Problem: func(context.Context, *kueue.AdmissionCheck) *metav1.Condition { return nil },
	}
	handles := &workloads{
		client: c, direct: mgr.GetAPIReader(), tables: cloudoffers.NewTables(c, namespace),
		recorder: mgr.GetEventRecorder("elastic-queue-machines"), runTimes: runTimes, now: time.Now, available: s.Available, written: map[string]written{},
	}
	workloads, err := controller.New("machines", mgr, controller.Options{Reconciler: handles})
	if err != nil {
		return nil, err
	}
	s.WatchObjects = func(ctx context.Context) error {
		for name, keys := range indexes {
			if err := from.IndexField(ctx, &NodeClaim{}, name, keys); err != nil {
				return err
			}
		}
		return workloads.Watch(source.Kind(from, &NodeClaim{}, handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, n *NodeClaim) (requests []reconcile.Request) {
			for _, key := range forWorkload(n) {
				requests = append(requests, reconcile.Request{NamespacedName: key})
			}
			return requests
		})))
	}
	waiting := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, offer client.Object) (all []reconcile.Request) {
		idle := &NodeClaimList{}
		if err := c.List(ctx, idle, client.MatchingFields{idleIndex: offer.GetName()}); err != nil { // they are looked at when their time is up
			ctrl.LoggerFrom(ctx).Error(err, "listing idle NodeClaims failed")
		}
		for i := range idle.Items {
			for _, key := range forWorkload(&idle.Items[i]) {
				all = append(all, reconcile.Request{NamespacedName: key})
			}
		}
		for _, check := range checks.Of(ctx, c, cloudv1.PurchaseController) {
			all = append(all, checks.WorkloadsWith(ctx, c, check.Name)...)
		}
		return all
	})
	s.WatchWorkloads = func() error {
		return errors.Join(
			workloads.Watch(source.Kind(from, client.Object(&kueue.Workload{}), &handler.EnqueueRequestForObject{}, checks.Checked())),
			workloads.Watch(source.Kind(from, client.Object(&cloudv1.CloudOffer{}), waiting)),
		)
	}
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		return append(checks.RequestsFor(checks.Of(ctx, c, cloudv1.PurchaseController)), reconcile.Request{}) // the one without a name looks at the CRD alone
	})
	crd := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetName() == crdName })
	count := func(report func(flavor, state string, nodes int)) { handles.count(context.Background(), report) }
	return count, ctrl.NewControllerManagedBy(mgr).Named("machines-checks").
		For(&kueue.AdmissionCheck{}, builder.WithPredicates(checks.HasController(cloudv1.PurchaseController))).
		WatchesMetadata(&apiextensionsv1.CustomResourceDefinition{}, all, builder.WithPredicates(crd)).
		Complete(s)
}

var indexes = map[string]client.IndexerFunc{
	workloadIndex: func(n client.Object) (keys []string) {
		for _, key := range forWorkload(n.(*NodeClaim)) {
			keys = append(keys, key.String())
		}
		return keys
	},
	idleIndex: func(n client.Object) []string {
		if c := readClaim(n.(*NodeClaim)); c.idle() {
			return []string{c.Flavor}
		}
		return nil
	},
	labelIndex: func(n client.Object) []string {
		if label := n.GetLabels()[cloudv1.PurchaseLabel]; label != "" {
			return []string{label}
		}
		return nil
	},
	attemptIndex: func(n client.Object) (keys []string) {
		c := readClaim(n.(*NodeClaim))
		for uid := range c.attempts() {
			keys = append(keys, string(uid))
		}
		return keys
	},
}

// forWorkload is the workload that a NodeClaim was made for; none: the check did not make it.
func forWorkload(n *NodeClaim) []types.NamespacedName {
	if _, made := n.Labels[uidLabel]; !made {
		return nil
	}
	return []types.NamespacedName{workloadOf(n)}
}
