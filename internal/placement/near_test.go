package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"
)

// near cards … node=a levels=rack/zone: cards as near to a node as can be
func (w *world) near(d *datadriven.TestData) {
	p, rest := w.pod(d, d.CmdArgs[0].Key)
	a, err := w.e.AssignNear(&p, rest["node"], strings.Split(rest["levels"], "/"), time.Time{})
	if err != nil {
		w.printf("%s: %v", p.Key, err)
		return
	}
	w.printf("%s -> %s", p.Key, describe(a))
}

// distances cards … levels=rack/zone: from each node
func (w *world) distances(d *datadriven.TestData) {
	p, rest := w.pod(d, d.CmdArgs[0].Key)
	var names []string
	for _, s := range w.e.Status() {
		names = append(names, s.Name)
	}
	out, err := w.e.Distances(&p, strings.Split(rest["levels"], "/"), names, nil)
	w.must(err)
	for i, name := range names {
		w.printf("%s %d", name, out[i])
	}
}

// gang-near g count=4 cpu=2 core=50 levels=rack/zone: pods without cards, which use one together
func (w *world) gangNear(d *datadriven.TestData) {
	g, rest := w.gangOf(d)
	cards := PodSet{Name: "card", Count: 1, Pod: g.PodSets[0].Pod}
	cards.Pod.Resources, g.PodSets[0].Pod.Containers = nil, nil
	txn := w.e.Begin()
	defer txn.Rollback()
	answer := txn.PlaceNear(g, []PodSet{cards}, strings.Split(rest["levels"], "/"))
	w.answer(&answer)
	if answer.Fits {
		txn.Commit(time.Time{})
	}
}

var levelLists = [][]string{{"rack"}, {"rack", Anywhere}, {"host", "rack"}, {"missing", Anywhere}, {"missing"}, {Anywhere}}

// Cards are given on no node that is farther than another one that has them, and none beyond the levels.
func TestNearestCards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, nodes := drawEngine(t)
		cards := drawPod(t, "ns/cards")
		cards.Resources = nil
		from := nodes[rapid.IntRange(0, propertyNodes-1).Draw(t, "from")].Name
		levels := rapid.SampledFrom(levelLists).Draw(t, "levels")
		// The reference: of all nodes that take the cards, the least distance by labels.
		least := tooFar
		n := e.byName[from]
		for _, o := range nodes {
			verdicts, err := e.Filter(&cards, []string{o.Name}, nil)
			if err != nil || verdicts[0].Reason != Fits || n == nil || !n.known {
				continue
			}
			d := tooFar
			if o.Name == from {
				d = 0
			} else if at := slices.IndexFunc(levels, func(l string) bool {
				return l == Anywhere || o.Labels[l] != "" && o.Labels[l] == n.desc.Labels[l]
			}); at >= 0 {
				d = at + 1
			}
			if d != tooFar && (least == tooFar || d < least) {
				least = d
			}
		}
		said, err := e.Distances(&cards, levels, []string{from}, nil)
		if err != nil || said[0] != least {
			t.Fatalf("from %s by %v: %v %v, want %d", from, levels, said, err, least)
		}
		got, err := e.AssignNear(&cards, from, levels, time.Time{})
		if (err == nil) != (least != tooFar) {
			t.Fatalf("%v %v, want distance %d", got, err, least)
		}
		if err == nil && e.byName[got.Node].distance(n, levels) != least {
			t.Fatalf("on %s, which is farther than %d", got.Node, least)
		}
		checkCapacity(t, e)
		if again, err2 := e.AssignNear(&cards, from, levels, time.Time{}); err == nil && (err2 != nil || fmt.Sprint(again) != fmt.Sprint(got)) {
			t.Fatalf("%v, then %v %v", got, again, err2)
		}
		e.Release(cards.Key)
	})
}
