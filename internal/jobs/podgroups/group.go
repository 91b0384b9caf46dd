package podgroups

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// Group is a job that is held by gates on its pods: a single pod, the pods of a group, or the pods
// of an object without a suspend flag.
type Group struct {
	Kind *kinds.Kind
	// Name of the group; empty for a single pod.
	Name string
	Pods []*corev1.Pod // the oldest first
	// Parent is the object the pods belong to, if that describes the group; ParentGone: it was deleted.
	Parent     *kinds.Object
	ParentGone bool
	Now        time.Time
	surplus
	// Recorder, if set, tells users what becomes of their pods.
	Recorder events.EventRecorder
	// GateRemoved, if set, is called for each pod that is started.
	GateRemoved func(gate string, wl *kueue.Workload, group bool)
}

// Meta is the oldest pod, or the object that has none yet.
func (g *Group) Meta() client.Object {
	if len(g.Pods) == 0 {
		return g.Parent.Unstructured
	}
	return g.Pods[0]
}

func (g *Group) Members() []client.Object {
	if len(g.Pods) == 0 {
		return []client.Object{g.Parent.Unstructured}
	}
	out := make([]client.Object, len(g.Pods))
	for i, pod := range g.Pods {
		out[i] = pod
	}
	return out
}

func (g *Group) Row() *kinds.Kind { return g.Kind }

// HandedOver is false: pods that another cluster runs stay gated instead.
func (g *Group) HandedOver() bool { return false }

// PriorityClass is empty: pods name theirs in their own spec.
func (g *Group) PriorityClass() (string, error) { return "", nil }

// Serving: the group belongs to an object that replaces its pods, and never ends.
func (g *Group) Serving() bool {
	return g.Parent != nil || g.Pods[0].Annotations[kinds.GroupServing] == "true"
}

// fast: the group may be admitted before all of its pods are there.
func (g *Group) fast() bool {
	return slices.ContainsFunc(g.Pods, func(pod *corev1.Pod) bool { return pod.Annotations[kinds.GroupFastAdmission] == "true" })
}

// total is the number of pods the group is to have.
func (g *Group) total() (int, error) {
	if g.Name == "" {
		return 1, nil
	}
	text := g.Pods[len(g.Pods)-1].Annotations[kinds.GroupTotal]
	total, err := strconv.Atoi(text)
	if err != nil || total < 1 {
		return 0, &kinds.UnretryableError{Err: fmt.Errorf("annotation %s: %q is not a number of pods", kinds.GroupTotal, text)}
	}
	return total, nil
}

func (g *Group) WorkloadName() string {
	if name := kinds.PrebuiltName(g.Meta()); name != "" {
		return name
	}
	if g.Name != "" {
		return g.Name
	}
	return kinds.WorkloadName(g.Kind.GVK, g.Pods[0].Name, g.Pods[0].UID)
}

func (g *Group) SetOwner(wl *kueue.Workload) {
	if g.Name == "" {
		kinds.OwnWorkload(wl, g.Pods[0], g.Kind.GVK)
		if of := g.Pods[0].Annotations[v1alpha1.ExtraOfAnnotation]; of != "" {
			kinds.SetAnnotation(wl, v1alpha1.ExtraOfAnnotation, of)
			wl.Spec.Priority = ptr.To[int32](math.MinInt32)
		}
		return
	}
	if g.Parent != nil {
		wl.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(g.Parent.Unstructured, g.Parent.Row().GVK)}
	} else {
		for _, pod := range g.Pods {
			has := slices.ContainsFunc(wl.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == pod.UID })
			if !has {
				wl.OwnerReferences = append(wl.OwnerReferences, metav1.OwnerReference{
					APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
				})
			}
		}
	}
	wl.Annotations = maps.Clone(wl.Annotations)
	if wl.Annotations == nil {
		wl.Annotations = map[string]string{}
	}
	wl.Annotations[kinds.IsGroupAnnotation] = "true"
}

// FindParent reads the object that describes the group.
func (g *Group) FindParent(ctx context.Context, c client.Reader, kind *kinds.Kind) error {
	name, err := kind.PodParent(g.Pods[0])
	if err != nil {
		return err
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind.GVK)
	err = c.Get(ctx, client.ObjectKey{Namespace: g.Pods[0].Namespace, Name: name}, obj)
	if apierrors.IsNotFound(err) {
		g.ParentGone = true
		return nil
	}
	if err == nil {
		parent := kind.Object(obj)
		g.Parent = &parent
	}
	return err
}

// GroupName is the group a pod belongs to; "" for none.
func GroupName(obj client.Object) string { return kinds.PodGroupName(obj) }

// SortOldestFirst sorts pods by age, then by name.
func SortOldestFirst(pods []*corev1.Pod) {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
}
