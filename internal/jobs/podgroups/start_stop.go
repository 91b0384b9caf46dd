package podgroups

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// IsGated: the pod waits for its admission.
func IsGated(pod *corev1.Pod) bool { return HasGate(pod, kinds.AdmissionGate) }

func HasGate(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(gate corev1.PodSchedulingGate) bool { return gate.Name == name })
}

// Start removes the gates of as many pods as were admitted, the oldest first.
func (g *Group) Start(ctx context.Context, c client.Client, wl *kueue.Workload, infos []kinds.PodSetInfo) error {
	free := map[string]int32{}
	index := map[string]int{}
	for i, set := range wl.Spec.PodSets {
		free[string(set.Name)], index[string(set.Name)] = infos[i].Count, i
	}
	role := func(pod *corev1.Pod) string {
		if g.Name == "" {
			return string(kueue.DefaultPodSetName)
		}
		return RoleIn(wl, pod)
	}
	for _, pod := range g.Pods {
		if !IsGated(pod) && (IsLive(pod) || pod.Status.Phase == corev1.PodSucceeded) {
			free[role(pod)]--
		}
	}
	removed := func() {
		if g.GateRemoved != nil {
			g.GateRemoved(kinds.AdmissionGate, wl, g.Name != "")
		}
	}
	return Ungate(ctx, c, g.Pods, Ungating{kinds.AdmissionGate, role, free, removed}, func(pod *corev1.Pod) error {
		info := infos[index[role(pod)]]
		info.SchedulingGates = slices.DeleteFunc(slices.Clone(info.SchedulingGates), func(g corev1.PodSchedulingGate) bool { return g.Name == v1alpha1.AvoidNodesGate })
		if err := workload.ExcludeNodes(&pod.Spec, workload.AvoidNodes(wl)); err != nil { // a pod that is there gets no other gate
			return &kinds.UnretryableError{Err: err}
		}
		if len(info.SchedulingGates) == 0 { // the flavor it got has no topology
			pod.Spec.SchedulingGates = slices.DeleteFunc(pod.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool {
				return g.Name == kueue.TopologySchedulingGate
			})
		}
		return info.MergeInto(&pod.ObjectMeta, &pod.Spec)
	})
}

// Ungating says which gate is removed, and how many pods of each role are free to start.
type Ungating struct {
	Gate    string
	Role    func(*corev1.Pod) string
	Free    map[string]int32
	Removed func() // called for each pod
}

// Ungate removes a gate from as many pods of each role as are free to start.
func Ungate(ctx context.Context, c client.Client, pods []*corev1.Pod, u Ungating, change func(*corev1.Pod) error) error {
	for _, pod := range pods {
		name := u.Role(pod)
		if !IsLive(pod) || !HasGate(pod, u.Gate) || u.Free[name] <= 0 {
			continue
		}
		u.Free[name]--
		started := pod.DeepCopy()
		if change != nil {
			if err := change(started); err != nil {
				return err
			}
		}
		started.Spec.SchedulingGates = slices.DeleteFunc(started.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == u.Gate })
		if err := c.Patch(ctx, started, kinds.OptimisticMerge(pod)); client.IgnoreNotFound(err) != nil {
			return err
		}
		u.Removed()
	}
	return nil
}

// Stop deletes the pods that run: a pod cannot be stopped otherwise. The controller that made them
// may make new ones, which are gated again.
func (g *Group) Stop(ctx context.Context, c client.Client, why kinds.Stop) ([]client.Object, error) {
	var stopped []client.Object
	forGood := why.Reason == kinds.StopWorkloadDeleted // with all that is left of it
	for _, pod := range g.Pods {
		if pod.DeletionTimestamp != nil || !forGood && (hasEnded(pod) || IsGated(pod)) {
			continue
		}
		marked := pod.DeepCopy()
		marked.Status.Conditions = append(slices.Clone(marked.Status.Conditions), corev1.PodCondition{
			Type: "TerminationTarget", Status: corev1.ConditionTrue, Reason: why.Reason, Message: why.Message, LastTransitionTime: metav1.Now(),
		})
		if err := c.Status().Patch(ctx, marked, client.StrategicMergeFrom(pod)); client.IgnoreNotFound(err) != nil {
			return stopped, err
		}
		if err := c.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
			return stopped, err
		}
		stopped = append(stopped, pod)
	}
	if forGood {
		return stopped, releasePods(ctx, c, g.Pods, g.excess, g.replaced, g.strays)
	}
	return stopped, nil
}

// Restore has nothing to do: pods are not restored but replaced.
func (g *Group) Restore(context.Context, client.Client, *kueue.Workload, string) error { return nil }
