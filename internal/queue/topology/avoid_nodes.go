package topology

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Pods that must not be on some nodes, since these are reserved for others when they could still run, are made with a gate
// of their own and an annotation that names the nodes. The gate is removed together with adding the node affinity. The pods
// by which a job grew are made from a template that was written before: what their extras avoid, they do.

var avoidsNodes = corev1.PodSchedulingGate{Name: v1alpha1.AvoidNodesGate}

// extraIndex finds the workloads of a job's extra pods by the name of the job's.
const extraIndex = "metadata.annotations." + v1alpha1.ExtraOfAnnotation

func setUpAvoidNodes(ctx context.Context, mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &kueue.Workload{}, extraIndex, extraOf)
	if err != nil {
		return err
	}
	gated := predicate.NewPredicateFuncs(func(obj client.Object) bool {
		return slices.Contains(obj.(*corev1.Pod).Spec.SchedulingGates, avoidsNodes)
	})
	return ctrl.NewControllerManagedBy(mgr).Named("avoid-nodes").
		For(&corev1.Pod{}, builder.WithPredicates(gated)).
		Complete(&avoidNodes{mgr.GetClient(), mgr.GetEventRecorder("elastic-queue-topology")})
}

func extraOf(obj client.Object) []string {
	if name := obj.GetAnnotations()[v1alpha1.ExtraOfAnnotation]; name != "" {
		return []string{name}
	}
	return nil
}

type avoidNodes struct {
	client client.Client
	events events.EventRecorder
}

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
	nodes, err := workload.ReadAvoidNodes(pod.Annotations[v1alpha1.AvoidNodesAnnotation])
	if err == nil {
		more, failed := c.avoidedByExtras(ctx, pod)
		if failed != nil {
			return ctrl.Result{}, failed
		}
		nodes = append(nodes, more...)
		slices.Sort(nodes)
		err = workload.ExcludeNodes(&sent.Spec, slices.Compact(nodes))
	}
	if err != nil { // it is the pod's author who wrote that: the gate stays
		c.events.Eventf(pod, nil, corev1.EventTypeWarning, "CannotAvoidNodes", "Ungate", "%s", err)
		return ctrl.Result{}, nil
	}
	err = c.client.Patch(ctx, sent, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{}))
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// avoidedByExtras are the nodes that the extra pods of a pod's job must not be on; nobody knows which of its pods these are.
func (c *avoidNodes) avoidedByExtras(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	of := pod.Annotations[kueue.WorkloadAnnotation]
	if of == "" {
		return nil, nil
	}
	list := &kueue.WorkloadList{}
	if err := c.client.List(ctx, list, client.InNamespace(pod.Namespace), client.MatchingFields{extraIndex: of}); err != nil {
		return nil, err
	}
	var nodes []string
	for i := range list.Items {
		if workload.HasReservation(&list.Items[i]) {
			nodes = append(nodes, workload.AvoidNodes(&list.Items[i])...)
		}
	}
	return nodes, nil
}
