package gpu

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/placement"
)

const (
	// publishPause gathers what is bound together; containers wait for the record, so it is short.
	publishPause = 5 * time.Millisecond
	// publishAgain is when a write that failed is tried once more.
	publishAgain = time.Second
	// publishers write at once.
	publishers = 16
)

// touch says that what pods have on a node has changed.
func (s *Shell) touch(node string) {
	s.changed[node] = true
	select {
	case s.publish <- struct{}{}:
	default:
	}
}

// PublishAllocations writes into the status of GPU objects which pods have what of them, until ctx ends.
// Agents wait for it: it is the record of what a pod was given. It is for a leader.
func (s *Shell) PublishAllocations(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.leads:
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.publish:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(publishPause):
		}
		s.publishNow(ctx)
	}
}

func (s *Shell) publishNow(ctx context.Context) {
	var all sync.WaitGroup
	slots := make(chan struct{}, publishers)
	for _, pair := range s.changedGPUs(ctx) {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			err := s.options.Client.Status().Patch(ctx, pair.now, client.MergeFrom(pair.was))
			if client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
				s.options.Log.Error(err, "writing the allocations of a GPU failed, trying again", "gpu", pair.was.Name)
				time.AfterFunc(publishAgain, func() { s.ask(func() { s.touch(pair.was.Spec.NodeName) }) })
			}
		})
	}
	all.Wait()
}

type gpuUpdate struct{ was, now *egpu.GPU }

// changedGPUs are the GPU objects whose allocations changed, by name.
func (s *Shell) changedGPUs(ctx context.Context) (list []gpuUpdate) {
	_ = s.do(ctx, func() {
		for name := range s.changed {
			status, known := s.engine.NodeStatus(name)
			entry := s.nodes.Get(name)
			if !known || entry == nil {
				continue
			}
			for _, was := range entry.GPUs {
				_ = s.guard(stagePublish, was, func() {
					now := was.DeepCopy()
					now.Status.Allocated = s.allocatedOf(status.Cards, was.Spec.Index)
					if !equality.Semantic.DeepEqual(was.Status.Allocated, now.Status.Allocated) {
						list = append(list, gpuUpdate{was, now})
					}
				})
			}
		}
		clear(s.changed)
	})
	slices.SortFunc(list, func(a, b gpuUpdate) int { return strings.Compare(a.was.Name, b.was.Name) })
	return list
}

// allocatedOf a card, by pod. What an ElasticGPU has is under its name.
func (s *Shell) allocatedOf(cards []placement.CardStatus, index int) map[string]*egpu.PodResource {
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
				if t := s.pods[h.Pod]; t != nil {
					out[h.Pod].UID, out[h.Pod].Guessed = t.uid, t.guessed
				}
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
