package share_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/share"
)

var cards = []discovery.Card{
	{Index: 0, UUID: "GPU-0", Model: "A100-40G", MemoryMB: 40960},
	{Index: 1, UUID: "GPU-1", Model: "A100-40G", MemoryMB: 40960},
}

func quantities(pairs map[corev1.ResourceName]string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, value := range pairs {
		list[name] = resource.MustParse(value)
	}
	return list
}

func pod(annotations map[string]string, limits corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p", UID: "u", Annotations: annotations},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: limits}}}},
	}
}

func TestShareOfAContainer(t *testing.T) {
	chosen := map[string]string{egpu.ContainerPrefix + "main": "1"}
	for name, tc := range map[string]struct {
		annotations map[string]string
		limits      map[corev1.ResourceName]string
		percent     float64
		memory      int64
		want        string // of the error
	}{
		"core and memory":      {annotations: chosen, limits: map[corev1.ResourceName]string{egpu.ResourceCore: "30", egpu.ResourceMemory: "1000"}, percent: 30, memory: 1000},
		"memory alone":         {annotations: chosen, limits: map[corev1.ResourceName]string{egpu.ResourceMemory: "1000"}, percent: 100, memory: 1000},
		"a whole card":         {annotations: chosen, limits: map[corev1.ResourceName]string{egpu.ResourceCore: "100"}, percent: 100, memory: 40960},
		"qGPU counts GiB":      {annotations: chosen, limits: map[corev1.ResourceName]string{egpu.ResourceQGPUCore: "20", egpu.ResourceQGPUMemory: "5"}, percent: 20, memory: 5120},
		"none chosen":          {limits: map[corev1.ResourceName]string{egpu.ResourceCore: "30"}, want: "no cards were chosen"},
		"a card that is gone":  {annotations: map[string]string{egpu.ContainerPrefix + "main": "7"}, limits: map[corev1.ResourceName]string{egpu.ResourceCore: "30"}, want: "none of that index"},
		"nothing is asked for": {annotations: chosen, want: "asks for no cards"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := (&share.Resolver{}).Of(t.Context(), pod(tc.annotations, quantities(tc.limits)), "main", cards)
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Fatalf("%v, want %q", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Cards) != 1 || got.Cards[0].UUID != "GPU-1" || got.Cards[0].Percent != tc.percent || got.Cards[0].MemoryMB != tc.memory {
				t.Fatalf("share %+v", got)
			}
		})
	}
}

// What a claim has is in its ElasticGPU, in the words of its provisioner; how it is held is in its class.
// A job that is to be swapped when it is preempted has shares that can be.
func TestShareThatIsToBeSwapped(t *testing.T) {
	p := pod(map[string]string{egpu.ContainerPrefix + "main": "0", egpu.OnPreemptionAnnotation: egpu.OnPreemptionSwap},
		quantities(map[corev1.ResourceName]string{egpu.ResourceCore: "30"}))
	s, err := (&share.Resolver{}).Of(t.Context(), p, "main", cards)
	if err != nil || s.Parameters["swap"] != "on" {
		t.Fatalf("%+v: %v", s, err)
	}
}

func TestShareOfAClaim(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := egpu.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		capacity map[corev1.ResourceName]string
		percent  float64
		memory   int64
	}{
		"core and memory": {map[corev1.ResourceName]string{egpu.ResourceCore: "30", egpu.ResourceMemory: "1000"}, 30, 1000},
		"tflops":          {map[corev1.ResourceName]string{"elasticgpu.io/tflops": "100"}, 32.1, 40960}, // of 312
		"whole cards":     {map[corev1.ResourceName]string{"elasticgpu.io/gpu": "1"}, 100, 40960},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &egpu.ElasticGPUClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "mine"}}
			claim.Spec.ElasticGPUName, claim.Spec.ElasticGPUClassName = "e", ptr.To("fast")
			device := &egpu.ElasticGPU{ObjectMeta: metav1.ObjectMeta{Name: "e"}}
			device.Spec.Capacity = quantities(tc.capacity)
			class := &egpu.ElasticGPUClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Parameters: map[string]string{"lend": "on"}}
			resolver := &share.Resolver{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(claim, device, class).Build()}
			p := pod(map[string]string{egpu.ContainerPrefix + "main": "1", egpu.ClaimPrefix + "main": "mine"}, nil)
			got, err := resolver.Of(t.Context(), p, "main", cards)
			if err != nil {
				t.Fatal(err)
			}
			if got.Cards[0].Percent != tc.percent || got.Cards[0].MemoryMB != tc.memory || got.Parameters["lend"] != "on" {
				t.Fatalf("share %+v", got)
			}
		})
	}
}
