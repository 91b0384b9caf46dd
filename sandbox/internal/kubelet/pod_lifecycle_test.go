package kubelet

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newPod(policy corev1.RestartPolicy, annotations map[string]string) *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u", Generation: 1, Annotations: annotations},
		Spec: corev1.PodSpec{
			NodeName:       "node",
			RestartPolicy:  policy,
			InitContainers: []corev1.Container{{Name: "init", Image: "i"}, {Name: "side", Image: "i", RestartPolicy: &always}},
			Containers:     []corev1.Container{{Name: "main", Image: "i"}, {Name: "other", Image: "i"}},
		},
		Status: corev1.PodStatus{
			Phase:      corev1.PodPending,
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
		},
	}
}

func address() string { return "10.128.0.9" }

// play applies what next decides at a time and returns the decision.
func play(t *testing.T, pod *corev1.Pod, after time.Duration) step {
	t.Helper()
	s := next(pod, start.Add(after), startOf(pod), "10.1.0.1", address)
	if s.status != nil {
		pod.Status = *s.status
	}
	return s
}

func conditionStatus(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	if c := condition(&pod.Status, kind); c != nil {
		return c.Status
	}
	return "absent"
}

func TestPodStarts(t *testing.T) {
	pod := newPod(corev1.RestartPolicyNever, nil)
	play(t, pod, 0)
	s := pod.Status
	if s.Phase != corev1.PodRunning || s.PodIP != "10.128.0.9" || s.HostIP != "10.1.0.1" || !s.StartTime.Time.Equal(start) {
		t.Errorf("got %+v", s)
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		if got := conditionStatus(pod, kind); got != corev1.ConditionTrue {
			t.Errorf("%s is %s", kind, got)
		}
	}
	if init := s.InitContainerStatuses[0]; init.State.Terminated == nil || init.State.Terminated.ExitCode != 0 {
		t.Errorf("the init container is %+v", init.State)
	}
	for _, c := range append(s.ContainerStatuses, s.InitContainerStatuses[1]) {
		if c.State.Running == nil || !c.Ready || !*c.Started {
			t.Errorf("%s is %+v", c.Name, c)
		}
	}
}

func TestHostNetworkPodHasTheNodesAddress(t *testing.T) {
	pod := newPod(corev1.RestartPolicyNever, nil)
	pod.Spec.HostNetwork = true
	play(t, pod, 0)
	if pod.Status.PodIP != "10.1.0.1" {
		t.Errorf("got %s", pod.Status.PodIP)
	}
}

// TestPodRunsFor: for how long each kind of pod runs, and how it ends.
func TestPodRunsFor(t *testing.T) {
	for name, c := range map[string]struct {
		policy corev1.RestartPolicy
		runFor string
		code   string
		want   time.Duration // 0 for never
		phase  corev1.PodPhase
	}{
		"default":             {corev1.RestartPolicyNever, "", "", 5 * time.Second, corev1.PodSucceeded},
		"default, on failure": {corev1.RestartPolicyOnFailure, "", "", 5 * time.Second, corev1.PodSucceeded},
		"service":             {corev1.RestartPolicyAlways, "", "", 0, corev1.PodRunning},
		"given":               {corev1.RestartPolicyNever, "1m30s", "", 90 * time.Second, corev1.PodSucceeded},
		"forever":             {corev1.RestartPolicyNever, "forever", "", 0, corev1.PodRunning},
		"fails":               {corev1.RestartPolicyNever, "2s", "7", 2 * time.Second, corev1.PodFailed},
		"fails, on failure":   {corev1.RestartPolicyOnFailure, "2s", "7", 2 * time.Second, corev1.PodFailed},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{}
			if c.runFor != "" {
				annotations[RunForAnnotation] = c.runFor
			}
			if c.code != "" {
				annotations[ExitCodeAnnotation] = c.code
			}
			pod := newPod(c.policy, annotations)
			play(t, pod, 0)
			if s := play(t, pod, time.Millisecond); s.status != nil || (s.again == 0) != (c.want == 0) {
				t.Fatalf("right after the start: %+v", s)
			}
			if c.want == 0 {
				play(t, pod, 1000*time.Hour)
			} else {
				if s := play(t, pod, c.want-time.Millisecond); s.status != nil || s.again != time.Millisecond {
					t.Fatalf("just before the end: %+v", s)
				}
				play(t, pod, c.want)
			}
			if pod.Status.Phase != c.phase {
				t.Fatalf("phase %s, want %s", pod.Status.Phase, c.phase)
			}
			if c.want == 0 {
				return
			}
			for _, status := range pod.Status.ContainerStatuses {
				if got := status.State.Terminated; got == nil || (got.ExitCode == 7) != (c.code == "7") {
					t.Errorf("%s ended with %+v", status.Name, got)
				}
			}
			if side := pod.Status.InitContainerStatuses[1].State.Terminated; side == nil || side.ExitCode != 0 {
				t.Errorf("the sidecar ended with %+v", side)
			}
			if conditionStatus(pod, corev1.PodReady) != corev1.ConditionFalse || conditionStatus(pod, corev1.PodInitialized) != corev1.ConditionTrue {
				t.Errorf("conditions %+v", pod.Status.Conditions)
			}
			if s := play(t, pod, 2*c.want); s != (step{}) {
				t.Errorf("something is done to a pod that is over: %+v", s)
			}
		})
	}
}

