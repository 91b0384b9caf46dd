package reconcile

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
)

// A job of which one pod is known to be immovable is not swapped: no pod is asked. One that is on its way goes on.
func TestImmovablePodsAreNotAsked(t *testing.T) {
	pod := func(name string, annotations map[string]string, conditions ...corev1.PodCondition) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Status: corev1.PodStatus{Conditions: conditions}}
	}
	is := func(status corev1.ConditionStatus) corev1.PodCondition {
		return corev1.PodCondition{Type: egpu.Swappable, Status: status, Message: "arrays"}
	}
	out := map[string]string{egpu.SwapAnnotation: egpu.SwapOut}
	for name, test := range map[string]struct {
		pods []*corev1.Pod
		want string
	}{
		"nothing is known": {[]*corev1.Pod{pod("a", nil), pod("b", nil)}, ""},
		"all can move":     {[]*corev1.Pod{pod("a", nil, is(corev1.ConditionTrue)), pod("b", nil)}, ""},
		"one cannot":       {[]*corev1.Pod{pod("a", nil, is(corev1.ConditionTrue)), pod("b", nil, is(corev1.ConditionFalse))}, "pod b: arrays"},
		"under way":        {[]*corev1.Pod{pod("a", out), pod("b", nil, is(corev1.ConditionFalse))}, ""},
	} {
		if got := immovable(test.pods); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
