package reconcile

import (
	"context"
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

// forget deletes the workload of a job that is gone, rather than leave its
// quota taken until the garbage collector comes by. One that the job has left
// behind (an orphan) is not the job's any more, though the cache may yet say so.
func (c *controller) deleteWorkloadsOf(ctx context.Context, namespace, owner string) (ctrl.Result, error) {
	list := &kueue.WorkloadList{}
	if err := c.client.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{kinds.OwnerNameIndex: owner}); err != nil {
		return ctrl.Result{}, err
	}
	for i := range list.Items {
		wl := &list.Items[i]
		err := c.client.Delete(ctx, wl.DeepCopy(), client.Preconditions{UID: &wl.UID, ResourceVersion: &wl.ResourceVersion})
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: time.Second}, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
		if err := workload.LetGo(ctx, c.client, wl); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

func (c *controller) drop(ctx context.Context, wl *kueue.Workload) error {
	return workload.Remove(ctx, c.client, wl)
}

// abandon lets go of the workloads of a kind that is no longer queued: nobody
// will when its jobs have stopped.
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
		if err := workload.LetGo(ctx, c.client, &list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// outlived stops a job whose workload was finished by someone else.
func (c *controller) stopFinished(ctx context.Context, j GenericJob, wl *kueue.Workload) error {
	if j.IsSuspended() {
		return c.releaseFinished(ctx, wl)
	}
	finished := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished)
	return c.stop(ctx, j, finished.Message)
}

// letGo takes the finalizer off a workload that is seen to be finished; one that
// was just written as such wakes us.
func (c *controller) releaseFinished(ctx context.Context, wl *kueue.Workload) error {
	if !workload.IsFinished(wl) {
		return nil
	}
	return workload.LetGo(ctx, c.client, wl)
}

// part stops a job whose workload was deleted. It holds its quota until none of
// the job's pods is left; then the job asks for another.
func (c *controller) stopDeleted(ctx context.Context, j GenericJob, wl *kueue.Workload) error {
	if !j.IsSuspended() {
		return c.stop(ctx, j, "Workload is deleted")
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
	return workload.LetGo(ctx, c.client, wl)
}

// leave lets go of the workloads of a job that is being deleted: it may wait for
// them to be gone.
func (c *controller) releaseDeleted(ctx context.Context, wls []kueue.Workload) error {
	for i := range wls {
		if wls[i].DeletionTimestamp == nil {
			continue
		}
		if err := workload.LetGo(ctx, c.client, &wls[i]); err != nil {
			return err
		}
	}
	return nil
}
