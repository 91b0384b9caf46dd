package podgroups

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// A workload counts so many pods of each role. Pods beyond that are deleted, the youngest gated ones first.
// A pod that ended keeps its finalizer, and so remains to be counted, until another one replaces it.

// surplus are pods that do not count for a group's workload.
type surplus struct {
	excess   []*corev1.Pod // to be deleted
	replaced []*corev1.Pod // to be released
	strays   []*corev1.Pod // of roles that the workload does not have
}

// mayCount: the pod runs, may yet run, or has succeeded.
func mayCount(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodFailed && (pod.DeletionTimestamp == nil || pod.Spec.NodeName != "")
}

// Match leaves in the group the pods that its workload counts. It reports whether there are any: otherwise
// the workload describes another group.
func (g *Group) Match(wl *kueue.Workload) bool {
	if g.Name == "" || g.Parent != nil {
		return true
	}
	g.surplus = surplus{}
	var counted []*corev1.Pod
	byRole := map[string][]*corev1.Pod{}
	for _, pod := range g.Pods {
		role := RoleIn(wl, pod)
		byRole[role] = append(byRole[role], pod)
	}
	for _, set := range wl.Spec.PodSets {
		var live, ended []*corev1.Pod
		for _, pod := range byRole[string(set.Name)] {
			if mayCount(pod) {
				live = append(live, pod)
			} else {
				ended = append(ended, pod)
			}
		}
		delete(byRole, string(set.Name))
		beyond := len(live) + len(ended) - int(set.Count)
		if n := len(live) - int(set.Count); n > 0 {
			sortLive(live)
			g.excess = append(g.excess, live[len(live)-n:]...)
			live = live[:len(live)-n]
		}
		if n := min(len(ended), beyond); n > 0 {
			g.sortEnded(ended)
			g.replaced = append(g.replaced, ended[len(ended)-n:]...)
			ended = ended[:len(ended)-n]
		}
		counted = append(append(counted, live...), ended...)
	}
	if len(counted) == 0 {
		g.surplus = surplus{}
		return false
	}
	for _, pods := range byRole {
		g.strays = append(g.strays, pods...)
	}
	SortOldestFirst(counted)
	g.Pods = counted
	return true
}

// sortLive puts the pods first that are to be counted: those with a finalizer, started ones, old ones.
func sortLive(pods []*corev1.Pod) {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(trueFirst(holds(a), holds(b)), trueFirst(!IsGated(a), !IsGated(b)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
}

// sortEnded puts the pods first that are to be counted: those with a finalizer, and those that ended last.
func (g *Group) sortEnded(pods []*corev1.Pod) {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(trueFirst(holds(a), holds(b)), g.lastActive(b).Compare(g.lastActive(a)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
}

func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// holds: the pod's end is yet to be accounted for.
func holds(pod *corev1.Pod) bool { return controllerutil.ContainsFinalizer(pod, kinds.ManagedLabel) }

// lastActive is when a pod failed, or was deleted before that.
func (g *Group) lastActive(pod *corev1.Pod) time.Time {
	at := g.Now
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.ContainersReady && c.Status == corev1.ConditionFalse && c.Reason == string(corev1.PodFailed) {
			at = c.LastTransitionTime.Time
		}
	}
	if deleted := pod.DeletionTimestamp; deleted != nil && deleted.Time.Before(at) {
		return deleted.Time
	}
	return at
}

// Compose prepares a group for its workload: pods that ended are released, and those beyond the group's
// total deleted. It fails if pods are missing, or contradict each other.
func (g *Group) Compose(ctx context.Context, c client.Client) error {
	if g.Name == "" || g.Parent != nil {
		return nil
	}
	var live []*corev1.Pod
	for _, pod := range g.Pods {
		if mayCount(pod) {
			live = append(live, pod)
		} else if err := releasePod(ctx, c, pod); err != nil {
			return err
		}
	}
	total, err := g.total()
	if err != nil {
		return err
	}
	if err := g.validate(live, total); err != nil {
		return err
	}
	if n := len(live) - total; n > 0 {
		sortLive(live)
		g.excess = live[len(live)-n:]
		if err := g.deleteExcess(ctx, c); err != nil {
			return err
		}
		live = live[:len(live)-n]
		SortOldestFirst(live)
	}
	g.Pods = live
	return nil
}

// validate compares the pods of a group with the first one. The messages are Kueue's.
func (g *Group) validate(live []*corev1.Pod, total int) error {
	first := g.Pods[0]
	if len(live) == 0 || len(live) < total && !g.fast() {
		return &IncompleteError{fmt.Sprintf("'%s' group has fewer runnable pods than expected", g.Name)}
	}
	for _, pod := range g.Pods {
		if pod.Status.Phase == corev1.PodFailed {
			continue
		}
		if a, b := kinds.QueueName(first), kinds.QueueName(pod); a != b {
			return &kinds.UnretryableError{Err: fmt.Errorf("pods '%s' and '%s' has different queue names: %s!=%s", first.Name, pod.Name, a, b)}
		}
		if a, b := first.Annotations[kinds.GroupTotal], pod.Annotations[kinds.GroupTotal]; a != b {
			return &kinds.UnretryableError{Err: fmt.Errorf("pods '%s' and '%s' has different '%s' values: %s!=%s", first.Name, pod.Name, kinds.GroupTotal, a, b)}
		}
	}
	return nil
}

// IncompleteError: pods of a group have yet to come.
type IncompleteError struct{ message string }

func (e *IncompleteError) Error() string { return e.message }

// deleteExcess deletes pods in excess.
func (g *Group) deleteExcess(ctx context.Context, c client.Client) error {
	for _, pod := range g.excess {
		if err := releasePod(ctx, c, pod); err != nil {
			return err
		}
		if pod.DeletionTimestamp != nil {
			continue
		}
		if err := c.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
			return err
		}
		g.event(pod, "ExcessPodDeleted", "Delete", "Excess pod deleted")
	}
	return nil
}
