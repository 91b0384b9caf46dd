package placement

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// hostsOf are a few hosts in racks in blocks, with capacity for a few pods each.
func hostsOf(t *rapid.T) ([]Node, []int) {
	var nodes []Node
	var capacities []int
	for i := range rapid.IntRange(1, 6).Draw(t, "hosts") {
		capacity := rapid.IntRange(0, 4).Draw(t, "capacity")
		rack := rapid.IntRange(0, 3).Draw(t, "rack")
		name := fmt.Sprintf("h%d", i)
		nodes = append(nodes, Node{
			Name:      name,
			Labels:    map[string]string{"block": fmt.Sprint(rack / 2), "rack": fmt.Sprint(rack), "host": name},
			Resources: map[string]int64{"cpu": int64(capacity)},
		})
		capacities = append(capacities, capacity)
	}
	return nodes, capacities
}

// requestOf cuts some pods into slices at up to three levels.
func requestOf(t *rapid.T, levels []string) (*TopologyRequest, int) {
	r := &TopologyRequest{Topology: "default", FullestFirst: rapid.Bool().Draw(t, "fullest"), Balanced: rapid.Bool().Draw(t, "balanced")}
	widest := 0
	if r.Mode = TopologyMode(rapid.IntRange(0, 2).Draw(t, "mode")); r.Mode != Unconstrained {
		widest = rapid.IntRange(0, 2).Draw(t, "level")
		r.Level = levels[widest]
	}
	count := 1
	for level := len(levels) - 1; level >= widest; level-- {
		if rapid.Bool().Draw(t, "slices") {
			count *= rapid.IntRange(1, 3).Draw(t, "size")
			r.Slices = slices.Insert(r.Slices, 0, Slice{Level: levels[level], Size: count})
		}
	}
	return r, count * rapid.IntRange(1, 3).Draw(t, "count")
}

// allowed says whether so many pods on each node are what the request asks for.
func allowed(r *TopologyRequest, nodes []Node, pods []int) bool {
	within := func(level string) map[string]int {
		sums := map[string]int{}
		for i, n := range pods {
			if n > 0 {
				sums[nodes[i].Labels[level]] += n
			}
		}
		return sums
	}
	for _, slice := range r.Slices {
		for _, n := range within(slice.Level) {
			if n%slice.Size != 0 {
				return false
			}
		}
	}
	return r.Mode != Required || len(within(r.Level)) <= 1
}

// anyWay tries every way to put pods on nodes.
func anyWay(r *TopologyRequest, nodes []Node, capacities []int, left int, pods []int) bool {
	if len(pods) == len(nodes) {
		return left == 0 && allowed(r, nodes, pods)
	}
	for n := range min(capacities[len(pods)], left) + 1 {
		if anyWay(r, nodes, capacities, left-n, append(slices.Clone(pods), n)) {
			return true
		}
	}
	return false
}

// A topology request is granted as it was made, whenever there is any way to.
func TestTopologyAgainstEveryWay(t *testing.T) {
	levels := []string{"block", "rack", "host"}
	rapid.Check(t, func(t *rapid.T) {
		nodes, capacities := hostsOf(t)
		r, count := requestOf(t, levels)
		e, err := New(Options{Topologies: map[string][]string{"default": levels}})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			if err := e.Apply(NodeChanged{n}); err != nil {
				t.Fatal(err)
			}
		}
		txn := e.Begin()
		defer txn.Rollback()
		answer := txn.Place(&Gang{Key: "ns/g", PodSets: []PodSet{{Name: "s", Count: count, Pod: Pod{Resources: map[string]int64{"cpu": 1}}, Topology: r}}})
		if want := anyWay(r, nodes, capacities, count, nil); answer.Fits != want {
			t.Fatalf("%d pods as %+v on %v: fits is %t", count, *r, capacities, answer.Fits)
		}
		if !answer.Fits {
			return
		}
		pods := make([]int, len(nodes))
		for _, at := range answer.PodSets[0].Placed {
			i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == at.Node })
			pods[i] += at.Count
			count -= at.Count
			if pods[i] > capacities[i] {
				t.Fatalf("%d pods on %s, which has capacity for %d", pods[i], at.Node, capacities[i])
			}
		}
		if count != 0 || !allowed(r, nodes, pods) {
			t.Fatalf("%v on %v is not what %+v asks for", pods, capacities, *r)
		}
	})
}
