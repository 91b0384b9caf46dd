package kubelet

import (
	"fmt"
	"math"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// RunForAnnotation says how long a pod runs: a duration, or "forever".
	RunForAnnotation = "sandbox.elasticai.io/run-for"
	// ExitCodeAnnotation says what its containers exit with; 0 when absent.
	ExitCodeAnnotation = "sandbox.elasticai.io/exit-code"

	defaultRunFor = 5 * time.Second
	forever       = time.Duration(math.MaxInt64)
)

// simulation is how a pod runs, by its annotations.
type simulation struct {
	runFor   time.Duration
	exitCode int32
}

// readAnnotations reads the annotations; the error is meant for the pod's owner.
func readAnnotations(pod *corev1.Pod) (simulation, error) {
	w := simulation{runFor: defaultRunFor}
	if pod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		w.runFor = forever
	}
	switch text, given := pod.Annotations[RunForAnnotation]; {
	case !given:
	case text == "forever":
		w.runFor = forever
	default:
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return simulation{}, fmt.Errorf(`annotation %s is %q: write a duration as "30s" or "5m", or "forever"`, RunForAnnotation, text)
		}
		w.runFor = d
	}
	if text, given := pod.Annotations[ExitCodeAnnotation]; given {
		code, err := strconv.ParseUint(text, 10, 8)
		if err != nil {
			return simulation{}, fmt.Errorf(`annotation %s is %q: write a number from 0 to 255`, ExitCodeAnnotation, text)
		}
		w.exitCode = int32(code)
	}
	return w, nil
}
