package inventory

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
)

func node(allocatable map[corev1.ResourceName]int64) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{
		egpu.ModelLabel: "H100-80G", "nvidia.com/gpu.memory": "81559", egpu.TFLOPSLabel: "989",
	}}}
	n.Status.Allocatable = corev1.ResourceList{}
	for name, value := range allocatable {
		n.Status.Allocatable[name] = *resource.NewQuantity(value, resource.DecimalSI)
	}
	return n
}

func card(index int, model string, memory int64) *egpu.GPU {
	return &egpu.GPU{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n-", index)},
		Spec:       egpu.GPUSpec{Index: index, NodeName: "n", Model: model, Memory: memory},
	}
}

func TestCardsOfANode(t *testing.T) {
	labelled := map[corev1.ResourceName]int64{egpu.ResourceWhole: 2}
	ill := card(1, "H100-80G", 81559)
	ill.Status = egpu.GPUStatus{State: egpu.GPUUnhealthy, Message: "fell off the bus"}
	for name, tc := range map[string]struct {
		node *corev1.Node
		gpus []*egpu.GPU
		want string // index:model:memory:tflops:illness, a space between
	}{
		"none":                           {node: node(nil)},
		"by labels":                      {node: node(labelled), want: "0:H100-80G:81559:989: 1:H100-80G:81559:989:"},
		"by shares":                      {node: node(map[corev1.ResourceName]int64{egpu.ResourceCore: 100}), want: "0:H100-80G:81559:989:"},
		"by objects, with their ratings": {node: node(labelled), gpus: []*egpu.GPU{card(0, "T4", 15360), ill}, want: "0:T4:15360:0: 1:H100-80G:81559:989:fell off the bus"},
		"the agent is not done yet":      {node: node(labelled), gpus: []*egpu.GPU{ill}, want: "0:H100-80G:81559:989: 1:H100-80G:81559:989:fell off the bus"},
		"indexes with a hole":            {node: node(labelled), gpus: []*egpu.GPU{card(1, "T4", 1), card(5, "T4", 1)}, want: "1:T4:1:0: 5:T4:1:0:"},
		"objects alone":                  {node: node(nil), gpus: []*egpu.GPU{card(0, "T4", 1)}, want: "0:T4:1:0:"},
	} {
		t.Run(name, func(t *testing.T) {
			gpus := map[string]*egpu.GPU{}
			for _, g := range tc.gpus {
				gpus[g.Name] = g
			}
			got := ""
			for i, c := range Node(tc.node, gpus).Cards {
				if i > 0 {
					got += " "
				}
				got += fmt.Sprintf("%d:%s:%d:%g:%s", c.Index, c.Model, c.Memory, c.TFLOPS, c.Unhealthy)
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}
