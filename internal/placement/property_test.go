package placement

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// act is one thing that happens to an engine.
type act struct {
	kind           string
	node, n        int
	pod            Pod
	gang           Gang
	commit, health bool
	cordoned       bool
}

const propertyNodes = 5

func drawNode(t *rapid.T, i int) Node {
	n := gpuNode(fmt.Sprintf("n%d", i), rapid.IntRange(0, 4).Draw(t, "cards"), "", 0)
	n.Resources["cpu"] = int64(rapid.IntRange(1, 16).Draw(t, "cpu")) * 1000
	n.Labels["rack"] = fmt.Sprintf("r%d", i%2)
	n.Labels["host"] = n.Name
	for j := range n.Cards {
		n.Cards[j].Model = rapid.SampledFrom([]string{"T4", "A100"}).Draw(t, "model")
		n.Cards[j].Memory = rapid.SampledFrom([]int64{16000, 80000}).Draw(t, "memory")
	}
	return n
}

func drawPod(t *rapid.T, key string) Pod {
	p := Pod{Key: key, Resources: map[string]int64{"cpu": int64(rapid.IntRange(0, 4).Draw(t, "podCPU")) * 1000},
		Priority: int32(rapid.IntRange(0, 3).Draw(t, "priority")), Arrange: Arrange(rapid.IntRange(0, 2).Draw(t, "arrange"))}
	for c := range rapid.IntRange(0, 3).Draw(t, "containers") {
		r := CardRequest{Count: rapid.IntRange(0, 2).Draw(t, "count")}
		if r.Count > 0 {
			r.Core = rapid.SampledFrom([]int64{0, 100, 300, 500, 700, 1000}).Draw(t, "core")
			r.Memory = rapid.SampledFrom([]int64{0, 2000, 9000, 20000}).Draw(t, "mem")
			r.Exclusive = r.Core+r.Memory == 0 || rapid.IntRange(0, 5).Draw(t, "exclusive") == 0
			r.Space = !r.Exclusive && rapid.IntRange(0, 3).Draw(t, "space") == 0
			if rapid.IntRange(0, 4).Draw(t, "wantsModel") == 0 {
				r.Models = []string{"A100"}
			}
		}
		p.Containers = append(p.Containers, Container{Name: fmt.Sprintf("c%d", c), Cards: r})
	}
	return p
}

func drawActs(t *rapid.T) []act {
	var acts []act
	for i := range propertyNodes {
		acts = append(acts, act{kind: "node", node: i, gang: Gang{}, pod: Pod{}})
	}
	n := rapid.IntRange(5, 60).Draw(t, "acts")
	for i := range n {
		a := act{
			kind:   rapid.SampledFrom([]string{"put", "put", "put", "bind", "gone", "release", "gang", "gang", "health", "load", "node", "node-gone", "expire", "defragment", "near", "gang-near"}).Draw(t, "kind"),
			node:   rapid.IntRange(0, propertyNodes-1).Draw(t, "node"),
			n:      rapid.IntRange(0, n).Draw(t, "n"),
			commit: rapid.Bool().Draw(t, "commit"), health: rapid.Bool().Draw(t, "healthy"),
			cordoned: rapid.IntRange(0, 3).Draw(t, "cordoned") == 0,
		}
		a.pod = drawPod(t, fmt.Sprintf("ns/p%d", i))
		a.gang = Gang{Key: fmt.Sprintf("ns/g%d", i), PodSets: []PodSet{{Name: "s", Count: rapid.IntRange(1, 5).Draw(t, "gangCount"), Pod: drawPod(t, "")}}}
		if rapid.IntRange(0, 2).Draw(t, "topology") == 0 {
			a.gang.PodSets[0].Topology = &TopologyRequest{Topology: "default", Mode: TopologyMode(rapid.IntRange(0, 2).Draw(t, "mode")), Level: "rack"}
		}
		acts = append(acts, a)
	}
	return acts
}

