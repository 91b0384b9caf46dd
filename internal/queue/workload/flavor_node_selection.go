package workload

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Flavors finds ResourceFlavors.
type Flavors func(name kueue.ResourceFlavorReference) (*kueue.ResourceFlavor, error)

// FlavorsIn finds them with a client.
func FlavorsIn(ctx context.Context, c client.Reader) Flavors {
	return func(name kueue.ResourceFlavorReference) (*kueue.ResourceFlavor, error) {
		flavor := &kueue.ResourceFlavor{}
		return flavor, c.Get(ctx, types.NamespacedName{Name: string(name)}, flavor)
	}
}

// NodeSelection is what the assigned flavors of a workload's pod set add to its pods: the labels of their
// nodes, and the tolerations they need there. Flavors of cards that are used from other nodes add nothing.
func (find Flavors) NodeSelection(wl *kueue.Workload, assigned *kueue.PodSetAssignment) (labels map[string]string, tolerations []corev1.Toleration, err error) {
	labels = map[string]string{}
	for _, name := range slices.Compact(slices.Sorted(maps.Values(nodeFlavors(wl, assigned)))) {
		flavor, err := find(name)
		if err != nil {
			return nil, nil, fmt.Errorf("flavor %s of the admission: %w", name, err)
		}
		maps.Copy(labels, flavor.Spec.NodeLabels)
		tolerations = append(tolerations, flavor.Spec.Tolerations...)
	}
	return labels, tolerations, nil
}
