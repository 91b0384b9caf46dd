package topology

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// A pod is a stray one if it waits for a node that its workload is not assigned to, or that takes no pods of it now.
func TestStrayPods(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	node := func(name string, how func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		how(n)
		return n
	}
	c := &controller{client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		node("well", func(*corev1.Node) {}),
		node("tainted", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoExecute}} }),
		node("silent", func(n *corev1.Node) { n.Status.Conditions = nil }),
	).Build()}
	on := func(host string) *kueue.Workload {
		wl := &kueue.Workload{}
		wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1}}
		wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue}}
		wl.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", TopologyAssignment: &kueue.TopologyAssignment{
			Levels: []string{corev1.LabelHostname},
			Slices: []kueue.TopologyAssignmentSlice{{
				DomainCount: 1, PodCounts: kueue.TopologyAssignmentSlicePodCounts{Universal: ptr.To(int32(1))},
				ValuesPerLevel: []kueue.TopologyAssignmentSliceLevelValues{{Universal: ptr.To(host)}},
			}},
		}}}}
		return wl
	}
	waiting, finished := &kueue.Workload{}, on("well")
	finished.Status.Conditions = append(finished.Status.Conditions, metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue})
	for name, test := range map[string]struct {
		wl   *kueue.Workload
		host string
		how  func(*corev1.Pod)
		want bool
	}{
		"where it belongs":             {wl: on("well"), host: "well"},
		"elsewhere":                    {wl: on("tainted"), host: "well", want: true},
		"its node takes no pods now":   {wl: on("tainted"), host: "tainted", want: true},
		"its workload is not admitted": {wl: waiting, host: "well", want: true},
		"its workload has finished":    {wl: finished, host: "tainted"},
		"the node is gone":             {wl: on("well"), host: "gone"},
		"nothing is known of the node": {wl: on("well"), host: "silent"},
		"it names no node":             {wl: on("well")},
		"it is on its node":            {wl: on("tainted"), host: "well", how: func(p *corev1.Pod) { p.Spec.NodeName = "well" }},
		"it runs":                      {wl: on("tainted"), host: "well", how: func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }},
		"it is gated": {wl: on("tainted"), host: "well", how: func(p *corev1.Pod) {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}}
		}},
		"a node of its own choice, no topology": {wl: waiting, host: "well", how: func(p *corev1.Pod) { p.Annotations = nil }},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kueue.PodSetUnconstrainedTopologyAnnotation: "true"}}}
		pod.Status.Phase = corev1.PodPending
		if test.host != "" {
			pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: test.host}
		}
		if test.how != nil {
			test.how(pod)
		}
		if stray, err := c.isStray(t.Context(), test.wl, pod); err != nil || stray != test.want {
			t.Errorf("%s: stray %t, want %t, %v", name, stray, test.want, err)
		}
	}
}
