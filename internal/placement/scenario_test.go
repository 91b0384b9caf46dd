package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestScenarios runs the files of testdata/scenarios. Each line of a scenario is a command; see world for the words.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		w := &world{t: t, clock: time.Unix(0, 0)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.out.Reset()
			w.run(d)
			return w.out.String()
		})
	})
}

// world is an engine driven by words.
type world struct {
	t     *testing.T
	e     *Engine
	out   strings.Builder
	clock time.Time
}

func (w *world) printf(format string, args ...any) { fmt.Fprintf(&w.out, format+"\n", args...) }

func (w *world) run(d *datadriven.TestData) {
	switch d.Cmd {
	case "engine":
		w.engine(d)
	case "node":
		w.node(d)
	case "card":
		w.card(d)
	case "gone":
		for _, a := range d.CmdArgs {
			w.must(w.e.Apply(PodGone{a.Key}))
		}
	case "node-gone":
		w.must(w.e.Apply(NodeGone{d.CmdArgs[0].Key}))
	case "bound":
		w.bound(d)
	case "put":
		w.put(d)
	case "filter":
		w.filter(d)
	case "gang":
		w.gang(d)
	case "near":
		w.near(d)
	case "distances":
		w.distances(d)
	case "gang-near":
		w.gangNear(d)
	case "defragment":
		w.defragment(d)
	case "release":
		w.e.Release(d.CmdArgs[0].Key)
	case "expire":
		w.printf("expired %v", w.e.Expire(w.clock.Add(seconds(w.t, d.CmdArgs[0].Key))))
	case "status":
		w.status()
	default:
		w.t.Fatalf("unknown command %q", d.Cmd)
	}
}

func (w *world) must(err error) {
	if err != nil {
		w.printf("error: %v", err)
	}
}

// engine policy=spread topology=zone/rack/host
func (w *world) engine(d *datadriven.TestData) {
	var opts Options
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "policy":
			opts.Policy = strings.Join(a.Vals, ",")
		case "topology":
			opts.Topologies = map[string][]string{"default": strings.Split(a.Vals[0], "/")}
		}
	}
	var err error
	w.e, err = New(opts)
	w.must(err)
}

// node a b c cards=8 model=T4 memory=16000 cpu=64 zone=z1 nvlink=0-1 numa=2 unhealthy=3
func (w *world) node(d *datadriven.TestData) {
	var names []string
	n := Node{Labels: map[string]string{}, Resources: map[string]int64{"cpu": 64000, "memory": 256 << 30}}
	model, memory, count, numa := "T4", int64(16000), 0, 1
	var linked []string
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			names = append(names, a.Key)
			continue
		}
		switch v := a.Vals[0]; a.Key {
		case "cards":
			count = int(number(w.t, v))
		case "model":
			model = v
		case "memory":
			memory = number(w.t, v)
		case "cpu":
			n.Resources["cpu"] = 1000 * number(w.t, v)
		case "numa":
			numa = int(number(w.t, v))
		case "nvlink":
			linked = a.Vals
		case "taint":
			n.Taints = []Taint{{Key: v, Effect: "NoSchedule"}}
		case "cordoned":
			n.Unschedulable = v == "true"
		default:
			n.Labels[a.Key] = v
		}
	}
	for i := range count {
		n.Cards = append(n.Cards, Card{Index: i, Model: model, Memory: memory, NUMA: i * numa / count})
	}
	for _, l := range linked {
		a, b, _ := strings.Cut(l, "-")
		from := number(w.t, a)
		n.Cards[from].Links = append(n.Cards[from].Links, Link{To: int(number(w.t, b)), Bandwidth: 300})
	}
	for _, name := range names {
		n.Name = name
		w.must(w.e.Apply(NodeChanged{n}))
	}
}

// card a/3 unhealthy=xid-79 or card a/3 load=0.9
func (w *world) card(d *datadriven.TestData) {
	node, index, _ := strings.Cut(d.CmdArgs[0].Key, "/")
	i := int(number(w.t, index))
	s, ok := w.e.NodeStatus(node)
	if !ok || i >= len(s.Cards) {
		w.t.Fatalf("no card %s", d.CmdArgs[0].Key)
	}
	c := s.Cards[i].Card
	for _, a := range d.CmdArgs[1:] {
		switch a.Key {
		case "unhealthy":
			c.Unhealthy = strings.Join(a.Vals, " ")
		case "load":
			load, err := strconv.ParseFloat(a.Vals[0], 64)
			if err != nil {
				w.t.Fatal(err)
			}
			w.must(w.e.Apply(CardLoad{Node: node, Index: i, Load: Load{Core: load}}))
			return
		}
	}
	w.must(w.e.Apply(CardChanged{Node: node, Card: c}))
}

