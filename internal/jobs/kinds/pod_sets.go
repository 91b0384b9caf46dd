package kinds

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// injectPaths is where in an object the fields of a pod set are that an admission adds to.
// Of kinds whose pods cannot have gates it adds to their affinity instead.
type injectPaths struct {
	labels, annotations, nodeSelector, tolerations, gates, affinity FieldPath
}

func templateInject(template FieldPath) injectPaths {
	if template == nil {
		return injectPaths{}
	}
	in := func(parent, name string) FieldPath {
		return append(slices.Clone(template), segment{name: parent}, segment{name: name})
	}
	return injectPaths{
		labels: in("metadata", "labels"), annotations: in("metadata", "annotations"),
		nodeSelector: in("spec", "nodeSelector"), tolerations: in("spec", "tolerations"), gates: in("spec", "schedulingGates"),
	}
}

// PodSetSource is where a pod set of one job is read from: its row, and the part of the object the
// row's paths start from.
type PodSetSource struct {
	*podSetRow
	Name string
	item map[string]any
	vars map[string]any
}

// PodSetSources finds the pod sets of an object, in order.
func (j Object) PodSetSources() ([]PodSetSource, error) {
	var out []PodSetSource
	for i := range j.kind.podSets {
		row := &j.kind.podSets[i]
		if row.each == nil {
			vars := map[string]any{"object": j.Object, "item": j.Object, "key": row.Name, "beyond": rules().beyond()}
			out = append(out, PodSetSource{row, row.Name, j.Object, vars})
			continue
		}
		more, err := j.eachElement(row)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	present := out[:0]
	for _, p := range out {
		there, err := p.when.boolean(p.vars, true)
		if err != nil {
			return nil, err
		}
		if there {
			present = append(present, p)
		}
	}
	return present, nil
}

// eachElement is one source for each element of the list or map a row names.
func (j Object) eachElement(row *podSetRow) ([]PodSetSource, error) {
	value, found := row.each.Get(j.Object)
	if !found {
		return nil, nil
	}
	var out []PodSetSource
	add := func(key any, element any, name string) error {
		item, ok := element.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: element %v is not an object", row.each, key)
		}
		if row.nameFrom != nil {
			text, _ := row.nameFrom.Get(item)
			name, _ = text.(string)
		}
		if name == "" {
			return fmt.Errorf("%s: element %v has no name", row.each, key)
		}
		vars := map[string]any{"object": j.Object, "item": item, "key": key, "beyond": rules().beyond()}
		out = append(out, PodSetSource{row, strings.ToLower(name), item, vars})
		return nil
	}
	switch elements := value.(type) {
	case []any:
		for i, element := range elements {
			if err := add(int64(i), element, strconv.Itoa(i)); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for _, key := range slices.SortedFunc(maps.Keys(elements), row.compareKeys) {
			if err := add(key, elements[key], key); err != nil {
				return nil, err
			}
		}
	default:
		return nil, fmt.Errorf("%s is neither a list nor a map", row.each)
	}
	return out, nil
}

// compareKeys sorts by the row's order, then by name.
func (row *podSetRow) compareKeys(a, b string) int {
	rank := func(key string) int {
		if i := slices.Index(row.Order, key); i >= 0 {
			return i
		}
		return len(row.Order)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
}

// podSet is the pod set as a workload describes it.
func (p PodSetSource) podSet() (kueue.PodSet, error) {
	set := kueue.PodSet{Name: kueue.PodSetReference(p.Name)}
	template, err := p.PodTemplate()
	if err != nil {
		return set, err
	}
	set.Template = *template
	count, err := p.count.number(p.vars, 1)
	if err != nil {
		return set, err
	}
	least, err := p.minCount.number(p.vars, 0)
	if err != nil {
		return set, err
	}
	set.Count = int32(count)
	if least > 0 && least < count {
		set.MinCount = ptr.To(int32(least))
	}
	numbers, err := p.numbering()
	if err != nil {
		return set, err
	}
	set.TopologyRequest = topologyRequest(&template.ObjectMeta, numbers)
	return set, nil
}

func (p PodSetSource) numbering() (numbering, error) {
	var numbers numbering
	if p.PodIndexLabel != "" {
		numbers.podIndex = &p.PodIndexLabel
	}
	if p.SubGroup == nil {
		return numbers, nil
	}
	groups, err := p.subGroups.number(p.vars, 0)
	numbers.groupIndex, numbers.groups = &p.SubGroup.IndexLabel, ptr.To(int32(groups))
	return numbers, err
}

// TemplatePath is where the pod template is within the pod set's part of the object.
func (p PodSetSource) TemplatePath() string { return p.template.String() }

// PodTemplate reads the template, or makes the one the operator would make.
func (p PodSetSource) PodTemplate() (*corev1.PodTemplateSpec, error) {
	var raw map[string]any
	if p.template != nil {
		value, _ := p.template.Get(p.item)
		raw, _ = value.(map[string]any)
	}
	if raw == nil {
		value, found, err := p.pod.value(p.vars)
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, fmt.Errorf("there is no pod template at %s", p.template)
		}
		if raw, err = plainMap(value); err != nil {
			return nil, err
		}
	}
	template := &corev1.PodTemplateSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, template); err != nil {
		return nil, fmt.Errorf("pod template of %s: %w", p.Name, err)
	}
	if err := p.countAtLeast(template); err != nil {
		return nil, err
	}
	value, found, err := p.sidecars.value(p.vars)
	if err != nil {
		return nil, err
	}
	if found {
		added, err := containers(value)
		if err != nil {
			return nil, err
		}
		template.Spec.Containers = append(template.Spec.Containers, added...)
	}
	return normalizeTemplate(template), nil
}

