package world

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// Nodes that are new come after the stock-out, and one that was lost waits for its end.
func TestStockOut(t *testing.T) {
	jobs := "a,,q,0,100,8,,,\nb,,q,0,100,8,,,\n"
	c, err := Partitions([]Share{{"q", 1, 8}}).Set("queue/q.quota=16,+1x8:H100@q")
	if err != nil {
		t.Fatal(err)
	}
	for nodes, want := range map[string]string{"H100": "a 0-100, b 50-150", "A100": "a 0-100, b 0-100", "": "a 0-100, b 50-150", partitionLabel + "=q": "a 0-100, b 50-150"} {
		w, _ := simulate(t, trace(t, jobs), c, Settings{Faults: Faults{StockOuts: []StockOut{{Nodes: nodes, To: 50}}}})
		if got := starts(w); got != want {
			t.Errorf("stock-out of %q: got %s, want %s", nodes, got, want)
		}
	}
	_, r := simulate(t, trace(t, "a,,q,0,500,8,,,\n"), Partitions([]Share{{"q", 1, 8}}), Settings{
		Faults: Faults{Every: 60, Down: 10, Seed: 1, StockOuts: []StockOut{{To: 10_000}}},
	})
	if r.Ended != 1 || r.Faults == 0 || r.Makespan < 10_000 {
		t.Errorf("%+v", r)
	}
}

// Spot nodes are taken back, others are not; the same seed takes the same ones.
func TestSpotNodesAreTaken(t *testing.T) {
	var lines strings.Builder
	for i := range 30 {
		fmt.Fprintf(&lines, "j%02d,,q,%d,%d,8,,,\n", i, 10*i, 300)
	}
	c, err := ParseNodes("2x8:H100,2x8:A100", "q")
	if err != nil {
		t.Fatal(err)
	}
	lost := map[string]bool{}
	tr := trace(t, lines.String())
	s := Settings{Faults: Faults{Seed: 1, Spot: []Spot{{Nodes: "A100", Every: 600, Down: 60}}}}
	where := map[int]string{}
	s.Watch = func(m Moment) {
		switch m.What {
		case Started:
			where[m.Job] = m.Nodes[0].Node
		case Evicted:
			lost[where[m.Job]] = true
		}
	}
	first, r := simulate(t, tr, c, s)
	if r.Ended != 30 || r.SpotTaken < 2 || r.Faults != 0 || r.Evictions < 2 || !reflect.DeepEqual(lost, map[string]bool{"node-00002": true, "node-00003": true}) {
		t.Errorf("%+v, lost %v", r, lost)
	}
	if again, _ := simulate(t, tr, c, s); !reflect.DeepEqual(first.JobEnds(), again.JobEnds()) {
		t.Error("the same seed gave another world")
	}
}

// Finish-time fairness: a, alone, would have ended its first two jobs one after the other; b waits for its reclaim.
func TestAgainstAlone(t *testing.T) {
	c := Pool([]Share{{"a", 1, 8}, {"b", 1, 8}})
	tr := trace(t, "a1,,a,0,100,8,,,\na2,,a,0,100,8,,,\nb1,,b,200,100,8,,,\nb2,,b,200,100,16,,,\n")
	w, r := simulate(t, tr, c, Settings{})
	apart, _ := simulate(t, tr, c.Alone(), Settings{})
	w.Against(apart, r)
	a, b := r.ByQueue[0].Alone, r.ByQueue[1].Alone
	if a.Ratio.Mean != 0.75 || a.Later != 0 || a.Never != 0 {
		t.Errorf("a: %+v", a)
	}
	if b.Never != 1 || b.Ratio.Mean != 1 || b.Later != 0 {
		t.Errorf("b: %+v", b)
	}
}

