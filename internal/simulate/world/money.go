package world

import (
	"maps"
	"slices"
	"strings"
)

// SpotPrice is the name of the price of spot nodes that have none of their own.
const SpotPrice = "spot"

// priceOf a card of a node in an hour: that of a label, of spot nodes, of its model, or of all.
func (w *World) priceOf(n *nodeState) float64 {
	prices := w.cluster.PerHour
	for _, nodes := range slices.Sorted(maps.Keys(prices)) {
		if strings.Contains(nodes, "=") && n.node.matches(nodes) {
			return prices[nodes]
		}
	}
	if price, known := prices[SpotPrice]; known && w.spotOf(n) != nil {
		return price
	}
	if price, known := prices[n.node.Model]; known {
		return price
	}
	return prices[""]
}

// setPrices notes what nodes cost, from the first job on.
func (w *World) setPrices() {
	if len(w.cluster.PerHour) == 0 {
		return
	}
	for _, n := range w.order {
		n.price, n.since = w.priceOf(n), w.now
	}
}

// paid is what a node has cost up to now: it costs nothing while it is not there.
func (n *nodeState) paid(now int64) float64 {
	if n.down {
		return n.cost
	}
	return n.cost + n.price*float64(n.node.Cards)*hours(max(0, now-n.since))
}

// money is what the nodes cost from the first job to the last end, used or not.
func (w *World) money() float64 {
	if w.still.ended {
		return w.still.money
	}
	sum := 0.0
	for _, n := range w.order {
		sum += n.paid(w.now)
	}
	return sum
}

// costOf is what the cards of a running job have cost since it started last.
func (w *World) costOf(job int) float64 {
	sum := 0.0
	for _, p := range w.placed[job] {
		sum += w.nodes[p.Node].price * float64(len(p.Cards))
	}
	return sum * hours(max(0, w.now-max(w.jobs[job].since, w.firstSubmit())))
}

// moneyOf is what the cards cost that the jobs of a queue had.
func (w *World) moneyOf(queue string) float64 {
	sum := w.figures.queues[queue].money
	for _, job := range slices.Sorted(maps.Keys(w.placed)) {
		if w.trace.Jobs[job].Queue == queue {
			sum += w.costOf(job)
		}
	}
	return sum
}
