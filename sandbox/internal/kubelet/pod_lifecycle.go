package kubelet

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// terminatedExitCode is what a process ended by SIGTERM leaves (128+15).
	terminatedExitCode = 143
	// restartPause prevents a service that ends at once from spinning.
	restartPause = time.Second
)

// step is what to do with a pod now, and when to look again.
type step struct {
	status *corev1.PodStatus // to write, nil when it is right as it is
	remove bool              // let the API server forget the pod, after writing status
	again  time.Duration     // look again after this time; 0 for not before it changes
}

// next decides what happens to a pod on a simulated node. began is when its
// containers last started, more exact than the whole seconds in its status;
// address gives it an address where it has none yet.
func next(pod *corev1.Pod, now, began time.Time, hostIP string, address func() string) step {
	if pod.DeletionTimestamp != nil {
		return terminate(pod, now)
	}
	if isTerminal(pod) {
		return step{}
	}
	w, err := readAnnotations(pod)
	if err != nil {
		return step{status: failed(pod, now, "InvalidSandboxAnnotation", err.Error())}
	}
	if pod.Status.StartTime == nil {
		return step{status: started(pod, now, hostIP, address())}
	}
	if deadline := pod.Spec.ActiveDeadlineSeconds; deadline != nil {
		left := pod.Status.StartTime.Add(time.Duration(*deadline) * time.Second).Sub(now)
		if left <= 0 {
			status := failed(pod, now, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
			return step{status: status}
		}
		s := running(pod, w, now, began)
		if s.again == 0 || left < s.again {
			s.again = left
		}
		return s
	}
	return running(pod, w, now, began)
}

// running decides over a pod that has started.
func running(pod *corev1.Pod, w simulation, now, began time.Time) step {
	if w.runFor == forever {
		return step{status: gated(pod, now)}
	}
	runFor := w.runFor
	always := pod.Spec.RestartPolicy == corev1.RestartPolicyAlways
	if always {
		runFor = max(runFor, restartPause)
	}
	if left := began.Add(runFor).Sub(now); left > 0 {
		return step{status: gated(pod, now), again: left}
	}
	if always {
		return step{status: restarted(pod, now, w.exitCode)}
	}
	return step{status: ended(pod, now, w.exitCode)}
}

// terminate ends a pod that was deleted: its containers stop at once, as if they
// obeyed the signal.
func terminate(pod *corev1.Pod, now time.Time) step {
	s := step{remove: pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds > 0}
	if !isTerminal(pod) {
		s.status = ended(pod, now, terminatedExitCode)
	}
	return s
}

func isTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// started is the status of a pod whose containers all run: init containers are
// over, sidecars stay.
func started(pod *corev1.Pod, now time.Time, hostIP, ip string) *corev1.PodStatus {
	at := metav1.NewTime(now)
	s := pod.Status.DeepCopy()
	s.Phase, s.StartTime, s.ObservedGeneration = corev1.PodRunning, &at, pod.Generation
	s.HostIP, s.HostIPs = hostIP, []corev1.HostIP{{IP: hostIP}}
	if pod.Spec.HostNetwork {
		ip = hostIP
	}
	s.PodIP, s.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	s.InitContainerStatuses, s.ContainerStatuses = nil, nil
	for _, c := range pod.Spec.InitContainers {
		status := newContainerStatus(pod, c)
		if isSidecar(c) {
			run(&status, at)
		} else {
			status.Ready = true
			status.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: at, FinishedAt: at, ContainerID: status.ContainerID}
		}
		s.InitContainerStatuses = append(s.InitContainerStatuses, status)
	}
	for _, c := range pod.Spec.Containers {
		status := newContainerStatus(pod, c)
		run(&status, at)
		s.ContainerStatuses = append(s.ContainerStatuses, status)
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady} {
		setCondition(s, pod.Generation, kind, corev1.ConditionTrue, "", now)
	}
	setReady(pod, s, now)
	return s
}

// gated recomputes readiness, which other controllers decide through readiness
// gates; nil when nothing changed.
func gated(pod *corev1.Pod, now time.Time) *corev1.PodStatus {
	if len(pod.Spec.ReadinessGates) == 0 && pod.Status.ObservedGeneration == pod.Generation {
		return nil
	}
	s := pod.Status.DeepCopy()
	changed := setReady(pod, s, now)
	if s.ObservedGeneration != pod.Generation {
		s.ObservedGeneration, changed = pod.Generation, true
	}
	if !changed {
		return nil
	}
	return s
}

// restarted is the status of a pod of restartPolicy Always whose containers
// ended and were started again.
func restarted(pod *corev1.Pod, now time.Time, code int32) *corev1.PodStatus {
	s := pod.Status.DeepCopy()
	for i := range s.ContainerStatuses {
		c := &s.ContainerStatuses[i]
		c.LastTerminationState = corev1.ContainerState{Terminated: over(c, now, code)}
		c.RestartCount++
		run(c, metav1.NewTime(now))
	}
	return s
}

// ended is the status of a pod whose containers all exited with the code.
// Sidecars are ended by the kubelet afterwards, and end well.
func ended(pod *corev1.Pod, now time.Time, code int32) *corev1.PodStatus {
	s := pod.Status.DeepCopy()
	s.ObservedGeneration = pod.Generation
	s.Phase = corev1.PodSucceeded
	reason := "PodCompleted"
	if code != 0 {
		s.Phase, reason = corev1.PodFailed, "PodFailed"
	}
	for i := range s.ContainerStatuses {
		stop(&s.ContainerStatuses[i], now, code)
	}
	for i := range s.InitContainerStatuses {
		if s.InitContainerStatuses[i].State.Running != nil {
			stop(&s.InitContainerStatuses[i], now, 0)
		}
	}
	setCondition(s, pod.Generation, corev1.PodReadyToStartContainers, corev1.ConditionFalse, "", now)
	setCondition(s, pod.Generation, corev1.ContainersReady, corev1.ConditionFalse, reason, now)
	setCondition(s, pod.Generation, corev1.PodReady, corev1.ConditionFalse, reason, now)
	return s
}

// failed is the status of a pod the kubelet itself gives up.
func failed(pod *corev1.Pod, now time.Time, reason, message string) *corev1.PodStatus {
	s := ended(pod, now, terminatedExitCode)
	s.Reason, s.Message = reason, message
	if s.StartTime == nil {
		at := metav1.NewTime(now)
		s.StartTime = &at
	}
	return s
}