// TestRunForIsNotResetByWrites: what others write to a pod does not make it run longer.
func TestRunForIsNotResetByWrites(t *testing.T) {
	pod := newPod(corev1.RestartPolicyNever, map[string]string{RunForAnnotation: "10s"})
	play(t, pod, 0)
	pod.Labels = map[string]string{"new": "label"}
	if s := play(t, pod, 9*time.Second); s.again != time.Second {
		t.Errorf("ends in %s, want 1s", s.again)
	}
}

func TestServiceThatEndsIsStartedAgain(t *testing.T) {
	pod := newPod(corev1.RestartPolicyAlways, map[string]string{RunForAnnotation: "3s", ExitCodeAnnotation: "1"})
	play(t, pod, 0)
	play(t, pod, 3*time.Second)
	c := pod.Status.ContainerStatuses[0]
	if pod.Status.Phase != corev1.PodRunning || c.RestartCount != 1 || c.State.Running == nil || c.LastTerminationState.Terminated.ExitCode != 1 {
		t.Fatalf("got %s, %+v", pod.Status.Phase, c)
	}
	if s := play(t, pod, 4*time.Second); s.again != 2*time.Second {
		t.Errorf("ends again in %s, want 2s", s.again)
	}
}

func TestServiceDoesNotSpin(t *testing.T) {
	pod := newPod(corev1.RestartPolicyAlways, map[string]string{RunForAnnotation: "0s"})
	play(t, pod, 0)
	if s := play(t, pod, 0); s.status != nil || s.again != restartPause {
		t.Errorf("got %+v, want a pause of %s", s, restartPause)
	}
}

func TestBadAnnotationFailsThePod(t *testing.T) {
	for key, value := range map[string]string{RunForAnnotation: "soon", ExitCodeAnnotation: "256"} {
		pod := newPod(corev1.RestartPolicyNever, map[string]string{key: value})
		play(t, pod, 0)
		s := pod.Status
		if s.Phase != corev1.PodFailed || s.Reason != "InvalidSandboxAnnotation" || !strings.Contains(s.Message, key) || !strings.Contains(s.Message, value) {
			t.Errorf("%s=%s: got %s %s %q", key, value, s.Phase, s.Reason, s.Message)
		}
	}
}

func TestActiveDeadline(t *testing.T) {
	pod := newPod(corev1.RestartPolicyNever, map[string]string{RunForAnnotation: "forever"})
	pod.Spec.ActiveDeadlineSeconds = new(int64)
	*pod.Spec.ActiveDeadlineSeconds = 3
	play(t, pod, 0)
	if s := play(t, pod, time.Second); s.again != 2*time.Second {
		t.Errorf("looks again in %s, want 2s", s.again)
	}
	play(t, pod, 3*time.Second)
	if pod.Status.Phase != corev1.PodFailed || pod.Status.Reason != "DeadlineExceeded" {
		t.Errorf("got %s %s", pod.Status.Phase, pod.Status.Reason)
	}
}

func TestReadinessGates(t *testing.T) {
	pod := newPod(corev1.RestartPolicyAlways, nil)
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	play(t, pod, 0)
	if conditionStatus(pod, corev1.PodReady) != corev1.ConditionFalse || conditionStatus(pod, corev1.ContainersReady) != corev1.ConditionTrue {
		t.Fatalf("before the gate opens: %+v", pod.Status.Conditions)
	}
	if s := play(t, pod, time.Second); s.status != nil {
		t.Fatalf("wrote without a change: %+v", s.status)
	}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue})
	play(t, pod, 2*time.Second)
	if conditionStatus(pod, corev1.PodReady) != corev1.ConditionTrue {
		t.Errorf("after the gate opened: %+v", pod.Status.Conditions)
	}
}

func TestDeletedPod(t *testing.T) {
	now, grace := metav1.NewTime(start), int64(30)
	pod := newPod(corev1.RestartPolicyAlways, nil)
	play(t, pod, 0)
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, &grace
	if s := play(t, pod, time.Second); !s.remove {
		t.Error("a deleted pod is not removed")
	}
	// A watcher must see how it ended before it is gone.
	if pod.Status.Phase != corev1.PodFailed || pod.Status.ContainerStatuses[0].State.Terminated.ExitCode != terminatedExitCode {
		t.Errorf("got %s %+v", pod.Status.Phase, pod.Status.ContainerStatuses[0].State)
	}
	*pod.DeletionGracePeriodSeconds = 0 // only a finalizer delays its removal now
	if s := play(t, pod, time.Second); s != (step{}) {
		t.Errorf("a pod that waits for a finalizer is touched: %+v", s)
	}
}

func TestDeletedPodThatHadEnded(t *testing.T) {
	now, grace := metav1.NewTime(start), int64(30)
	pod := newPod(corev1.RestartPolicyNever, map[string]string{RunForAnnotation: "1s"})
	play(t, pod, 0)
	play(t, pod, time.Second)
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, &grace
	if s := play(t, pod, 2*time.Second); !s.remove || s.status != nil {
		t.Errorf("got %+v", s)
	}
}
