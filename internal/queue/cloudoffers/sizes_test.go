package cloudoffers

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
)

// A pod that fits on a node which is sold fits on one of the largest, and the other way round while those can be listed. Closed
// places count: what is sold out now is sold again.
func TestLargestNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		number := func(most int) *rapid.Generator[float64] {
			return rapid.Map(rapid.IntRange(0, most), func(n int) float64 { return float64(n) })
		}
		var offers []cloud.Offer
		learned := &cloud.Learned{}
		for range rapid.IntRange(1, 40).Draw(t, "offers") {
			o := cloud.Offer{GPUs: number(9).Draw(t, "cards") + 0.5, VCPUs: number(90).Draw(t, "CPUs"), MemoryGiB: number(90).Draw(t, "memory"), Price: 1}
			o.Region = rapid.SampledFrom([]string{"east", "west"}).Draw(t, "region")
			if offers = append(offers, o); rapid.Bool().Draw(t, "closed") {
				learned.StockOut(o.Place, 1, now)
			}
		}
		offer := of(v1alpha1.CloudOfferSpec{Via: &v1alpha1.Via{NodeClass: &v1alpha1.NodeClass{}}})
		status := Priced(offer, offers, time.Minute, learned, now)
		if len(status.Largest) == 0 || len(status.Largest) > mostSizes {
			t.Fatalf("%d largest of %d", len(status.Largest), len(offers))
		}
		pod := Size{Cards: int64(number(10).Draw(t, "pod's cards")), MilliCPUs: int64(900 * number(91).Draw(t, "pod's CPUs")), Memory: int64(number(90).Draw(t, "pod's memory")) << 30}
		onSold := slices.ContainsFunc(offers, func(o cloud.Offer) bool { return SizeOf(&o).Holds(pod) })
		onLargest := slices.ContainsFunc(status.Largest, func(node corev1.ResourceList) bool {
			cards, cpus, memory := node["nvidia.com/gpu"], node[corev1.ResourceCPU], node[corev1.ResourceMemory]
			return pod.Cards <= cards.Value() && (cpus.IsZero() && missing(node, corev1.ResourceCPU) || pod.MilliCPUs <= cpus.MilliValue()) &&
				(memory.IsZero() && missing(node, corev1.ResourceMemory) || pod.Memory <= memory.Value())
		})
		if onSold && !onLargest || onLargest && !onSold && len(status.Largest) > 1 {
			t.Fatalf("%+v fits on what is sold: %v, and on the largest: %v, %+v", pod, onSold, onLargest, status.Largest)
		}
	})
}

func missing(node corev1.ResourceList, name corev1.ResourceName) bool {
	_, has := node[name]
	return !has
}

// What nodes there are of a flavor whose nodes are made by somebody else, and those of another cluster, the table does not say.
func TestLargestNodesOfWhatIsBoughtHere(t *testing.T) {
	offers := []cloud.Offer{{GPUs: 8, Price: 1}}
	for _, via := range []*v1alpha1.Via{nil, {Cluster: "east"}} {
		if status := Priced(of(v1alpha1.CloudOfferSpec{Via: via}), offers, 0, nil, time.Time{}); len(status.Largest) > 0 {
			t.Errorf("%+v: %v", via, status.Largest)
		}
	}
}
