package queue

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// The pods that an elastic job grows by join the others in the domain that it requires, or wait.
func TestAJobGrowsWhereItIs(t *testing.T) {
	rack, host := kueue.TopologyLevel{NodeLabel: "rack"}, kueue.TopologyLevel{NodeLabel: corev1.LabelHostname}
	const elsewhere = `TopologyPlacementFailed: 1 of 2 pods fit; topology "racks" allows to fit only 1 out of 2 pod(s); the next is refused by 1 node: node labels do not match (1)`
	for name, test := range map[string]struct {
		levels []kueue.TopologyLevel
		pods   int32
		want   string
	}{
		"it fits":                               {[]kueue.TopologyLevel{rack, host}, 2, "quota"},
		"it fits elsewhere only":                {[]kueue.TopologyLevel{rack, host}, 3, elsewhere},
		"it fits, and hosts are no level":       {[]kueue.TopologyLevel{rack}, 2, "quota"},
		"it fits elsewhere, hosts are no level": {[]kueue.TopologyLevel{rack}, 3, elsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			p := onNodes(t)
			p.gates.topology = true
			p.oneQueue()
			for node, cpus := range map[string]string{"a1": "3", "b1": "2"} {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{corev1.LabelHostname: node, "rack": node[:1]}}}
				n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(cpus), "pods": resource.MustParse("10")}
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
				p.see(n)
			}
			p.see(
				&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}, Spec: kueue.TopologySpec{Levels: test.levels}},
				&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: kueue.ResourceFlavorSpec{TopologyName: ptr.To(kueue.TopologyReference("racks"))}},
			)
			slice := func(name string, pods int32) *kueue.Workload {
				wl := p.workload(name, "main", "", 0, "1")
				wl.Spec.PodSets[0].Count = pods
				wl.Spec.PodSets[0].TopologyRequest = &kueue.PodSetTopologyRequest{Required: ptr.To("rack")}
				return wl
			}
			p.see(slice("small", 1))
			p.expect("small", "quota")
			large := slice("large", test.pods)
			large.Annotations = map[string]string{workload.ReplacesAnnotation: "ns/small"}
			p.see(large)
			p.expect("large", test.want)
			if given := p.written["large"].Status.Admission; given != nil {
				for _, d := range workload.Domains(given.PodSetAssignments[0].TopologyAssignment) {
					if !strings.HasPrefix(d.Values[len(d.Values)-1], "b") {
						t.Errorf("%d pods are at %v", d.Count, d.Values)
					}
				}
			}
		})
	}
}
