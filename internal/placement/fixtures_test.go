package placement

import (
	"slices"
	"testing"
	"time"
)

func newEngine(t testing.TB, opts Options, nodes ...Node) *Engine {
	t.Helper()
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		apply(t, e, NodeChanged{n})
	}
	return e
}

func gpuNode(name string, cards int, model string, memory int64) Node {
	n := Node{Name: name, Labels: map[string]string{}, Resources: map[string]int64{"cpu": 64000, "memory": 256 << 30}}
	for i := range cards {
		n.Cards = append(n.Cards, Card{Index: i, Model: model, Memory: memory})
	}
	return n
}

func apply(t testing.TB, e *Engine, ev Event) {
	t.Helper()
	if err := e.Apply(ev); err != nil {
		t.Fatal(err)
	}
}

func share(t testing.TB, core, memory int64) CardRequest {
	t.Helper()
	r, err := Percent(core, memory)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sharePod(t testing.TB, key string, core int64) Pod {
	return Pod{Key: key, Containers: []Container{{Name: "main", Cards: share(t, core, 0)}}}
}

func bind(t testing.TB, e *Engine, pod Pod, node string, cards ...int) {
	t.Helper()
	g := Grant{Container: pod.Containers[0].Name}
	for _, c := range cards {
		g.Cards = append(g.Cards, CardGrant{Index: c})
	}
	apply(t, e, PodBound{Pod: pod, Node: node, Grants: []Grant{g}})
}

func assign(t testing.TB, e *Engine, pod *Pod, node string) Assignment {
	t.Helper()
	a, err := e.Assign(pod, node, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func filter(t testing.TB, e *Engine, pod *Pod, node string) Reason {
	t.Helper()
	v, err := e.Filter(pod, []string{node}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v[0].Reason
}

func status(t testing.TB, e *Engine, node string) NodeStatus {
	t.Helper()
	s, ok := e.NodeStatus(node)
	if !ok {
		t.Fatalf("node %s is not known", node)
	}
	return s
}

// shown is what an answer says of pod sets, without what it keeps for itself.
func shown(a Answer) []PodSetAnswer {
	sets := slices.Clone(a.PodSets)
	for i := range sets {
		sets[i].holds = nil
	}
	return sets
}
