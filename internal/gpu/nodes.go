package gpu

import (
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/inventory"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
)

// machine is a node as the loop knows it.
type machine struct {
	node *corev1.Node // nil until it is seen
	gpus map[string]*egpu.GPU
	told *placement.Node // what the engine was last told
}

func (s *Shell) machine(name string) *machine {
	m := s.machines[name]
	if m == nil {
		m = &machine{gpus: map[string]*egpu.GPU{}}
		s.machines[name] = m
	}
	return m
}

func (s *Shell) sawNode(node *corev1.Node, gone bool) {
	m := s.machine(node.Name)
	m.node = node
	if gone {
		m.node = nil
	}
	s.describe(node.Name, m)
}

func (s *Shell) sawGPU(gpu *egpu.GPU, gone bool) {
	if old, known := s.gpus[gpu.Name]; known && (gone || old != gpu.Spec.NodeName) {
		m := s.machine(old)
		delete(m.gpus, gpu.Name)
		delete(s.gpus, gpu.Name)
		s.describe(old, m)
	}
	if gone || gpu.Spec.NodeName == "" {
		return
	}
	m := s.machine(gpu.Spec.NodeName)
	m.gpus[gpu.Name] = gpu
	s.gpus[gpu.Name] = gpu.Spec.NodeName
	s.changed[gpu.Spec.NodeName] = true
	if s.describe(gpu.Spec.NodeName, m) {
		s.nudge(true)
	}
	for _, name := range slices.Sorted(maps.Keys(s.unplaced)) {
		s.sawElasticGPU(s.unplaced[name], false)
	}
}

// describe tells the engine what a node is now, if that is news: kubelets write much that is not.
func (s *Shell) describe(name string, m *machine) (news bool) {
	if m.node == nil {
		if m.told != nil {
			m.told = nil
			s.apply(placement.NodeGone{Name: name})
		}
		if len(m.gpus) == 0 {
			delete(s.machines, name)
		}
		return true
	}
	now := nodeOf(m.node, m.gpus)
	if m.told != nil {
		if reflect.DeepEqual(*m.told, now) {
			return false
		}
		if s.loadsOnly(m.told, &now) {
			m.told = &now
			return false
		}
	}
	if !s.apply(placement.NodeChanged{Node: now}) {
		return false
	}
	m.told = &now
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

// nodeOf describes a node. The resources are those that decide about GPU pods in practice; the
// kube-scheduler checks all of them before it asks, and that a node is not ready is one of its taints.
func nodeOf(node *corev1.Node, gpus map[string]*egpu.GPU) placement.Node {
	n := inventory.Node(node, gpus)
	n.Unschedulable = node.Spec.Unschedulable
	n.Resources = map[string]int64{
		"cpu":            node.Status.Allocatable.Cpu().MilliValue(),
		"memory":         node.Status.Allocatable.Memory().Value(),
		request.PodSlots: node.Status.Allocatable.Pods().Value(),
	}
	return n
}
