package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// AddFinalizer makes a deleted workload stay until its job has stopped: quota that is still in use
// must not go to others.
func AddFinalizer(wl *kueue.Workload) {
	controllerutil.AddFinalizer(wl, kueue.ResourceInUseFinalizerName)
}

// HasFinalizer says that a deleted workload would stay.
func HasFinalizer(wl *kueue.Workload) bool {
	return controllerutil.ContainsFinalizer(wl, kueue.ResourceInUseFinalizerName)
}

// RemoveFinalizer lets a deleted workload go. It changes only that, whatever else happens to the
// workload meanwhile.
func RemoveFinalizer(ctx context.Context, c client.Client, wl *kueue.Workload) error {
	i := slices.Index(wl.Finalizers, kueue.ResourceInUseFinalizerName)
	if i < 0 {
		return nil
	}
	patch := fmt.Sprintf(`[{"op":"test","path":"/metadata/uid","value":%q},{"op":"test","path":"/metadata/finalizers/%d","value":%q},{"op":"remove","path":"/metadata/finalizers/%d"}%s]`,
		wl.UID, i, kueue.ResourceInUseFinalizerName, i, stoppedPatch(wl, time.Now()))
	return client.IgnoreNotFound(c.Patch(ctx, wl.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(patch))))
}

// Delete deletes a workload that its job no longer needs.
func Delete(ctx context.Context, c client.Client, wl *kueue.Workload) error {
	if err := RemoveFinalizer(ctx, c, wl); err != nil || wl.DeletionTimestamp != nil {
		return err
	}
	return client.IgnoreNotFound(c.Delete(ctx, wl, client.Preconditions{UID: &wl.UID}))
}
