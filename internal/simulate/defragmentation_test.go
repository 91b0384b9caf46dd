package simulate

import (
	"fmt"
	"testing"

	"github.com/elastic-ai/elastic/internal/placement"
	"github.com/elastic-ai/elastic/internal/placement/policy"
)

// With more moves a gang finds its nodes at least as often, never more often than cards are free, and moves cost nothing where
// none are allowed.
func TestFragmentation(t *testing.T) {
	var nodes []placement.Node
	for i := range 6 {
		nodes = append(nodes, plainNode(fmt.Sprintf("n%d", i), 4))
	}
	var pods []TracePod
	for i := range 200 {
		cards := placement.CardRequest{Count: 1 + i%3, Core: policy.Whole, Exclusive: true}
		pods = append(pods, TracePod{
			Pod:     placement.Pod{Key: fmt.Sprintf("p%d", i), Containers: []placement.Container{{Name: "main", Cards: cards}}},
			Deleted: int64(600 * (1 + i*i%17)), Demand: int64(cards.Count) * policy.Whole,
		})
	}
	got, err := Fragmentation(nodes, pods, FragmentationOptions{
		Policy: "spread", Cards: 4, Moves: []int{0, 1, 2}, Every: 600, Load: 60, Rounds: 2, LostWork: 1 << 40,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range got {
		if f.Looks == 0 || f.Fits > f.Free || i > 0 && f.Fits < got[i-1].Fits || (f.Moves == 0) != (f.Moved == 0) {
			t.Errorf("%+v", got)
		}
	}
	if got[2].Fits == got[0].Fits {
		t.Errorf("moves win nothing: %+v", got)
	}
}
