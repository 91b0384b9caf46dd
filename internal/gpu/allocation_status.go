package gpu

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/placement"
)

// publishEvery is how often allocations are written to GPU objects; what changes in between is written
// once.
const publishEvery = time.Second

// PublishAllocations writes into the status of GPU objects which pods have what of them, until ctx ends.
// It is for a leader.
func (s *Shell) PublishAllocations(ctx context.Context) error {
	ticker := time.NewTicker(publishEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if !s.Leads() {
				continue
			}
			for _, pair := range s.changedGPUs(ctx) {
				err := s.options.Client.Status().Patch(ctx, pair.now, client.MergeFrom(pair.was))
				if client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
					s.options.Log.Error(err, "writing the allocations of a GPU failed, trying again", "gpu", pair.was.Name)
					s.ask(func() { s.changed[pair.was.Spec.NodeName] = true })
				}
			}
		}
	}
}

type gpuUpdate struct{ was, now *egpu.GPU }

// changedGPUs are the GPU objects whose allocations changed.
func (s *Shell) changedGPUs(ctx context.Context) (list []gpuUpdate) {
	_ = s.do(ctx, func() {
		for name := range s.changed {
			status, known := s.engine.NodeStatus(name)
			entry := s.nodes.Get(name)
			if !known || entry == nil {
				continue
			}
			for _, was := range entry.GPUs {
				now := was.DeepCopy()
				now.Status.Allocated = allocatedOf(status.Cards, was.Spec.Index)
				if !equality.Semantic.DeepEqual(was.Status.Allocated, now.Status.Allocated) {
					list = append(list, gpuUpdate{was, now})
				}
			}
		}
		clear(s.changed)
	})
	return list
}

// allocatedOf a card, by pod. What an ElasticGPU has is under its name.
func allocatedOf(cards []placement.CardStatus, index int) map[string]*egpu.PodResource {
	var out map[string]*egpu.PodResource
	for i := range cards {
		if cards[i].Index != index {
			continue
		}
		for _, h := range cards[i].Allocations {
			if !h.Bound {
				continue
			}
			if out == nil {
				out = map[string]*egpu.PodResource{}
			}
			if out[h.Pod] == nil {
				namespace, name, _ := strings.Cut(h.Pod, "/")
				out[h.Pod] = &egpu.PodResource{Namespace: namespace, Pod: name}
			}
			held := corev1.ResourceList{}
			if core := (h.Core + 9) / 10; core > 0 {
				held[egpu.ResourceCore] = *resource.NewQuantity(core, resource.DecimalSI)
			}
			if h.Memory > 0 {
				held[egpu.ResourceMemory] = *resource.NewQuantity(h.Memory, resource.DecimalSI)
			}
			out[h.Pod].Containers = append(out[h.Pod].Containers, egpu.ContainerResource{Container: h.Container, Resource: held})
		}
	}
	return out
}
