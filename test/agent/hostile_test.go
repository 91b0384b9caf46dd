package agent

import (
	"testing"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
)

// A container that fills its folder and has sockets that never answer, as many as it can, costs neither the node its
// disk nor another container its metrics and its swap.
func TestHostileContainerCostsItself(t *testing.T) {
	ns := cluster.Namespace(t)
	hostile := pod(ns, "hostile", []string{"hostile"}, egpu.ResourceCore, 30, egpu.ResourceMemory, 1000)
	cluster.Make(t, hostile)
	if saw := probed(t, hostile); saw.FilledMB > 16 || saw.Sockets < 1000 || saw.Sockets > 2048 {
		t.Errorf("it wrote %d MiB and %d sockets", saw.FilledMB, saw.Sockets)
	}
	honest := swapping(t, ns)
	cluster.Make(t, honest)
	probed(t, honest)
	eventuallyMetric(t, "elastic_gpu_container_memory_used_bytes", honest, func(v float64) bool { return v >= 200<<20 })
	say(t, honest, egpu.SwapOut, egpu.ReasonMovedOut)
	eventuallyMetric(t, "elastic_gpu_container_memory_swapped_bytes", honest, func(v float64) bool { return v >= 200<<20 })
	// And itself: it is not known any more what it uses, but what it has is.
	eventuallyMetric(t, "elastic_gpu_container_memory_bytes", hostile, func(v float64) bool { return v == 1000<<20 })
}
