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

// tellEvery is how often the GPU objects are told who holds their cards; what changes in between is
// written once.
const tellEvery = time.Second

// Tell keeps the status of GPU objects true about who holds what, until ctx ends. It is for a leader.
func (s *Shell) Tell(ctx context.Context) error {
	ticker := time.NewTicker(tellEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if !s.Leads() {
				continue
			}
			for _, pair := range s.untold(ctx) {
				err := s.options.Client.Status().Patch(ctx, pair.now, client.MergeFrom(pair.was))
				if client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
					s.options.Log.Error(err, "telling who holds a card failed, trying again", "gpu", pair.was.Name)
					s.ask(func() { s.changed[pair.was.Spec.NodeName] = true })
				}
			}
		}
	}
}

type retold struct{ was, now *egpu.GPU }

// untold are the GPU objects whose holders changed.
func (s *Shell) untold(ctx context.Context) (list []retold) {
	_ = s.do(ctx, func() {
		for name := range s.changed {
			status, known := s.engine.NodeStatus(name)
			entry := s.nodes.Get(name)
			if !known || entry == nil {
				continue
			}
			for _, was := range entry.GPUs {
				now := was.DeepCopy()
				now.Status.Allocated = holdersOf(status.Cards, was.Spec.Index)
				if !equality.Semantic.DeepEqual(was.Status.Allocated, now.Status.Allocated) {
					list = append(list, retold{was, now})
				}
			}
		}
		clear(s.changed)
	})
	return list
}

// holdersOf a card, by pod. What an ElasticGPU holds is told under its name.
func holdersOf(cards []placement.CardStatus, index int) map[string]*egpu.PodResource {
	var out map[string]*egpu.PodResource
	for i := range cards {
		if cards[i].Index != index {
			continue
		}
		for _, h := range cards[i].Holders {
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
