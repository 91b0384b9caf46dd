package request

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/elastic-ai/elastic/internal/placement"
)

func list(pairs ...any) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i].(string))] = *resource.NewQuantity(int64(pairs[i+1].(int)), resource.DecimalSI)
	}
	return out
}

func TestContainer(t *testing.T) {
	share := placement.CardRequest{Count: 1, Core: 300, Memory: 1000}
	for name, tc := range map[string]struct {
		limits corev1.ResourceList
		modes  Modes
		want   placement.CardRequest
		err    string // part of it
	}{
		"none":                   {limits: list("cpu", 4)},
		"core and memory":        {limits: list("elasticgpu.io/gpu-core", 30, "elasticgpu.io/gpu-memory", 1000), want: share},
		"the other spelling":     {limits: list("elasticgpu.com/gpu-core", 30, "elasticgpu.com/gpu-memory", 1000), want: share},
		"memory alone":           {limits: list("elasticgpu.io/gpu-memory", 256), want: placement.CardRequest{Count: 1, Memory: 256}},
		"two cards by core":      {limits: list("elasticgpu.io/gpu-core", 200), want: placement.CardRequest{Count: 2, Core: 1000, Exclusive: true}},
		"two cards":              {limits: list("nvidia.com/gpu", 2), want: placement.CardRequest{Count: 2, Core: 1000, Exclusive: true}},
		"qGPU counts GiB":        {limits: list("tke.cloud.tencent.com/qgpu-core", 20, "tke.cloud.tencent.com/qgpu-memory", 5), want: placement.CardRequest{Count: 1, Core: 200, Memory: 5120}},
		"greedy takes no core":   {limits: list("tke.cloud.tencent.com/qgpu-core-greedy", 20, "tke.cloud.tencent.com/qgpu-memory", 5), want: placement.CardRequest{Count: 1, Memory: 5120}},
		"greedy alone":           {limits: list("tke.cloud.tencent.com/qgpu-core-greedy", 20), err: "ask for qgpu-memory too"},
		"150 is no share":        {limits: list("elasticgpu.io/gpu-core", 150), err: "write 100 or 200"},
		"two ways at once":       {limits: list("elasticgpu.io/gpu-core", 30, "nvidia.com/gpu", 1), err: "more than one way"},
		"a mode not served":      {limits: list("nvidia.com/gpu", 1), modes: Modes{Share}},
		"negative":               {limits: list("elasticgpu.io/gpu-memory", -1), err: "negative"},
		"container in the error": {limits: list("elasticgpu.io/gpu-core", 150), err: "container main:"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &corev1.Container{Name: "main", Resources: corev1.ResourceRequirements{Limits: tc.limits}}
			got, err := Container(c, tc.modes)
			check(t, got, tc.want, err, tc.err)
		})
	}
}

func TestList(t *testing.T) {
	const p = "gpushare.provisioner.elasticgpu.io/"
	for name, tc := range map[string]struct {
		list corev1.ResourceList
		want placement.CardRequest
		err  string
	}{
		"a share":             {list: list(p+"gpu-core", 10, p+"gpu-memory", 4), want: placement.CardRequest{Count: 1, Core: 100, Memory: 4}},
		"cards":               {list: list("nvidia.com/gpu", 2), want: placement.CardRequest{Count: 2, Core: 1000, Exclusive: true}},
		"tflops":              {list: list("elasticgpu.io/tflops", 40, "elasticgpu.io/gpu-memory", 100), want: placement.CardRequest{Count: 1, TFLOPS: 40, Memory: 100}},
		"tflops and core":     {list: list("elasticgpu.io/tflops", 40, "elasticgpu.io/gpu-core", 10), err: "use one"},
		"cards and core":      {list: list("elasticgpu.io/gpu", 2, "elasticgpu.io/gpu-core", 10), err: "gpu-core 200"},
		"something else":      {list: list("cpu", 4), err: "write gpu-core"},
		"qGPU names with GiB": {list: list("tke.cloud.tencent.com/qgpu-memory", 2), want: placement.CardRequest{Count: 1, Memory: 2048}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := List(tc.list, Share)
			check(t, got, tc.want, err, tc.err)
		})
	}
}

func check(t *testing.T, got, want placement.CardRequest, err error, wantErr string) {
	t.Helper()
	if wantErr != "" {
		if err == nil || !strings.Contains(err.Error(), wantErr) {
			t.Fatalf("error %v, want one that says %q", err, wantErr)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if got.Count != want.Count || got.Core != want.Core || got.Memory != want.Memory || got.TFLOPS != want.TFLOPS || got.Exclusive != want.Exclusive {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func TestUsesFallBackToTheFirstContainer(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Spec.Containers = []corev1.Container{{Name: "a"}, {Name: "b"}}
	pod.Annotations = map[string]string{"egpuc.elasticgpu.io/test1": "x", "egpuc.elasticgpu.io/b": "y", "other": "z"}
	uses := Uses(pod)
	if len(uses) != 2 || uses[0] != (Use{"b", "y"}) || uses[1] != (Use{"a", "x"}) {
		t.Fatalf("got %v", uses)
	}
}

// A sidecar without a request is on no card, whatever its pod's other containers were given.
func TestSidecarHasNoCard(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "ns", "p"
	pod.Spec.Containers = []corev1.Container{
		{Name: "sidecar"},
		{Name: "main", Resources: corev1.ResourceRequirements{Limits: list("elasticgpu.io/gpu-core", 30)}},
	}
	pod.Annotations = map[string]string{"elasticgpu.io/container-main": "1", "elasticgpu.io/container-sidecar": "0"}
	p, err := Pod(pod, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Containers) != 1 || p.Containers[0].Name != "main" {
		t.Fatalf("containers %v, want main alone", p.Containers)
	}
	grants, ok := Grants(pod, p.Containers)
	if !ok || len(grants) != 1 || grants[0].Container != "main" || grants[0].Cards[0].Index != 1 {
		t.Fatalf("grants %v", grants)
	}
}
