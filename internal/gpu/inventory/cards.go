package inventory

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/placement"
)

// Cards of GPU objects, by index. Of two with one index the first by name counts.
func Cards(gpus map[string]*egpu.GPU) []placement.Card {
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
			TFLOPS: rated(g), NUMA: g.Spec.NUMA, Unhealthy: illness(g),
		}
		for _, l := range g.Spec.Links {
			cards[i].Links = append(cards[i].Links, placement.Link{To: l.To, Bandwidth: float64(l.Bandwidth)})
		}
		if load := g.Status.Load; load != nil {
			cards[i].Load = placement.Load{Core: float64(load.Core) / 100, Memory: float64(load.Memory) / 100}
		}
	}
	return cards
}

// rated is what is known of the card beside its model. What its agent took from the table by the model
// is not: a rating of the configuration counts before that.
func rated(g *egpu.GPU) float64 {
	if g.Spec.TFLOPS == int64(placement.Rating(g.Spec.Model)) {
		return 0
	}
	return float64(g.Spec.TFLOPS)
}

func illness(g *egpu.GPU) string {
	if g.Status.State == "" || g.Status.State == egpu.GPUReady {
		return ""
	}
	return cmp.Or(g.Status.Message, g.Status.State)
}

// complete the cards that an agent describes with what the labels say: the
// rating where it is missing, and, until the agent has described as many cards
// as the node has, the others.
func complete(cards, labels []placement.Card) []placement.Card {
	for i := range cards {
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
