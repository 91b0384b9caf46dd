package policy

import (
	"math/bits"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	p, err := Parse("node=3*fragmentation+1*load,card=binpack")
	if err != nil || len(p.Node) != 2 || p.Node[0].Weight != 0.75 || p.Card[0].Rule.Name() != "binpack" {
		t.Fatalf("%+v, %v", p, err)
	}
	if p, err = Parse("spread"); err != nil || p.Node[0].Rule != p.Card[0].Rule {
		t.Fatalf("one name for both tiers: %+v, %v", p, err)
	}
	for text, want := range map[string]string{
		"":                 "no rule",
		"node=binpack,x=y": `no rule "y"`,
		"tier=binpack":     `tier "tier"`,
		"0*binpack":        "weight",
		"-1*binpack":       "weight",
		"NaN*binpack":      "weight",
		"best":             "have bestfit, binpack",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q): %v, want %q", text, err, want)
		}
	}
}

func TestTwoRulesOfOneNamePanic(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	build([]Rule{binpack{}, binpack{}})
}

func drawCase(t *rapid.T) *Case {
	n := &Node{Free: []int64{0, 0, 100}, Total: []int64{64000, 1 << 38, 110}}
	n.Free[CPU] = int64(rapid.IntRange(0, 64).Draw(t, "cpu")) * 1000
	n.Free[Memory] = 1 << 37
	cards := rapid.IntRange(1, 8).Draw(t, "cards")
	for range cards {
		c := Card{Core: Whole, FreeCore: int64(rapid.IntRange(0, 10).Draw(t, "free")) * 100, Usable: rapid.IntRange(0, 9).Draw(t, "usable") > 0}
		c.Memory = int64(rapid.IntRange(0, 1).Draw(t, "memory")) * 16000
		c.FreeMemory = c.Memory * int64(rapid.IntRange(0, 4).Draw(t, "freeMemory")) / 4
		c.Busy = float32(rapid.IntRange(0, 12).Draw(t, "busy")) / 10
		if c.FreeCore < Whole {
			c.Shares = 1
		}
		n.Cards = append(n.Cards, c)
	}
	if rapid.Bool().Draw(t, "linked") {
		n.Links = make([]float32, cards*cards)
		for a := range cards {
			for b := range a {
				l := rapid.SampledFrom([]float32{0, 32, 300, 900}).Draw(t, "link")
				n.Links[a*cards+b], n.Links[b*cards+a] = l, l
			}
		}
	}
	after := *n
	after.Cards, after.Free = slices.Clone(n.Cards), slices.Clone(n.Free)
	c := &Case{Before: n, After: &after, Request: &Request{Kind: -1}, Demand: drawDemand(t), Salt: 1}
	for i := range n.Cards {
		if n.Cards[i].Usable && n.Cards[i].FreeCore >= 100 && rapid.Bool().Draw(t, "taken") {
			c.Takes = append(c.Takes, Take{Card: int32(i), Core: 100})
			after.Cards[i].FreeCore -= 100
			after.Cards[i].Shares++
			c.Request.Cards++
			c.Request.Core += 100
			c.Request.Kind = 0
		}
	}
	return c
}

func drawDemand(t *rapid.T) *Demand {
	var asks []Ask
	for range rapid.IntRange(0, 6).Draw(t, "asks") {
		a := Ask{Cards: rapid.IntRange(0, 4).Draw(t, "askCards"), CPU: int64(rapid.IntRange(0, 8).Draw(t, "askCPU")) * 1000, Weight: float64(rapid.IntRange(1, 9).Draw(t, "weight"))}
		if a.Cards > 0 {
			a.Core = int64(rapid.IntRange(1, 10).Draw(t, "askCore")) * 100
			a.Exclusive = a.Core == Whole
		}
		asks = append(asks, a)
	}
	return NewDemand(asks)
}

func TestScoresStayBetweenZeroAndOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCase(t)
		for name, rule := range Registry {
			if s := rule.Node(c); !(s >= 0 && s <= 1) {
				t.Fatalf("%s: node score %v", name, s)
			}
			for _, take := range c.Takes {
				cards := slices.Clone(c.After.Cards)
				if s := rule.Card(c, take); !(s >= 0 && s <= 1) {
					t.Fatalf("%s: card score %v", name, s)
				}
				if !slices.Equal(cards, c.After.Cards) {
					t.Fatalf("%s: scoring a card changed the node", name)
				}
			}
		}
	})
}

