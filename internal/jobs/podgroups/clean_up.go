package podgroups

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// CleanUp removes the finalizer of pods that have been accounted for, and deletes those in excess.
func (g *Group) CleanUp(ctx context.Context, c client.Client, wl *kueue.Workload) error {
	if wl == nil || apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished) != nil {
		return releasePods(ctx, c, g.Pods, g.excess, g.replaced, g.strays)
	}
	if err := g.deleteExcess(ctx, c); err != nil {
		return err
	}
	if g.Name == "" || g.Parent != nil {
		return g.ReleaseDeleted(ctx, c)
	}
	return releasePods(ctx, c, g.replaced)
}

// Own makes all pods owners of the workload, and reports whether they were not.
func (g *Group) Own(ctx context.Context, c client.Client, wl *kueue.Workload) (bool, error) {
	if g.Name == "" && len(wl.OwnerReferences) > 0 {
		return false, nil
	}
	owned := wl.DeepCopy()
	g.SetOwner(owned)
	added := len(owned.OwnerReferences) - len(wl.OwnerReferences)
	if added == 0 {
		return false, nil
	}
	if err := c.Update(ctx, owned); err != nil {
		return true, err
	}
	g.event(wl, "OwnerReferencesAdded", "Update", "Added %d owner reference(s)", added)
	return true, nil
}

func releasePods(ctx context.Context, c client.Client, lists ...[]*corev1.Pod) error {
	for _, pods := range lists {
		for _, pod := range pods {
			if err := releasePod(ctx, c, pod); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *Group) event(about client.Object, reason, action, note string, args ...any) {
	if g.Recorder != nil {
		g.Recorder.Eventf(about, nil, corev1.EventTypeNormal, reason, action, note, args...)
	}
}

// ReleaseDeleted removes the finalizer of deleted pods, where there is no workload to account for
// them.
func (g *Group) ReleaseDeleted(ctx context.Context, c client.Client) error {
	for _, pod := range g.Pods {
		if pod.DeletionTimestamp == nil {
			continue
		}
		if err := releasePod(ctx, c, pod); err != nil {
			return err
		}
	}
	return nil
}

// releasePod removes the finalizer that held the pod until its end was accounted for. It changes only that,
// whatever else happens to the pod meanwhile.
func releasePod(ctx context.Context, c client.Client, pod *corev1.Pod) error {
	i := slices.Index(pod.Finalizers, kinds.ManagedLabel)
	if i < 0 {
		return nil
	}
	patch := fmt.Sprintf(`[{"op":"test","path":"/metadata/uid","value":%q},{"op":"test","path":"/metadata/finalizers/%d","value":%q},{"op":"remove","path":"/metadata/finalizers/%[2]d"}]`,
		pod.UID, i, kinds.ManagedLabel)
	err := c.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(patch)))
	if apierrors.IsInvalid(err) {
		return nil // it has other finalizers by now, and an event says so
	}
	return client.IgnoreNotFound(err)
}
