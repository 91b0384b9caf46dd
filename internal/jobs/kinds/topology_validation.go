package kinds

import (
	"fmt"
	"slices"
	"strconv"

	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// ValidateTopologyRequests finds the mistakes in a new job's topology annotations that are mistakes in
// any topology. The messages are Kueue's.
func ValidateTopologyRequests(sets []kueue.PodSet, noSliceLayers bool) field.ErrorList {
	errs := ValidateSliceLayers(sets, noSliceLayers)
	groups := map[string][]*kueue.PodSet{}
	for i := range sets {
		set := &sets[i]
		errs = append(errs, validateTopologyAnnotations(set)...)
		if name, found := set.Template.Annotations[kueue.PodSetGroupName]; found {
			groups[name] = append(groups[name], set)
		}
	}
	for i := range sets {
		if name, found := sets[i].Template.Annotations[kueue.PodSetGroupName]; found && groups[name][0] == &sets[i] {
			errs = append(errs, validatePodSetGroup(name, groups[name])...)
		}
	}
	return errs
}

func annotationsOf(set *kueue.PodSet) *field.Path {
	return field.NewPath("podSets").Key(string(set.Name)).Child("template", "metadata", "annotations")
}

// validateTopologyAnnotations checks those of one pod set.
func validateTopologyAnnotations(set *kueue.PodSet) field.ErrorList {
	at, has := annotationsOf(set), set.Template.Annotations
	var errs field.ErrorList
	chosen := 0
	for _, key := range []string{kueue.PodSetRequiredTopologyAnnotation, kueue.PodSetPreferredTopologyAnnotation, kueue.PodSetUnconstrainedTopologyAnnotation} {
		if _, found := has[key]; found {
			chosen++
		}
	}
	if chosen > 1 {
		errs = append(errs, field.Invalid(at, field.OmitValueType{}, fmt.Sprintf("must not contain more than one topology annotation: [%q, %q, %q]",
			kueue.PodSetRequiredTopologyAnnotation, kueue.PodSetPreferredTopologyAnnotation, kueue.PodSetUnconstrainedTopologyAnnotation)))
	}
	for _, key := range []string{kueue.PodSetRequiredTopologyAnnotation, kueue.PodSetPreferredTopologyAnnotation, kueue.PodSetSliceRequiredTopologyAnnotation} {
		if level, found := has[key]; found {
			errs = append(errs, metavalidation.ValidateLabelName(level, at.Key(key))...)
		}
	}
	if text, found := has[kueue.PodSetUnconstrainedTopologyAnnotation]; found {
		if _, err := strconv.ParseBool(text); err != nil {
			errs = append(errs, field.Invalid(at.Key(kueue.PodSetUnconstrainedTopologyAnnotation), text, "must be a boolean value"))
		}
	}
	errs = append(errs, validateGroupName(has, at.Key(kueue.PodSetGroupName))...)
	return append(errs, validateSliceSize(has, set.Count, at.Key(kueue.PodSetSliceSizeAnnotation))...)
}

func validateGroupName(annotations map[string]string, path *field.Path) field.ErrorList {
	name, found := annotations[kueue.PodSetGroupName]
	if !found {
		return nil
	}
	var errs field.ErrorList
	if _, err := strconv.ParseUint(name, 10, 64); err == nil {
		errs = append(errs, field.Invalid(path, name, "must not be a number"))
	}
	for _, key := range []string{kueue.PodSetSliceSizeAnnotation, kueue.PodSetSliceRequiredTopologyAnnotation} {
		if _, found := annotations[key]; found {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("may not be set when '%s' is specified", key)))
		}
	}
	_, required := annotations[kueue.PodSetRequiredTopologyAnnotation]
	_, preferred := annotations[kueue.PodSetPreferredTopologyAnnotation]
	if !required && !preferred {
		errs = append(errs, field.Forbidden(path, fmt.Sprintf("may not be set when neither '%s' nor '%s' is specified",
			kueue.PodSetPreferredTopologyAnnotation, kueue.PodSetRequiredTopologyAnnotation)))
	}
	return errs
}

func validateSliceSize(annotations map[string]string, pods int32, path *field.Path) field.ErrorList {
	text, found := annotations[kueue.PodSetSliceSizeAnnotation]
	_, wanted := annotations[kueue.PodSetSliceRequiredTopologyAnnotation]
	if !found {
		if wanted {
			return field.ErrorList{field.Required(path, fmt.Sprintf("must be set when '%s' is specified", kueue.PodSetSliceRequiredTopologyAnnotation))}
		}
		return nil
	}
	var errs field.ErrorList
	if !wanted {
		errs = append(errs, field.Forbidden(path, fmt.Sprintf("may not be set when '%s' is not specified", kueue.PodSetSliceRequiredTopologyAnnotation)))
	}
	switch size, err := strconv.ParseInt(text, 10, 32); {
	case err != nil:
		errs = append(errs, field.Invalid(path, text, "must be a numeric value"))
	case size < 1:
		errs = append(errs, field.Invalid(path, text, "must be greater than or equal to 1"))
	case size > int64(pods):
		errs = append(errs, field.Invalid(path, text, fmt.Sprintf("must not be greater than pod set count %d", pods)))
	}
	return errs
}

// validatePodSetGroup checks pod sets that are to be placed together: a leader and its workers.
func validatePodSetGroup(name string, sets []*kueue.PodSet) field.ErrorList {
	var errs field.ErrorList
	refuse := func(set *kueue.PodSet, detail string) {
		errs = append(errs, field.Invalid(annotationsOf(set).Key(kueue.PodSetGroupName), name, detail))
	}
	if len(sets) != 2 {
		for _, set := range sets {
			refuse(set, fmt.Sprintf("can only define groups of exactly 2 pod sets, got: %d pod set(s)", len(sets)))
		}
		return errs
	}
	a, b := sets[0], sets[1]
	if a.Count != 1 && b.Count != 1 {
		detail := fmt.Sprintf("can only define groups where at least one pod set has only 1 replica, got: %d replica(s) and %d replica(s) in the group", a.Count, b.Count)
		refuse(a, detail)
		refuse(b, detail)
	}
	level := func(set *kueue.PodSet, key string) *string {
		if value, found := set.Template.Annotations[key]; found {
			return &value
		}
		return nil
	}
	same := func(key string) bool { return ptr.Equal(level(a, key), level(b, key)) }
	if !same(kueue.PodSetRequiredTopologyAnnotation) || !same(kueue.PodSetPreferredTopologyAnnotation) {
		for i, set := range sets {
			errs = append(errs, field.Invalid(annotationsOf(set), field.OmitValueType{}, fmt.Sprintf("must specify '%s' or '%s' topology consistent with '%s' in group '%s'",
				kueue.PodSetRequiredTopologyAnnotation, kueue.PodSetPreferredTopologyAnnotation, annotationsOf(sets[1-i]), name)))
		}
	}
	return errs
}

// ValidateSliceLayers finds the mistakes in slices of slices that are mistakes in any topology.
// Whether a topology has the levels is found when a flavor is assigned. The messages are Kueue's.
func ValidateSliceLayers(sets []kueue.PodSet, forbidden bool) field.ErrorList {
	var errs field.ErrorList
	for i := range sets {
		set := &sets[i]
		annotations := annotationsOf(set)
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
