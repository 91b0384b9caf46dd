package gpu

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/inventory"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
)

func (s *Shell) sawNode(node *corev1.Node, gone bool) {
	s.nodes.SetNode(node, gone)
	s.describe(node.Name)
}

func (s *Shell) sawGPU(gpu *egpu.GPU, gone bool) {
	left, on := s.nodes.SetGPU(gpu, gone)
	if left != "" {
		s.describe(left)
	}
	if on == "" {
		return
	}
	s.touch(on)
	if s.describe(on) {
		s.requeue(true)
	}
	s.placeStrays(on) // its status may name them
	for _, name := range slices.Sorted(maps.Keys(s.unplaced)) {
		s.sawElasticGPU(s.unplaced[name], false)
	}
}

// describe a node to the engine, and report whether there may be more free capacity now.
func (s *Shell) describe(name string) (changed bool) {
	entry, now, changed := s.nodes.Describe(name)
	switch {
	case now == nil:
		if changed {
			entry.Applied = nil
			s.apply(placement.NodeGone{Name: name})
		}
		return true
	case !changed:
		return false
	case entry.Applied != nil && s.loadsOnly(entry.Applied, now):
		entry.Applied = now
		return false
	case !s.apply(placement.NodeChanged{Node: *now}):
		return false
	}
	entry.Applied = now
	s.placeStrays(name)
	return true
}

// loadsOnly passes measurements on if nothing else changed.
func (s *Shell) loadsOnly(was, is *placement.Node) bool {
	if len(was.Cards) != len(is.Cards) {
		return false
	}
	same := *is
	same.Cards = slices.Clone(is.Cards)
	for i := range same.Cards {
		same.Cards[i].Load = was.Cards[i].Load
	}
	if !reflect.DeepEqual(*was, same) {
		return false
	}
	for i := range is.Cards {
		if is.Cards[i].Load != was.Cards[i].Load {
			s.apply(placement.CardLoad{Node: is.Name, Index: is.Cards[i].Index, Load: is.Cards[i].Load})
		}
	}
	return true
}

// connected are nodes whose agents carry what programs say to cards of other nodes: to the engine, a label.
var connected = map[string]string{egpu.RemoteAgentAnnotation: "true"}

// describeNode leaves to kube-scheduler what it checks before it asks: all resources beside those that
// decide about GPU pods in practice, and whether the node is ready, which is one of its taints.
func describeNode(node *corev1.Node, gpus map[string]*egpu.GPU) placement.Node {
	n := inventory.Node(node, gpus)
	n.Unschedulable = node.Spec.Unschedulable
	if node.Annotations[egpu.RemoteAgentAnnotation] != "" {
		n.Labels = maps.Clone(n.Labels)
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		maps.Copy(n.Labels, connected)
	}
	n.Resources = map[string]int64{
		"cpu":            node.Status.Allocatable.Cpu().MilliValue(),
		"memory":         node.Status.Allocatable.Memory().Value(),
		request.PodSlots: node.Status.Allocatable.Pods().Value(),
	}
	return n
}

// LargestCard is the most memory any card has, in MiB; 0 while no card is known.
func (s *Shell) LargestCard(ctx context.Context) (largest int64, err error) {
	err = s.do(ctx, func() {
		for entry := range s.nodes.All() {
			if entry.Applied == nil {
				continue
			}
			for i := range entry.Applied.Cards {
				largest = max(largest, entry.Applied.Cards[i].Memory)
			}
		}
	})
	return largest, err
}

// NodeLabel is the value of a node's label; empty where it has none.
func (s *Shell) NodeLabel(node, key string) (value string) {
	_ = s.do(context.Background(), func() {
		if n := s.nodes.Object(node); n != nil {
			value = n.Labels[key]
		}
	})
	return value
}

// GPUName of a card: that of its GPU object, or the node's name and the index where there is none.
func (s *Shell) GPUName(node string, index int) string {
	name := fmt.Sprintf("%s-%d", node, index)
	_ = s.do(context.Background(), func() {
		if entry := s.nodes.Get(node); entry != nil {
			for _, g := range entry.GPUs {
				if g.Spec.Index == index {
					name = g.Name
				}
			}
		}
	})
	return name
}
