package world

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/placer"
)

// nodeState is what runs on a node.
type nodeState struct {
	node *Node
	at   int
	used int
	// others are cards that pods in no queue have.
	others int
	jobs   []int
	down   bool
	life   int32  // how often it came back
	held   uint64 // cards that jobs have, while they are checked
	// price of a card in an hour, since when it is paid for, and what it cost before.
	price float64
	since int64
	cost  float64
	// random and spot are of its faults.
	random, spot *rand.Rand
}

// occupy notes where a job runs.
func (w *World) occupy(i int, nodes []placer.NodePlacement) {
	w.placed[i] = nodes
	for _, p := range nodes {
		n := w.nodes[p.Node]
		w.use(n, len(p.Cards))
		if !slices.Contains(n.jobs, i) {
			n.jobs = append(n.jobs, i)
		}
	}
}

// use counts cards of a node.
func (w *World) use(n *nodeState, cards int) {
	w.partlyFree -= n.partlyFree()
	n.used += cards
	w.partlyFree += n.partlyFree()
}

// partlyFree is how many of its cards are free, if others are used.
func (n *nodeState) partlyFree() int64 {
	used := n.used + n.others
	if used == 0 || n.down {
		return 0
	}
	return int64(max(0, n.node.Cards-used))
}

func (w *World) vacate(i int) {
	for _, p := range w.placed[i] {
		n := w.nodes[p.Node]
		w.use(n, -len(p.Cards))
		if at := slices.Index(n.jobs, i); at >= 0 {
			n.jobs = slices.Delete(n.jobs, at, at+1)
		}
	}
	delete(w.placed, i)
}

// invariants that hold after every step, whatever the policies.
func (w *World) invariants() error {
	used, started := map[string]int64{}, map[string]bool{}
	for _, n := range w.order {
		n.held = 0
	}
	for i, nodes := range w.placed {
		cards := 0
		for _, p := range nodes {
			n := w.nodes[p.Node]
			cards += len(p.Cards)
			for _, card := range p.Cards {
				if n.held&(1<<card) != 0 {
					return fmt.Errorf("at %d s: two jobs have card %d of %s, one of them %s", w.now, card, p.Node, w.trace.Jobs[i].ID)
				}
				n.held |= 1 << card
			}
			if n.down {
				return fmt.Errorf("at %d s: %s runs on %s, which is lost", w.now, w.trace.Jobs[i].ID, p.Node)
			}
		}
		if cards != int(w.trace.Jobs[i].Cards) {
			return fmt.Errorf("at %d s: %s has %d of its %d cards", w.now, w.trace.Jobs[i].ID, cards, w.trace.Jobs[i].Cards)
		}
		used[w.trace.Jobs[i].Queue] += int64(cards)
		if w.jobs[i].since == w.now {
			started[w.trace.Jobs[i].Queue] = true
		}
	}
	for _, n := range w.order {
		if n.used > n.node.Cards || n.used < 0 {
			return fmt.Errorf("at %d s: %d of %d cards of %s are used", w.now, n.used, n.node.Cards, n.node.Name)
		}
	}
	for i := range w.cluster.Queues {
		q := &w.cluster.Queues[i]
		if most, limited := mostOf(q, w.cluster.Cards); limited && used[q.Name] > most && (started[q.Name] || !w.policies.quotaFell(q.Name)) {
			return fmt.Errorf("at %d s: queue %s uses %d cards of at most %d", w.now, q.Name, used[q.Name], most)
		}
	}
	if w.policies != nil {
		if err := w.honoured(); err != nil {
			return err
		}
	}
	w.noteMoved()
	return nil
}

// mostOf is how many cards a queue may use, if that is limited.
func mostOf(q *admission.Queue, cards string) (int64, bool) {
	var sum int64
	for _, g := range q.Groups {
		for _, f := range g.Flavors {
			quota, ok := f.Quotas[cards]
			if !ok {
				continue
			}
			if sum += quota.Nominal; q.Cohort != "" {
				if quota.BorrowingLimit == nil {
					return 0, false
				}
				sum += *quota.BorrowingLimit
			}
		}
	}
	return sum, true
}
