package kinds

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
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

// ValidateSliceLayers finds the mistakes in slices of slices that are mistakes in any topology.
// Whether a topology has the levels is found when a flavor is assigned. The messages are Kueue's.
func ValidateSliceLayers(sets []kueue.PodSet, forbidden bool) field.ErrorList {
	var errs field.ErrorList
	for i := range sets {
		set := &sets[i]
		annotations := field.NewPath("podSets").Key(string(set.Name)).Child("template", "metadata", "annotations")
		path := annotations.Key(kueue.PodSetSliceRequiredTopologyConstraintsAnnotation)
		layers, found, err := sliceLayers(set.Template.Annotations)
		text := set.Template.Annotations[kueue.PodSetSliceRequiredTopologyConstraintsAnnotation]
		switch {
		case !found:
			continue
		case forbidden:
			errs = append(errs, field.Forbidden(path, "the TASMultiLayerTopology feature gate must be enabled to use this annotation"))
			continue
		case err != nil:
			errs = append(errs, field.Invalid(path, text, fmt.Sprintf("must be a valid JSON array: %v", err)))
			continue
		case len(layers) == 0 || len(layers) > 3:
			errs = append(errs, field.Invalid(path, text, "topology constraints must contain between 1 and 3 entries"))
			continue
		}
		for _, other := range []struct {
			key, with string
			at        *field.Path
		}{
			{kueue.PodSetSliceRequiredTopologyAnnotation, kueue.PodSetSliceRequiredTopologyAnnotation, path},
			{kueue.PodSetSliceSizeAnnotation, kueue.PodSetSliceSizeAnnotation, path},
			{kueue.PodSetGroupName, kueue.PodSetSliceRequiredTopologyConstraintsAnnotation, annotations.Key(kueue.PodSetGroupName)},
		} {
			if _, has := set.Template.Annotations[other.key]; has {
				errs = append(errs, field.Forbidden(other.at, fmt.Sprintf("may not be set when '%s' is specified", other.with)))
			}
		}
		errs = append(errs, validateLayerSizes(layers, set.Count, path)...)
	}
	return errs
}

// validateLayerSizes checks that each slice can be divided into those of the next layer.
func validateLayerSizes(layers []kueue.PodsetSliceRequiredTopologyConstraint, pods int32, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, layer := range layers {
		at := path.Index(i)
		errs = append(errs, metavalidation.ValidateLabelName(layer.Topology, at.Child("topology"))...)
		if slices.ContainsFunc(layers[:i], func(l kueue.PodsetSliceRequiredTopologyConstraint) bool { return l.Topology == layer.Topology }) {
			errs = append(errs, field.Duplicate(at.Child("topology"), layer.Topology))
		}
		switch {
		case layer.Size < 1:
			errs = append(errs, field.Invalid(at.Child("size"), layer.Size, "must be greater than or equal to 1"))
		case i == 0 && layer.Size > pods:
			errs = append(errs, field.Invalid(at.Child("size"), layer.Size, fmt.Sprintf("must not be greater than pod set count %d", pods)))
		case i > 0 && layers[i-1].Size%layer.Size != 0:
			errs = append(errs, field.Invalid(at.Child("size"), layer.Size, fmt.Sprintf("must evenly divide the parent layer size %d", layers[i-1].Size)))
		}
	}
	return errs
}
