package inventory

import (
	corev1 "k8s.io/api/core/v1"
	resourcehelpers "k8s.io/component-helpers/resource"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
)

// Node with its cards: those of its GPU objects, and, as far as no agent publishes
// any, those its labels and capacity describe. A node that is not ready takes no
// new pods.
func Node(node *corev1.Node, gpus map[string]*egpu.GPU) placement.Node {
	n := placement.Node{
		Name: node.Name, Labels: node.Labels,
		Unschedulable: node.Spec.Unschedulable || !ready(node),
		Resources:     amounts(node.Status.Allocatable),
	}
	for _, t := range node.Spec.Taints {
		n.Taints = append(n.Taints, placement.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	n.Cards = complete(Cards(gpus), cardsFromLabels(node))
	return n
}

func ready(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// PodResources is what a pod takes of a node beside cards.
func PodResources(pod *corev1.Pod) map[string]int64 {
	resources := amounts(resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{}))
	delete(resources, string(corev1.ResourcePods)) // each pod is one; the engine knows
	return resources
}

// amounts leaves cards out: the engine counts those card by card.
func amounts(list corev1.ResourceList) map[string]int64 {
	out := make(map[string]int64, len(list))
	for name, q := range list {
		switch {
		case request.IsCard(name):
		case name == corev1.ResourceCPU:
			out[string(name)] = q.MilliValue()
		default:
			out[string(name)] = q.Value()
		}
	}
	return out
}