// do carries out an act and returns what the engine answered.
func do(e *Engine, a *act, nodes []Node) string {
	name := nodes[a.node].Name
	switch a.kind {
	case "node":
		node := nodes[a.node]
		node.Unschedulable = a.cordoned
		return fmt.Sprint(e.Apply(NodeChanged{node}))
	case "node-gone":
		return fmt.Sprint(e.Apply(NodeGone{name}))
	case "put":
		node, err := e.Best(&a.pod)
		if err != nil {
			return err.Error()
		}
		got, err := e.Assign(&a.pod, node, time.Unix(int64(a.n), 0))
		return fmt.Sprint(got, err)
	case "bind":
		// Bind what is held, as the scheduler does.
		for _, h := range e.sortedHoldings() {
			if !h.bound && !h.placeholder {
				return fmt.Sprint(e.Apply(PodBound{Pod: h.pod, Node: h.node.name, Grants: h.grants()}))
			}
		}
	case "gone":
		return fmt.Sprint(e.Apply(PodGone{fmt.Sprintf("ns/p%d", a.n)}))
	case "release":
		e.Release(fmt.Sprintf("ns/g%d", a.n))
	case "gang":
		txn := e.Begin()
		answer := txn.Place(&a.gang)
		if a.commit {
			txn.Commit(time.Time{})
		} else {
			txn.Rollback()
		}
		return fmt.Sprint(answer.Fits, shown(answer), answer.Refusal)
	case "health":
		if s, ok := e.NodeStatus(name); ok && len(s.Cards) > 0 && s.Known {
			c := s.Cards[a.n%len(s.Cards)].Card
			c.Unhealthy = ""
			if !a.health {
				c.Unhealthy = "broken"
			}
			return fmt.Sprint(e.Apply(CardChanged{name, c}))
		}
	case "load":
		return fmt.Sprint(e.Apply(CardLoad{Node: name, Index: 0, Load: Load{Core: float64(a.n%10) / 10}}))
	case "expire":
		return fmt.Sprint(e.Expire(time.Unix(int64(a.n), 0)))
	case "near":
		got, err := e.AssignNear(&a.pod, name, levelLists[a.n%len(levelLists)], time.Unix(int64(a.n), 0))
		return fmt.Sprint(got, err)
	case "gang-near":
		txn := e.Begin()
		defer txn.Rollback()
		answer := txn.PlaceNear(&a.gang, []PodSet{{Name: "card", Count: 1, Pod: a.pod}}, levelLists[a.n%len(levelLists)])
		if a.commit && answer.Fits {
			txn.Commit(time.Time{})
		}
		return fmt.Sprint(answer.Fits, shown(answer), answer.Refusal)
	case "defragment":
		m, to, err := e.Defragment(twoOf(&a.pod), DefragmentOptions{Most: 3})
		return fmt.Sprint(m, shown(to), err)
	}
	return ""
}

// twoOf is a gang of two pods like one.
func twoOf(p *Pod) *Gang {
	return &Gang{Key: "ns/gang-of-two", PodSets: []PodSet{{Name: "main", Count: 2, Pod: *p}}}
}

func drawWorld(t *rapid.T) (Options, []Node, []act) {
	opts := Options{
		Policy:     rapid.SampledFrom([]string{"fragmentation", "binpack", "spread", "random", "topology", "load", "node=fgd,card=spread"}).Draw(t, "policy"),
		Topologies: map[string][]string{"default": {"rack", "host"}},
	}
	var nodes []Node
	for i := range propertyNodes {
		nodes = append(nodes, drawNode(t, i))
	}
	return opts, nodes, drawActs(t)
}

// drawEngine is one that has lived through some acts, and the nodes that these were about.
func drawEngine(t *rapid.T) (*Engine, []Node) {
	opts, nodes, acts := drawWorld(t)
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	for i := range acts {
		do(e, &acts[i], nodes)
	}
	return e, nodes
}

func TestNeverOverCapacityAndRollbackRestores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts, nodes, acts := drawWorld(t)
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		for i := range acts {
			a := &acts[i]
			before := e.Status()
			do(e, a, nodes)
			checkCapacity(t, e)
			quiet := a.kind == "defragment" || strings.HasPrefix(a.kind, "gang") && !a.commit
			if after := e.Status(); quiet && !reflect.DeepEqual(before, after) {
				t.Fatalf("%s left a trace:\nbefore %v\nafter  %v", a.kind, before, after)
			}
			if len(e.journal) > 0 || len(e.marks) > 0 {
				t.Fatalf("%s left a transaction open", a.kind)
			}
		}
	})
}

