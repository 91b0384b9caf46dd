package kinds

import (
	"encoding/json"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TopologyRequest reads from a template's annotations how close together its pods are to be placed;
// nil where there are none.
func TopologyRequest(meta *metav1.ObjectMeta, podIndex string, grouped bool, groupIndex string, groups int32) *kueue.PodSetTopologyRequest {
	text := func(key string) *string {
		if value, found := meta.Annotations[key]; found {
			return &value
		}
		return nil
	}
	request := &kueue.PodSetTopologyRequest{
		Required:                    text(kueue.PodSetRequiredTopologyAnnotation),
		Preferred:                   text(kueue.PodSetPreferredTopologyAnnotation),
		PodSetGroupName:             text(kueue.PodSetGroupName),
		PodSetSliceRequiredTopology: text(kueue.PodSetSliceRequiredTopologyAnnotation),
	}
	if value, err := strconv.ParseBool(meta.Annotations[kueue.PodSetUnconstrainedTopologyAnnotation]); err == nil {
		request.Unconstrained = &value
	}
	if size, err := strconv.ParseInt(meta.Annotations[kueue.PodSetSliceSizeAnnotation], 10, 32); err == nil {
		request.PodSetSliceSize = ptr.To(int32(size))
	}
	if layers, found, err := sliceLayers(meta.Annotations); found && err == nil {
		request.PodsetSliceRequiredTopologyConstraints = layers
	}
	if equality.Semantic.DeepEqual(request, &kueue.PodSetTopologyRequest{}) {
		return nil
	}
	if podIndex != "" {
		request.PodIndexLabel = &podIndex
	}
	if grouped {
		request.SubGroupIndexLabel, request.SubGroupCount = &groupIndex, &groups
	}
	return request
}

// sliceLayers are slices of slices, from wide levels to narrow ones.
func sliceLayers(annotations map[string]string) (layers []kueue.PodsetSliceRequiredTopologyConstraint, found bool, err error) {
	text, found := annotations[kueue.PodSetSliceRequiredTopologyConstraintsAnnotation]
	if found {
		err = json.Unmarshal([]byte(text), &layers)
	}
	return layers, found, err
}
