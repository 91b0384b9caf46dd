package writes

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// WorkloadStatus writes what the queue owns of a workload's status.
func WorkloadStatus(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.Workload, error) {
	patch, err := workload.AdmissionPatch(wl)
	if err != nil {
		return nil, err
	}
	return apply(ctx, c, wl, patch, workload.AdmissionManager)
}

// StatusWithoutRequeueState is WorkloadStatus for one that has no requeue state any more. An apply removes
// a field only if nobody else wrote it.
func StatusWithoutRequeueState(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.Workload, error) {
	written, err := WorkloadStatus(ctx, c, wl)
	if err != nil {
		return nil, err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": written.ResourceVersion},
		"status":   map[string]any{"requeueState": nil},
	})
	if err != nil {
		return nil, err
	}
	return patchStatus(ctx, c, written, types.MergePatchType, patch, client.FieldOwner(workload.AdmissionManager))
}

// StatusWithoutChecks is WorkloadStatus for one that has no admission checks any more. Controllers of checks wrote them,
// too: an apply that leaves all of them out would leave a list that is none.
func StatusWithoutChecks(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.Workload, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": wl.ResourceVersion},
		"status":   map[string]any{"admissionChecks": nil},
	})
	if err != nil {
		return nil, err
	}
	written, err := patchStatus(ctx, c, wl, types.MergePatchType, patch, client.FieldOwner(workload.AdmissionManager))
	if err != nil {
		return nil, err
	}
	return WorkloadStatus(ctx, c, written)
}

func apply(ctx context.Context, c client.Client, wl *kueue.Workload, patch []byte, manager string) (*kueue.Workload, error) {
	return patchStatus(ctx, c, wl, types.ApplyYAMLPatchType, patch, client.FieldOwner(manager), client.ForceOwnership)
}

// patchStatus asks for the metadata alone in return: the patch names the version it was made from, so
// that the status is what was sent.
func patchStatus(ctx context.Context, c client.Client, wl *kueue.Workload, kind types.PatchType, patch []byte, options ...client.SubResourcePatchOption) (*kueue.Workload, error) {
	written := &metav1.PartialObjectMetadata{TypeMeta: workloadType}
	written.Namespace, written.Name = wl.Namespace, wl.Name
	if err := c.Status().Patch(ctx, written, client.RawPatch(kind, patch), append(options, noFieldValidation)...); err != nil {
		return nil, err
	}
	now := *wl
	now.ResourceVersion, now.Generation = written.ResourceVersion, written.Generation
	return &now, nil
}

// program is the field manager of what no field manager of Kueue owns.
const program = "elastic-queue"

// noFieldValidation saves the API server a second parse in search of unknown fields: our patches are
// made from types.
const noFieldValidation = client.FieldValidation(metav1.FieldValidationIgnore)

var workloadType = metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "Workload"}

// QueueStatus writes the whole status of a ClusterQueue, LocalQueue, Cohort or QueuePolicy, so that what is no
// longer true is removed.
func QueueStatus(ctx context.Context, c client.Client, queue client.Object) error {
	gvk, err := c.GroupVersionKindFor(queue)
	if err != nil {
		return err
	}
	var status any
	switch q := queue.(type) {
	case *kueue.ClusterQueue:
		status = q.Status
	case *kueue.LocalQueue:
		status = q.Status
	case *kueue.Cohort:
		status = q.Status
	case *queuepolicy.QueuePolicy:
		status = q.Status
	}
	patch, err := json.Marshal(map[string]any{
		"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind,
		"metadata": map[string]any{"name": queue.GetName(), "namespace": queue.GetNamespace()},
		"status":   status,
	})
	if err != nil {
		return err
	}
	// The client's rate limits are per kind; asking for metadata alone would share that of workloads.
	written := queue.DeepCopyObject().(client.Object)
	return c.Status().Patch(ctx, written, client.RawPatch(types.ApplyYAMLPatchType, patch),
		client.FieldOwner(program), client.ForceOwnership, noFieldValidation)
}

