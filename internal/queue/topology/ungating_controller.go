package topology

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Indexes find the pods of a workload, and those that are sent to a host.
const (
	workloadIndex = "metadata.annotations." + kueue.WorkloadAnnotation
	hostIndex     = "spec.nodeSelector." + corev1.LabelHostname
)

// Options of Setup.
type Options struct {
	NodeRules workload.NodeRules
	// GateRemoved is called for each pod that lost its gate; group: it is one of a pod group.
	GateRemoved func(gate string, wl *kueue.Workload, group bool)
}

// Setup adds the controller to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager, options Options) error {
	for index, value := range map[string]func(*corev1.Pod) string{
		workloadIndex: func(pod *corev1.Pod) string { return pod.Annotations[kueue.WorkloadAnnotation] },
		hostIndex:     func(pod *corev1.Pod) string { return pod.Spec.NodeSelector[corev1.LabelHostname] },
	} {
		err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, index, func(obj client.Object) []string {
			if name := value(obj.(*corev1.Pod)); name != "" {
				return []string{name}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := setUpAvoidNodes(ctx, mgr); err != nil {
		return err
	}
	c := &controller{mgr.GetClient(), mgr.GetEventRecorder("elastic-queue-topology"), options}
	placed := predicate.NewPredicateFuncs(func(obj client.Object) bool { return isPlaced(obj.(*kueue.Workload)) })
	return ctrl.NewControllerManagedBy(mgr).Named("topology").
		For(&kueue.Workload{}, builder.WithPredicates(placed)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(workloadOf), builder.WithPredicates(podChanges)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.workloadsOn), builder.WithPredicates(nodeChanges)).
		Complete(c)
}

// podChanges are those of pods that wait, and the end of those that kept others waiting.
var podChanges = predicate.Funcs{
	CreateFunc:  func(e event.CreateEvent) bool { return waits(e.Object) },
	UpdateFunc:  func(e event.UpdateEvent) bool { return waits(e.ObjectNew) || ended(e.ObjectNew) && !ended(e.ObjectOld) },
	DeleteFunc:  func(event.DeleteEvent) bool { return true },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

func waits(obj client.Object) bool {
	return gated(obj.(*corev1.Pod)) || ungatedPending(obj.(*corev1.Pod))
}

func ended(obj client.Object) bool {
	phase := obj.(*corev1.Pod).Status.Phase
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// nodeChanges leave out that a node is still alive.
var nodeChanges = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return workload.IsReady(before) != workload.IsReady(after) || before.Spec.Unschedulable != after.Spec.Unschedulable ||
			!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints)
	},
	DeleteFunc:  func(event.DeleteEvent) bool { return false }, // its pods are deleted with it
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// workloadsOn are those with pods that are sent to a node.
func (c *controller) workloadsOn(ctx context.Context, node client.Object) []reconcile.Request {
	list := &corev1.PodList{}
	if err := c.client.List(ctx, list, client.MatchingFields{hostIndex: node.GetName()}); err != nil {
		return nil
	}
	seen := map[reconcile.Request]bool{}
	for i := range list.Items {
		for _, request := range workloadOf(ctx, &list.Items[i]) {
			seen[request] = true
		}
	}
	return slices.Collect(maps.Keys(seen))
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
	client  client.Client
	events  events.EventRecorder
	options Options
}

// Reconcile ungates the pods of one workload, and fails those that were ungated for a node they cannot use. A cache that
// lags behind may show a pod as gated that is not: the write is a conflict then, and the workload is requeued.
func (c *controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	wl := &kueue.Workload{}
	if err := c.client.Get(ctx, request.NamespacedName, wl); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	list := &corev1.PodList{}
	if err := c.client.List(ctx, list, client.InNamespace(wl.Namespace), client.MatchingFields{workloadIndex: wl.Name}); err != nil {
		return ctrl.Result{}, err
	}
	stays, err := c.failStrays(ctx, wl, list.Items)
	if err != nil || !isPlaced(wl) {
		return ctrl.Result{}, err
	}
	for _, s := range setsOf(wl) {
		var pods []*corev1.Pod
		for _, pod := range stays {
			if pod.Labels[kueuelabels.PodSet] == string(s.assigned.Name) && !ended(pod) {
				pods = append(pods, pod)
			}
		}
		slices.SortFunc(pods, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
		for _, m := range s.place(pods) {
			if slices.Contains(wl.Status.UnhealthyNodes, kueue.UnhealthyNode{Name: m.labels[corev1.LabelHostname]}) {
				continue // it will be sent to the node that comes in its place
			}
			err := c.ungate(ctx, m)
			if apierrors.IsConflict(err) {
				return ctrl.Result{RequeueAfter: time.Second}, nil // the pod's event comes first; this is the fallback
			}
			if client.IgnoreNotFound(err) != nil {
				return ctrl.Result{}, err
			}
			if err == nil {
				_, group := m.pod.Labels[kueuelabels.PodGroupName]
				c.options.GateRemoved(kueue.TopologySchedulingGate, wl, group)
			}
		}
	}
	return ctrl.Result{}, nil
}

// failStrays fails the pods that wait for a node they cannot use, and returns the others.
func (c *controller) failStrays(ctx context.Context, wl *kueue.Workload, list []corev1.Pod) ([]*corev1.Pod, error) {
	var stays []*corev1.Pod
	for i := range list {
		pod := &list[i]
		stray, err := c.isStray(ctx, wl, pod)
		if err != nil {
			return nil, err
		}
		if !stray {
			stays = append(stays, pod)
			continue
		}
		if err := c.fail(ctx, pod); client.IgnoreNotFound(err) != nil {
			return nil, err
		}
	}
	return stays, nil
}

// isStray says that a pod waits for a node that its workload is not assigned to any more, or that takes no pods of it
// now. Its job makes another one, which is sent elsewhere.
func (c *controller) isStray(ctx context.Context, wl *kueue.Workload, pod *corev1.Pod) (bool, error) {
	host := pod.Spec.NodeSelector[corev1.LabelHostname]
	if host == "" || !ungatedPending(pod) || !isTopologyPod(pod) && !isPlaced(wl) {
		return false, nil
	}
	node := &corev1.Node{}
	if err := c.client.Get(ctx, types.NamespacedName{Name: host}, node); err != nil {
		return false, client.IgnoreNotFound(err) // with the node its pods are deleted
	}
	if !workload.SaysReadiness(node) {
		return false, nil
	}
	if !workload.IsAssignedTo(wl, host) {
		return !workload.IsFinished(wl) && !workload.IsEvicted(wl), nil
	}
	tolerations, err := workload.FlavorsIn(ctx, c.client).TolerationsOn(wl, host)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	health, _ := c.options.NodeRules.Health(node, tolerations, time.Now())
	return health == workload.NodeLeaving, nil
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
