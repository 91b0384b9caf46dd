package world

import (
	"cmp"
	"slices"
)

// podSize is the most that a pod of a queue's jobs asks for: all cards of a node as most of the queue's nodes are, and, where it
// asks for no cards, what half of the nodes have of CPU and memory; 0 for as much as it wants.
type podSize struct {
	cards       int
	cpu, memory int64
}

// podSizes of each queue, from the nodes that match the flavors in which it has cards. One without such nodes goes by all.
func (c *Cluster) podSizes() map[string]podSize {
	all := make([]bool, len(c.Nodes))
	for i := range all {
		all[i] = true
	}
	byFlavor := make([][]bool, len(c.Flavors))
	for i := range c.Flavors {
		byFlavor[i] = make([]bool, len(c.Nodes))
		for j := range c.Nodes {
			byFlavor[i][j] = c.Nodes[j].takes(&c.Flavors[i])
		}
	}
	out := make(map[string]podSize, len(c.Queues))
	for i := range c.Queues {
		its := make([]bool, len(c.Nodes))
		for j := range c.Flavors {
			if !hasCards(c.Queues[i].Groups, c.Flavors[j].Name, c.Cards) {
				continue
			}
			for k, takes := range byFlavor[j] {
				its[k] = its[k] || takes
			}
		}
		size := c.podSizeOn(its)
		if size.cards == 0 {
			size = c.podSizeOn(all)
		}
		size.cards = max(1, size.cards)
		out[c.Queues[i].Name] = size
	}
	return out
}

// podSizeOn some nodes: the cards that most of them have, of two numbers as frequent the larger, and CPU and memory in the middle.
func (c *Cluster) podSizeOn(its []bool) podSize {
	counts := map[int]int{}
	var cpu, memory []int64
	for i, counted := range its {
		n := &c.Nodes[i]
		if !counted {
			continue
		}
		if n.Cards > 0 {
			counts[n.Cards]++
		}
		if n.CPU > 0 {
			cpu = append(cpu, n.CPU)
		}
		if n.Memory > 0 {
			memory = append(memory, n.Memory)
		}
	}
	size := podSize{cpu: middle(cpu), memory: middle(memory)}
	for cards, nodes := range counts {
		if most := counts[size.cards]; cmp.Or(cmp.Compare(nodes, most), cmp.Compare(cards, size.cards)) > 0 {
			size.cards = cards
		}
	}
	return size
}

// middle of some amounts, at which half of them or more are as large; 0 for none.
func middle(amounts []int64) int64 {
	if len(amounts) == 0 {
		return 0
	}
	slices.Sort(amounts)
	return amounts[(len(amounts)-1)/2]
}

// podsWithoutCards is how many pods a job is that asks for no cards, so that each fits on a node.
func (s podSize) podsWithoutCards(j *Job) int {
	pods := int64(1)
	if s.cpu > 0 {
		pods = max(pods, (j.CPU+s.cpu-1)/s.cpu)
	}
	if s.memory > 0 {
		pods = max(pods, (j.Memory+s.memory-1)/s.memory)
	}
	return int(min(pods, mostCards))
}
