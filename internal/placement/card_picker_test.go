package placement

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elastic-ai/elastic/internal/placement/policy"
)

// Cards that are ranked in one pass are those that the search comes to, under every rule that scores cards by themselves.
func TestRankedCardsAreThoseOfTheSearch(t *testing.T) {
	texts := append(policy.Names(), "order:2.0.1", "node=0.7*fragmentation+0.3*load", "card=0.5*binpack+0.5*random")
	rapid.Check(t, func(t *rapid.T) {
		e, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		n := gpuNode("n", rapid.IntRange(0, 8).Draw(t, "cards"), "", 0)
		for i := range n.Cards {
			n.Cards[i].Model = rapid.SampledFrom([]string{"T4", "A100"}).Draw(t, "model")
			n.Cards[i].Memory = rapid.SampledFrom([]int64{0, 16000, 80000}).Draw(t, "memory")
			n.Cards[i].Load.Core = rapid.Float64Range(0, 1).Draw(t, "load")
			if rapid.IntRange(0, 9).Draw(t, "health") == 0 {
				n.Cards[i].Unhealthy = "broken"
			}
		}
		if err := e.Apply(NodeChanged{n}); err != nil {
			t.Fatal(err)
		}
		for i := range rapid.IntRange(0, 8).Draw(t, "there") {
			pod := drawPod(t, fmt.Sprintf("ns/there-%d", i))
			_, _ = e.Assign(&pod, n.Name, time.Time{}) // as many as fit
		}
		pod := drawPod(t, "ns/pod")
		pod.Policy = rapid.SampledFrom(texts).Draw(t, "policy")
		pod.Containers = []Container{{Name: "c", Cards: CardRequest{Count: rapid.IntRange(1, 8).Draw(t, "count"), Core: rapid.SampledFrom([]int64{100, 300, 1000}).Draw(t, "core")}}}
		c := &pod.Containers[0].Cards
		c.Exclusive, c.Space = rapid.Bool().Draw(t, "exclusive"), rapid.IntRange(0, 3).Draw(t, "space") == 0
		s, err := e.shapeOf(&pod)
		if err != nil {
			t.Fatal(err)
		}
		if !s.alone {
			return
		}
		salt := rapid.Uint64().Draw(t, "salt")
		ask := func(alone bool) (Reason, []policy.Take, float64) {
			s.alone = alone
			reason := e.pick.run(e, s, e.byName[n.Name], salt)
			if reason != Fits {
				return reason, nil, 0
			}
			return reason, slices.Clone(e.pick.c.Takes), s.policy.Node.NodeScore(&e.pick.c)
		}
		reason, takes, score := ask(true)
		wantReason, wantTakes, wantScore := ask(false)
		if reason != wantReason || !slices.Equal(takes, wantTakes) || score != wantScore {
			t.Fatalf("%s, %v, %v; the search says %s, %v, %v", reason, takes, score, wantReason, wantTakes, wantScore)
		}
	})
}
