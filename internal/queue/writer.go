package queue

import (
	"context"
	"encoding/json"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// workloadWrite is a workload as it is to be, and how to make it so.
type workloadWrite struct {
	workload *kueue.Workload
	write    writeFunc
	paced    bool // it counts as a decision under way
}

// writeFunc writes a workload and returns it as the API server then has it.
type writeFunc func(context.Context, client.Client, *kueue.Workload) (*kueue.Workload, error)

// writeResult comes back to the loop when a workload was written.
type writeResult struct {
	sent    workloadWrite   // what the loop asked for
	written *kueue.Workload // what the API server now has; nil after an error
	err     error
}

// statusResult comes back when a queue's status was written.
type statusResult struct {
	queue client.Object
	err   error
}

func writeWorkload(ctx context.Context, c client.Client, wl *kueue.Workload) (*kueue.Workload, error) {
	patch, err := workload.AdmissionPatch(wl)
	if err != nil {
		return nil, err
	}
	return applyStatus(ctx, c, wl, patch, workload.AdmissionManager)
}

// applyStatus asks for the metadata alone in return: the patch names the version
// it was made from, so that the status is what was sent, and no one else's.
func applyStatus(ctx context.Context, c client.Client, wl *kueue.Workload, patch []byte, manager string) (*kueue.Workload, error) {
	written := &metav1.PartialObjectMetadata{TypeMeta: workloadType}
	written.Namespace, written.Name = wl.Namespace, wl.Name
	err := c.Status().Patch(ctx, written, client.RawPatch(types.ApplyYAMLPatchType, patch), client.FieldOwner(manager), client.ForceOwnership, ours)
	if err != nil {
		return nil, err
	}
	now := *wl
	now.ResourceVersion, now.Generation = written.ResourceVersion, written.Generation
	return &now, nil
}

// program is the field manager of what is not Kueue's to manage by name.
const program = "elastic-queue"

// ours: patches are made from types, so that the API server need not parse them a
// second time in search of fields it does not know.
const ours = client.FieldValidation(metav1.FieldValidationIgnore)

var workloadType = metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "Workload"}

// writeStatus applies all of the status, so that what is no longer true goes.
func writeStatus(ctx context.Context, c client.Client, queue client.Object) error {
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
	}
	patch, err := json.Marshal(map[string]any{
		"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind,
		"metadata": map[string]any{"name": queue.GetName(), "namespace": queue.GetNamespace()},
		"status":   status,
	})
	if err != nil {
		return err
	}
	// Each kind has a limit of requests of its own; asking for metadata alone would
	// have it share that of workloads.
	written := queue.DeepCopyObject().(client.Object)
	return c.Status().Patch(ctx, written, client.RawPatch(types.ApplyYAMLPatchType, patch),
		client.FieldOwner(program), client.ForceOwnership, ours)
}

func (s *Shell) writeWorkload(ctx context.Context, w workloadWrite) {
	written, err := w.write(ctx, s.client, w.workload)
	s.options.Metrics.inc("elastic_writes_total", "workload", outcome(err))
	s.inbox.Put(message{result: &writeResult{sent: w, written: written, err: err}})
}

func (s *Shell) writeStatus(ctx context.Context, queue client.Object) {
	err := writeStatus(ctx, s.client, queue)
	s.options.Metrics.inc("elastic_writes_total", "queue", outcome(err))
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		s.options.Log.Error(err, "writing a queue's status failed, trying again", "queue", client.ObjectKeyFromObject(queue).String())
	}
	s.inbox.Put(message{status: &statusResult{queue: queue, err: client.IgnoreNotFound(err)}})
}

func (s *Shell) writeFinalizer(ctx context.Context, obj client.Object) {
	for {
		err := writeFinalizer(ctx, s.client, obj)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return // the informer brings the newer object, which is looked at again
		}
		if ctx.Err() == nil {
			s.options.Log.Error(err, "writing a finalizer failed, trying again", "object", client.ObjectKeyFromObject(obj).String())
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Second):
		}
	}
}
