package explain

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/job"
)

// What is said of the cards of other nodes that a job has, waits for, or will have.
func TestRemoteCards(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := egpu.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	class := func(name, sharing, distance string) *egpu.ElasticGPUClass {
		return &egpu.ElasticGPUClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Parameters: map[string]string{"sharing": sharing, "distance": distance}}
	}
	claim := func(name, class, device, message string) *egpu.ElasticGPUClaim {
		c := &egpu.ElasticGPUClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		c.Spec.ElasticGPUClassName, c.Spec.ElasticGPUName, c.Status.Message = &class, device, message
		return c
	}
	device := func(name string, source egpu.ElasticGPUSource, message string) *egpu.ElasticGPU {
		d := &egpu.ElasticGPU{ObjectMeta: metav1.ObjectMeta{Name: name}}
		d.Spec.ElasticGPUSource, d.Status.Message = source, message
		d.Spec.Capacity = corev1.ResourceList{egpu.ResourceCore: resource.MustParse("30"), egpu.ResourceMemory: resource.MustParse("1024")}
		return d
	}
	far := egpu.ElasticGPUSource{RemoteGPU: &egpu.RemoteGPUSource{GPUName: "n-0", NodeName: "n"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		class("far", egpu.SharingRemote, "rack,zone"), class("wide", egpu.SharingRemote, ""), class("near", egpu.SharingTime, ""),
		claim("bound", "far", "e1", ""), claim("lost", "far", "e2", ""), claim("local", "near", "e3", ""), claim("abroad", "far", "e4", ""),
		claim("waits", "far", "", ""), claim("chosen-first", "wide", "", "no node has a free card"), claim("local-waits", "near", "", ""),
		device("e1", far, ""), device("e2", far, "its server is not ready"), device("e3", egpu.ElasticGPUSource{GPUShare: &egpu.GPUShareSource{}}, ""),
		device("e4", egpu.ElasticGPUSource{RemoteGPU: &egpu.RemoteGPUSource{Address: "host:1"}}, ""),
	).Build()
	asks := func(claims ...string) map[string]string {
		annotations := map[string]string{}
		for i, name := range claims {
			annotations[egpu.ClaimPrefix+string(rune('a'+i))] = name
		}
		return annotations
	}
	object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "ns"}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: asks("waits")}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes are available: no free card of another node is near enough"}}
	wl := &kueue.Workload{}
	wl.Spec.PodSets = []kueue.PodSet{{Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: asks("bound", "lost", "local", "abroad", "chosen-first", "missing", "local-waits")}}}}
	for name, test := range map[string]struct {
		job  *job.Job
		want []string
	}{
		"of a workload": {&job.Job{Object: object, Workload: wl}, []string{
			"claim abroad: a card at host:1",
			"claim bound: card n-0 of node n, gpu-core 30, gpu-memory 1024",
			"claim chosen-first: no card yet; it needs one of its pod's zone, or any: no node has a free card",
			"claim lost: card n-0 of node n, gpu-core 30, gpu-memory 1024; its server is not ready",
		}},
		"of a pod without a queue": {&job.Job{Object: object, Pods: []*corev1.Pod{pod}}, []string{
			"claim waits: no card yet; it needs one as near as class far says (rack,zone), and pod p waits: 0/2 nodes are available: no free card of another node is near enough",
		}},
		"of one without pods": {&job.Job{Object: object, Pods: []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Annotations: asks("waits")}}}}, []string{
			"claim waits: no card yet; it gets one as near as class far says (rack,zone), with its first pod",
		}},
		"of none": {&job.Job{Object: object}, nil},
	} {
		if got := remoteCards(t.Context(), c, test.job); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
