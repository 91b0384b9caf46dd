package reconcile

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/podgroups"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// groupPrefix marks requests for a group: the name of an object has no slash.
const groupPrefix = "group/"

// groupIndex finds the pods of a group.
const groupIndex = "pod-group"

// podReconciler reconciles jobs that are held by gates on their pods.
type podReconciler struct {
	*controller
	reader client.Reader // of managed pods
	kind   *kinds.Kind
	kinds  *kinds.InUse
}

// requestForPod is the job a pod belongs to.
func requestForPod(obj client.Object) []reconcile.Request {
	if obj.GetLabels()[kinds.ManagedLabel] != "true" {
		return nil // its job has a suspend flag
	}
	name := obj.GetName()
	if group := podgroups.GroupName(obj); group != "" {
		name = groupPrefix + group
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}}}
}

// requestForWorkload is the pod or group a workload describes.
func requestForWorkload(obj client.Object) []reconcile.Request {
	key := types.NamespacedName{Namespace: obj.GetNamespace()}
	if obj.GetAnnotations()[kinds.IsGroupAnnotation] == "true" {
		key.Name = groupPrefix + obj.GetName()
		return []reconcile.Request{{NamespacedName: key}}
	}
	if owner := metav1.GetControllerOf(obj); owner != nil && owner.Kind == "Pod" && owner.APIVersion == "v1" {
		key.Name = owner.Name
		return []reconcile.Request{{NamespacedName: key}}
	}
	return nil
}

// Reconcile brings one pod, or the pods of one group, and their workload together.
func (c *podReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if ready, err := c.caughtUp(ctx); !ready || err != nil {
		return ctrl.Result{RequeueAfter: catchUpPause}, err
	}
	g, err := c.load(ctx, request)
	if err != nil {
		return ctrl.Result{}, err
	}
	group, isGroup := strings.CutPrefix(request.Name, groupPrefix)
	switch {
	case g == nil && isGroup:
		return ctrl.Result{}, c.deleteGroupWorkload(ctx, request.Namespace, group)
	case g == nil:
		return c.finishWorkloadsOfGone(ctx, c.kind, request)
	case !isGroup: // a StatefulSet makes its pods again under their names
		if again, err := c.finishWorkloadsOfPredecessor(ctx, c.kind, g.Pods[0]); err != nil || again.RequeueAfter > 0 {
			return again, err
		}
	}
	return c.reconcileGroup(ctx, g)
}

// reconcileGroup brings pods and their workload together.
func (c *podReconciler) reconcileGroup(ctx context.Context, g *podgroups.Group) (ctrl.Result, error) {
	isGroup := g.Name != ""
	wl, err := c.workloadOf(ctx, g)
	if err != nil {
		return ctrl.Result{}, err
	}
	if g.Parent != nil {
		c.adapters.JobChanged(g.Parent.Row(), wl)
	}
	result, err := c.result(g, c.stepPods(ctx, g, wl, isGroup))
	if due := g.TerminationDue(); err == nil && result.RequeueAfter == 0 && due > 0 {
		result.RequeueAfter = due
	}
	return result, err
}

// stepPods does what comes next for pods and their workload.
func (c *podReconciler) stepPods(ctx context.Context, g *podgroups.Group, wl *kueue.Workload, isGroup bool) error {
	switch {
	case isGroup && wl != nil && isForeign(g, wl):
		return c.refuseForeignWorkload(ctx, g, wl.Name)
	case !isGroup && g.Pods[0].DeletionTimestamp != nil || g.ParentGone:
		return c.cleanUpDeleted(ctx, g, wl, isGroup)
	case g.Parent != nil && g.Parent.Row().OwnsGroup():
		if done, err := c.followZero(ctx, g, wl); done || err != nil {
			return err
		}
	case wl != nil && wl.DeletionTimestamp == nil && !g.Match(wl):
		return c.describeAnew(ctx, g, wl)
	}
	return c.ownAndStep(ctx, g, wl)
}

// ownAndStep makes the pods owners of their workload first: its events then come here.
func (c *podReconciler) ownAndStep(ctx context.Context, g *podgroups.Group, wl *kueue.Workload) error {
	if wl != nil && wl.DeletionTimestamp == nil && !workload.IsFinished(wl) {
		if added, err := g.Own(ctx, c.client, wl); added || err != nil {
			return err
		}
	}
	return c.step(ctx, g, wl)
}

// isForeign: the workload is not that of a group, and not one that its pods name.
func isForeign(g *podgroups.Group, wl *kueue.Workload) bool {
	return wl.Annotations[kinds.IsGroupAnnotation] != "true" && (metav1.GetControllerOf(wl) != nil || kinds.PrebuiltName(g.Meta()) != wl.Name)
}

