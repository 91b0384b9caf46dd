package multicluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/elastic-ai/elastic/internal/checks"
)

// With Kueue's gate MultiKueueManagerQuotaAutomation, and where a MultiKueueConfig says so, the nominal quota of a ClusterQueue
// that sends workloads to other clusters is what the queues there have together that its LocalQueues' names lead to.

// quotas sets them.
type quotas struct {
	client client.Client
	// at is the session with a cluster; nil: it does not answer.
	at func(cluster string) client.Reader
}

// automateQuotas adds the controller, and has the queues of clusters watched.
func (c *clusters) automateQuotas(mgr ctrl.Manager) error {
	changes := make(chan event.TypedGenericEvent[types.NamespacedName])
	c.quotas = func() { send(c.lead, changes, types.NamespacedName{}) }
	q := &quotas{client: c.client, at: func(cluster string) client.Reader {
		if session, _ := c.at(cluster); session != nil {
			return session.cache
		}
		return nil
	}}
	return q.setup(mgr, source.Channel(changes, enqueue))
}

func (q *quotas) setup(mgr ctrl.Manager, changed source.Source) error {
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request { return q.all(ctx) })
	return ctrl.NewControllerManagedBy(mgr).Named("multikueue-quotas").
		For(&kueue.ClusterQueue{}).
		Watches(&kueue.LocalQueue{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
			lq, ok := obj.(*kueue.LocalQueue)
			if !ok {
				return nil
			}
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: string(lq.Spec.ClusterQueue)}}}
		})).
		Watches(&kueue.AdmissionCheck{}, all).
		Watches(&kueue.MultiKueueConfig{}, all).
		Watches(&kueue.MultiKueueCluster{}, all).
		WatchesRawSource(changed).
		Complete(q)
}

// all are the queues with checks.
func (q *quotas) all(ctx context.Context) (requests []reconcile.Request) {
	list := &kueue.ClusterQueueList{}
	if err := q.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	for i := range list.Items {
		if list.Items[i].Spec.AdmissionChecksStrategy != nil {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
		}
	}
	return requests
}

// Reconcile handles one ClusterQueue, or all of them after something changed in another cluster: then there is no name.
func (q *quotas) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if request.Name != "" {
		return ctrl.Result{}, q.reconcile(ctx, request.NamespacedName)
	}
	var errs []error
	for _, one := range q.all(ctx) {
		errs = append(errs, q.reconcile(ctx, one.NamespacedName))
	}
	return ctrl.Result{}, errors.Join(errs...)
}

func (q *quotas) reconcile(ctx context.Context, key types.NamespacedName) error {
	cq := &kueue.ClusterQueue{}
	if err := q.client.Get(ctx, key, cq); err != nil {
		return client.IgnoreNotFound(err)
	}
	check, err := q.checkOf(ctx, cq)
	if err != nil {
		return err
	}
	var condition *metav1.Condition
	if check != nil {
		if condition, err = q.automate(ctx, cq, check); err != nil {
			return err
		}
	}
	return q.publish(ctx, cq, condition)
}

// checkOf is the check that sends the queue's workloads to other clusters; nil: none does.
func (q *quotas) checkOf(ctx context.Context, cq *kueue.ClusterQueue) (*kueue.AdmissionCheck, error) {
	if cq.Spec.AdmissionChecksStrategy == nil {
		return nil, nil
	}
	for _, rule := range cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
		check := &kueue.AdmissionCheck{}
		err := q.client.Get(ctx, types.NamespacedName{Name: string(rule.Name)}, check)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil && check.Spec.ControllerName == kueue.MultiKueueControllerName {
			return check, nil
		}
	}
	return nil, nil
}

