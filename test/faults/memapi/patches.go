package memapi

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Patch an object, or its status.
func (s *Server) Patch(obj client.Object, kind types.PatchType, data []byte, manager string, status bool) (*Version, error) {
	k, was, err := s.current(obj)
	if err != nil {
		return nil, err
	}
	now := runtime.DeepCopyJSON(was.Content)
	owned := was.owned
	switch kind {
	case types.JSONPatchType:
		err = jsonPatch(k, now, data)
	case types.MergePatchType:
		patch := map[string]any{}
		if err = json.Unmarshal(data, &patch); err == nil {
			now = merge(now, patch).(map[string]any)
		}
	case types.ApplyYAMLPatchType:
		patch := map[string]any{}
		if err = json.Unmarshal(data, &patch); err == nil {
			now, owned, err = apply(k, was, patch, manager)
		}
	default:
		err = fmt.Errorf("memapi: patches of type %s are not supported", kind)
	}
	if err != nil {
		return nil, err
	}
	return s.replace(k, was, now, owned, status)
}

// merge is RFC 7396.
func merge(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	object, ok := target.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	for key, value := range changes {
		if value == nil {
			delete(object, key)
		} else {
			object[key] = merge(object[key], value)
		}
	}
	return object
}

// jsonPatch does the operations of RFC 6902 that the programs use: test, remove, and add to an object.
func jsonPatch(k *kindLog, object map[string]any, data []byte) error {
	var operations []struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	if err := json.Unmarshal(data, &operations); err != nil {
		return err
	}
	for _, o := range operations {
		steps := strings.Split(strings.TrimPrefix(o.Path, "/"), "/")
		for i := range steps {
			steps[i] = strings.ReplaceAll(strings.ReplaceAll(steps[i], "~1", "/"), "~0", "~")
		}
		parent, has := lookup(object, steps[:len(steps)-1])
		value, found := lookup(object, steps)
		switch {
		case o.Op == "test" && (!found || !reflect.DeepEqual(value, o.Value)):
			return apierrors.NewInvalid(k.gvk.GroupKind(), "", nil)
		case o.Op == "test":
		case o.Op == "add" && isObject(parent):
			set(object, steps, o.Value)
		case o.Op == "remove" && has && found:
			last := steps[len(steps)-1]
			switch p := parent.(type) {
			case map[string]any:
				delete(p, last)
			case []any:
				i, _ := strconv.Atoi(last)
				set(object, steps[:len(steps)-1], slices.Delete(slices.Clone(p), i, i+1))
			}
		default:
			return apierrors.NewInvalid(k.gvk.GroupKind(), "", nil)
		}
	}
	return nil
}

func isObject(value any) bool {
	_, is := value.(map[string]any)
	return is
}

func lookup(value any, steps []string) (any, bool) {
	for _, step := range steps {
		switch v := value.(type) {
		case map[string]any:
			next, has := v[step]
			if !has {
				return nil, false
			}
			value = next
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			value = v[i]
		default:
			return nil, false
		}
	}
	return value, true
}

func set(object map[string]any, steps []string, value any) {
	parent, _ := lookup(object, steps[:len(steps)-1])
	parent.(map[string]any)[steps[len(steps)-1]] = value
}

// apply is server-side apply with force: what the manager applied before and leaves out now is removed,
// unless another manager owns it. Conditions are merged by type and finalizers as a set; every other
// list is one value.
func apply(k *kindLog, was *Version, patch map[string]any, manager string) (map[string]any, map[string]map[string]bool, error) {
	m := &unstructured.Unstructured{Object: patch}
	old := &unstructured.Unstructured{Object: was.Content}
	if rv := m.GetResourceVersion(); rv != "" && rv != old.GetResourceVersion() || m.GetUID() != "" && m.GetUID() != old.GetUID() {
		return nil, nil, conflict(k, was.Key)
	}
	wanted := map[string]any{}
	leaves(patch, "", wanted)
	for _, identity := range []string{".apiVersion", ".kind", ".metadata.name", ".metadata.namespace", ".metadata.uid", ".metadata.resourceVersion"} {
		delete(wanted, identity)
	}
	now := runtime.DeepCopyJSON(was.Content)
	owned := map[string]map[string]bool{}
	for name, paths := range was.owned {
		owned[name] = map[string]bool{}
		for path := range paths {
			if _, taken := wanted[path]; !taken || name == manager {
				owned[name][path] = true
			}
		}
	}
	for path := range owned[manager] {
		if _, still := wanted[path]; !still {
			remove(now, path)
		}
	}
	owned[manager] = map[string]bool{}
	for path, value := range wanted {
		put(now, path, value)
		owned[manager][path] = true
	}
	return now, owned, nil
}

