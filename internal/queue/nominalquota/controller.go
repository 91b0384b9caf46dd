package nominalquota

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
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

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/policy"
	"github.com/elastic-ai/elastic/internal/queue/quotarules"
)

// between is the least time between two looks: nodes report often, and a rack comes back node by node.
const between = time.Second

// Setup adds the controller to the manager. Nodes are watched from when the first policy asks for it.
// Without QueuePolicies in the cluster there is none, until the program starts again: the queue says so in its log.
func Setup(mgr ctrl.Manager) error {
	_, err := mgr.GetRESTMapper().RESTMapping(v1alpha1.GroupVersion.WithKind("QueuePolicy").GroupKind(), v1alpha1.GroupVersion.Version)
	if apimeta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return err
	}
	q := &quotas{client: mgr.GetClient(), recorder: mgr.GetEventRecorder("elastic-queue"), now: time.Now}
	specs := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	changed := builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))
	c, err := ctrl.NewControllerManagedBy(mgr).Named("nominal-quota").
		Watches(&v1alpha1.QueuePolicy{}, all, specs).Watches(&kueue.Cohort{}, all, specs).
		Watches(&kueue.ResourceFlavor{}, all, specs).Watches(&kueue.ClusterQueue{}, all, changed).
		Build(q)
	if err != nil {
		return err
	}
	q.watchNodes = func() error { return watchNodes(c, mgr.GetCache()) }
	return nil
}

// all is the one request that there is: a node may be of many queues' flavors, so all are looked at together.
var all = handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })

// watchNodes looks again when what a node has, or whether it counts, changes.
func watchNodes(c controller.Controller, in cache.Cache) error {
	return c.Watch(source.Kind[client.Object](in, &corev1.Node{}, all, predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, is := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
			return quotarules.IsUsable(was) != quotarules.IsUsable(is) || !maps.Equal(was.Labels, is.Labels) ||
				!equality.Semantic.DeepEqual(was.Spec.Taints, is.Spec.Taints) || !equality.Semantic.DeepEqual(was.Status.Allocatable, is.Status.Allocatable)
		},
	}))
}

// quotas writes the quotas of ClusterQueues.
type quotas struct {
	client     client.Client
	recorder   events.EventRecorder
	now        func() time.Time
	watchNodes func() error

	looked time.Time // when it last did
	nodes  bool      // nodes are watched
}

// Reconcile looks at all ClusterQueues, one time after the other: there is one request.
func (q *quotas) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	at := q.now()
	if wait := q.looked.Add(between).Sub(at); wait > 0 && wait <= between {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	q.looked = at
	queues := &kueue.ClusterQueueList{}
	if err := q.client.List(ctx, queues); err != nil {
		return reconcile.Result{}, err
	}
	rules, err := q.rules(ctx, queues.Items)
	if err != nil {
		return reconcile.Result{}, err
	}
	queues.Items = slices.DeleteFunc(queues.Items, func(cq kueue.ClusterQueue) bool {
		r := rules[cq.Name]
		return !r.Asks() && cq.Annotations[quotarules.Annotation] == "" || !cq.DeletionTimestamp.IsZero()
	})
	if len(queues.Items) == 0 {
		return reconcile.Result{}, nil
	}
	nodes := quotarules.Capacity{}
	for _, r := range rules {
		if r.Follows {
			if nodes, err = q.capacity(ctx); err != nil {
				return reconcile.Result{}, err
			}
			break
		}
	}
	var again time.Time
	var failed []error
	for i := range queues.Items {
		next, err := q.write(ctx, &queues.Items[i], rules[queues.Items[i].Name], nodes, at)
		again, failed = quotarules.Earlier(again, next), append(failed, err)
	}
	result := reconcile.Result{}
	if !again.IsZero() {
		result.RequeueAfter = max(again.Sub(at), between)
	}
	return result, errors.Join(failed...)
}

// rules are what policies ask of each ClusterQueue.
func (q *quotas) rules(ctx context.Context, queues []kueue.ClusterQueue) (map[string]quotarules.Rule, error) {
	policies, cohorts := &v1alpha1.QueuePolicyList{}, &kueue.CohortList{}
	if err := errors.Join(q.client.List(ctx, policies), q.client.List(ctx, cohorts)); err != nil {
		return nil, err
	}
	all := make([]*v1alpha1.QueuePolicy, len(policies.Items))
	for i := range policies.Items {
		all[i] = &policies.Items[i]
	}
	world := policy.World{Cohorts: map[string]string{}, ClusterQueues: map[string]string{}}
	for i := range cohorts.Items {
		world.Cohorts[cohorts.Items[i].Name] = string(cohorts.Items[i].Spec.ParentName)
	}
	for i := range queues {
		world.ClusterQueues[queues[i].Name] = string(queues[i].Spec.CohortName)
	}
	return quotarules.Rules(all, world)
}

// capacity is what the nodes of each flavor have.
func (q *quotas) capacity(ctx context.Context) (quotarules.Capacity, error) {
	if !q.nodes {
		if err := q.watchNodes(); err != nil {
			return quotarules.Capacity{}, fmt.Errorf("watching nodes: %w", err)
		}
		q.nodes = true
	}
	flavors, nodes := &kueue.ResourceFlavorList{}, &corev1.NodeList{}
	if err := errors.Join(q.client.List(ctx, flavors), q.client.List(ctx, nodes)); err != nil {
		return quotarules.Capacity{}, err
	}
	return quotarules.CapacityOf(flavors.Items, nodes.Items), nil
}

// write writes a ClusterQueue's quotas if they are no longer right. A ClusterQueue that somebody else changed meanwhile
// is looked at again.
func (q *quotas) write(ctx context.Context, was *kueue.ClusterQueue, r quotarules.Rule, nodes quotarules.Capacity, at time.Time) (again time.Time, err error) {
	is := was.DeepCopy()
	changes, again, err := quotarules.Plan(is, r, nodes, at)
	if err != nil || equality.Semantic.DeepEqual(was, is) {
		return again, err
	}
	err = q.client.Patch(ctx, is, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsNotFound(err):
		return again, nil
	case err != nil:
		return again, fmt.Errorf("writing the quota of ClusterQueue %s: %w", was.Name, err)
	}
	if len(changes) > 0 {
		q.recorder.Eventf(is, nil, corev1.EventTypeNormal, "NominalQuotaChanged", "SetNominalQuota", "As QueuePolicies say: %s", strings.Join(changes, ", "))
	}
	return again, nil
}