// pod words: core=50 memory=4000 cards=2 cpu=4 tflops=30 model=(A100,H100) priority=5 pinned any-taint apart together space
// Several containers are written core=(50,20); of those, space1 is for the second alone.
func (w *world) pod(d *datadriven.TestData, key string) (Pod, map[string]string) {
	p := Pod{Key: key, Resources: map[string]int64{}}
	rest := map[string]string{}
	var models []string
	space := ""
	requests := map[string][]string{}
	for _, a := range d.CmdArgs[1:] {
		v := ""
		if len(a.Vals) > 0 {
			v = a.Vals[0]
		}
		switch a.Key {
		case "core", "memory", "cards", "tflops":
			requests[a.Key] = a.Vals
		case "model":
			models = a.Vals
		case "cpu":
			p.Resources["cpu"] = 1000 * number(w.t, v)
		case "priority":
			p.Priority = int32(number(w.t, v))
		case "policy":
			p.Policy = strings.Join(a.Vals, ",")
		case "pinned":
			p.Pinned = true
		case "any-taint":
			p.IgnoresTaints = true
		case "apart":
			p.Arrange = Apart
		case "together":
			p.Arrange = Together
		case "space", "space1":
			space = a.Key
		case "gang":
			at := strings.LastIndex(v, "/")
			p.Gang, p.PodSet = v[:at], v[at+1:]
		case "zone", "rack", "host":
			p.Selector = map[string]string{a.Key: v}
		default:
			rest[a.Key] = v
		}
	}
	at := func(word string, i int) int64 {
		if i < len(requests[word]) {
			return number(w.t, requests[word][i])
		}
		return 0
	}
	containers := 0
	for _, vals := range requests {
		containers = max(containers, len(vals))
	}
	for i := range containers {
		r, err := Percent(at("core", i), at("memory", i))
		if err != nil {
			w.printf("error: %v", err)
			r = CardRequest{Count: 1, Core: 1001} // refused by the engine as well
		}
		if cards := at("cards", i); cards > 0 {
			r.Count = int(cards)
			if r.Core == 0 && r.Memory == 0 {
				r.Core, r.Exclusive = 1000, true
			}
		}
		if tflops := at("tflops", i); tflops > 0 {
			r.Count, r.TFLOPS = max(r.Count, 1), float64(tflops)
		}
		r.Models = models
		r.Space = space == "space" || space == "space1" && i == 1
		p.Containers = append(p.Containers, Container{Name: fmt.Sprintf("c%d", i), Cards: r})
	}
	return p, rest
}

// bound pod node=a on=(0,1) …
func (w *world) bound(d *datadriven.TestData) {
	p, _ := w.pod(d, d.CmdArgs[0].Key)
	ev := PodBound{Pod: p}
	for _, a := range d.CmdArgs[1:] {
		switch a.Key {
		case "node":
			ev.Node = a.Vals[0]
		case "on":
			g := Grant{Container: "c0"}
			for _, v := range a.Vals {
				g.Cards = append(g.Cards, CardGrant{Index: int(number(w.t, v))})
			}
			ev.Grants = []Grant{g}
		}
	}
	w.must(w.e.Apply(ev))
}

// put pod …: on the best node, or node=a; until=30 seconds
func (w *world) put(d *datadriven.TestData) {
	p, rest := w.pod(d, d.CmdArgs[0].Key)
	node, err := rest["node"], error(nil)
	if node == "" {
		node, err = w.e.Best(&p)
	}
	if err != nil {
		w.printf("%s: %v", p.Key, err)
		return
	}
	var until time.Time
	if s := rest["until"]; s != "" {
		until = w.clock.Add(seconds(w.t, s))
	}
	a, err := w.e.Assign(&p, node, until)
	if err != nil {
		w.printf("%s: %v", p.Key, err)
		return
	}
	w.printf("%s -> %s", p.Key, describe(a))
}

func describe(a Assignment) string {
	out := a.Node
	for _, g := range a.Grants {
		out += " " + g.Container + ":"
		for i, c := range g.Cards {
			if i > 0 {
				out += ","
			}
			out += fmt.Sprintf("%d(%d/%d)", c.Index, c.Core, c.Memory)
		}
	}
	return out
}

func (w *world) filter(d *datadriven.TestData) {
	p, _ := w.pod(d, d.CmdArgs[0].Key)
	var names []string
	for _, s := range w.e.Status() {
		names = append(names, s.Name)
	}
	verdicts, err := w.e.Filter(&p, names, nil)
	w.must(err)
	scores, _ := w.e.Score(&p, names, nil)
	for i, v := range verdicts {
		w.printf("%s: %v, score %d", v.Node, v.Reason, scores[i])
	}
}

// gangOf reads: gang job count=64 … required=rack slices=rack:4/host:2; lines of input are further pod sets.
func (w *world) gangOf(d *datadriven.TestData) (*Gang, map[string]string) {
	g := &Gang{Key: d.CmdArgs[0].Key}
	p, rest := w.pod(d, "")
	count := 1
	if c := rest["count"]; c != "" {
		count = int(number(w.t, c))
	}
	set := PodSet{Name: "main", Count: count, Pod: p, Topology: topologyOf(w.t, rest)}
	g.PodSets = []PodSet{set}
	if n := rest["leaders"]; n != "" {
		leader := set
		leader.Name, leader.Count = "leader", int(number(w.t, n))
		leader.Pod.Containers = nil
		if _, asks := rest["leader-card"]; asks {
			leader.Pod.Containers = set.Pod.Containers
			leader.Topology = topologyOf(w.t, rest)
			leader.Topology.Slices = nil
		}
		g.PodSets = []PodSet{leader, set}
	}
	return g, rest
}

