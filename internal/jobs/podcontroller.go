package jobs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// groupPrefix marks requests that are for a group: no object's name has a slash.
const groupPrefix = "group/"

// groupIndex finds the pods of a group.
const groupIndex = "pod-group"

// pods reconciles jobs that are held back by gates on their pods.
type pods struct {
	*controller
	reader client.Reader // of managed pods
	kind   *Kind
	kinds  *kinds
}

// requestFor is the job a pod belongs to.
func requestFor(obj client.Object) []reconcile.Request {
	if obj.GetLabels()[ManagedLabel] != "true" {
		return nil // its job has a flag of its own
	}
	name := obj.GetName()
	if group := groupOf(obj); group != "" {
		name = groupPrefix + group
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}}}
}

func groupOf(obj client.Object) string {
	if name := obj.GetLabels()[GroupNameLabel]; name != "" {
		return name
	}
	return obj.GetAnnotations()[GroupNameLabel]
}

// requestForWorkload is the pod or group a workload describes.
func requestForWorkload(obj client.Object) []reconcile.Request {
	key := types.NamespacedName{Namespace: obj.GetNamespace()}
	if obj.GetAnnotations()[IsGroupAnnotation] == "true" {
		key.Name = groupPrefix + obj.GetName()
		return []reconcile.Request{{NamespacedName: key}}
	}
	if owner := metav1.GetControllerOf(obj); owner != nil && owner.Kind == "Pod" && owner.APIVersion == "v1" {
		key.Name = owner.Name
		return []reconcile.Request{{NamespacedName: key}}
	}
	return nil
}

// Reconcile brings one pod, or the pods of one group, and their workload
// together.
func (c *pods) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	g, err := c.load(ctx, request)
	if err != nil {
		return ctrl.Result{}, err
	}
	group, isGroup := strings.CutPrefix(request.Name, groupPrefix)
	if g == nil {
		if isGroup {
			return ctrl.Result{}, c.forgetGroup(ctx, request.Namespace, group)
		}
		return c.forget(ctx, request.Namespace, ownerKey(c.kind.GVK.GroupKind(), request.Name))
	}
	wl, err := c.workloadOf(ctx, g)
	if err != nil {
		return ctrl.Result{}, err
	}
	if g.parent != nil {
		c.copies.tell(g.parent.kind, wl)
	}
	next := func() error { return c.step(ctx, g, wl) }
	if !isGroup && g.pods[0].DeletionTimestamp != nil || g.parentGone {
		next = func() error { // its workload goes with it
			err := g.settle(ctx, c.client, nil)
			switch {
			case err != nil || wl == nil:
			case wl.DeletionTimestamp != nil:
				err = c.part(ctx, g, wl)
			case !isGroup:
				err = c.depart(ctx, g, wl)
			}
			return err
		}
	}
	if isGroup && wl != nil && wl.Annotations[IsGroupAnnotation] != "true" && metav1.GetControllerOf(wl) != nil {
		next = func() error { return c.disown(ctx, g, wl.Name) }
	}
	result, err := c.result(g, next())
	if due := g.stuckAt(); err == nil && result.RequeueAfter == 0 && due > 0 {
		result.RequeueAfter = due
	}
	return result, err
}

// depart gives the quota of an evicted pod back as soon as it does not run any
// more, or its node has not said so in time: it may still be there for long.
func (c *pods) depart(ctx context.Context, g *podGroup, wl *kueue.Workload) error {
	return c.giveBack(ctx, g, wl, !c.requeuePods)
}

// disown keeps a group from living on a workload of another job that happens to
// have its name: ending it would take the other's quota.
func (c *pods) disown(ctx context.Context, g *podGroup, name string) error {
	if err := g.letDeletedGo(ctx, c.client); err != nil {
		return err
	}
	return &misfitError{fmt.Errorf("a Workload named %q already exists but is not a pod group workload; this pod group cannot be admitted", name)}
}

// load gathers the pods a request is about; nil if there are none.
func (c *pods) load(ctx context.Context, request ctrl.Request) (*podGroup, error) {
	g := &podGroup{kind: c.kind, now: c.now()}
	group, isGroup := strings.CutPrefix(request.Name, groupPrefix)
	if isGroup {
		list := &corev1.PodList{}
		if err := c.reader.List(ctx, list, client.InNamespace(request.Namespace), client.MatchingFields{groupIndex: group}); err != nil {
			return nil, err
		}
		for i := range list.Items {
			g.pods = append(g.pods, &list.Items[i])
		}
		g.name = group
	} else {
		pod := &corev1.Pod{}
		if err := c.reader.Get(ctx, request.NamespacedName, pod); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		g.pods = []*corev1.Pod{pod}
	}
	if len(g.pods) == 0 {
		return nil, nil
	}
	oldestFirst(g.pods)
	if kind := c.kinds.byName(g.pods[0].Annotations[ParentAnnotation]); isGroup && kind != nil && kind.group != nil {
		return g, g.findParent(ctx, c.client, kind)
	}
	return g, nil
}

func oldestFirst(pods []*corev1.Pod) {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
}

func (c *pods) workloadOf(ctx context.Context, g *podGroup) (*kueue.Workload, error) {
	wl := &kueue.Workload{}
	err := c.client.Get(ctx, types.NamespacedName{Namespace: g.pods[0].Namespace, Name: g.workloadName()}, wl)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return wl, err
}

// forgetGroup deletes the workload of a group that has no pods left. New ones
// get a new one, and no worse a place: an evicted workload stands in line by
// the time of its eviction.
func (c *pods) forgetGroup(ctx context.Context, namespace, group string) error {
	wl := &kueue.Workload{}
	if err := c.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: group}, wl); err != nil {
		return client.IgnoreNotFound(err)
	}
	if wl.Annotations[IsGroupAnnotation] != "true" || len(wl.OwnerReferences) == 0 {
		return nil // its pods are yet to come
	}
	if wl.Labels[kueue.MultiKueueOriginLabel] == "" || metav1.GetControllerOf(wl) == nil || wl.DeletionTimestamp != nil {
		return c.drop(ctx, wl)
	}
	// Its object will have other pods, and it goes when the cluster says so that sent it.
	if workload.IsEvicted(wl) && workload.HasReservation(wl) {
		return c.release(ctx, wl, false)
	}
	return nil
}

func podVars(pod *corev1.Pod) (map[string]any, error) {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	return map[string]any{"pod": raw}, err
}