// automate sets the nominal quota of a queue, if it is to be, and returns what its condition says. The words are Kueue's.
func (q *quotas) automate(ctx context.Context, cq *kueue.ClusterQueue, check *kueue.AdmissionCheck) (*metav1.Condition, error) {
	config := &kueue.MultiKueueConfig{}
	switch err := checks.Parameters(ctx, q.client, check, config); {
	case apierrors.IsNotFound(err):
		return unsupported("The referenced MultiKueueConfig was not found."), nil
	case err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		return unsupported(err.Error()), nil // the check does not say which it is
	case err != nil:
		return nil, err
	case ptr.Deref(config.Spec.QuotaManagement, kueue.QuotaManagementManual) == kueue.QuotaManagementManual:
		return quotaCondition(metav1.ConditionFalse, "NotRequested", "MultiKueue manager quota automation has not been requested."), nil
	case len(cq.Spec.ResourceGroups) != 1 || len(cq.Spec.ResourceGroups[0].Flavors) != 1:
		return unsupported("Quota automation requires that the manager-side ClusterQueue has exactly one ResourceFlavor"), nil
	}
	total, err := q.together(ctx, cq, config.Spec.Clusters)
	if err != nil {
		return nil, err
	}
	group := cq.Spec.ResourceGroups[0]
	var missing []corev1.ResourceName
	for _, name := range slices.Sorted(maps.Keys(total)) {
		if !slices.Contains(group.CoveredResources, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return unsupported(fmt.Sprintf("manager-side coveredResources is missing resources configured on workers: %v", missing)), nil
	}
	wanted := make([]kueue.ResourceQuota, 0, len(group.CoveredResources))
	for _, name := range group.CoveredResources {
		wanted = append(wanted, kueue.ResourceQuota{Name: name, NominalQuota: total[name]})
	}
	if !equality.Semantic.DeepEqual(group.Flavors[0].Resources, wanted) {
		before := cq.DeepCopy()
		cq.Spec.ResourceGroups[0].Flavors[0].Resources = wanted
		if err := q.client.Patch(ctx, cq, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return nil, fmt.Errorf("the nominal quota of ClusterQueue %s: %w", cq.Name, err)
		}
	}
	return quotaCondition(metav1.ConditionTrue, "QuotaAutomated", "ClusterQueue quota is automatically managed based on MultiKueue workers."), nil
}

// together is the nominal quota in clusters that answer, of queues with LocalQueues of the same names as the queue here.
func (q *quotas) together(ctx context.Context, cq *kueue.ClusterQueue, clusters []string) (map[corev1.ResourceName]resource.Quantity, error) {
	names, err := localQueues(ctx, q.client, func(lq *kueue.LocalQueue) bool { return string(lq.Spec.ClusterQueue) == cq.Name })
	if err != nil {
		return nil, err
	}
	total := map[corev1.ResourceName]resource.Quantity{}
	for _, cluster := range clusters {
		there := q.at(cluster)
		if there == nil {
			continue
		}
		fed := map[kueue.ClusterQueueReference]bool{}
		for key := range names {
			lq := &kueue.LocalQueue{}
			if err := there.Get(ctx, key, lq); client.IgnoreNotFound(err) != nil {
				return nil, err
			} else if err == nil {
				fed[lq.Spec.ClusterQueue] = true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(fed)) {
			remote := &kueue.ClusterQueue{}
			if err := there.Get(ctx, types.NamespacedName{Name: string(name)}, remote); client.IgnoreNotFound(err) != nil {
				return nil, err
			}
			addQuota(total, remote)
		}
	}
	return total, nil
}

func localQueues(ctx context.Context, c client.Reader, of func(*kueue.LocalQueue) bool) (map[types.NamespacedName]bool, error) {
	list := &kueue.LocalQueueList{}
	if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	names := map[types.NamespacedName]bool{}
	for i := range list.Items {
		if of(&list.Items[i]) {
			names[client.ObjectKeyFromObject(&list.Items[i])] = true
		}
	}
	return names, nil
}

// addQuota adds a queue's nominal quota in all flavors. What another cluster says may be anything: what is below zero
// counts as nothing.
func addQuota(total map[corev1.ResourceName]resource.Quantity, cq *kueue.ClusterQueue) {
	for _, group := range cq.Spec.ResourceGroups {
		for _, flavor := range group.Flavors {
			for _, quota := range flavor.Resources {
				sum := total[quota.Name]
				if quota.NominalQuota.Sign() > 0 {
					sum.Add(quota.NominalQuota)
				}
				total[quota.Name] = sum
			}
		}
	}
}

func unsupported(message string) *metav1.Condition {
	return quotaCondition(metav1.ConditionFalse, "UnsupportedConfiguration", message)
}

func quotaCondition(status metav1.ConditionStatus, reason, message string) *metav1.Condition {
	return &metav1.Condition{Type: kueue.MultiKueueManagerQuotaAutomation, Status: status, Reason: reason, Message: message}
}

// publish writes the condition of a queue, or removes it.
func (q *quotas) publish(ctx context.Context, cq *kueue.ClusterQueue, condition *metav1.Condition) error {
	before := cq.DeepCopy()
	var changed bool
	if condition == nil {
		changed = apimeta.RemoveStatusCondition(&cq.Status.Conditions, kueue.MultiKueueManagerQuotaAutomation)
	} else {
		condition.ObservedGeneration = cq.Generation
		changed = apimeta.SetStatusCondition(&cq.Status.Conditions, *condition)
	}
	if !changed {
		return nil
	}
	// The status has other writers: a list is replaced as a whole.
	return client.IgnoreNotFound(q.client.Status().Patch(ctx, cq, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// watchQueues watches the queues of a cluster, if their quotas are asked for.
func (s *session) watchQueues(ctx context.Context) error {
	if s.quotas == nil {
		return nil
	}
	var synced []toolscache.InformerSynced
	for _, obj := range []client.Object{&kueue.LocalQueue{}, &kueue.ClusterQueue{}} {
		informer, err := s.cache.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(s.queueHandler()); err != nil {
			return err
		}
		synced = append(synced, informer.HasSynced)
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("it did not list all its queues within %s", syncTimeout)
	}
	return nil
}

// queueHandler looks at quotas again when a queue comes, goes, or has another specification: usage changes all the time.
func (s *session) queueHandler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { s.quotas() },
		UpdateFunc: func(before, after any) {
			was, ok := before.(client.Object)
			is, same := after.(client.Object)
			if ok && same && was.GetGeneration() != is.GetGeneration() {
				s.quotas()
			}
		},
		DeleteFunc: func(gone any) {
			if last, ok := gone.(toolscache.DeletedFinalStateUnknown); ok {
				gone = last.Obj
			}
			if obj, ok := gone.(client.Object); ok {
				s.held.forget(obj)
			}
			s.quotas()
		},
	}
}

// withoutStatus holds of queues in another cluster what they are given, and counts them with all else that is held.
func (h *held) withoutStatus(obj any) (any, error) {
	switch o := obj.(type) {
	case *kueue.ClusterQueue:
		o.Status = kueue.ClusterQueueStatus{}
	case *kueue.LocalQueue:
		o.Status = kueue.LocalQueueStatus{}
	}
	return h.count(obj)
}
