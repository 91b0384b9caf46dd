package placer

import (
	"slices"
	"testing"

	"github.com/elastic-ai/elastic/internal/admission"
)

func plan(moves int, costs map[string]int64) admission.DefragmentPlan {
	return admission.DefragmentPlan{Moves: moves, LostWork: 100, Cost: func(k admission.Key) int64 { return costs[k.Name] }}
}

// Cards are scattered over nodes: the plan moves whole workloads, the cheapest first, and changes nothing.
func TestDefragment(t *testing.T) {
	p := cluster(t, 3)
	fits(t, p, asking("a", 1, 3))
	fits(t, p, asking("b", 1, 3))
	fits(t, p, asking("pair", 2, 1)) // fills the two
	fits(t, p, asking("c", 1, 2))
	p.Remove(admission.Key{Namespace: "ns", Name: "a"})
	p.Remove(admission.Key{Namespace: "ns", Name: "b"})
	whole := asking("whole", 1, 4)
	refused(t, p, whole)
	for _, test := range []struct {
		name  string
		moves int
		costs map[string]int64
		want  []string
	}{
		{"the cheapest", 1, map[string]int64{"pair": 50, "c": 20}, []string{"c"}},
		{"a gang as a whole", 1, map[string]int64{"pair": 5, "c": 20}, []string{"pair"}},
		{"none may move", 1, map[string]int64{"pair": -1, "c": -1}, nil},
		{"too much work would be lost", 1, map[string]int64{"pair": 101, "c": 101}, nil},
		{"no moves", 0, map[string]int64{"pair": 1, "c": 1}, nil},
	} {
		var got []string
		for _, k := range p.Defragment(whole, plan(test.moves, test.costs)) {
			got = append(got, k.Name)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		refused(t, p, whole)
	}
	// Those who would leave have no other place: three whole nodes are not to be had.
	if got := p.Defragment(asking("three", 3, 4), plan(9, nil)); got != nil {
		t.Errorf("%v move, and do not fit elsewhere", got)
	}
}
