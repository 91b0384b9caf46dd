package kinds

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// appWrapper wraps any objects. Each component says where in its object the pod templates are, and
// has a list of its own for what an admission adds.
type appWrapper struct{}

func (appWrapper) patchesWhileSuspended() bool { return false }

func (appWrapper) prepare(*unstructured.Unstructured) error { return nil }

func (appWrapper) podSets(ctx context.Context, c client.Reader, obj *unstructured.Unstructured) ([]kueue.PodSet, error) {
	var sets []kueue.PodSet
	err := eachComponent(obj, func(i int, component map[string]any) error {
		inside, err := inferred(ctx, c, component)
		if err != nil {
			return fmt.Errorf("spec.components[%d]: %w", i, err)
		}
		for _, set := range inside {
			set.Name = kueue.PodSetReference(fmt.Sprintf("%s-%d", obj.GetName(), len(sets)))
			sets = append(sets, set)
		}
		for _, declared := range list(component, "podSets") {
			template, err := componentTemplate(component, fmt.Sprint(declared["path"]))
			if err != nil {
				return fmt.Errorf("spec.components[%d]: %w", i, err)
			}
			replicas, found := declared["replicas"].(int64)
			if !found {
				replicas = 1
			}
			sets = append(sets, kueue.PodSet{
				Name:            kueue.PodSetReference(fmt.Sprintf("%s-%d", obj.GetName(), len(sets))),
				Template:        *normalizeTemplate(template),
				Count:           int32(replicas),
				TopologyRequest: declaredTopology(&template.ObjectMeta, declared),
			})
		}
		return nil
	})
	if err == nil && len(sets) == 0 {
		err = fmt.Errorf("no component declares podSets, nor wraps a kind of job that is known")
	}
	if err != nil {
		return nil, &UnretryableError{err}
	}
	return sets, nil
}

// Annotations of a declared pod set that say how its pods are numbered.
const (
	appWrapperPodIndex      = "workload.codeflare.dev.appwrapper/tas-pod-index-label"
	appWrapperSubGroupIndex = "workload.codeflare.dev.appwrapper/tas-sub-group-index-label"
	appWrapperSubGroupCount = "workload.codeflare.dev.appwrapper/tas-sub-group-count"
)

// declaredTopology is what the pods of a declared pod set ask for. A count that is none is ignored, as Kueue does.
func declaredTopology(meta *metav1.ObjectMeta, declared map[string]any) *kueue.PodSetTopologyRequest {
	annotations, _, _ := unstructured.NestedStringMap(declared, "annotations")
	var numbers numbering
	if label, found := annotations[appWrapperPodIndex]; found {
		numbers.podIndex = &label
	}
	if label, found := annotations[appWrapperSubGroupIndex]; found {
		numbers.groupIndex = &label
	}
	if count, err := strconv.ParseInt(annotations[appWrapperSubGroupCount], 10, 32); err == nil {
		numbers.groups = ptr.To(int32(count))
	}
	return topologyRequest(meta, numbers)
}

// inferred are the pod sets of a component that declares none, read by the row of the kind it
// wraps.
func inferred(ctx context.Context, c client.Reader, component map[string]any) ([]kueue.PodSet, error) {
	template, ok := component["template"].(map[string]any)
	if !ok || len(list(component, "podSets")) > 0 {
		return nil, nil
	}
	obj := &unstructured.Unstructured{Object: template}
	for _, kind := range Table() {
		if kind.GVK == obj.GroupVersionKind() && kind.Suspends() {
			return kind.Object(obj).PodSets(ctx, c)
		}
	}
	return nil, nil
}

// componentTemplate follows a component's path, such as template.spec.template,
// to a pod template or, for a bare pod, to the pod.
func componentTemplate(component map[string]any, at string) (*corev1.PodTemplateSpec, error) {
	p, err := parsePath(strings.TrimPrefix(at, "."))
	if err != nil {
		return nil, err
	}
	value, _ := p.Get(component)
	raw, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("there is no pod template at %s", at)
	}
	template := &corev1.PodTemplateSpec{}
	fields := map[string]any{"metadata": raw["metadata"], "spec": raw["spec"]}
	if raw["metadata"] == nil {
		delete(fields, "metadata")
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, template); err != nil {
		return nil, fmt.Errorf("pod template at %s: %w", at, err)
	}
	return template, nil
}

func (appWrapper) setPodSetInfos(obj *unstructured.Unstructured, _ []kueue.PodSet, infos []PodSetInfo) error {
	next := 0
	return eachComponent(obj, func(_ int, component map[string]any) error {
		if infos == nil {
			delete(component, "podSetInfos")
			return nil
		}
		inside, err := inferred(context.Background(), nil, component)
		if err != nil {
			return err
		}
		var componentInfos []any
		for range len(list(component, "podSets")) + len(inside) {
			if next >= len(infos) {
				return fmt.Errorf("the workload has %d pod sets, the AppWrapper more", len(infos))
			}
			info, err := infos[next].asMap()
			if err != nil {
				return err
			}
			componentInfos = append(componentInfos, info)
			next++
		}
		if len(componentInfos) > 0 {
			component["podSetInfos"] = componentInfos
		}
		return nil
	})
}

// asMap is the info as a JSON object, with the field names of pods.
func (info PodSetInfo) asMap() (map[string]any, error) {
	template := &corev1.PodTemplateSpec{}
	if err := info.MergeInto(&template.ObjectMeta, &template.Spec); err != nil {
		return nil, err
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(template)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for name, from := range map[string][]string{
		"labels": {"metadata", "labels"}, "annotations": {"metadata", "annotations"},
		"nodeSelector": {"spec", "nodeSelector"}, "tolerations": {"spec", "tolerations"}, "schedulingGates": {"spec", "schedulingGates"},
	} {
		if value, found := nested(raw, from); found {
			out[name] = value
		}
	}
	return out, nil
}

func eachComponent(obj *unstructured.Unstructured, visit func(i int, component map[string]any) error) error {
	spec, _ := obj.Object["spec"].(map[string]any)
	for i, component := range list(spec, "components") {
		if err := visit(i, component); err != nil {
			return err
		}
	}
	return nil
}

// list are the elements of a list field that are objects.
func list(parent map[string]any, field string) []map[string]any {
	elements, _ := parent[field].([]any)
	var out []map[string]any
	for _, element := range elements {
		if fields, ok := element.(map[string]any); ok {
			out = append(out, fields)
		}
	}
	return out
}
