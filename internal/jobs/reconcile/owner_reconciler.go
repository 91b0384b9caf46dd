package reconcile

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/podgroups"
	"github.com/elastic-ai/elastic/internal/jobs/remote"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// ownerReconciler reconciles objects without a suspend flag that own their pods, such as StatefulSets. Their
// workload is there before their pods are, and stays, on hold, while they want none.
type ownerReconciler struct {
	*podReconciler
	kind *kinds.Kind
}

// Reconcile brings one object, its pods and its workload together.
func (c *ownerReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if ready, err := c.caughtUp(ctx); !ready || err != nil {
		return ctrl.Result{RequeueAfter: catchUpPause}, err
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(c.kind.GVK)
	err := c.client.Get(ctx, request.NamespacedName, obj)
	if apierrors.IsNotFound(err) || err == nil && obj.GetDeletionTimestamp() != nil {
		return c.reconcileWorkloadsOf(ctx, request)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if managed, err := c.filter.Manages(ctx, c.kind, obj); err != nil || !managed {
		return ctrl.Result{}, err
	}
	g := &podgroups.Group{Kind: c.podReconciler.kind, Now: c.now(), Recorder: c.recorder, GateRemoved: c.gateRemoved}
	if g.Name = kinds.PrebuiltName(obj); g.Name == "" {
		if g.Name, err = c.kind.GroupName(ctx, c.client, request.NamespacedName, obj.GetUID()); err != nil {
			return ctrl.Result{}, err
		}
	}
	parent := c.kind.Object(obj)
	g.Parent = &parent
	list := &corev1.PodList{}
	if err := c.reader.List(ctx, list, client.InNamespace(request.Namespace), client.MatchingFields{groupIndex: g.Name}); err != nil {
		return ctrl.Result{}, err
	}
	for i := range list.Items {
		g.Pods = append(g.Pods, &list.Items[i])
	}
	podgroups.SortOldestFirst(g.Pods)
	return c.reconcileGroup(ctx, g)
}

// reconcileWorkloadsOf is for an object that is gone: its workloads go when their pods have gone.
func (c *ownerReconciler) reconcileWorkloadsOf(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	wls, err := c.workloadsNamed(ctx, c.kind, request.Namespace, request.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	var last ctrl.Result
	for i := range wls {
		for _, group := range requestForWorkload(&wls[i]) {
			if last, err = c.podReconciler.Reconcile(ctx, group); err != nil {
				return last, err
			}
		}
	}
	return last, nil
}

// loadOwner completes a group without pods by the object that its workload belongs to; nil if there is none.
func (c *podReconciler) loadOwner(ctx context.Context, g *podgroups.Group, namespace string) (*podgroups.Group, error) {
	wl := &kueue.Workload{}
	if err := c.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: g.Name}, wl); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	owner := metav1.GetControllerOf(wl)
	if owner == nil {
		return nil, nil
	}
	kind := c.kinds.ByGVK(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind))
	if kind == nil || !kind.OwnsGroup() {
		return nil, nil
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind.GVK)
	err := c.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: owner.Name}, obj)
	if apierrors.IsNotFound(err) || err == nil && (obj.GetUID() != owner.UID || obj.GetDeletionTimestamp() != nil) {
		return nil, nil
	}
	parent := kind.Object(obj)
	g.Parent = &parent
	return g, err
}

// followZero puts the workload of an object on hold that wants no pods, and has it queued again when it wants
// some. It reports whether there is nothing else to do.
func (c *podReconciler) followZero(ctx context.Context, g *podgroups.Group, wl *kueue.Workload) (bool, error) {
	counts, err := g.Parent.Counts()
	if err != nil {
		return true, &kinds.UnretryableError{Err: err}
	}
	wanted := int32(0)
	for _, count := range counts {
		wanted += count
	}
	switch {
	case wl == nil:
		return wanted == 0, g.ReleaseDeleted(ctx, c.client)
	case wl.DeletionTimestamp != nil || workload.IsFinished(wl) || !workload.IsActive(wl) || isCopy(g) || remote.Dispatched(wl):
		return false, nil
	case wanted > 0 && workload.IsOnHold(wl):
		return true, c.writeQuota(ctx, wl, func(wl *kueue.Workload) bool { return workload.Unhold(wl, c.now()) })
	case wanted > 0 || workload.IsEvicted(wl) && workload.HasReservation(wl):
		return false, nil
	}
	message := fmt.Sprintf("%s scaled to zero; workload on hold", g.Parent.GetKind())
	if err := c.writeQuota(ctx, wl, func(wl *kueue.Workload) bool { return workload.Hold(wl, message, c.now()) }); err != nil {
		return true, err
	}
	return true, g.ReleaseDeleted(ctx, c.client)
}