// cleanUpDeleted is for pods that are deleted: their workload is deleted with them.
func (c *podReconciler) cleanUpDeleted(ctx context.Context, g *podgroups.Group, wl *kueue.Workload, isGroup bool) error {
	err := g.CleanUp(ctx, c.client, nil)
	switch {
	case err != nil || wl == nil:
		return err
	case wl.DeletionTimestamp != nil:
		return c.stopDeleted(ctx, g, wl)
	case !isGroup:
		return c.releaseDeletedPod(ctx, g, wl)
	}
	return nil
}

// describeAnew is for a workload that describes none of a group's pods.
func (c *podReconciler) describeAnew(ctx context.Context, g *podgroups.Group, wl *kueue.Workload) error {
	switch {
	case !g.IsSuspended():
		return c.stop(ctx, g, kinds.Stop{Reason: kinds.StopNoMatchingWorkload, Message: "No matching Workload; restoring pod templates according to existent Workload"})
	case workload.HasReservation(wl) || workload.IsFinished(wl):
		return c.deleteNotMatching(ctx, g, wl)
	}
	if err := g.Compose(ctx, c.client); err != nil {
		return err
	}
	sets, err := c.builder.PodSets(ctx, g)
	if err != nil {
		return err
	}
	wanted := wl.DeepCopy()
	wanted.Spec.PodSets = sets
	return c.client.Update(ctx, wanted)
}

// releaseDeletedPod releases the quota of an evicted pod as soon as it has stopped, or its node has
// not reported that in time: the pod object may remain for long.
func (c *podReconciler) releaseDeletedPod(ctx context.Context, g *podgroups.Group, wl *kueue.Workload) error {
	return c.releaseWhenStopped(ctx, g, wl, !c.requeuePods)
}

// refuseForeignWorkload refuses a group that has the name of another job's workload: finishing that
// workload would release the quota of the other job.
func (c *podReconciler) refuseForeignWorkload(ctx context.Context, g *podgroups.Group, name string) error {
	if err := g.ReleaseDeleted(ctx, c.client); err != nil {
		return err
	}
	c.recorder.Eventf(g.Meta(), nil, corev1.EventTypeWarning, "WorkloadNameConflict", "Admission",
		"A Workload named %q already exists but is not a pod group workload; this pod group cannot be admitted", name)
	return nil
}

// load reads the pods a request is about; nil if there are none.
func (c *podReconciler) load(ctx context.Context, request ctrl.Request) (*podgroups.Group, error) {
	g := &podgroups.Group{Kind: c.kind, Now: c.now(), Recorder: c.recorder, GateRemoved: c.gateRemoved}
	group, isGroup := strings.CutPrefix(request.Name, groupPrefix)
	if isGroup {
		list := &corev1.PodList{}
		if err := c.reader.List(ctx, list, client.InNamespace(request.Namespace), client.MatchingFields{groupIndex: group}); err != nil {
			return nil, err
		}
		for i := range list.Items {
			g.Pods = append(g.Pods, &list.Items[i])
		}
		g.Name = group
	} else {
		pod := &corev1.Pod{}
		if err := c.reader.Get(ctx, request.NamespacedName, pod); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		g.Pods = []*corev1.Pod{pod}
	}
	if len(g.Pods) == 0 {
		return c.loadOwner(ctx, g, request.Namespace)
	}
	podgroups.SortOldestFirst(g.Pods)
	if kind := c.kinds.ByName(g.Pods[0].Annotations[kinds.ParentAnnotation]); isGroup && kind != nil && kind.GroupsPods() {
		return g, g.FindParent(ctx, c.client, kind)
	}
	return g, nil
}

func (c *podReconciler) workloadOf(ctx context.Context, g *podgroups.Group) (*kueue.Workload, error) {
	wl := &kueue.Workload{}
	err := c.client.Get(ctx, types.NamespacedName{Namespace: g.Meta().GetNamespace(), Name: g.WorkloadName()}, wl)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return wl, err
}

// deleteGroupWorkload lets the workload of a group go that has no pods left. New pods of an object get a
// new workload, at no worse a position in the queue: an evicted workload is ordered by the time of its
// eviction.
func (c *podReconciler) deleteGroupWorkload(ctx context.Context, namespace, group string) error {
	wl := &kueue.Workload{}
	if err := c.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: group}, wl); err != nil {
		return client.IgnoreNotFound(err)
	}
	if wl.Annotations[kinds.IsGroupAnnotation] != "true" || len(wl.OwnerReferences) == 0 {
		return nil // its pods have yet to be created
	}
	switch {
	case metav1.GetControllerOf(wl) == nil: // the garbage collector deletes it, unless new pods come before
		return workload.RemoveFinalizer(ctx, c.client, wl)
	case wl.Labels[kueue.MultiKueueOriginLabel] == "" || wl.DeletionTimestamp != nil:
		return workload.Delete(ctx, c.client, wl)
	}
	// The object will have new pods, and the cluster that dispatched the workload deletes it.
	if workload.IsEvicted(wl) && workload.HasReservation(wl) {
		return c.releaseQuota(ctx, wl, false)
	}
	return nil
}
