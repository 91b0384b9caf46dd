package workload

import (
	"context"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Keep has a deleted workload stay until its job has stopped: quota that is
// still in use must not be given to others.
func Keep(wl *kueue.Workload) { controllerutil.AddFinalizer(wl, kueue.ResourceInUseFinalizerName) }

// IsKept says that a deleted workload would stay.
func IsKept(wl *kueue.Workload) bool {
	return controllerutil.ContainsFinalizer(wl, kueue.ResourceInUseFinalizerName)
}

// LetGo ends what Keep began, at the version it was decided on.
func LetGo(ctx context.Context, c client.Client, wl *kueue.Workload) error {
	if !IsKept(wl) {
		return nil
	}
	free := wl.DeepCopy()
	controllerutil.RemoveFinalizer(free, kueue.ResourceInUseFinalizerName)
	return client.IgnoreNotFound(c.Patch(ctx, free, client.MergeFromWithOptions(wl, client.MergeFromWithOptimisticLock{})))
}

// Remove deletes a workload whose job needs it no longer.
func Remove(ctx context.Context, c client.Client, wl *kueue.Workload) error {
	if err := LetGo(ctx, c, wl); err != nil || wl.DeletionTimestamp != nil {
		return err
	}
	return client.IgnoreNotFound(c.Delete(ctx, wl, client.Preconditions{UID: &wl.UID}))
}