func topologyOf(t *testing.T, rest map[string]string) *TopologyRequest {
	r := &TopologyRequest{Topology: "default", Group: rest["group"]}
	_, r.FullestFirst = rest["fullest"]
	_, r.Balanced = rest["balanced"]
	for slice := range strings.SplitSeq(rest["slices"], "/") {
		if level, size, found := strings.Cut(slice, ":"); found {
			r.Slices = append(r.Slices, Slice{level, int(number(t, size))})
		}
	}
	for wish := range strings.SplitSeq(rest["prefer"], "/") {
		if part := strings.Split(wish, ":"); len(part) == 3 {
			r.Preferences = append(r.Preferences, Preference{Term: Term{{Key: part[0], Operator: "In", Values: []string{part[1]}}}, Weight: number(t, part[2])})
		}
	}
	switch {
	case rest["required"] != "":
		r.Mode, r.Level = Required, rest["required"]
	case rest["preferred"] != "":
		r.Mode, r.Level = Preferred, rest["preferred"]
	default:
		if _, asked := rest["unconstrained"]; !asked {
			return nil
		}
	}
	return r
}

func (w *world) gang(d *datadriven.TestData) {
	g, rest := w.gangOf(d)
	txn := w.e.Begin()
	answer := txn.Place(g)
	w.answer(&answer)
	if _, whatIf := rest["what-if"]; whatIf || !answer.Fits {
		txn.Rollback()
		return
	}
	txn.Commit(time.Time{})
}

func (w *world) answer(answer *Answer) {
	if !answer.Fits {
		w.printf("no: %v", answer.Refusal)
		return
	}
	for _, s := range answer.PodSets {
		w.printf("%s: %d of %d", s.Name, s.Fit, s.Count)
		for _, p := range s.Placed {
			domain := ""
			if len(p.Domain) > 0 {
				domain = " in " + strings.Join(p.Domain, "/")
			}
			var cards []int
			for _, pod := range p.Cards {
				for _, grant := range pod {
					for _, c := range grant.Cards {
						cards = append(cards, c.Index)
					}
				}
			}
			slices.Sort(cards)
			w.printf("  %d on %s%s cards %v", p.Count, p.Node, domain, cards)
		}
	}
}

func (w *world) defragment(d *datadriven.TestData) {
	p, rest := w.pod(d, d.CmdArgs[0].Key)
	g := Gang{Key: p.Key, PodSets: []PodSet{{Name: "main", Count: int(max(1, number(w.t, cmp.Or(rest["count"], "1")))), Pod: p}}}
	options := DefragmentOptions{Most: int(number(w.t, rest["moves"])), MostCost: 1 << 40}
	if costs := rest["costs"]; costs != "" { // KEY:N;KEY:N
		options.Cost = func(key string) int64 {
			for _, one := range strings.Split(costs, ";") {
				if name, cost, _ := strings.Cut(one, "="); name == key {
					return number(w.t, cost)
				}
			}
			return 0
		}
		options.MostCost = number(w.t, cmp.Or(rest["most-cost"], "1000"))
	}
	moves, answer, err := w.e.Defragment(&g, options)
	if err != nil {
		w.printf("no plan: %v", err)
		return
	}
	for _, m := range moves {
		w.printf("move %s from %s to %s", m.Key, m.From, strings.Join(m.To, ", "))
	}
	for _, at := range answer.PodSets[0].Placed {
		w.printf("then %d of %s -> %s", at.Count, p.Key, at.Node)
	}
}

// status shows cards that are held or unhealthy.
func (w *world) status() {
	for _, s := range w.e.Status() {
		w.printf("%s known=%v pods=%d cpu=%d/%d", s.Name, s.Known, len(s.Pods), s.Free["cpu"], s.Total["cpu"])
		for _, c := range s.Cards {
			if c.Unhealthy == "" && len(c.Allocations) == 0 {
				continue
			}
			line := fmt.Sprintf("  %d %s free %d/%d", c.Index, c.Model, c.FreeCore, c.FreeMemory)
			if c.Unhealthy != "" {
				line += " unhealthy"
			}
			for _, h := range c.Allocations {
				line += fmt.Sprintf(" %s.%s=%d/%d", h.Pod, h.Container, h.Core, h.Memory)
				if !h.Bound {
					line += "(held)"
				}
			}
			w.printf("%s", line)
		}
	}
}

func number(t *testing.T, s string) int64 {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func seconds(t *testing.T, s string) time.Duration { return time.Duration(number(t, s)) * time.Second }