func TestDemandDoesNotDependOnOrder(t *testing.T) {
	asks := []Ask{{Cards: 1, Core: 500, CPU: 4000, Weight: 2}, {Cards: 8, Core: Whole, Exclusive: true, CPU: 64000, Weight: 1}, {CPU: 8000, Weight: 3},
		{Cards: 1, Core: 500, CPU: 2000, Weight: 1}, {Cards: 1, Core: 500, CPU: 4000, Weight: 1}}
	reversed := slices.Clone(asks)
	slices.Reverse(reversed)
	a, b := NewDemand(asks), NewDemand(reversed)
	if len(a.Classes) != 3 || len(b.Classes) != 3 {
		t.Fatalf("%d and %d classes, want 3", len(a.Classes), len(b.Classes))
	}
	node := &Node{Free: []int64{16000}, Cards: []Card{{Core: Whole, FreeCore: Whole, Usable: true}, {Core: Whole, FreeCore: 700, Shares: 1, Usable: true}}}
	if x, y := a.Waste(node), b.Waste(node); x != y {
		t.Errorf("waste %v and %v", x, y)
	}
	half := a.Classes[1] // no card, shares, eight cards
	if half.Share != 0.5 || half.Fitting(3000) != 0.125 || half.Fitting(4000) != 0.5 || half.Fitting(1000) != 0 {
		t.Errorf("class %+v", half)
	}
}

// Where all pods ask for 600, a card of 1000 wastes 400, and one of 500 is lost.
func TestWasteIsWhatNobodyCanUse(t *testing.T) {
	d := NewDemand([]Ask{{Cards: 1, Core: 600, CPU: 1000, Weight: 1}})
	node := &Node{Free: []int64{64000}, Cards: []Card{
		{Core: Whole, FreeCore: Whole, Usable: true}, {Core: Whole, FreeCore: 500, Shares: 1, Usable: true}, {Core: Whole, FreeCore: Whole, Usable: false}}}
	if got := d.Waste(node); got != 0.9 {
		t.Errorf("waste %v, want 0.4 + 0.5", got)
	}
	node.Free[CPU] = 0
	if got := d.Waste(node); got != 1.5 {
		t.Errorf("without CPU: waste %v, want all 1.5", got)
	}
}

func TestTopologyChoosesTheBestConnectedSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCase(t)
		all := uint64(1)<<len(c.Before.Cards) - 1
		n := rapid.IntRange(1, len(c.Before.Cards)).Draw(t, "n")
		got := topology{}.Choose(c, all, n)
		if bits.OnesCount64(got) != n {
			t.Fatalf("chose %b, want %d cards", got, n)
		}
		slowest, sum, _ := worth(c.Before, got)
		for set := uint64(1); set <= all; set++ {
			if bits.OnesCount64(set) != n {
				continue
			}
			if s, m, _ := worth(c.Before, set); s > slowest || s == slowest && m > sum {
				t.Fatalf("chose %b (%v, %v), but %b is (%v, %v)", got, slowest, sum, set, s, m)
			}
		}
	})
}

// More candidates than are worth looking at one by one: four groups of four, joined within.
func TestTopologyGrowsASetAmongManyCards(t *testing.T) {
	n := &Node{Cards: make([]Card, 16), Links: make([]float32, 256)}
	for a := range 16 {
		for b := range 16 {
			if a != b && a%4 == b%4 {
				n.Links[a*16+b] = 300
			}
		}
	}
	if got := (topology{}).Choose(&Case{Before: n}, 1<<16-2, 4); got != 1<<1|1<<5|1<<9|1<<13 {
		t.Errorf("chose %016b", got)
	}
}

// The published example: what a pod cannot use of a node.
func TestUnusable(t *testing.T) {
	d := NewDemand([]Ask{{Cards: 1, Core: 500, CPU: 1000, Weight: 1}, {Cards: 2, Core: Whole, Exclusive: true, CPU: 9000, Weight: 1}})
	node := &Node{Free: []int64{8000}, Cards: []Card{{Core: Whole, FreeCore: Whole, Usable: true}, {Core: Whole, FreeCore: 300, Shares: 1, Usable: true}}}
	// The share cannot use the card with 300 left; the pair of cards can use nothing.
	if got := unusable(node, d); got != 0.5*300+0.5*1300 {
		t.Errorf("unusable %v", got)
	}
}