// Paths of leaves are written as ".status.conditions[Ready]": a field after a dot, an item of a list in
// brackets.
func leaves(value any, path string, into map[string]any) {
	switch v := value.(type) {
	case map[string]any:
		if len(v) == 0 && path != "" {
			into[path] = v
		}
		for key, inner := range v {
			if inner != nil {
				leaves(inner, path+"."+escape(key), into)
			}
		}
	case []any:
		if !strings.HasSuffix(path, ".conditions") && path != ".metadata.finalizers" {
			into[path] = v
			return
		}
		for _, item := range v {
			into[path+"["+itemKey(item)+"]"] = item
		}
	default:
		into[path] = v
	}
}

// escape dots in a field's name, as labels have them.
func escape(key string) string { return strings.ReplaceAll(key, ".", "\x00") }

func itemKey(item any) string {
	if fields, ok := item.(map[string]any); ok {
		return fmt.Sprint(fields["type"])
	}
	return fmt.Sprint(item)
}

func split(path string) (fields []string, item string) {
	if i := strings.IndexByte(path, '['); i >= 0 {
		path, item = path[:i], strings.TrimSuffix(path[i+1:], "]")
	}
	for _, field := range strings.Split(path[1:], ".") {
		fields = append(fields, strings.ReplaceAll(field, "\x00", "."))
	}
	return fields, item
}

func put(object map[string]any, path string, value any) {
	fields, item := split(path)
	for _, field := range fields[:len(fields)-1] {
		inner, ok := object[field].(map[string]any)
		if !ok {
			inner = map[string]any{}
			object[field] = inner
		}
		object = inner
	}
	last := fields[len(fields)-1]
	if item == "" {
		object[last] = runtime.DeepCopyJSONValue(value)
		return
	}
	list, _ := object[last].([]any)
	list = slices.Clone(list)
	i := slices.IndexFunc(list, func(have any) bool { return itemKey(have) == item })
	if i < 0 {
		list = append(list, nil)
		i = len(list) - 1
	}
	list[i] = runtime.DeepCopyJSONValue(value)
	// The real server orders new items as they were applied; by name is as good, and the same each time.
	slices.SortStableFunc(list, func(a, b any) int { return strings.Compare(itemKey(a), itemKey(b)) })
	object[last] = list
}

// remove a leaf, and what is empty then.
func remove(object map[string]any, path string) {
	fields, item := split(path)
	parents := []map[string]any{object}
	for _, field := range fields[:len(fields)-1] {
		inner, ok := parents[len(parents)-1][field].(map[string]any)
		if !ok {
			return
		}
		parents = append(parents, inner)
	}
	last, at := fields[len(fields)-1], parents[len(parents)-1]
	if item == "" {
		delete(at, last)
	} else if list, ok := at[last].([]any); ok {
		at[last] = slices.DeleteFunc(slices.Clone(list), func(have any) bool { return itemKey(have) == item })
		if len(at[last].([]any)) == 0 {
			delete(at, last)
		}
	}
	for i := len(parents) - 1; i > 0 && len(parents[i]) == 0; i-- {
		delete(parents[i-1], fields[i-1])
	}
}

// Bind a pod to a node, with what the binding says of it.
func (s *Server) Bind(pod client.Object, b *corev1.Binding) error {
	k, err := s.kindOf(&corev1.Pod{})
	if err != nil {
		return err
	}
	was, err := k.get(client.ObjectKeyFromObject(pod))
	if err != nil {
		return err
	}
	now := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(was.Content)}
	node, _, _ := unstructured.NestedString(now.Object, "spec", "nodeName")
	if node != "" || b.UID != "" && b.UID != now.GetUID() || b.ResourceVersion != "" && b.ResourceVersion != now.GetResourceVersion() ||
		now.GetDeletionTimestamp() != nil {
		return conflict(k, was.Key)
	}
	if err := unstructured.SetNestedField(now.Object, b.Target.Name, "spec", "nodeName"); err != nil {
		return err
	}
	annotations, labels := now.GetAnnotations(), now.GetLabels()
	now.SetAnnotations(union(annotations, b.Annotations))
	now.SetLabels(union(labels, b.Labels))
	_, err = s.replace(k, was, now.Object, was.owned, false)
	return err
}

func union(a, b map[string]string) map[string]string {
	if a == nil {
		a = map[string]string{}
	}
	for key, value := range b {
		a[key] = value
	}
	return a
}