func checkCapacity(t *rapid.T, e *Engine) {
	for _, s := range e.Status() {
		if !s.Known {
			continue
		}
		for name, free := range s.Free {
			if free < 0 {
				t.Fatalf("node %s: %s is %d below zero", s.Name, name, free)
			}
		}
		for _, c := range s.Cards {
			core, memory := int64(1000), c.Memory
			for _, h := range c.Allocations {
				if h.Space != c.Allocations[0].Space {
					t.Fatalf("node %s card %d is shared in time and in space", s.Name, c.Index)
				}
				core -= h.Core
				memory -= h.Memory
			}
			if core != c.FreeCore || memory != c.FreeMemory || core < 0 || memory < 0 {
				t.Fatalf("node %s card %d: %d/%d free by the view, %d/%d by its allocations", s.Name, c.Index, c.FreeCore, c.FreeMemory, core, memory)
			}
		}
	}
}

// An engine that lived through changes answers as one that was given only what is true now, in another order.
func TestIncrementalEqualsFromScratch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts, nodes, acts := drawWorld(t)
		// Learned demand has a history; a given one has not.
		opts.Demand = []Demand{{Pod: drawPod(t, "demand"), Weight: 3}, {Pod: drawPod(t, "demand"), Weight: 1}}
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		probes := make([]Pod, 4)
		for i := range probes {
			probes[i] = drawPod(t, fmt.Sprintf("ns/probe%d", i))
		}
		for i := range acts {
			do(e, &acts[i], nodes)
			for j := range probes {
				if i%(j+1) == 0 {
					_, _ = e.Best(&probes[j]) // so that indexes stay in use, and some lag behind
				}
			}
		}
		again := rebuilt(t, e, opts)
		for j := range probes {
			if a, b := answers(e, &probes[j]), answers(again, &probes[j]); a != b {
				t.Fatalf("probe %d:\nlived   %s\nrebuilt %s", j, a, b)
			}
		}
	})
}

func rebuilt(t *rapid.T, e *Engine, opts Options) *Engine {
	again, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	nodes := slices.Clone(e.nodes)
	slices.Reverse(nodes)
	for _, h := range e.sortedHoldings() {
		if err := again.Apply(PodBound{Pod: h.pod, Node: h.node.name, Grants: h.grants()}); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range nodes {
		if n != nil && n.known {
			if err := again.Apply(NodeChanged{n.desc}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return again
}

func answers(e *Engine, pod *Pod) string {
	var names []string
	for i := range propertyNodes {
		names = append(names, fmt.Sprintf("n%d", i))
	}
	verdicts, _ := e.Filter(pod, names, nil)
	scores, _ := e.Score(pod, names, nil)
	best, err := e.Best(pod)
	txn := e.Begin()
	answer := txn.Place(&Gang{Key: "ns/probe", PodSets: []PodSet{{Name: "s", Count: 3, Pod: *pod, Topology: &TopologyRequest{Topology: "default", Mode: Preferred, Level: "rack"}}}})
	txn.Rollback()
	return fmt.Sprint(verdicts, scores, best, err, answer.Fits, shown(answer), answer.Refusal)
}

func TestSameEventsSameAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts, nodes, acts := drawWorld(t)
		var transcripts [2][]string
		for run := range transcripts {
			e, err := New(opts)
			if err != nil {
				t.Fatal(err)
			}
			for i := range acts {
				if run == 1 {
					// Questions in between change nothing.
					_, _ = e.Best(&acts[len(acts)-1].pod)
					_, _, _ = e.Defragment(twoOf(&acts[len(acts)-1].pod), DefragmentOptions{Most: 3})
				}
				transcripts[run] = append(transcripts[run], acts[i].kind+" "+do(e, &acts[i], nodes))
			}
		}
		for i := range transcripts[0] {
			if transcripts[0][i] != transcripts[1][i] {
				t.Fatalf("act %d:\nfirst  %s\nsecond %s", i, transcripts[0][i], transcripts[1][i])
			}
		}
	})
}

// What is refused without being placed is what placing it refuses, and in the same words.
func TestFewerIsWhatPlacingComesTo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, _ := drawEngine(t)
		set := PodSet{Name: "s", Count: rapid.IntRange(2, 12).Draw(t, "pods"), Pod: drawPod(t, "ns/whole")}
		for i := range set.Pod.Containers {
			if c := &set.Pod.Containers[i].Cards; i == 0 && c.Count > 0 {
				c.Exclusive = c.Exclusive || c.Core < 1000
				c.Space = c.Space && !c.Exclusive
			} else {
				c.Count = 0
			}
		}
		foreseen := e.fewer(&set)
		txn := e.Begin()
		defer txn.Rollback()
		holds, refused := e.placeFrom(&Gang{Key: "ns/g"}, &set, nil, 0, true)
		if foreseen == nil {
			if s, err := e.shapeOf(&set.Pod); err == nil && s.countable && refused != nil && len(e.unhealthy) == 0 {
				t.Fatalf("not foreseen: %v", refused)
			}
			return
		}
		if refused == nil {
			t.Fatalf("it fits, and was refused: %v", foreseen)
			return
		}
		refused.Fit, refused.Count, foreseen.Count = len(holds), set.Count, set.Count
		if foreseen.Error() != refused.Error() || foreseen.RetryOn != refused.RetryOn {
			t.Fatalf("foreseen %v (%v)\nplacing  %v (%v)", foreseen, foreseen.RetryOn, refused, refused.RetryOn)
		}
	})
}

