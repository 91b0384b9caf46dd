package podgroups

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// IsLive: the pod runs, or may yet run.
func IsLive(pod *corev1.Pod) bool { return !hasEnded(pod) && pod.DeletionTimestamp == nil }

func (g *Group) IsSuspended() bool {
	return !slices.ContainsFunc(g.Pods, func(pod *corev1.Pod) bool { return IsLive(pod) && !IsGated(pod) })
}

func (g *Group) IsStarted() bool {
	return !slices.ContainsFunc(g.Pods, func(pod *corev1.Pod) bool { return IsLive(pod) && IsGated(pod) })
}

// IsActive: a pod that was asked to stop still runs. A pod that has not ended when its grace period
// is over is on a node that does not answer, and is not waited for; with Kueue's FastQuotaReleaseInPodIntegration none is that
// is being deleted.
func (g *Group) IsActive() (bool, error) {
	return slices.ContainsFunc(g.Pods, func(pod *corev1.Pod) bool {
		stuck := pod.DeletionTimestamp != nil && (kinds.FastRelease() || pod.DeletionTimestamp.Time.Before(g.Now))
		return !hasEnded(pod) && !IsGated(pod) && !stuck && pod.Spec.NodeName != ""
	}), nil
}

// TerminationDue is the time until the last pod that is terminating should have ended; zero if
// there is none.
func (g *Group) TerminationDue() time.Duration {
	var longest time.Duration
	for _, pod := range g.Pods {
		if pod.DeletionTimestamp != nil && !hasEnded(pod) {
			longest = max(longest, pod.DeletionTimestamp.Sub(g.Now)+time.Second)
		}
	}
	return longest
}

func (g *Group) Finished() (kinds.Outcome, error) {
	if g.Serving() {
		return kinds.Outcome{}, nil
	}
	if g.Name == "" {
		pod := g.Pods[0]
		switch pod.Status.Phase {
		case corev1.PodSucceeded:
			return kinds.Outcome{Ended: true, Reason: kueue.WorkloadFinishedReasonSucceeded, Message: pod.Status.Message}, nil
		case corev1.PodFailed:
			return kinds.Outcome{Ended: true, Reason: kueue.WorkloadFinishedReasonFailed, Message: pod.Status.Message}, nil
		}
		return kinds.Outcome{}, nil
	}
	total, err := g.total()
	if err != nil {
		return kinds.Outcome{}, err
	}
	succeeded, running, final := 0, false, false
	for _, pod := range g.Pods {
		if pod.Status.Phase == corev1.PodSucceeded {
			succeeded++
		}
		running = running || !hasEnded(pod)
		final = final || pod.Annotations[kinds.RetriableAnnotation] == "false"
	}
	message := fmt.Sprintf("Pods succeeded: %d/%d.", succeeded, total)
	switch {
	case succeeded >= total:
		return kinds.Outcome{Ended: true, Reason: kueue.WorkloadFinishedReasonSucceeded, Message: message}, nil
	case !running && final:
		return kinds.Outcome{Ended: true, Reason: kueue.WorkloadFinishedReasonFailed, Message: message}, nil
	}
	return kinds.Outcome{}, nil
}

// AbsentPods is how many pods a group lacks that its users, or their controllers, have to replace.
func (g *Group) AbsentPods(wl *kueue.Workload) int32 {
	if g.Name == "" || g.Serving() {
		return 0
	}
	there := map[kueue.PodSetReference]int32{}
	for _, pod := range g.Pods {
		if mayCount(pod) {
			there[kueue.PodSetReference(RoleIn(wl, pod))]++
		}
	}
	absent := int32(0)
	for _, set := range wl.Spec.PodSets {
		lacks := max(0, set.Count-there[set.Name])
		if g.fast() { // the others may come later
			lacks = min(lacks, 1-min(1, there[set.Name]))
		}
		absent += lacks
	}
	return absent
}

func (g *Group) PodsReady(ctx context.Context, c client.Reader, wl *kueue.Workload) (bool, error) {
	up := int64(0)
	for _, pod := range g.Pods {
		ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if ready || pod.Status.Phase == corev1.PodSucceeded {
			up++
		}
	}
	want := kinds.AdmittedPods(wl)
	if g.Parent != nil { // it may have become smaller
		reclaimable, err := g.ReclaimablePods(ctx, c, wl)
		if err != nil {
			return false, err
		}
		for _, pods := range reclaimable {
			want -= int64(pods.Count)
		}
	}
	return up >= want, nil
}

func (g *Group) ReclaimablePods(_ context.Context, _ client.Reader, wl *kueue.Workload) ([]kueue.ReclaimablePod, error) {
	if g.Name == "" {
		return nil, nil
	}
	done := map[kueue.PodSetReference]int32{}
	for _, pod := range g.Pods {
		if pod.Status.Phase == corev1.PodSucceeded && !g.Serving() {
			done[kueue.PodSetReference(RoleIn(wl, pod))]++
		}
	}
	if g.Parent != nil {
		counts, err := g.Parent.Counts()
		if err != nil {
			return nil, err
		}
		for i, set := range wl.Spec.PodSets {
			if count, known := counts[set.Name]; known { // not of sets as they were once called
				done[set.Name] = max(0, kinds.AdmittedCount(wl, i)-count)
			}
		}
	}
	return kinds.ReclaimablePods(wl, done), nil
}
