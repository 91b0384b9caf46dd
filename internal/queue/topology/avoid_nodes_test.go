package topology

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// A pod loses its gate as it is told which nodes to avoid: those of its annotation, and those of the pods by which its job
// grew. Other gates stay. What its author made too large keeps the gate, and an event says so.
func TestPodsAvoidNodes(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	extra := func(name, of string, nodes ...string) *kueue.Workload {
		wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: map[string]string{v1alpha1.ExtraOfAnnotation: of}}}
		workload.Admit(wl, &admission.Admission{Queue: "cq", AvoidNodes: nodes}, nil, time.Now())
		return wl
	}
	waiting := extra("waiting", "grown", "n9")
	workload.Release(waiting, "", time.Now())
	for name, test := range map[string]struct {
		of, nodes, want string
		event           bool
	}{
		"it names some":     {of: "other", nodes: "n1,n2", want: "n1 n2"},
		"its extras do":     {of: "grown", want: "n2 n3"},
		"both do":           {of: "grown", nodes: "n1,n2", want: "n1 n2 n3"},
		"none":              {of: "other", want: ""},
		"its author's list": {of: "other", nodes: strings.Repeat("n,", 20_000), event: true},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Annotations: map[string]string{
			kueue.WorkloadAnnotation: test.of, v1alpha1.AvoidNodesAnnotation: test.nodes,
		}}}
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "other"}, avoidsNodes}
		recorder := events.NewFakeRecorder(1)
		c := &avoidNodes{fake.NewClientBuilder().WithScheme(scheme).WithIndex(&kueue.Workload{}, extraIndex, extraOf).
			WithObjects(pod, extra("x", "grown", "n3"), extra("y", "grown", "n2", "n3"), waiting, extra("z", "third", "n8")).Build(), recorder}
		if _, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)}); err != nil {
			t.Fatal(name, err)
		}
		if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		if test.event {
			if len(pod.Spec.SchedulingGates) != 2 || len(recorder.Events) != 1 {
				t.Errorf("%s: gates %v, %d events", name, pod.Spec.SchedulingGates, len(recorder.Events))
			}
			continue
		}
		var got []string
		if pod.Spec.Affinity != nil {
			for _, r := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields {
				got = append(got, r.Values...)
			}
		}
		if strings.Join(got, " ") != test.want || fmt.Sprint(pod.Spec.SchedulingGates) != "[{other}]" {
			t.Errorf("%s: avoids %v, gates %v", name, got, pod.Spec.SchedulingGates)
		}
	}
}
