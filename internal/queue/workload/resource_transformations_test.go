package workload

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func TestCounting(t *testing.T) {
	const card, mig, share = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "elasticgpu.io/gpu-core"
	retain, replace := ptr.To(kueueconfig.Retain), ptr.To(kueueconfig.Replace)
	for name, test := range map[string]struct {
		exclude    []string
		transforms []kueueconfig.ResourceTransformation
		asked      corev1.ResourceList
		quota      admission.Requests
		same       bool // quota counts what the pod asks for
	}{
		"nothing that concerns the pod": {
			exclude: []string{"example.com/"}, asked: list("cpu", "500m"),
			quota: admission.Requests{"cpu": 500}, same: true,
		},
		"excluded by prefix": {
			exclude: []string{"networking.example.com/"},
			asked:   list("cpu", "1", "networking.example.com/vpc1", "1"),
			quota:   admission.Requests{"cpu": 1000},
		},
		"a whole card counts as 100 of core, beside shares that name core": {
			transforms: []kueueconfig.ResourceTransformation{{Input: card, Strategy: replace, Outputs: list(share, "100")}},
			asked:      list(card, "2", share, "50"),
			quota:      admission.Requests{share: 250},
		},
		"retained beside its outputs": {
			transforms: []kueueconfig.ResourceTransformation{{Input: mig, Strategy: retain, Outputs: list("example.com/gpu-memory", "5Gi")}},
			asked:      list(mig, "2"),
			quota:      admission.Requests{mig: 2, "example.com/gpu-memory": 10 << 30},
		},
		"retain is the default": {
			transforms: []kueueconfig.ResourceTransformation{{Input: mig, Outputs: list("example.com/credits", "3")}},
			asked:      list(mig, "2"),
			quota:      admission.Requests{mig: 2, "example.com/credits": 6},
		},
		"multiplied by another resource of the pod, the input retained as asked": {
			transforms: []kueueconfig.ResourceTransformation{{
				Input: "nvidia.com/gpumem", MultiplyBy: card, Strategy: retain, Outputs: list("example.com/total-gpumem", "1"),
			}},
			asked: list("nvidia.com/gpumem", "1024", card, "2"),
			quota: admission.Requests{"nvidia.com/gpumem": 1024, card: 2, "example.com/total-gpumem": 2048},
		},
		"multiplied by what the pod does not ask for": {
			transforms: []kueueconfig.ResourceTransformation{{Input: "nvidia.com/gpumem", MultiplyBy: card, Strategy: replace, Outputs: list("out", "1")}},
			asked:      list("nvidia.com/gpumem", "1024"),
			quota:      admission.Requests{"out": 1024},
		},
		"two inputs, one output": {
			transforms: []kueueconfig.ResourceTransformation{
				{Input: "cpu", Strategy: replace, Outputs: list("example.com/credits", "2")},
				{Input: "memory", Strategy: replace, Outputs: list("example.com/credits", "0.000000001")},
			},
			asked: list("cpu", "1500m", "memory", "2G"),
			quota: admission.Requests{"example.com/credits": 5},
		},
		"replaced by nothing": {
			transforms: []kueueconfig.ResourceTransformation{{Input: "cpu", Strategy: replace}},
			asked:      list("cpu", "1", "memory", "1Ki"),
			quota:      admission.Requests{"memory": 1024},
		},
		"an allowance takes from other outputs only": {
			transforms: []kueueconfig.ResourceTransformation{
				{Input: "a", Strategy: replace, Outputs: list("out", "3")},
				{Input: "b", Strategy: replace, Outputs: list("out", "-5")},
			},
			asked: list("a", "1", "b", "1", "out", "7"),
			quota: admission.Requests{"out": 7},
		},
	} {
		t.Run(name, func(t *testing.T) {
			counting, err := NewResourceTransformations(test.exclude, test.transforms)
			if err != nil {
				t.Fatal(err)
			}
			before := test.asked.DeepCopy()
			quota, pod := counting.requests(test.asked)
			if !maps.Equal(quota, test.quota) {
				t.Errorf("quota counts %v, want %v", quota, test.quota)
			}
			switch {
			case test.same && pod != nil:
				t.Errorf("the pod's own requests are %v, want none beside the quota's", pod)
			case !test.same && !maps.Equal(pod, amounts(before)):
				t.Errorf("the pod's own requests are %v, want what it asked for", pod)
			}
		})
	}
}

func TestCountingRefusesWhatMakesNoSense(t *testing.T) {
	for want, transforms := range map[string][]kueueconfig.ResourceTransformation{
		"resources.transformations[1].input":    {{Input: "cpu"}, {Input: "cpu"}},
		"resources.transformations[0].strategy": {{Input: "cpu", Strategy: ptr.To(kueueconfig.ResourceTransformationStrategy("Keep"))}},
	} {
		if _, err := NewResourceTransformations(nil, transforms); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that names %s", err, want)
		}
	}
}
