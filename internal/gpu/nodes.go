package gpu

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
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
// kube-scheduler checks all of them before it asks.
func nodeOf(node *corev1.Node, gpus map[string]*egpu.GPU) placement.Node {
	n := placement.Node{
		Name: node.Name, Labels: node.Labels, Unschedulable: node.Spec.Unschedulable,
		Resources: map[string]int64{
			"cpu":            node.Status.Allocatable.Cpu().MilliValue(),
			"memory":         node.Status.Allocatable.Memory().Value(),
			request.PodSlots: node.Status.Allocatable.Pods().Value(),
		},
	}
	for _, t := range node.Spec.Taints {
		n.Taints = append(n.Taints, placement.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	n.Cards = cardsOf(gpus, cardsFromLabels(node))
	return n
}

// cardsOf GPU objects, by index. Of two that claim one index the first by name counts. As long as the
// agent has described fewer cards than the node has, the others are as the labels say.
func cardsOf(gpus map[string]*egpu.GPU, labels []placement.Card) []placement.Card {
	list := make([]*egpu.GPU, 0, len(gpus))
	for _, g := range gpus {
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b *egpu.GPU) int {
		return cmp.Or(cmp.Compare(a.Spec.Index, b.Spec.Index), strings.Compare(a.Name, b.Name))
	})
	list = slices.CompactFunc(list, func(a, b *egpu.GPU) bool { return a.Spec.Index == b.Spec.Index })
	cards := make([]placement.Card, len(list))
	for i, g := range list {
		cards[i] = placement.Card{
			Index: g.Spec.Index, UUID: g.Spec.UUID, Model: g.Spec.Model, Memory: g.Spec.Memory,
			TFLOPS: float64(g.Spec.TFLOPS), NUMA: g.Spec.NUMA, Unhealthy: illness(g),
		}
		for _, l := range g.Spec.Links {
			cards[i].Links = append(cards[i].Links, placement.Link{To: l.To, Bandwidth: float64(l.Bandwidth)})
		}
		if load := g.Status.Load; load != nil {
			cards[i].Load = placement.Load{Core: float64(load.Core) / 100, Memory: float64(load.Memory) / 100}
		}
		if cards[i].TFLOPS == 0 && len(labels) > 0 && cards[i].Model == labels[0].Model {
			cards[i].TFLOPS = labels[0].TFLOPS
		}
	}
	for _, card := range labels {
		described := slices.ContainsFunc(cards, func(c placement.Card) bool { return c.Index == card.Index })
		if len(cards) < len(labels) && !described {
			cards = append(cards, card)
		}
	}
	slices.SortFunc(cards, func(a, b placement.Card) int { return cmp.Compare(a.Index, b.Index) })
	return cards
}

func illness(g *egpu.GPU) string {
	if g.Status.State == "" || g.Status.State == egpu.GPUReady {
		return ""
	}
	return cmp.Or(g.Status.Message, g.Status.State)
}

// cardsFromLabels describes the cards of a node that has no agent.
func cardsFromLabels(node *corev1.Node) []placement.Card {
	amount := func(name corev1.ResourceName) int64 {
		q := node.Status.Allocatable[name]
		return q.Value()
	}
	label := func(name string) int64 {
		n, _ := strconv.ParseInt(node.Labels[name], 10, 64)
		return n
	}
	count := cmp.Or(amount(egpu.ResourceWhole), amount(egpu.ResourceCore)/100, amount(egpu.ResourceCoreOld)/100, amount(egpu.ResourceQGPUCore)/100)
	if count <= 0 {
		return nil
	}
	memory := cmp.Or(label("nvidia.com/gpu.memory"),
		amount(egpu.ResourceMemory)/count, amount(egpu.ResourceMemoryOld)/count, amount(egpu.ResourceQGPUMemory)*1024/count)
	cards := make([]placement.Card, count)
	for i := range cards {
		cards[i] = placement.Card{
			Index: i, Memory: memory, TFLOPS: float64(label(egpu.TFLOPSLabel)),
			Model: cmp.Or(node.Labels[egpu.ModelLabel], node.Labels["nvidia.com/gpu.product"]),
		}
	}
	return cards
}
