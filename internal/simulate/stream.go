package simulate

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"

	"github.com/elastic-ai/elastic/internal/placement"
	"github.com/elastic-ai/elastic/internal/placement/policy"
)

// stream of arrivals for a seed: all pods in random order, then pods drawn at random, until the
// demand for cards passes ratio times the capacity. Nodes are renamed in a random order, because
// of equal nodes the first by name wins. The generator and the order of draws are those of the
// published simulator, so that a seed gives its stream.
func stream(nodes []placement.Node, pods []TracePod, ratio float64, seed int64) ([]placement.Node, []TracePod) {
	capacity := capacityOf(nodes)
	sorted := slices.Clone(pods)
	slices.SortFunc(sorted, func(a, b TracePod) int { return strings.Compare(a.Key, b.Key) })
	out := slices.Clone(sorted)
	r := rand.New(rand.NewSource(seed))
	r.Int() // the published one logs a first number
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	var demand int64
	for i := range out {
		demand += out[i].Demand
	}
	for i := 0; ; i++ {
		p := sorted[r.Intn(len(sorted))]
		if float64(demand+p.Demand) > ratio*float64(capacity) {
			return renamed(nodes, r), out
		}
		p.Key = fmt.Sprintf("%s-again-%d", p.Key, i)
		demand += p.Demand
		out = append(out, p)
	}
}

func renamed(nodes []placement.Node, r *rand.Rand) []placement.Node {
	out := slices.Clone(nodes)
	slices.SortFunc(out, func(a, b placement.Node) int { return strings.Compare(a.Name, b.Name) })
	for i, place := range r.Perm(len(out)) {
		out[i].Name = fmt.Sprintf("%04d-%s", place, out[i].Name)
	}
	return out
}

func capacityOf(nodes []placement.Node) int64 {
	var cards int64
	for i := range nodes {
		cards += int64(len(nodes[i].Cards))
	}
	return cards * policy.Whole
}