// What was found and is held is what was placed, and what is held of an answer that was only written down: once more, after
// its nodes were described anew, and after all was taken back.
func TestHoldingWhatWasFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts, nodes, acts := drawWorld(t)
		gang := Gang{Key: "ns/found", PodSets: []PodSet{
			{Name: "s", Count: rapid.IntRange(1, 4).Draw(t, "pods"), Pod: drawPod(t, "")},
			{Name: "s-2", Count: rapid.IntRange(1, 3).Draw(t, "pods"), Pod: drawPod(t, "")},
		}}
		next := rapid.SliceOfN(rapid.SampledFrom([]string{"hold", "what-if", "release", "describe", "act"}), 1, 6).Draw(t, "next")
		later := drawActs(t)
		var lives [2][]string
		for run := range lives {
			e, err := New(opts)
			if err != nil {
				t.Fatal(err)
			}
			for i := range acts {
				do(e, &acts[i], nodes)
			}
			txn := e.Begin()
			var answer Answer
			if run == 0 {
				answer = txn.Find(&gang)
			} else {
				answer = txn.Place(&gang)
				answer.PodSets = shown(answer)
			}
			txn.Rollback()
			lives[run] = append(lives[run], fmt.Sprint(shown(answer), answer.Refusal))
			if !answer.Fits {
				continue
			}
			hold := func() *Txn {
				txn := e.Begin()
				if err := txn.Hold(&gang, &answer); err != nil {
					t.Fatal(err)
				}
				return txn
			}
			for i, what := range slices.Concat([]string{"hold"}, next) {
				switch what {
				case "hold":
					hold().Commit(time.Time{})
				case "what-if":
					hold().Rollback()
				case "release":
					e.Release(gang.Key)
				case "describe":
					n := nodes[i%len(nodes)]
					n.Cards = slices.Clone(n.Cards)
					for c := range n.Cards {
						n.Cards[c].TFLOPS = 77
					}
					_ = e.Apply(NodeChanged{n})
				case "act":
					do(e, &later[i%len(later)], nodes)
				}
				nodes := e.Status()
				for _, n := range nodes {
					for _, c := range n.Cards { // containers of a pod are listed as their cards were chosen
						slices.SortFunc(c.Allocations, func(a, b CardAllocation) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
					}
				}
				lives[run] = append(lives[run], fmt.Sprint(what, nodes, e.demand.now.Classes, e.demand.moved))
			}
		}
		if !slices.Equal(lives[0], lives[1]) {
			t.Fatalf("held as found\n%s\nheld as written down\n%s", strings.Join(lives[0], "\n"), strings.Join(lives[1], "\n"))
		}
	})
}
