package placement

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/elastic-ai/elastic/internal/placement/policy"
)

func oneCardGang(t testing.TB, key string, count int) *Gang {
	return &Gang{Key: key, PodSets: []PodSet{{Name: "s", Count: count, Pod: sharePod(t, "", 100)}}}
}

func place(t testing.TB, e *Engine, g *Gang) Answer {
	t.Helper()
	txn := e.Begin()
	answer := txn.Place(g)
	if !answer.Fits {
		t.Fatal(answer.Refusal)
	}
	txn.Commit(time.Time{})
	return answer
}

// The question of a preemptor: would it fit without that job, and does the job come back unharmed.
func TestWhatIfAGangWereGone(t *testing.T) {
	e := newEngine(t, Options{}, gpuNode("a", 4, "T4", 16000))
	place(t, e, oneCardGang(t, "ns/low", 3))
	pod := sharePod(t, "ns/low-0", 100)
	pod.Gang, pod.PodSet = "ns/low", "s"
	a := assign(t, e, &pod, "a")
	apply(t, e, PodBound{Pod: pod, Node: "a", Grants: a.Grants})
	before := e.Status()

	high := oneCardGang(t, "ns/high", 4)
	outer := e.Begin()
	if answer := outer.Place(high); answer.Fits || answer.Refusal.Fit != 1 {
		t.Fatalf("fits beside the other: %+v", answer)
	}
	inner := e.Begin()
	if n := inner.RemoveGang("ns/low"); n != 3 {
		t.Fatalf("removed %d, want one bound and two held", n)
	}
	if answer := inner.Place(high); !answer.Fits {
		t.Fatal(answer.Refusal)
	}
	inner.Commit(time.Time{})
	if outer.Place(oneCardGang(t, "ns/more", 1)).Fits {
		t.Fatal("more than four cards")
	}
	outer.Rollback()
	if after := e.Status(); !reflect.DeepEqual(before, after) {
		t.Fatalf("before %v\nafter  %v", before, after)
	}
}

// A restart: the reservation is put back from what was written down, beside the pods already bound.
func TestHoldPutsAReservationBack(t *testing.T) {
	nodes := []Node{gpuNode("a", 2, "T4", 16000), gpuNode("b", 2, "T4", 16000)}
	e := newEngine(t, Options{}, nodes...)
	g := oneCardGang(t, "ns/g", 3)
	answer := place(t, e, g)

	again := newEngine(t, Options{}, nodes...)
	first := answer.PodSets[0].Placed[0]
	pod := sharePod(t, "ns/g-0", 100)
	pod.Gang, pod.PodSet = "ns/g", "s"
	apply(t, again, PodBound{Pod: pod, Node: first.Node, Grants: first.Cards[0]})
	txn := again.Begin()
	if err := txn.Hold(g, &answer); err != nil {
		t.Fatal(err)
	}
	txn.Commit(time.Time{})
	free := 0
	for _, s := range again.Status() {
		for _, c := range s.Cards {
			if c.FreeCore == 1000 {
				free++
			}
		}
	}
	if free != 1 || len(again.sortedHoldings()) != 3 {
		t.Fatalf("%d cards free and %d pods known, want 1 and 3", free, len(again.sortedHoldings()))
	}
	// Held beyond capacity: the new job already owns what the old one still uses.
	txn = again.Begin()
	if err := txn.Hold(oneCardGang(t, "ns/next", 3), &answer); err != nil {
		t.Fatal(err)
	}
	txn.Commit(time.Time{})
	again.Release("ns/g")
	apply(t, again, PodGone{"ns/g-0"})
	checked := 0
	for _, s := range again.Status() {
		for _, c := range s.Cards {
			if c.FreeCore < 0 {
				t.Fatalf("%s/%d still overcommitted", s.Name, c.Index)
			}
			checked++
		}
	}
	if checked != 4 {
		t.Fatalf("%d cards", checked)
	}
	other := *oneCardGang(t, "ns/x", 1)
	other.PodSets[0].Name = "elsewhere"
	txn = again.Begin()
	if err := txn.Hold(&other, &answer); err == nil {
		t.Error("held an answer of another gang")
	}
	txn.Rollback()
}

