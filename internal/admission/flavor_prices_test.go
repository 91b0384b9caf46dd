package admission

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawPrice gives a flavor another price, or none.
func (w *world) drawPrice() {
	name := fmt.Sprintf("f%d", rapid.IntRange(0, w.cfg.flavors-1).Draw(w.t, "priced flavor"))
	if rapid.IntRange(0, 3).Draw(w.t, "no price") == 0 {
		w.noPrice(name)
		return
	}
	p := FlavorPrice{
		Flavor: name, Resource: CPU, Price: float64(rapid.IntRange(0, 3).Draw(w.t, "price")), LossRate: float64(rapid.IntRange(0, 2).Draw(w.t, "losses")),
		StartUp: time.Duration(rapid.IntRange(0, 30).Draw(w.t, "start-up")) * time.Minute,
	}
	p.Spot = rapid.Bool().Draw(w.t, "only spot")
	p.Unknown = rapid.IntRange(0, 5).Draw(w.t, "not known") == 0
	for _, region := range []string{"east", "west"} {
		if rapid.Bool().Draw(w.t, region) {
			p.Regions = append(p.Regions, RegionPrice{
				Cloud: "aws", Region: region, Price: p.Price + float64(rapid.IntRange(0, 2).Draw(w.t, "dearer")),
				Size: float64(1000 * rapid.IntRange(0, 3).Draw(w.t, "size")), LossRate: p.LossRate, StartUp: p.StartUp,
			})
			p.OtherRegion, p.OtherCloud = 0.02, 0.09
		}
	}
	for range rapid.IntRange(0, 2).Draw(w.t, "sizes") {
		p.Largest = append(p.Largest, Requests{CPU: int64(1000 * rapid.IntRange(0, 4).Draw(w.t, "largest"))})
	}
	if rapid.Bool().Draw(w.t, "closed") {
		p.ClosedUntil = w.now.Add(time.Duration(rapid.IntRange(-1, 3).Draw(w.t, "for")) * time.Minute)
	}
	w.price(p)
}

// TestEqualPricesAreKueuesOrder: where all flavors cost the same, or nothing asks for what is priced, every decision is the
// one that is made without prices.
func TestEqualPricesAreKueuesOrder(t *testing.T) {
	for _, resource := range []string{CPU, "nothing"} {
		rapid.Check(t, func(t *rapid.T) {
			cfg := worldConfig{flavors: 2, policy: PolicyFIFO, preemption: true, strict: true, partial: true}
			w := drawWorld(t, cfg)
			w.mirror = New(w.opts)
			w.restartWithMirror()
			for i := range cfg.flavors {
				w.e.Apply(FlavorPriceChanged{FlavorPrice{Flavor: fmt.Sprintf("f%d", i), Resource: resource, Price: 2, StartUp: time.Minute, LossRate: 0.1}})
			}
			for range rapid.IntRange(1, 15).Draw(t, "steps") {
				w.step()
				plain := planText(w.mirror.Decide(w.now))
				if got := planText(w.decide()); got != plain {
					t.Fatalf("with prices\n%s\nwithout\n%s", got, plain)
				}
				w.releaseSome()
			}
		})
	}
}

// TestAnInputNeverMakesItCheaper: whatever is said of it, it adds nothing below zero, and in the region where it lies nothing at
// all.
func TestAnInputNeverMakesItCheaper(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Float64Range(0, 1e6), rapid.SampledFrom([]float64{-1, math.NaN(), math.Inf(1), math.Inf(-1)}))
		p := FlavorPrice{Flavor: "spot", Resource: CPU, OtherRegion: number.Draw(t, "region"), OtherCloud: number.Draw(t, "cloud")}
		for _, region := range []string{"east", "west"} {
			p.Regions = append(p.Regions, RegionPrice{
				Cloud: "aws", Region: region, Price: number.Draw(t, "price"), Size: number.Draw(t, "node"), LossRate: number.Draw(t, "losses"),
				StartUp: time.Duration(rapid.IntRange(-9, 9).Draw(t, "start-up")),
			})
		}
		e := New(Options{})
		e.Apply(FlavorPriceChanged{p})
		cpu := e.resource(CPU)
		total, f := []podRequest{{resource: cpu, v: 3}}, e.flavors[e.flavorIndex["spot"]]
		w := &workload{spec: Workload{ExpectedRunTime: time.Hour, DelayPrice: number.Draw(t, "delay")}}
		a := &assignment{w: w, shape: &requestShape{groups: [][]int{{0}}, requests: [][]podRequest{total}}}
		silent := e.costOn(a, 0, f, total)
		if silent.input != 0 || !(silent.nodes >= 0) || !(silent.time >= 0) {
			t.Fatalf("without an input: %+v", silent)
		}
		w.spec.Input = Input{Cloud: rapid.SampledFrom([]string{"aws", "gcp", ""}).Draw(t, "in"), Region: rapid.SampledFrom([]string{"east", "north"}).Draw(t, "of"), GiB: number.Draw(t, "size")}
		c := e.costOn(a, 0, f, total)
		if !(c.nodes >= 0) || !(c.input >= 0) || !(c.time >= 0) || c.sum() < silent.sum() {
			t.Fatalf("%+v: %+v, and without an input %+v", w.spec.Input, c, silent)
		}
		there := e.flavors[e.flavorIndex["spot"]].price.Regions[0]
		if here := w.spec.costIn(3, &there, 0); w.spec.Input.Cloud == "aws" && w.spec.Input.Region == "east" && w.spec.Input.given() && (there.Size == 0 || there.Size >= 3) && c.sum() > here.sum() {
			t.Fatalf("%+v, and where its input is it costs %+v", c, here)
		}
	})
}

// TestWholeNodesArePaidFor: as few as have what is asked for, and never fewer.
func TestWholeNodesArePaidFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount, size := float64(rapid.IntRange(0, 1000).Draw(t, "amount")), rapid.OneOf(rapid.SampledFrom([]float64{0, 0.125, 1.0 / 3, 8}), rapid.Float64Range(0.01, 500)).Draw(t, "size")
		got := (&RegionPrice{Size: size}).bought(amount)
		if got < amount || size == 0 && got != amount || size > 0 && got > amount+size {
			t.Fatalf("%v for %v on nodes of %v", got, amount, size)
		}
		if nodes := got / size; size > 0 && math.Abs(nodes-math.Round(nodes)) > 1e-6 && got != amount {
			t.Fatalf("%v nodes", nodes)
		}
	})
}

func TestPricesThatAreNoNumbersCountAsNone(t *testing.T) {
	e := New(Options{})
	e.Apply(FlavorPriceGone{"spot"})
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1)} {
		e.Apply(FlavorPriceChanged{FlavorPrice{Flavor: "spot", Price: bad, LossRate: bad, StartUp: -1}})
		if p := e.flavors[e.flavorIndex["spot"]].price; p.Price != 0 || p.LossRate != 0 || p.StartUp != 0 {
			t.Errorf("%v: %+v", bad, p)
		}
	}
	e.Apply(FlavorPriceGone{"spot"})
	if e.priced != 0 {
		t.Errorf("%d flavors have a price", e.priced)
	}
}
