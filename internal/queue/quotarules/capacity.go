package quotarules

import (
	"math/big"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Capacity is what nodes can allocate.
type Capacity struct {
	flavors map[string]corev1.ResourceList // by flavor, of the nodes that count
	known   map[corev1.ResourceName]bool   // resources that some node has, whether it counts or not
}

// CapacityOf adds up what the nodes of each flavor can allocate.
func CapacityOf(flavors []kueue.ResourceFlavor, nodes []corev1.Node) Capacity {
	c := Capacity{flavors: map[string]corev1.ResourceList{}, known: map[corev1.ResourceName]bool{}}
	for i := range nodes {
		for name := range nodes[i].Status.Allocatable {
			c.known[name] = true
		}
	}
	for i := range flavors {
		sum := corev1.ResourceList{}
		for j := range nodes {
			if belongs(&nodes[j], &flavors[i]) && IsUsable(&nodes[j]) {
				add(sum, nodes[j].Status.Allocatable)
			}
		}
		c.flavors[flavors[i].Name] = sum
	}
	return c
}

func add(sum, more corev1.ResourceList) {
	for name, quantity := range more {
		if quantity.Sign() < 0 {
			continue // nobody has less than nothing
		}
		total := sum[name]
		total.Add(quantity)
		sum[name] = total
	}
}

// belongs says that a node is of a flavor: it has its labels and its taints. Other taints are the pods' to tolerate.
func belongs(node *corev1.Node, flavor *kueue.ResourceFlavor) bool {
	for key, value := range flavor.Spec.NodeLabels {
		if has, ok := node.Labels[key]; !ok || has != value {
			return false
		}
	}
	for _, want := range flavor.Spec.NodeTaints {
		if !slices.ContainsFunc(node.Spec.Taints, func(has corev1.Taint) bool {
			return has.Key == want.Key && has.Value == want.Value && has.Effect == want.Effect
		}) {
			return false
		}
	}
	return true
}

// IsUsable says that pods can start on a node now.
func IsUsable(node *corev1.Node) bool {
	return !node.Spec.Unschedulable && node.DeletionTimestamp.IsZero() && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// share is what a queue gets of what nodes have: whole units, and thousandths of processors.
func share(of resource.Quantity, name corev1.ResourceName, percent, headroom int64) resource.Quantity {
	unit := of.Value
	if name == corev1.ResourceCPU {
		unit = of.MilliValue
	}
	n := big.NewInt(unit())
	n.Mul(n, big.NewInt(percent*(100-headroom)))
	n.Quo(n, big.NewInt(100*100))
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(n.Int64(), resource.DecimalSI)
	}
	return *resource.NewQuantity(n.Int64(), of.Format)
}
