package world

import (
	"math"
	"testing"
)

// A node costs money while it is there, and a queue what its jobs had of it.
func TestMoney(t *testing.T) {
	// a runs 2 h on the 8 cards of A100, b 1 h on 4 of those of H100: it is done 2 h after the first job came.
	jobs := "a,,a,3600,7200,8,,,\nb,,b,3600,3600,4,,,\n"
	shape := func(set string, prices map[string]float64) *Cluster {
		c := Partitions([]Share{{"a", 1, 8}, {"b", 1, 8}})
		c.Nodes[0].Model, c.Nodes[1].Model = "A100", "H100"
		c, err := c.Set(set)
		if err != nil {
			t.Fatal(err)
		}
		c.PerHour = prices
		return c
	}
	for name, test := range map[string]struct {
		set       string
		prices    map[string]float64
		faults    Faults
		all, a, b float64
	}{
		"none":               {},
		"one price":          {prices: map[string]float64{"": 2}, all: 2 * 16 * 2, a: 2 * 8 * 2, b: 1 * 4 * 2},
		"by model":           {prices: map[string]float64{"": 2, "H100": 5}, all: 2*8*2 + 2*8*5, a: 2 * 8 * 2, b: 1 * 4 * 5},
		"by label":           {prices: map[string]float64{"H100": 5, partitionLabel + "=b": 1}, all: 2 * 8 * 1, b: 1 * 4 * 1},
		"more nodes":         {set: "+1x8:H100@a", prices: map[string]float64{"": 1}, all: 2 * 24, a: 2 * 8, b: 4},
		"they come late":     {set: "+1x8:H100@a", prices: map[string]float64{"": 1}, faults: Faults{StockOuts: []StockOut{{To: 2 * 3600}}}, all: 2*16 + 8, a: 2 * 8, b: 4},
		"spot of its price":  {prices: map[string]float64{"": 3, SpotPrice: 1}, faults: Faults{Spot: []Spot{{Nodes: "H100", Every: 1e9, Down: 1}}}, all: 2*8*3 + 2*8*1, a: 2 * 8 * 3, b: 4 * 1},
		"spot at that of it": {prices: map[string]float64{"H100": 3}, faults: Faults{Spot: []Spot{{Nodes: "H100", Every: 1e9, Down: 1}}}, all: 2 * 8 * 3, b: 4 * 3},
	} {
		_, r := simulate(t, trace(t, jobs), shape(test.set, test.prices), Settings{Faults: test.faults})
		if r.Money != test.all || r.ByQueue[0].Money != test.a || r.ByQueue[1].Money != test.b {
			t.Errorf("%s: %v, a %v, b %v, want %v, %v and %v", name, r.Money, r.ByQueue[0].Money, r.ByQueue[1].Money, test.all, test.a, test.b)
		}
	}
}

// A node that is lost costs nothing until it is back, and what runs at the end counts up to then.
func TestMoneyOfLostNodes(t *testing.T) {
	c := Partitions([]Share{{"q", 1, 8}})
	c.PerHour = map[string]float64{"": 1}
	away, lost := int64(0), int64(0)
	w, r := simulate(t, trace(t, "a,,q,0,20000,8,,,\n"), c, Settings{Until: 36_000, Faults: Faults{Every: 7200, Down: 600, Seed: 1}, Watch: func(m Moment) {
		switch m.What {
		case Evicted:
			lost = m.At
		case Started:
			away += m.At - lost
		}
	}})
	ran := r.CardHours
	if !near(r.ByQueue[0].Money, ran) || ran == 0 {
		t.Errorf("its jobs cost %v in %v card-hours", r.ByQueue[0].Money, ran)
	}
	if w.jobs[0].evicted == 0 || away == 0 {
		t.Fatalf("%d evictions, %d s away", w.jobs[0].evicted, away)
	}
	if most := 8 * 10.0; r.Money > most-8*hours(away)+1e-6 || r.Money < ran {
		t.Errorf("%v, of at most %v", r.Money, most)
	}
	_, r = simulate(t, trace(t, "a,,q,0,20000,8,,,\n"), c, Settings{Until: 3600})
	if r.Money != 8 || r.ByQueue[0].Money != 8 {
		t.Errorf("after an hour: %v, %v", r.Money, r.ByQueue[0].Money)
	}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6 }