// countAtLeast raises the requests of the first container.
func (p PodSetSource) countAtLeast(template *corev1.PodTemplateSpec) error {
	value, found, err := p.atLeast.value(p.vars)
	if err != nil || !found || len(template.Spec.Containers) == 0 {
		return err
	}
	fields, err := plainMap(value)
	if err != nil {
		return err
	}
	first := &template.Spec.Containers[0].Resources
	for name, text := range fields {
		least, err := resource.ParseQuantity(fmt.Sprint(text))
		if err != nil {
			return fmt.Errorf("%s of at least %v: %w", name, text, err)
		}
		if is := first.Requests[corev1.ResourceName(name)]; is.Cmp(least) < 0 {
			first.Requests = maps.Clone(first.Requests)
			if first.Requests == nil {
				first.Requests = corev1.ResourceList{}
			}
			first.Requests[corev1.ResourceName(name)] = least
		}
	}
	return nil
}

// SetPodIndexOffsets says on the pod templates from which number their pods are counted.
func (j Object) SetPodIndexOffsets() error {
	sources, err := j.PodSetSources()
	if err != nil {
		return err
	}
	for _, p := range sources {
		offset, err := p.indexOffset.number(p.vars, 0)
		if err != nil {
			return err
		}
		if offset == 0 || p.podSetRow.inject.annotations == nil {
			continue
		}
		if err := p.podSetRow.inject.annotations.setKey(p.item, kueue.PodIndexOffsetAnnotation, strconv.FormatInt(offset, 10)); err != nil {
			return err
		}
	}
	return nil
}

// normalizeTemplate makes a template valid in a Workload, whose lists with keys may contain each
// key only once. Of several environment variables of one name the last counts, as in the container.
func normalizeTemplate(template *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	for _, list := range [][]corev1.Container{template.Spec.InitContainers, template.Spec.Containers} {
		for i := range list {
			seen := map[string]int{}
			var env []corev1.EnvVar
			for _, v := range list[i].Env {
				if at, again := seen[v.Name]; again {
					env[at] = v
					continue
				}
				seen[v.Name] = len(env)
				env = append(env, v)
			}
			list[i].Env = env
		}
	}
	meta := metav1.ObjectMeta{Labels: template.Labels, Annotations: template.Annotations}
	template.ObjectMeta = meta
	return template
}

// inject writes the fields of a template that an admission changes; where the object has no
// template yet, the whole template.
func (p PodSetSource) inject(template *corev1.PodTemplateSpec) error {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(template)
	if err != nil {
		return err
	}
	if p.template != nil && p.Inject == nil {
		if _, found := p.template.Get(p.item); !found {
			return p.template.Set(p.item, raw)
		}
	}
	for _, field := range []struct {
		from []string
		to   FieldPath
	}{
		{[]string{"metadata", "labels"}, p.podSetRow.inject.labels},
		{[]string{"metadata", "annotations"}, p.podSetRow.inject.annotations},
		{[]string{"spec", "nodeSelector"}, p.podSetRow.inject.nodeSelector},
		{[]string{"spec", "tolerations"}, p.podSetRow.inject.tolerations},
		{[]string{"spec", "schedulingGates"}, p.podSetRow.inject.gates},
		{[]string{"spec", "affinity"}, p.podSetRow.inject.affinity},
	} {
		if field.to == nil {
			continue
		}
		value, found := nested(raw, field.from)
		if !found {
			field.to.Remove(p.item)
			continue
		}
		if err := field.to.Set(p.item, value); err != nil {
			return err
		}
	}
	for _, old := range p.instead {
		old.Remove(p.item)
	}
	return nil
}

// setCountTo writes the number of pods if it has changed.
func (p PodSetSource) setCountTo(count int32) error {
	now, err := p.count.number(p.vars, 1)
	if err != nil || now == int64(count) {
		return err
	}
	for _, target := range p.setCount {
		applies, err := target.when.boolean(p.vars, true)
		if err != nil {
			return err
		}
		if !applies {
			continue
		}
		if err := target.path.Set(p.item, int64(count)); err != nil {
			return err
		}
	}
	return nil
}

// SamePodSets: two descriptions request the same pods. Fields that the API server fills in, and
// fields that do not influence admission, are ignored.
func SamePodSets(a, b []kueue.PodSet) bool {
	return slices.EqualFunc(a, b, func(a, b kueue.PodSet) bool {
		x, y := &a.Template.Spec, &b.Template.Spec
		return a.Name == b.Name && a.Count == b.Count && ptr.Deref(a.MinCount, 0) == ptr.Deref(b.MinCount, 0) &&
			x.PriorityClassName == y.PriorityClassName &&
			sameCloseness(a.TopologyRequest, b.TopologyRequest) &&
			equality.Semantic.DeepEqual(x.NodeSelector, y.NodeSelector) &&
			equality.Semantic.DeepEqual(x.Tolerations, y.Tolerations) &&
			equality.Semantic.DeepEqual(x.Affinity, y.Affinity) &&
			equality.Semantic.DeepEqual(x.Overhead, y.Overhead) &&
			equality.Semantic.DeepEqual(x.ResourceClaims, y.ResourceClaims) &&
			sameContainers(x.InitContainers, y.InitContainers) && sameContainers(x.Containers, y.Containers)
	})
}

func sameContainers(a, b []corev1.Container) bool {
	return slices.EqualFunc(a, b, func(a, b corev1.Container) bool {
		return a.Name == b.Name && equality.Semantic.DeepEqual(a.Resources, b.Resources)
	})
}
