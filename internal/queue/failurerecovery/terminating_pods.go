package failurerecovery

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// SafeAnnotation says "true" on a pod that may be ended so.
	SafeAnnotation = "kueue.x-k8s.io/safe-to-forcefully-delete"

	// gracePeriod is how long the node has beyond the pod's own grace period; Kueue's.
	gracePeriod = time.Minute

	conditionType = "KueueFailureRecovery"
	reason        = "KueueForcefullyDeleted"
	nodeIndex     = "failureRecovery.spec.nodeName"
)

// Setup adds the controller to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, nodeIndex, indexed); err != nil {
		return err
	}
	c := &controller{client: mgr.GetClient(), events: mgr.GetEventRecorder("elastic-queue-failure-recovery"), now: time.Now}
	return ctrl.NewControllerManagedBy(mgr).Named("failure-recovery").
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(terminates))).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.podsOn), builder.WithPredicates(predicate.NewPredicateFuncs(isUnreachable))).
		Complete(c)
}

type controller struct {
	client client.Client
	events events.EventRecorder
	now    func() time.Time
}

// indexed is the node of a pod that may be ended.
func indexed(pod client.Object) []string {
	if !isSafe(pod) {
		return nil
	}
	return []string{pod.(*corev1.Pod).Spec.NodeName}
}

func isSafe(pod client.Object) bool { return pod.GetAnnotations()[SafeAnnotation] == "true" }

func terminates(pod client.Object) bool { return isSafe(pod) && pod.GetDeletionTimestamp() != nil }

func isUnreachable(node client.Object) bool {
	return slices.ContainsFunc(node.(*corev1.Node).Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable })
}

// podsOn are those of a node that may be ended.
func (c *controller) podsOn(ctx context.Context, node client.Object) []reconcile.Request {
	list := &corev1.PodList{}
	if err := c.client.List(ctx, list, client.MatchingFields{nodeIndex: node.GetName()}); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if pod := &list.Items[i]; terminates(pod) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
		}
	}
	return requests
}

// Reconcile ends one pod: its phase becomes Failed, so that its job counts it, and it is deleted without waiting for the
// node.
func (c *controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pod, node := &corev1.Pod{}, &corev1.Node{}
	if err := c.client.Get(ctx, request.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !terminates(pod) || pod.Spec.NodeName == "" {
		return reconcile.Result{}, nil
	}
	if left := pod.DeletionTimestamp.Add(gracePeriod).Sub(c.now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	if err := c.client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // Kubernetes deletes the pods of a node that is gone
	}
	if !isUnreachable(node) {
		return reconcile.Result{}, nil // if it becomes so, the pod is looked at again
	}
	waited := gracePeriod + time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0))*time.Second
	message := fmt.Sprintf("Pod forcefully terminated after %s grace period due to unreachable node `%s` (triggered by `%s` annotation)",
		waited, node.Name, SafeAnnotation)
	if err := c.fail(ctx, pod, message); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	c.events.Eventf(pod, nil, corev1.EventTypeWarning, reason, "ForcefulTermination", "%s", message)
	// Of the same name there may be another by now, which runs elsewhere.
	err := c.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// fail says in the pod's status what became of it; one that had ended stays as it was.
func (c *controller) fail(ctx context.Context, pod *corev1.Pod, message string) error {
	was := pod.DeepCopy()
	if pod.Status.Phase != corev1.PodSucceeded {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(p corev1.PodCondition) bool { return p.Type == conditionType })
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: conditionType, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(c.now()),
	})
	return c.client.Status().Patch(ctx, pod, client.StrategicMergeFrom(was))
}
