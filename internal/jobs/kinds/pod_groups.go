package kinds

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// GroupsPods: objects of the kind have no suspend flag, and their pods are held as groups.
func (k *Kind) GroupsPods() bool { return k.group != nil }

// HasManyGroups: the pods of one object may form several groups, each with its own workload.
func (k *Kind) HasManyGroups() bool { return k.group != nil && !k.group.key.isAbsent() }

// OwnsGroup: the pods of an object are one group, and its workload is made from the object.
func (k *Kind) OwnsGroup() bool { return k.group != nil && k.Spec.Pods.Group.Owned }

// GroupName is the name of the group of an object that owns its pods, and of its workload.
func (k *Kind) GroupName(ctx context.Context, c client.Reader, object client.ObjectKey, uid types.UID) (string, error) {
	return k.groupName(ctx, c, object, uid, uid)
}

// groupName is made of the object's UID, or the original's. Where there is a workload with a name of before, ours or
// Kueue's, which did not tell objects of one name apart, that goes on.
func (k *Kind) groupName(ctx context.Context, c client.Reader, group client.ObjectKey, uid, original types.UID) (string, error) {
	for _, former := range []string{k.formerGroupName(group.Name), WorkloadName(k.GVK, group.Name, "")} {
		wl := &kueue.Workload{}
		err := c.Get(ctx, client.ObjectKey{Namespace: group.Namespace, Name: former}, wl)
		if client.IgnoreNotFound(err) != nil {
			return "", err
		}
		owner := metav1.GetControllerOf(wl)
		if err == nil && wl.Annotations[IsGroupAnnotation] == "true" && (owner == nil || owner.UID == uid) {
			return former, nil
		}
	}
	return WorkloadName(k.GVK, group.Name, original), nil
}

func (k *Kind) formerGroupName(group string) string {
	return ShortName(strings.ToLower(k.GVK.Kind)+"-"+group, k.GVK.Kind, k.GVK.Group, group)
}

// GroupNameOfPod is the name of the group of a pod of an object. The object is read directly: it may be as new as the pod.
func (k *Kind) GroupNameOfPod(ctx context.Context, cached, direct client.Reader, group PodGroup, pod *corev1.Pod) (string, error) {
	if k.HasManyGroups() {
		return k.groupNameByParent(ctx, cached, direct, group, pod)
	}
	owner := metav1.GetControllerOf(pod)
	if !k.OwnsGroup() || owner == nil || owner.Kind != k.GVK.Kind || owner.Name != group.Name {
		return k.formerGroupName(group.Name), nil
	}
	return k.GroupName(ctx, cached, client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}, owner.UID)
}

// groupNameByParent is Kueue's, also for a copy: made of the UID of the object that it is a copy of.
func (k *Kind) groupNameByParent(ctx context.Context, cached, direct client.Reader, group PodGroup, pod *corev1.Pod) (string, error) {
	name, err := k.PodParent(pod)
	if err != nil {
		return "", err
	}
	parent := &unstructured.Unstructured{}
	parent.SetGroupVersionKind(k.GVK)
	err = direct.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, parent)
	if apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
		return k.formerGroupName(group.Name), nil
	}
	if err != nil {
		return "", err
	}
	original := parent.GetUID()
	if uid := parent.GetAnnotations()[kueue.MultiKueueOriginUIDAnnotation]; uid != "" && parent.GetLabels()[kueue.MultiKueueOriginLabel] != "" {
		original = types.UID(uid)
	}
	return k.groupName(ctx, cached, client.ObjectKey{Namespace: pod.Namespace, Name: group.Name}, parent.GetUID(), original)
}

// FixedGroupFields are the fields an object's groups were admitted with.
func (k *Kind) FixedGroupFields() []FieldPath { return k.group.fixed }

// PodGroup is the group a pod belongs to, as its labels and annotations show.
type PodGroup struct {
	// Name of the object, with the group's key where an object has several groups.
	Name string
	// PodSet of the object the pod is one of.
	PodSet string
}

// PodGroup reads the group of a pod. It is not found where the operator has yet to write it.
func (k *Kind) PodGroup(pod *corev1.Pod) (group PodGroup, found bool, err error) {
	vars, err := podVars(pod)
	if err != nil {
		return group, false, err
	}
	name, found, err := k.group.object.value(vars)
	if err != nil || !found {
		return group, false, err
	}
	key, found, err := k.group.key.value(vars)
	if err != nil || !found && !k.group.key.isAbsent() {
		return group, false, err
	}
	group.Name = fmt.Sprint(name.Value())
	if found {
		group.Name += "-" + fmt.Sprint(key.Value())
	}
	set, err := k.group.podSet.text(vars)
	group.PodSet = cmp.Or(set, k.podSets[0].Name)
	return group, err == nil, err
}

// PodParent is the name of the object a pod belongs to.
func (k *Kind) PodParent(pod *corev1.Pod) (string, error) {
	vars, err := podVars(pod)
	if err != nil {
		return "", err
	}
	return k.group.object.text(vars)
}

func podVars(pod *corev1.Pod) (map[string]any, error) {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	return map[string]any{"pod": raw}, err
}

// MarkPods writes labels and annotations onto the pod templates of an object.
func (k *Kind) MarkPods(obj *unstructured.Unstructured, labels, annotations map[string]string) error {
	for _, marks := range []struct {
		paths  []FieldPath
		values map[string]string
	}{{k.labels, labels}, {k.annotations, annotations}} {
		for _, p := range marks.paths {
			for key, value := range marks.values {
				if err := p.setKey(obj.Object, key, value); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// PodSetOf describes a pod as it was before any admission.
func PodSetOf(pod *corev1.Pod, name kueue.PodSetReference, count int32) kueue.PodSet {
	template := &corev1.PodTemplateSpec{ObjectMeta: *pod.ObjectMeta.DeepCopy(), Spec: *pod.Spec.DeepCopy()}
	template.Spec.SchedulingGates, template.Spec.NodeName = nil, ""
	return kueue.PodSet{
		Name: name, Count: count, Template: *normalizeTemplate(template),
		TopologyRequest: topologyRequest(&pod.ObjectMeta, numbering{podIndex: ptr.To(kueue.PodGroupPodIndexLabel)}),
	}
}
