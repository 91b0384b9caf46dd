package kinds

import (
	"encoding/json"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// numbering is how the pods of a pod set are numbered: labels with a pod's index and with that of its group, and how many
// groups there are. What is not set is not said of them.
type numbering struct {
	podIndex, groupIndex *string
	groups               *int32
}

// topologyRequest reads from a template's annotations how close together its pods are to be placed. Pods that are numbered
// have a request without any: a queue whose flavors all have a topology places them too, and then by their numbers. It is
// nil where there is neither.
func topologyRequest(meta *metav1.ObjectMeta, numbers numbering) *kueue.PodSetTopologyRequest {
	request := closeness(meta)
	request.PodIndexLabel, request.SubGroupIndexLabel, request.SubGroupCount = numbers.podIndex, numbers.groupIndex, numbers.groups
	if equality.Semantic.DeepEqual(request, &kueue.PodSetTopologyRequest{}) {
		return nil
	}
	return request
}

// closeness is what a template's annotations ask for.
func closeness(meta *metav1.ObjectMeta) *kueue.PodSetTopologyRequest {
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
	return request
}

// sameCloseness: two requests ask for the same places. How pods are numbered is not asked for: workloads made before it was
// said, and those that people made themselves, go without.
func sameCloseness(a, b *kueue.PodSetTopologyRequest) bool {
	asked := func(r *kueue.PodSetTopologyRequest) kueue.PodSetTopologyRequest {
		if r == nil {
			return kueue.PodSetTopologyRequest{}
		}
		only := *r
		only.PodIndexLabel, only.SubGroupIndexLabel, only.SubGroupCount = nil, nil, nil
		return only
	}
	return equality.Semantic.DeepEqual(asked(a), asked(b))
}

// sliceLayers are slices of slices, from wide levels to narrow ones.
func sliceLayers(annotations map[string]string) (layers []kueue.PodsetSliceRequiredTopologyConstraint, found bool, err error) {
	text, found := annotations[kueue.PodSetSliceRequiredTopologyConstraintsAnnotation]
	if found {
		err = json.Unmarshal([]byte(text), &layers)
	}
	return layers, found, err
}