// Nodes that come and go do not make a world go on in which nobody who waits could start with all of them; it ends with the last
// end. Who could start does so, however long that takes.
func TestNodesThatHelpNobody(t *testing.T) {
	jobs := "a,,q,0,500,8,,,\nb,,q,10,100,8,,,\nnever,,q,20,100,4000,,,\n"
	many := Settings{Faults: Faults{Seed: 1, Spot: []Spot{{Every: 3600, Down: 1800}}}}
	c := Partitions([]Share{{"q", 200, 8}})
	for name, c := range map[string]*Cluster{"usual": c, "strict": set(t, c, "queue/q.queueingStrategy=StrictFIFO"), "budget": set(t, c, "queue/q.budget=100000/Day")} {
		c.PerHour = map[string]float64{"": 1}
		w, r := simulate(t, trace(t, jobs), c, many)
		ends := w.JobEnds()
		last := max(ends[0].End, ends[1].End)
		if r.Never != 1 || r.Ended != 2 || r.Makespan != last || r.Money > 1600*float64(last)/3600 {
			t.Errorf("%s: %s, makespan %d, %d taken, money %v", name, starts(w), r.Makespan, r.SpotTaken, r.Money)
		}
	}
	// All nodes are rarely up at once: a job that needs all of them waits until they are.
	few := Settings{Faults: Faults{Seed: 1, Spot: []Spot{{Every: 2000, Down: 1800}}}}
	tr := trace(t, "a,,q,0,50000,8,,,\nall,,q,10,1,24,,,\n")
	if w, r := simulate(t, tr, Partitions([]Share{{"q", 3, 8}}), few); r.Ended != 2 {
		t.Error(starts(w))
	}
}

// Cards are free while their node is there: those of nodes that are lost or sold out are not.
func TestCardsOfLostNodesAreNotFree(t *testing.T) {
	c := set(t, Partitions([]Share{{"q", 1, 8}}), "+1x8:H100@q")
	for name, want := range map[string]struct{ used, fragmented float64 }{
		"": {1, 0}, "A100": {0.5, 0}, // all 200 s without the second node, or with it
	} {
		s := Settings{Faults: Faults{StockOuts: []StockOut{{Nodes: map[string]string{"": "H100"}[name], To: 1000}}}}
		if name != "" {
			s.Faults.StockOuts[0].Nodes = name
		}
		_, r := simulate(t, trace(t, "a,,q,0,100,8,,,\nb,,q,100,100,8,,,\n"), c, s)
		if r.CardsUsed != want.used || r.Fragmented != want.fragmented {
			t.Errorf("stock-out of %q: used %v, fragmented %v", name, r.CardsUsed, r.Fragmented)
		}
	}
	// The node is lost for a time in the middle: 8 cards of 16 for 100 s, then 8 of 8 for 100 s, then 8 of 16.
	w, err := New(trace(t, "a,,q,0,100,8,,,\nb,,q,100,100,8,,,\nc,,q,200,100,8,,,\n"), c, Settings{Check: true})
	if err != nil {
		t.Fatal(err)
	}
	w.events.push(event{at: 100, kind: nodeFails, of: 1})
	w.settings.Faults.Down = 100
	r, err := w.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := 2400.0 / 4000; r.CardsUsed != want {
		t.Errorf("used %v, want %v", r.CardsUsed, want)
	}
}

// Variants with other numbers of nodes share the faults of the nodes that they share, and spot losses.
func TestFaultsAreOfNodes(t *testing.T) {
	c := Partitions([]Share{{"q", 4, 8}})
	lost := func(changes string) map[string][]int64 {
		out := map[string][]int64{}
		// A job on each node shows when it is lost.
		var lines strings.Builder
		changed := set(t, c, changes+"queue/q.quota=64")
		for i := range changed.Nodes {
			fmt.Fprintf(&lines, "j%d,,q,0,100000,8,,,\n", i)
		}
		on := map[int]string{}
		s := Settings{Until: 20_000, Faults: Faults{Every: 1000, Down: 1, Seed: 5, Spot: []Spot{{Every: 9000, Down: 1}}}}
		s.Watch = func(m Moment) {
			switch m.What {
			case Started:
				on[m.Job] = m.Nodes[0].Node
			case Evicted:
				out[on[m.Job]] = append(out[on[m.Job]], m.At)
			}
		}
		simulate(t, trace(t, lines.String()), changed, s)
		return out
	}
	four, six, three := lost(""), lost("+2x8:@q,"), lost("-1x8,")
	if len(four) != 4 || len(six) != 6 || len(three) != 3 {
		t.Fatalf("%v, %v, %v", four, six, three)
	}
	for node, at := range three {
		if !reflect.DeepEqual(at, four[node]) {
			t.Errorf("%s: %v with three nodes, %v with four", node, at, four[node])
		}
	}
	for node, at := range four {
		if !reflect.DeepEqual(at, six[node]) {
			t.Errorf("%s: %v with four nodes, %v with six", node, at, six[node])
		}
	}
}
