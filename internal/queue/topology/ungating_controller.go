package topology

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// workloadIndex finds the pods of a workload.
const workloadIndex = "metadata.annotations." + kueue.WorkloadAnnotation

// Setup adds the controller to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, workloadIndex, func(obj client.Object) []string {
		if name := obj.GetAnnotations()[kueue.WorkloadAnnotation]; name != "" {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		return err
	}
	waits := predicate.NewPredicateFuncs(func(obj client.Object) bool { return gated(obj.(*corev1.Pod)) || ungatedPending(obj.(*corev1.Pod)) })
	placed := predicate.NewPredicateFuncs(func(obj client.Object) bool { return isPlaced(obj.(*kueue.Workload)) })
	return ctrl.NewControllerManagedBy(mgr).Named("topology").
		For(&kueue.Workload{}, builder.WithPredicates(placed)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(workloadOf), builder.WithPredicates(waits)).
		Complete(&controller{mgr.GetClient(), mgr.GetEventRecorder("elastic-queue-topology")})
}

// workloadOf is the workload a pod belongs to.
func workloadOf(_ context.Context, pod client.Object) []reconcile.Request {
	name := pod.GetAnnotations()[kueue.WorkloadAnnotation]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: name}}}
}

func isPlaced(wl *kueue.Workload) bool {
	return workload.IsAdmitted(wl) && !workload.IsEvicted(wl) && wl.Status.Admission != nil &&
		slices.ContainsFunc(wl.Status.Admission.PodSetAssignments, func(a kueue.PodSetAssignment) bool { return a.TopologyAssignment != nil })
}

type controller struct {
	client client.Client
	events events.EventRecorder
}

// Reconcile ungates the pods of one workload, and fails those that were ungated for a domain which
// is no longer assigned. A cache that lags behind may show a pod as gated that is not: the write is
// a conflict then, and the workload is requeued.
func (c *controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	wl := &kueue.Workload{}
	if err := c.client.Get(ctx, request.NamespacedName, wl); err != nil || !isPlaced(wl) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	list := &corev1.PodList{}
	if err := c.client.List(ctx, list, client.InNamespace(wl.Namespace), client.MatchingFields{workloadIndex: wl.Name}); err != nil {
		return ctrl.Result{}, err
	}
	for _, s := range setsOf(wl) {
		var pods []*corev1.Pod
		for i := range list.Items {
			pod := &list.Items[i]
			ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || pod.DeletionTimestamp != nil
			if pod.Labels[kueuelabels.PodSet] != string(s.assigned.Name) || ended {
				continue
			}
			if ungatedPending(pod) && !s.assignsTo(pod) {
				if err := c.fail(ctx, pod); client.IgnoreNotFound(err) != nil {
					return ctrl.Result{}, err
				}
				continue
			}
			pods = append(pods, pod)
		}
		slices.SortFunc(pods, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
		for _, m := range s.place(pods) {
			err := c.ungate(ctx, m)
			if apierrors.IsConflict(err) {
				return ctrl.Result{RequeueAfter: time.Second}, nil // the pod's event comes first; this is the fallback
			}
			if client.IgnoreNotFound(err) != nil {
				return ctrl.Result{}, err
			}
		}
	}
	return ctrl.Result{}, nil
}

// ungate removes the scheduling gate of a pod and adds the node labels of its domain, in one write.
func (c *controller) ungate(ctx context.Context, m ungating) error {
	sent := m.pod.DeepCopy()
	sent.Spec.SchedulingGates = slices.DeleteFunc(sent.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool {
		return g.Name == kueue.TopologySchedulingGate
	})
	if sent.Spec.NodeSelector == nil {
		sent.Spec.NodeSelector = map[string]string{}
	}
	maps.Copy(sent.Spec.NodeSelector, m.labels)
	return c.client.Patch(ctx, sent, client.MergeFromWithOptions(m.pod, client.MergeFromWithOptimisticLock{}))
}

// fail ends a pod that can never run, so that its job creates another; the failed pod stays for
// inspection.
func (c *controller) fail(ctx context.Context, pod *corev1.Pod) error {
	const message = "Pod terminated by Kueue NodeController due to node taint" // Kueue's words
	failed := pod.DeepCopy()
	failed.Status.Phase = corev1.PodFailed
	failed.Status.Conditions = append(failed.Status.Conditions, corev1.PodCondition{
		Type: "TerminatedByKueue", Status: corev1.ConditionTrue, Reason: "UnschedulableOnAssignedNode", Message: message,
		LastTransitionTime: metav1.Now(),
	})
	if err := c.client.Status().Patch(ctx, failed, client.MergeFrom(pod)); err != nil {
		return err
	}
	c.events.Eventf(pod, nil, corev1.EventTypeNormal, "PodTerminatedByKueue", "PodTerminated", message)
	return nil
}
