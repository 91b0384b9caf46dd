package simulate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/elastic-ai/elastic/internal/placement"
	"github.com/elastic-ai/elastic/internal/placement/policy"
)

// Latencies of decisions, sorted.
type Latencies []time.Duration

// At is the latency that this part of the decisions stayed below.
func (l Latencies) At(part float64) time.Duration { return l[min(int(part*float64(len(l))), len(l)-1)] }

// Decisions measures single decisions (choose the node, choose the cards, hold them) on a cluster of
// equal nodes that stays filled to the given part, with pods of some thirty request shapes that come and go.
func Decisions(rule string, nodes, cards int, full float64, count int) (Latencies, error) {
	e, err := placement.New(placement.Options{Policy: rule})
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		if err := e.Apply(placement.NodeChanged{Node: plainNode(fmt.Sprintf("node-%05d", i), cards)}); err != nil {
			return nil, err
		}
	}
	shapes := usualShapes(cards)
	r := rand.New(rand.NewPCG(1, 1))
	held, next := []TracePod{}, 0
	var used int64
	put := func() (time.Duration, error) {
		p := shapes[r.IntN(len(shapes))]
		p.Key = fmt.Sprintf("ns/p%d", next)
		next++
		start := time.Now()
		node, err := e.Best(&p.Pod)
		if err == nil {
			_, err = e.Assign(&p.Pod, node, time.Time{})
		}
		took := time.Since(start)
		var refusal *placement.Refusal
		if errors.As(err, &refusal) {
			return took, nil
		}
		held, used = append(held, p), used+p.Demand
		return took, err
	}
	want := int64(full * float64(nodes*cards*1000))
	out := make(Latencies, 0, count)
	for len(out) < count {
		took, err := put()
		if err != nil {
			return nil, err
		}
		if used < want {
			continue // still filling
		}
		out = append(out, took)
		for used >= want {
			i := r.IntN(len(held))
			e.Release(held[i].Key)
			used -= held[i].Demand
			held[i] = held[len(held)-1]
			held = held[:len(held)-1]
		}
	}
	slices.Sort(out)
	return out, nil
}

func plainNode(name string, cards int) placement.Node {
	n := placement.Node{Name: name, Resources: map[string]int64{"cpu": 16000 * int64(cards), "memory": 64 << 30 * int64(cards), "pods": 250}}
	for i := range cards {
		n.Cards = append(n.Cards, placement.Card{Index: i, Model: "A100", Memory: 80000})
	}
	return n
}

// usualShapes are shares of eight sizes with three sizes of CPU, and whole cards.
func usualShapes(cards int) []TracePod {
	var out []TracePod
	add := func(c placement.CardRequest, cpu int64) {
		out = append(out, TracePod{
			Pod: placement.Pod{
				Resources:  map[string]int64{"cpu": cpu, "memory": cpu << 20},
				Containers: []placement.Container{{Name: "main", Cards: c}},
			},
			Demand: int64(c.Count) * c.Core,
		})
	}
	for _, core := range []int64{100, 200, 250, 300, 400, 500, 700, 800} {
		for _, cpu := range []int64{1000, 2000, 4000} {
			add(placement.CardRequest{Count: 1, Core: core, Memory: core * 80}, cpu)
		}
	}
	for n := 1; n <= cards; n *= 2 {
		for range 3 {
			add(placement.CardRequest{Count: n, Core: policy.Whole, Exclusive: true}, 12000*int64(n))
		}
	}
	return out
}
