package jobs

import (
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// topologyRequest reads from a template's annotations how close together its
// pods are to be; nil where they say nothing.
func topologyRequest(meta *metav1.ObjectMeta, podIndex string, grouped bool, groupIndex string, groups int32) *kueue.PodSetTopologyRequest {
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
