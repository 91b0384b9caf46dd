package topology

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Pods that must not be on some nodes, since these are reserved for others when they could still run, are made with a gate
// of their own and an annotation that names the nodes. The gate is removed together with adding the node affinity.

var avoidsNodes = corev1.PodSchedulingGate{Name: v1alpha1.AvoidNodesGate}

func setUpAvoidNodes(mgr ctrl.Manager) error {
	gated := predicate.NewPredicateFuncs(func(obj client.Object) bool {
		return slices.Contains(obj.(*corev1.Pod).Spec.SchedulingGates, avoidsNodes)
	})
	return ctrl.NewControllerManagedBy(mgr).Named("avoid-nodes").
		For(&corev1.Pod{}, builder.WithPredicates(gated)).
		Complete(&avoidNodes{mgr.GetClient()})
}

type avoidNodes struct{ client client.Client }

// Reconcile removes the gate of one pod, in the write that says which nodes it is not to be on.
func (c *avoidNodes) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	if err := c.client.Get(ctx, request.NamespacedName, pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if pod.DeletionTimestamp != nil || !slices.Contains(pod.Spec.SchedulingGates, avoidsNodes) {
		return ctrl.Result{}, nil
	}
	sent := pod.DeepCopy()
	sent.Spec.SchedulingGates = slices.DeleteFunc(sent.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g == avoidsNodes })
	if nodes := pod.Annotations[v1alpha1.AvoidNodesAnnotation]; nodes != "" {
		workload.ExcludeNodes(&sent.Spec, strings.Split(nodes, ","))
	}
	err := c.client.Patch(ctx, sent, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{}))
	return ctrl.Result{}, client.IgnoreNotFound(err)
}
