package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelpers "k8s.io/component-helpers/resource"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
)

// notServed is what is wrong with cards whose containers the kubelet would start without them.
const notServed = "the kubelet does not know the agent's device plugin yet"

// served says whether the kubelet asks the agent about containers with cards.
func served(node *corev1.Node) bool {
	return !node.Status.Allocatable.Name(egpu.ResourceClaim, resource.DecimalSI).IsZero()
}

// Capacity of the cards that are well, under every name that pods ask for them by.
func Capacity(cards []discovery.Card, whole bool) corev1.ResourceList {
	var count, memory, gigabytes int64
	for _, c := range cards {
		if c.Problem == "" && c.Elsewhere == "" {
			count, memory, gigabytes = count+1, memory+c.MemoryMB, gigabytes+c.MemoryMB/1024
		}
	}
	list := corev1.ResourceList{}
	for name, value := range map[corev1.ResourceName]int64{
		egpu.ResourceCore: 100 * count, egpu.ResourceMemory: memory,
		egpu.ResourceQGPUCore: 100 * count, egpu.ResourceQGPUCoreGreedy: 100 * count, egpu.ResourceQGPUMemory: gigabytes,
	} {
		list[name] = *resource.NewQuantity(value, resource.DecimalSI)
	}
	if whole {
		list[egpu.ResourceWhole] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	return list
}

// addSwappedOut adds the requests of pods that are swapped out: kube-scheduler and the kubelet still count them, so the
// capacity must be that much larger for others to have what is free.
func (p *Publisher) addSwappedOut(ctx context.Context, node *corev1.Node, list corev1.ResourceList) error {
	if list.Name(egpu.ResourceCore, resource.DecimalSI).IsZero() {
		return nil // nothing is offered: no card is well, or the kubelet does not ask us yet
	}
	pods := &corev1.PodList{}
	if err := p.Client.List(ctx, pods); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName != node.Name || !egpu.IsSwappedOut(pod) {
			continue
		}
		for name, amount := range resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{}) {
			if all, offered := list[name]; offered {
				all.Add(amount)
				list[name] = all
			}
		}
	}
	return nil
}

// offer the resources on the node. The kubelet leaves what it does not know as it is, and makes what is
// allocatable from the capacity.
func offer(ctx context.Context, c client.Client, node *corev1.Node, list corev1.ResourceList) error {
	changed := node.DeepCopy()
	for _, to := range []*corev1.ResourceList{&changed.Status.Capacity, &changed.Status.Allocatable} {
		if *to == nil {
			*to = corev1.ResourceList{}
		}
		for name, value := range list {
			(*to)[name] = value
		}
	}
	if equality.Semantic.DeepEqual(changed.Status, node.Status) {
		return nil
	}
	return c.Status().Patch(ctx, changed, client.StrategicMergeFrom(node))
}

// capacityChanged is a node whose resources are no longer the same: a kubelet that starts on a new node
// sets what it does not know to zero, and says by the number of slots whether it knows the device plugin.
var capacityChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	was, isNode := e.ObjectOld.(*corev1.Node)
	is, too := e.ObjectNew.(*corev1.Node)
	return isNode && too && (!equality.Semantic.DeepEqual(was.Status.Capacity, is.Status.Capacity) ||
		!equality.Semantic.DeepEqual(was.Status.Allocatable, is.Status.Allocatable))
}}

// leftOrReturns is a pod that has left its cards, or is called back: the node's capacity is another. It is offered at once,
// before a pod comes for it: kube-scheduler tries one that found too little again after a second at the earliest.
var leftOrReturns = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false }, // the node's own event says that
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, isPod := e.ObjectOld.(*corev1.Pod)
		is, too := e.ObjectNew.(*corev1.Pod)
		return isPod && too && egpu.IsSwappedOut(was) != egpu.IsSwappedOut(is)
	},
	DeleteFunc: func(e event.DeleteEvent) bool {
		pod, isPod := e.Object.(*corev1.Pod)
		return isPod && egpu.IsSwappedOut(pod)
	},
}

// nodeOfPod is the node whose capacity a pod changes.
func nodeOfPod(_ context.Context, obj client.Object) []ctrl.Request {
	if pod, isPod := obj.(*corev1.Pod); isPod && pod.Spec.NodeName != "" {
		return []ctrl.Request{{NamespacedName: client.ObjectKey{Name: pod.Spec.NodeName}}}
	}
	return nil
}
