package reconcile

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/remote"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// finishWorkloadsOfGone finishes the workloads of a job that the cache does not have.
func (c *controller) finishWorkloadsOfGone(ctx context.Context, kind *kinds.Kind, request ctrl.Request) (ctrl.Result, error) {
	list, err := c.workloadsNamed(ctx, kind, request.Namespace, request.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	return c.finishIfGone(ctx, kind, list)
}

// finishWorkloadsOfPredecessor finishes the workloads of a job that was deleted before this one was created
// under its name: no other reconciliation would.
func (c *controller) finishWorkloadsOfPredecessor(ctx context.Context, kind *kinds.Kind, job client.Object) (ctrl.Result, error) {
	list, err := c.workloadsNamed(ctx, kind, job.GetNamespace(), job.GetName())
	if err != nil {
		return ctrl.Result{}, err
	}
	return c.finishIfGone(ctx, kind, slices.DeleteFunc(list, func(wl kueue.Workload) bool { return metav1.IsControlledBy(&wl, job) }))
}

// workloadsNamed are those of jobs of a name.
func (c *controller) workloadsNamed(ctx context.Context, kind *kinds.Kind, namespace, name string) ([]kueue.Workload, error) {
	list := &kueue.WorkloadList{}
	err := c.client.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{kinds.OwnerNameIndex: kinds.OwnerKey(kind.GVK.GroupKind(), name)})
	return list.Items, err
}

// finishIfGone finishes workloads of which the cache has no job. After a restart the cache of jobs may be
// behind that of workloads, so the API server itself is asked: a job that runs must not lose its workload.
func (c *controller) finishIfGone(ctx context.Context, kind *kinds.Kind, list []kueue.Workload) (ctrl.Result, error) {
	for i := range list {
		owner := metav1.GetControllerOf(&list[i])
		job := &metav1.PartialObjectMetadata{}
		job.SetGroupVersionKind(kind.GVK)
		err := c.filter.Direct.Get(ctx, client.ObjectKey{Namespace: list[i].Namespace, Name: owner.Name}, job)
		if client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
		if err == nil && job.UID == owner.UID {
			return ctrl.Result{RequeueAfter: time.Second}, nil // its event triggers a reconciliation; this is the fallback
		}
	}
	return c.finishOrphans(ctx, list)
}

// finishOrphans finishes the workloads of a job that is gone: until the garbage collector deletes them,
// they would hold their quota. One that was orphaned is no longer the job's, although the cache may be
// behind: that is why the resource version must match.
func (c *controller) finishOrphans(ctx context.Context, list []kueue.Workload) (ctrl.Result, error) {
	for i := range list {
		err := c.finishOrphan(ctx, &list[i])
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: time.Second}, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

// finishOrphan writes the end before the finalizer goes, with which the workload may go, too.
func (c *controller) finishOrphan(ctx context.Context, wl *kueue.Workload) error {
	if !c.leaveOrphans && wl.DeletionTimestamp == nil && !workload.IsFinished(wl) {
		return c.report(ctx, wl, func(wl *kueue.Workload) bool {
			return workload.Finish(wl, kueue.WorkloadFinishedReasonOwnerNotFound, "The workload's owner no longer exists", c.now())
		}) // which triggers another reconciliation
	}
	return workload.RemoveFinalizer(ctx, c.client, wl)
}

// deleteWorkloads deletes the workloads of a job that is no longer queued.
func (c *controller) deleteWorkloads(ctx context.Context, list []kueue.Workload) (ctrl.Result, error) {
	for i := range list {
		wl := &list[i]
		err := c.client.Delete(ctx, wl.DeepCopy(), client.Preconditions{UID: &wl.UID, ResourceVersion: &wl.ResourceVersion})
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: time.Second}, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
		if err := workload.RemoveFinalizer(ctx, c.client, wl); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

// releaseKind removes the finalizer of the workloads of a kind that is no longer queued: no
// controller would do so when their jobs have stopped.
func (c *controller) releaseKind(ctx context.Context, kind *kinds.Kind) error {
	list := &kueue.WorkloadList{}
	if err := c.client.List(ctx, list); err != nil {
		return err
	}
	for i := range list.Items {
		owner := metav1.GetControllerOf(&list.Items[i])
		if owner == nil || owner.Kind != kind.GVK.Kind || owner.APIVersion != kind.GVK.GroupVersion().String() {
			continue
		}
		if err := workload.RemoveFinalizer(ctx, c.client, &list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// stopFinished stops a job whose workload was finished by somebody else.
func (c *controller) stopFinished(ctx context.Context, j GenericJob, wl *kueue.Workload) error {
	if j.IsSuspended() {
		return errors.Join(j.CleanUp(ctx, c.client, wl), c.releaseFinished(ctx, wl))
	}
	finished := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished)
	return c.stop(ctx, j, kinds.Stop{Reason: kinds.StopWorkloadFinished, Message: finished.Message})
}

// releaseFinished removes the finalizer of a workload that the cache shows as finished. One that
// was finished in this reconciliation triggers another.
func (c *controller) releaseFinished(ctx context.Context, wl *kueue.Workload) error {
	if !workload.IsFinished(wl) {
		return nil
	}
	return workload.RemoveFinalizer(ctx, c.client, wl)
}

// stopDeleted stops a job whose workload was deleted. The workload holds its quota until none of
// the job's pods is left; then the job gets a new workload.
func (c *controller) stopDeleted(ctx context.Context, j GenericJob, wl *kueue.Workload) error {
	if !j.IsSuspended() || hasFixedPods(j) {
		if err := c.stop(ctx, j, kinds.Stop{Reason: kinds.StopWorkloadDeleted, Message: "Workload is deleted"}); err != nil || !hasFixedPods(j) {
			return err
		}
	}
	if remote.Dispatched(wl) {
		return nil // until it has stopped there
	}
	active, err := j.IsActive()
	if err != nil || active {
		return err
	}
	if err := c.restore(ctx, j, wl); err != nil {
		return err
	}
	return workload.RemoveFinalizer(ctx, c.client, wl)
}

// releaseDeleted removes the finalizer of the workloads of a job that is being deleted: its deletion may
// wait for theirs.
func (c *controller) releaseDeleted(ctx context.Context, wls []kueue.Workload) error {
	for i := range wls {
		if err := workload.RemoveFinalizer(ctx, c.client, &wls[i]); err != nil {
			return err
		}
	}
	return nil
}
