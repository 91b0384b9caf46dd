package world

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// cardsThere counts the cards of the nodes that are there, over time: not those that are lost, taken back or sold out.
type cardsThere struct {
	now, others int64 // others are those of pods that are in no queue
	at          int64
	sum         cardSeconds
}

// cardSeconds of the nodes that were there, and those that pods in no queue had.
type cardSeconds struct{ all, others int64 }

// begin with all nodes, and the pods that are in no queue.
func (c *cardsThere) begin(w *World) {
	c.at = w.now
	for _, pod := range w.cluster.Pods {
		if n := w.nodes[pod.Spec.NodeName]; n != nil {
			n.others += cardsOf(pod, w.cluster.Cards)
		}
	}
	for _, n := range w.order {
		n.others = min(n.others, n.node.Cards)
		w.partlyFree += n.partlyFree()
		c.add(n, 1)
	}
}

func cardsOf(pod *corev1.Pod, resource string) int {
	asked := workload.PodRequests(&pod.Spec)[corev1.ResourceName(resource)]
	return int(asked.Value())
}

// add a node's cards, or take them away with -1.
func (c *cardsThere) add(n *nodeState, sign int64) {
	c.now += sign * int64(n.node.Cards)
	c.others += sign * int64(n.others)
}

// until a time.
func (c *cardsThere) until(at int64) cardSeconds {
	return cardSeconds{c.sum.all + c.now*(at-c.at), c.sum.others + c.others*(at-c.at)}
}

// setDown notes that a node is there no more, or again.
func (w *World) setDown(n *nodeState, down bool) {
	c := &w.figures.cards
	c.sum, c.at = c.until(w.now), w.now
	w.partlyFree -= n.partlyFree()
	n.down = down
	w.partlyFree += n.partlyFree()
	if down {
		c.add(n, -1)
	} else {
		c.add(n, 1)
	}
}

// cardSeconds of the run.
func (w *World) cardSeconds() cardSeconds {
	if w.still.ended {
		return w.still.cards
	}
	return w.figures.cards.until(w.now)
}
