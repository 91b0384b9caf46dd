package reconcile

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
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

// Pods go on where they are, unless their place was chosen anew or is reserved for others now.
func TestSwappedPodsGoOnUnlessTheirNodeIsReserved(t *testing.T) {
	pods := []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{NodeName: "n1"}}}
	for want, nodes := range map[string][]string{"": {"n2"}, "pod a is on n1, which is reserved for others": {"n1", "n2"}} {
		wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main"}}}}
		workload.Admit(wl, &admission.Admission{Queue: "cq", AvoidNodes: nodes}, nil, time.Now())
		infos := []kinds.PodSetInfo{{Annotations: map[string]string{}}}
		infos[0].AvoidNodes(workload.AvoidNodes(wl))
		if got := placementChanged(pods, wl, infos); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