// Pods of a gang take what is reserved for them, and only there.
func TestGangPodsTakeTheirPlaceholders(t *testing.T) {
	e := newEngine(t, Options{Policy: "spread"}, gpuNode("a", 2, "T4", 16000), gpuNode("b", 2, "T4", 16000))
	place(t, e, oneCardGang(t, "ns/g", 2)) // one on each node
	for i, node := range []string{"a", "b"} {
		pod := sharePod(t, []string{"ns/g-0", "ns/g-1"}[i], 100)
		pod.Gang, pod.PodSet = "ns/g", "s"
		if i == 1 {
			if v := filter(t, e, &pod, "a"); v != ReservedElsewhere {
				t.Fatalf("node a after its placeholder is taken: %v", v)
			}
		}
		assign(t, e, &pod, node)
		assign(t, e, &pod, node) // asking again changes nothing
	}
	if n := len(e.sortedHoldings()); n != 2 {
		t.Fatalf("%d holdings, want the two pods alone", n)
	}
	// A third pod has no reservation and goes where it likes.
	extra := sharePod(t, "ns/g-2", 100)
	extra.Gang, extra.PodSet = "ns/g", "s"
	if v := filter(t, e, &extra, "a"); v != Fits {
		t.Fatalf("extra pod: %v", v)
	}
}

func TestEventsWaitForTheEndOfATransaction(t *testing.T) {
	e := newEngine(t, Options{}, gpuNode("a", 1, "T4", 16000))
	txn := e.Begin()
	if err := e.Apply(NodeGone{"a"}); err == nil {
		t.Error("an event was taken inside a transaction")
	}
	txn.Rollback()
	txn.Rollback() // harmless
	apply(t, e, NodeGone{"a"})
}

func TestNodesThatMakeNoSense(t *testing.T) {
	e := newEngine(t, Options{})
	twice := gpuNode("a", 2, "T4", 16000)
	twice.Cards[1].Index = 0
	many := gpuNode("b", mostCards+1, "T4", 16000)
	for _, n := range []Node{twice, many} {
		if err := e.Apply(NodeChanged{n}); err == nil {
			t.Errorf("node %s was taken", n.Name)
		}
	}
	if err := e.Apply(CardChanged{Node: "ghost"}); err == nil {
		t.Error("a card of a ghost was taken")
	}
	if len(e.Status()) != 0 {
		t.Error("something was left of them")
	}
}

// Binding a pod where it was assigned, and a node that reports the same again, cost no scoring.
func TestWhatChangesNothingCostsNothing(t *testing.T) {
	n := gpuNode("a", 2, "T4", 16000)
	e := newEngine(t, Options{Policy: "binpack"}, n)
	pod, probe := sharePod(t, "ns/p", 50), sharePod(t, "ns/probe", 10)
	a := assign(t, e, &pod, "a")
	filter(t, e, &probe, "a")
	before := e.scored
	apply(t, e, PodBound{Pod: pod, Node: "a", Grants: a.Grants})
	apply(t, e, NodeChanged{gpuNode("a", 2, "T4", 16000)})
	filter(t, e, &probe, "a")
	if e.scored != before {
		t.Errorf("%d nodes scored again", e.scored-before)
	}
	e.Release("ns/p")
	if _, bound, ok := e.Assignment("ns/p"); !bound || !ok {
		t.Error("the bound pod was released")
	}
	// Bound to the other card after all: what the cluster says wins.
	bind(t, e, pod, "a", 1)
	if s := status(t, e, "a"); s.Cards[0].FreeCore != 1000 || s.Cards[1].FreeCore != 500 {
		t.Errorf("cards %+v", s.Cards)
	}
	// And to another node, unknown so far; the first one has nothing of it left.
	bind(t, e, pod, "later", 0)
	apply(t, e, PodGone{"ns/p"})
	if _, ok := e.NodeStatus("later"); ok {
		t.Error("a node that only this pod named is still there")
	}
}

// A what-if shuffles a node's holdings inside. What is learned when the node goes must not show it.
func TestDemandDoesNotRememberWhatIfs(t *testing.T) {
	for pods := range 12 {
		var learned [2][]policy.Class
		for run := range learned {
			e := newEngine(t, Options{}, gpuNode("a", 8, "T4", 16000), gpuNode("b", 1, "T4", 16000))
			bind(t, e, sharePod(t, "ns/b", 50), "b", 0)
			for i := range pods {
				pod := sharePod(t, fmt.Sprintf("ns/%02d", i), int64(10+i))
				assign(t, e, &pod, "a")
			}
			if run == 1 && pods > 0 {
				txn := e.Begin()
				txn.Remove("ns/00")
				txn.Rollback()
			}
			apply(t, e, NodeGone{"a"})
			learned[run] = e.demand.now.Classes
		}
		if len(learned[0]) == 0 || !reflect.DeepEqual(learned[0], learned[1]) {
			t.Errorf("%d pods: learned %+v, and after a what-if %+v", pods, learned[0], learned[1])
		}
	}
}
