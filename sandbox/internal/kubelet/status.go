package kubelet

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func isSidecar(c corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func newContainerStatus(pod *corev1.Pod, c corev1.Container) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name:        c.Name,
		Image:       c.Image,
		ImageID:     "simulated://" + c.Image,
		ContainerID: "simulated://" + string(pod.UID) + "/" + c.Name,
	}
}

func run(c *corev1.ContainerStatus, at metav1.Time) {
	yes := true
	c.Ready, c.Started = true, &yes
	c.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}
}

func stop(c *corev1.ContainerStatus, now time.Time, code int32) {
	no := false
	c.State = corev1.ContainerState{Terminated: over(c, now, code)}
	c.Ready, c.Started = false, &no
}

// over is how a container that runs now will be remembered.
func over(c *corev1.ContainerStatus, now time.Time, code int32) *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Completed", FinishedAt: metav1.NewTime(now), ContainerID: c.ContainerID}
	if code != 0 {
		t.Reason = "Error"
	}
	if c.State.Running != nil {
		t.StartedAt = c.State.Running.StartedAt
	}
	return t
}

// setReady is the kubelet's rule: all containers ready, and all gates open.
func setReady(pod *corev1.Pod, s *corev1.PodStatus, now time.Time) bool {
	status, reason := corev1.ConditionTrue, ""
	for _, gate := range pod.Spec.ReadinessGates {
		if c := condition(s, gate.ConditionType); c == nil || c.Status != corev1.ConditionTrue {
			status, reason = corev1.ConditionFalse, "ReadinessGatesNotReady"
		}
	}
	return setCondition(s, pod.Generation, corev1.PodReady, status, reason, now)
}

func condition(s *corev1.PodStatus, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	return nil
}

// setCondition says whether it changed anything a reader could see.
func setCondition(s *corev1.PodStatus, generation int64, kind corev1.PodConditionType, status corev1.ConditionStatus, reason string, now time.Time) bool {
	c := condition(s, kind)
	if c == nil {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind})
		c = &s.Conditions[len(s.Conditions)-1]
	}
	c.ObservedGeneration = generation
	if c.Status == status && c.Reason == reason {
		return false
	}
	if c.Status != status {
		c.LastTransitionTime = metav1.NewTime(now)
	}
	c.Status, c.Reason = status, reason
	return true
}
