package podgroups

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// CleanUp removes the finalizer of pods that have been accounted for, deletes pods in excess of the
// group's total, and completes the workload's list of owners.
func (g *Group) CleanUp(ctx context.Context, c client.Client, wl *kueue.Workload) error {
	over := wl == nil || apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished) != nil
	excess, err := g.excess()
	if err != nil {
		return err
	}
	for _, pod := range g.Pods {
		if slices.Contains(excess, pod) && pod.DeletionTimestamp == nil {
			if err := c.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
				return err
			}
			g.event(pod, "ExcessPodDeleted", "Delete", "Excess pod deleted")
		}
		if over || pod.DeletionTimestamp != nil || slices.Contains(excess, pod) || g.replaced(pod) {
			if err := releasePod(ctx, c, pod); err != nil {
				return err
			}
		}
	}
	if over || g.Name == "" && len(wl.OwnerReferences) > 0 {
		return nil
	}
	owned := wl.DeepCopy()
	g.SetOwner(owned)
	added := len(owned.OwnerReferences) - len(wl.OwnerReferences)
	if added == 0 {
		return nil
	}
	if err := c.Update(ctx, owned); err != nil {
		return err
	}
	g.event(wl, "OwnerReferencesAdded", "Update", "Added %d owner reference(s)", added)
	return nil
}

func (g *Group) event(about client.Object, reason, action, note string, args ...any) {
	if g.Recorder != nil {
		g.Recorder.Eventf(about, nil, corev1.EventTypeNormal, reason, action, note, args...)
	}
}

// excess are the gated pods beyond the group's total, the newest ones.
func (g *Group) excess() ([]*corev1.Pod, error) {
	if g.Name == "" || g.Serving() {
		return nil, nil
	}
	total, err := g.total()
	if err != nil {
		return nil, err
	}
	var counted int
	var out []*corev1.Pod
	for _, waiting := range []bool{false, true} {
		for _, pod := range g.Pods {
			counts := IsLive(pod) || pod.Status.Phase == corev1.PodSucceeded
			if !counts || (IsLive(pod) && IsGated(pod)) != waiting {
				continue
			}
			if counted++; counted > total && waiting {
				out = append(out, pod)
			}
		}
	}
	return out, nil
}

// replaced: a failed pod has a younger one in its place.
func (g *Group) replaced(pod *corev1.Pod) bool {
	if g.Name == "" || pod.Status.Phase != corev1.PodFailed {
		return false
	}
	total, err := g.total()
	if err != nil {
		return false
	}
	others := 0
	for _, other := range g.Pods {
		if IsLive(other) || other.Status.Phase == corev1.PodSucceeded {
			others++
		}
	}
	return others >= total
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

// releasePod removes the finalizer that held the pod until its end was accounted for.
func releasePod(ctx context.Context, c client.Client, pod *corev1.Pod) error {
	if !controllerutil.ContainsFinalizer(pod, kinds.ManagedLabel) {
		return nil
	}
	free := pod.DeepCopy()
	controllerutil.RemoveFinalizer(free, kinds.ManagedLabel)
	return client.IgnoreNotFound(c.Patch(ctx, free, kinds.OptimisticMerge(pod)))
}