// FinishedStatus writes that a workload is finished, in place of its job, which is gone.
func FinishedStatus(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.Workload, error) {
	patch, err := workload.JobPatch(wl)
	if err != nil {
		return nil, err
	}
	return apply(ctx, c, wl, patch, workload.JobManager)
}

// Active writes whether a workload takes part in queueing.
func Active(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.Workload, error) {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"active": workload.IsActive(wl)}})
	if err != nil {
		return nil, err
	}
	written := wl.DeepCopy()
	return written, c.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch))
}

// MarkParent labels a workload that has variants.
func MarkParent(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.Workload, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels": map[string]string{kueuelabels.ConcurrentAdmissionParent: wl.Labels[kueuelabels.ConcurrentAdmissionParent]},
	}})
	if err != nil {
		return nil, err
	}
	written := wl.DeepCopy()
	return written, c.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(program))
}

// Met writes what a workload says has come true of what it waits for.
func Met(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.Workload, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": wl.ResourceVersion,
		"annotations":     map[string]string{queuepolicy.AfterMetAnnotation: wl.Annotations[queuepolicy.AfterMetAnnotation]},
	}})
	if err != nil {
		return nil, err
	}
	written := wl.DeepCopy()
	return written, c.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(program))
}

// Finalizers writes those of a workload. It names the version, so that nobody's are lost.
func Finalizers(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.Workload, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": wl.ResourceVersion, "finalizers": wl.Finalizers}})
	if err != nil {
		return nil, err
	}
	written := wl.DeepCopy()
	return written, c.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(program))
}

// FinalizersAndStatus writes the finalizers of a workload, and its status only then.
func FinalizersAndStatus(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.Workload, error) {
	written, err := Finalizers(ctx, c, wl)
	if err != nil {
		return nil, err
	}
	written.Status = wl.Status
	return WorkloadStatus(ctx, c, written)
}

// Account writes a LocalQueue's account, or deletes it if there is nothing in it. It names the version: of two leaders
// one writes.
func Account(ctx context.Context, c client.Client, account *queuepolicy.BudgetAccount) error {
	switch {
	case account.ResourceVersion == "":
		return c.Create(ctx, account, client.FieldOwner(program))
	case len(account.Status.Sums)+len(account.Status.Settled) == 0:
		return c.Delete(ctx, account, client.Preconditions{UID: &account.UID, ResourceVersion: &account.ResourceVersion})
	}
	return c.Update(ctx, account, client.FieldOwner(program))
}

// Delete deletes a workload whose retention has ended: a finished one alone, a deactivated one
// with its job, which would only create another workload.
func Delete(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.Workload, error) {
	if workload.IsFinished(wl) || len(wl.OwnerReferences) == 0 {
		return wl, workload.Delete(ctx, c, wl)
	}
	for _, owner := range wl.OwnerReferences {
		job := &metav1.PartialObjectMetadata{}
		job.SetGroupVersionKind(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind))
		job.Namespace, job.Name = wl.Namespace, owner.Name
		err := c.Delete(ctx, job, client.Preconditions{UID: &owner.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
	}
	return wl, nil
}

// Finalizer adds Kueue's finalizer to an object that is in use, and removes it from one that was
// deleted. Adding does not name a version, as the status is written at the same time.
func Finalizer(ctx context.Context, c client.Client, obj client.Object) error {
	changed := obj.DeepCopyObject().(client.Object)
	if obj.GetDeletionTimestamp() != nil {
		controllerutil.RemoveFinalizer(changed, kueue.ResourceInUseFinalizerName)
		return c.Patch(ctx, changed, client.MergeFromWithOptions(obj, client.MergeFromWithOptimisticLock{}))
	}
	gvk, err := c.GroupVersionKindFor(obj)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{
		"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind,
		"metadata": map[string]any{"name": obj.GetName(), "uid": obj.GetUID(), "finalizers": []string{kueue.ResourceInUseFinalizerName}},
	})
	if err != nil {
		return err
	}
	return c.Patch(ctx, changed, client.RawPatch(types.ApplyYAMLPatchType, patch), client.FieldOwner(program), noFieldValidation)
}
