package remote

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// SyncStatus writes the status of a copy in another cluster onto the original. Where the original
// has yet to be started it waits: the API server refuses to start a job with such a status.
func (a *Adapter) SyncStatus(ctx context.Context, c client.Client, obj, copied *unstructured.Unstructured) (waits bool, err error) {
	switch {
	case a.IsPod():
		if node, _, _ := unstructured.NestedString(copied.Object, "spec", "nodeName"); node == "" {
			return false, nil // a copy that is pending there must not look like a pod that is pending here
		}
		copied = withoutAddresses(copied)
	case a.Suspends() && a.Object(obj).IsSuspended() && !a.Object(copied).IsSuspended():
		end, err := a.Object(copied).Finished()
		if err != nil || !end.Ended {
			return err == nil, err
		}
	}
	return false, a.writeStatus(ctx, c, obj, copied)
}

// withoutAddresses is a pod's copy without its addresses. They mean something else here, or nothing: with
// them, another cluster would choose where the traffic of this one's Services goes.
func withoutAddresses(copied *unstructured.Unstructured) *unstructured.Unstructured {
	out := copied.DeepCopy()
	for _, name := range []string{"podIP", "podIPs", "hostIP", "hostIPs"} {
		unstructured.RemoveNestedField(out.Object, "status", name)
	}
	return out
}

// ForgetStatus removes from a job the status of a cluster that no longer runs it, and may not
// have been reachable to correct it.
func (a *Adapter) ForgetStatus(ctx context.Context, c client.Client, obj *unstructured.Unstructured) error {
	return a.writeStatus(ctx, c, obj, &unstructured.Unstructured{})
}

// writeStatus copies the synced fields. Counters never become smaller.
func (a *Adapter) writeStatus(ctx context.Context, c client.Client, obj, from *unstructured.Unstructured) error {
	reported := obj.DeepCopy()
	if err := copyFields(reported, from, a.SyncedFields()); err != nil {
		return err
	}
	for _, p := range a.GrowingFields() {
		had, _ := p.Get(obj.Object)
		has, _ := p.Get(reported.Object)
		before, _ := had.(int64)
		if now, _ := has.(int64); now < before {
			if err := p.Set(reported.Object, before); err != nil {
				return err
			}
		}
	}
	if equality.Semantic.DeepEqual(reported.Object, obj.Object) {
		return nil
	}
	return c.Status().Patch(ctx, reported, kinds.OptimisticMerge(obj))
}

// Forward writes onto a copy in another cluster what may change of the original while it runs
// there.
func (a *Adapter) Forward(ctx context.Context, there client.Client, obj, copied *unstructured.Unstructured) error {
	wanted := copied.DeepCopy()
	if err := copyFields(wanted, obj, a.ForwardedFields()); err != nil || equality.Semantic.DeepEqual(wanted.Object, copied.Object) {
		return err
	}
	return there.Patch(ctx, wanted, kinds.OptimisticMerge(copied))
}

func copyFields(to, from *unstructured.Unstructured, paths []kinds.FieldPath) error {
	for _, p := range paths {
		value, found := p.Get(from.Object)
		if !found {
			p.Remove(to.Object)
			continue
		}
		if err := p.Set(to.Object, runtime.DeepCopyJSONValue(value)); err != nil {
			return err
		}
	}
	return nil
}
