package cloudoffers

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/elastic-ai/elastic/internal/cloud"
)

const (
	// usable is the part of a node's CPUs and memory that is reckoned to be left for pods.
	usable = 0.9
	// unlimited is what a node has of which the table does not say.
	unlimited = 1 << 60
	// mostSizes is how many largest nodes a status has.
	mostSizes = 16
)

// Size is what pods may ask of a node.
type Size struct{ Cards, MilliCPUs, Memory int64 }

// SizeOf is what pods may ask of an offer's node.
func SizeOf(o *cloud.Offer) Size {
	s := Size{Cards: int64(o.GPUs), MilliCPUs: unlimited, Memory: unlimited}
	if o.VCPUs > 0 {
		s.MilliCPUs = int64(o.VCPUs * usable * 1000)
	}
	if o.MemoryGiB > 0 {
		s.Memory = int64(o.MemoryGiB*usable*1024) << 20 // whole MiB
	}
	return s
}

// Holds says that a node has as much of everything as another one.
func (s Size) Holds(other Size) bool {
	return s.Cards >= other.Cards && s.MilliCPUs >= other.MilliCPUs && s.Memory >= other.Memory
}

// largest are the nodes of which no other has more of everything. Of too many, one is left that has the most of each: a pod that
// fits on none of them fits on none that is sold.
func largest(offers []cloud.Offer, cards string) []corev1.ResourceList {
	var sizes []Size
	for i := range offers {
		s := SizeOf(&offers[i])
		if slices.ContainsFunc(sizes, func(than Size) bool { return than.Holds(s) }) {
			continue
		}
		sizes = append(slices.DeleteFunc(sizes, s.Holds), s)
	}
	if len(sizes) > mostSizes {
		for _, s := range sizes[1:] {
			sizes[0] = Size{max(sizes[0].Cards, s.Cards), max(sizes[0].MilliCPUs, s.MilliCPUs), max(sizes[0].Memory, s.Memory)}
		}
		sizes = sizes[:1]
	}
	slices.SortFunc(sizes, func(a, b Size) int {
		return cmp.Or(cmp.Compare(b.Cards, a.Cards), cmp.Compare(b.MilliCPUs, a.MilliCPUs), cmp.Compare(b.Memory, a.Memory))
	})
	out := make([]corev1.ResourceList, 0, len(sizes))
	for _, s := range sizes {
		list := corev1.ResourceList{}
		if s.MilliCPUs < unlimited {
			list[corev1.ResourceCPU] = *resource.NewMilliQuantity(s.MilliCPUs, resource.DecimalSI)
		}
		if s.Memory < unlimited {
			list[corev1.ResourceMemory] = *resource.NewQuantity(s.Memory, resource.BinarySI)
		}
		list[corev1.ResourceName(cards)] = *resource.NewQuantity(s.Cards, resource.DecimalSI)
		out = append(out, list)
	}
	return out
}
