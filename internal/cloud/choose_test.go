package cloud_test

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elastic-ai/elastic/internal/cloud"
)

var start = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func place(zone string, spot bool) cloud.Place {
	return cloud.Place{Cloud: "aws", Region: "us-east-1", Zone: zone, InstanceType: "p3.2xlarge", Spot: spot}
}

func offers() []cloud.Offer {
	return []cloud.Offer{
		{Place: place("a", true), Price: 0.9},
		{Place: place("b", true), Price: 1.0},
		{Place: place("a", false), Price: 3},
	}
}

func job(left, slack time.Duration) *cloud.Job {
	return &cloud.Job{Machines: 1, Left: left, Checkpoint: 30 * time.Minute, StartUp: 13 * time.Minute, Deadline: start.Add(left + slack)}
}

// closed is what is known after both spot places refused at once.
func closed() *cloud.Learned {
	l := &cloud.Learned{}
	l.StockOut(place("a", true), 1, start)
	l.StockOut(place("b", true), 1, start)
	return l
}

func TestCheapestSpotFirst(t *testing.T) {
	c := cloud.Choose(job(8*time.Hour, 4*time.Hour), offers(), &cloud.Learned{}, start)
	if c.Action != cloud.Buy || c.Offer.Place != place("a", true) {
		t.Errorf("%+v", c)
	}
}

func TestAStockOutClosesThePlaceForTheNextJob(t *testing.T) {
	l := &cloud.Learned{}
	l.StockOut(place("a", true), 4, start)
	c := cloud.Choose(job(8*time.Hour, 4*time.Hour), offers(), l, start)
	if c.Action != cloud.Buy || c.Offer.Place != place("a", true) {
		t.Errorf("one machine, after four were refused: %+v", c)
	}
	l.StockOut(place("a", true), 1, start)
	if c = cloud.Choose(job(8*time.Hour, 4*time.Hour), offers(), l, start); c.Action != cloud.Buy || c.Offer.Place != place("b", true) {
		t.Errorf("%+v", c)
	}
}

// Machines that are there already need no start-up and no place that is open. They do not outweigh a price that is much lower.
func TestIdleMachines(t *testing.T) {
	short := &cloud.Job{Machines: 2, Left: time.Hour, Checkpoint: 30 * time.Minute, StartUp: 13 * time.Minute}
	list := offers()
	list[1].Idle = 2
	if c := cloud.Choose(short, list, &cloud.Learned{}, start); c.Action != cloud.Buy || c.Offer.Place != place("b", true) {
		t.Errorf("two idle machines: %+v", c)
	}
	l := &cloud.Learned{}
	for _, zone := range []string{"a", "b"} {
		l.StockOut(place(zone, true), 2, start)
	}
	if c := cloud.Choose(short, list, l, start); c.Offer.Place != place("b", true) {
		t.Errorf("idle machines at a place that is closed: %+v", c)
	}
	list[1].Idle = 1
	if c := cloud.Choose(short, list, &cloud.Learned{}, start); c.Offer.Place != place("a", true) {
		t.Errorf("one of two is idle: %+v", c)
	}
	list[2].Idle = 2
	if c := cloud.Choose(short, list, &cloud.Learned{}, start); c.Offer.Place != place("a", true) {
		t.Errorf("idle machines on demand, at three times the price: %+v", c)
	}
}

// That a place sold machines for the first time makes it no worse than one of which nothing is known.
func TestTheFirstSaleIsNoBadSign(t *testing.T) {
	l := &cloud.Learned{}
	l.Obtained(place("a", true), 1, start)
	j := &cloud.Job{Machines: 1, Left: 4 * time.Hour}
	for _, after := range []time.Duration{0, time.Minute, time.Hour} {
		list := offers()
		seen, unknown := cloud.ExpectedCost(j, &list[0], l, start.Add(after)), cloud.ExpectedCost(j, &list[0], &cloud.Learned{}, start.Add(after))
		if seen > unknown {
			t.Errorf("%v after it sold machines it is expected to cost %.3f, and %.3f where nothing is known", after, seen, unknown)
		}
	}
}

// Where offers are of several sizes, each costs as many machines as the job wants of it, and is closed for as many.
func TestOffersOfSeveralSizes(t *testing.T) {
	large, small := place("a", true), place("b", true)
	list := []cloud.Offer{{Place: large, Price: 8, Machines: 1}, {Place: small, Price: 1.5, Machines: 8}}
	j := &cloud.Job{Machines: 1, Left: time.Hour}
	if c := cloud.Choose(j, list, nil, start); c.Offer.Place != large {
		t.Errorf("one for 8 costs less than eight for 1.50: %+v", c)
	}
	l := &cloud.Learned{}
	l.StockOut(large, 1, start)
	l.StockOut(small, 9, start)
	if c := cloud.Choose(j, list, l, start); c.Offer == nil || c.Offer.Place != small {
		t.Errorf("nine were refused, and eight are wanted: %+v", c)
	}
}

func TestALossyPlaceIsDearerThanItsPrice(t *testing.T) {
	l := &cloud.Learned{}
	for i := range 20 {
		at := start.Add(time.Duration(i-20) * time.Hour)
		l.Obtained(place("a", true), 1, at)
		l.Lost(place("a", true), 1, at.Add(30*time.Minute))
	}
	for i := range 20 {
		l.Running(place("b", true), start.Add(time.Duration(i-20)*time.Hour))
	}
	if c := cloud.Choose(job(8*time.Hour, 4*time.Hour), offers(), l, start); c.Action != cloud.Buy || c.Offer.Place != place("b", true) {
		t.Errorf("%+v", c)
	}
}

func TestItWaitsWithSlackAndBuysOnDemandWithout(t *testing.T) {
	c := cloud.Choose(job(4*time.Hour, 12*time.Hour), offers(), closed(), start)
	if c.Action != cloud.Wait || !c.Until.After(start) || c.Until.After(start.Add(2*time.Minute)) {
		t.Errorf("with slack: %+v", c)
	}
	c = cloud.Choose(job(4*time.Hour, 15*time.Minute), offers(), closed(), start)
	if c.Action != cloud.Buy || c.Offer.Spot {
		t.Errorf("without slack: %+v", c)
	}
}

func TestWithoutADeadlineItTakesWhatIsThere(t *testing.T) {
	j := job(4*time.Hour, 0)
	j.Deadline = time.Time{}
	if c := cloud.Choose(j, offers(), closed(), start); c.Action != cloud.Buy || c.Offer.Spot {
		t.Errorf("no deadline: %+v", c)
	}
	j.DelayPrice = 0.01
	if c := cloud.Choose(j, offers(), closed(), start); c.Action != cloud.Wait {
		t.Errorf("delay costs little: %+v", c)
	}
	j.DelayPrice = 1000
	if c := cloud.Choose(j, offers(), closed(), start); c.Action != cloud.Buy || c.Offer.Spot {
		t.Errorf("delay costs much: %+v", c)
	}
}

// What it takes to bring its input counts in every choice: of two offers the one beside the input is taken although its machines
// are dearer, whether or not there is a deadline, and a job without input chooses as before.
func TestTheOfferBesideTheInput(t *testing.T) {
	east := cloud.Place{Cloud: "aws", Region: "us-east-1", InstanceType: "p5", Spot: true}
	west := east
	west.Region = "us-west-2"
	demand := east
	demand.Spot = false
	egress := cloud.Egress{OtherRegion: 0.02, OtherCloud: 0.09}
	for _, c := range []struct {
		gib      float64
		deadline bool
		want     string
	}{{0, false, "us-west-2"}, {0, true, "us-west-2"}, {100, false, "us-west-2"}, {2000, false, "us-east-1"}, {2000, true, "us-east-1"}} {
		list := []cloud.Offer{{Place: east, Price: 12}, {Place: west, Price: 10}, {Place: demand, Price: 40}}
		for i := range list {
			list[i].Fixed = egress.Cost(cloud.Input{Cloud: "aws", Region: "us-east-1", GiB: c.gib}, list[i].Cloud, list[i].Region)
		}
		j := &cloud.Job{Machines: 1, Left: 10 * time.Hour, Checkpoint: 10 * time.Minute}
		if c.deadline {
			j.Deadline = start.Add(40 * time.Hour)
		}
		got := cloud.Choose(j, list, &cloud.Learned{}, start)
		if got.Action != cloud.Buy || got.Offer.Region != c.want {
			t.Errorf("%v GiB in us-east-1, a deadline %t: %s %+v, want %s", c.gib, c.deadline, got.Action, got.Offer, c.want)
		}
	}
}

// An input adds what it costs, at each start, and never makes an offer cheaper.
func TestAnInputCostsWhatItTakesToBringIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Float64Range(0, 1e6), rapid.SampledFrom([]float64{-1, math.NaN(), math.Inf(-1)}))
		in := cloud.Input{Cloud: rapid.SampledFrom([]string{"aws", "gcp", ""}).Draw(t, "cloud"), Region: "east", GiB: number.Draw(t, "size")}
		egress := cloud.Egress{OtherRegion: rapid.Float64Range(-1, 100).Draw(t, "region"), OtherCloud: rapid.Float64Range(-1, 100).Draw(t, "other")}
		cost := egress.Cost(in, "aws", rapid.SampledFrom([]string{"east", "west"}).Draw(t, "at"))
		if !(cost >= 0) {
			t.Fatalf("%+v costs %v", in, cost)
		}
		o := cloud.Offer{Place: cloud.Place{Cloud: "aws", Region: "west", Spot: rapid.Bool().Draw(t, "spot")}, Price: 3}
		j := &cloud.Job{Machines: 2, Left: time.Hour}
		without := cloud.ExpectedCost(j, &o, nil, start)
		o.Fixed = cost
		if with := cloud.ExpectedCost(j, &o, nil, start); with < without+cost-1e-6*cost {
			t.Fatalf("%v, and without an input that costs %v: %v", with, cost, without)
		}
	})
}

func TestNoOfferAtAll(t *testing.T) {
	if c := cloud.Choose(job(time.Hour, time.Hour), nil, nil, start); c.Action != cloud.Wait || !math.IsInf(c.Cost, 1) {
		t.Errorf("%+v", c)
	}
}

// drawLearned is a history of observations at random.
func drawLearned(t *rapid.T) (*cloud.Learned, time.Time) {
	l, now := &cloud.Learned{}, start
	for range rapid.IntRange(0, 40).Draw(t, "observations") {
		now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "minutes")) * time.Minute)
		p := place(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone"), true)
		machines := rapid.IntRange(1, 4).Draw(t, "machines")
		switch rapid.IntRange(0, 4).Draw(t, "what") {
		case 0:
			l.Obtained(p, machines, now)
		case 1:
			l.Running(p, now)
		case 2:
			l.Lost(p, machines, now)
		case 3:
			l.StockOut(p, machines, now)
		default:
			l.Started(p, time.Duration(rapid.IntRange(1, 40).Draw(t, "start-up"))*time.Minute)
		}
	}
	return l, now
}

func drawJob(t *rapid.T, list []cloud.Offer, now time.Time) *cloud.Job {
	minutes := func(least, most int, what string) time.Duration {
		return time.Duration(rapid.IntRange(least, most).Draw(t, what)) * time.Minute
	}
	j := &cloud.Job{Machines: rapid.IntRange(1, 4).Draw(t, "wants"), Left: minutes(1, 3000, "left"), Checkpoint: minutes(0, 120, "checkpoint"), StartUp: minutes(0, 30, "starts in")}
	if rapid.Bool().Draw(t, "has a deadline") {
		j.Deadline = now.Add(minutes(-100, 6000, "deadline"))
	}
	j.DelayPrice = rapid.SampledFrom([]float64{0, 0, 0.1, 5}).Draw(t, "delay price")
	if at := rapid.IntRange(-1, len(list)-1).Draw(t, "on"); at >= 0 {
		j.On = &list[at]
		j.Unsaved = min(j.Left, minutes(0, 60, "unsaved"))
	}
	return j
}

// TestRestartChangesNoChoice: what was learned, written down and read again, leads to the same choice, now and after
// whatever is seen next.
func TestRestartChangesNoChoice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, now := drawLearned(t)
		text, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		again := &cloud.Learned{}
		if err := json.Unmarshal(text, again); err != nil {
			t.Fatal(err)
		}
		list := offers()
		j := drawJob(t, list, now)
		for _, known := range []*cloud.Learned{l, again} {
			known.StockOut(place("b", true), 2, now.Add(time.Minute))
		}
		a, b := cloud.Choose(j, list, l, now.Add(time.Minute)), cloud.Choose(j, list, again, now.Add(time.Minute))
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("%+v, after a restart %+v", a, b)
		}
	})
}

// TestChoicesAreSafe: a closed place is not chosen, costs are numbers, waiting ends, and no job that can still be in time
// waits or moves to spot so that it cannot.
func TestChoicesAreSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, now := drawLearned(t)
		list := offers()
		j := drawJob(t, list, now)
		c := cloud.Choose(j, list, l, now)
		if math.IsNaN(c.Cost) || math.IsInf(c.Cost, 0) || c.Cost < 0 {
			t.Fatalf("cost %v", c.Cost)
		}
		startUp := cmpOr(j.StartUp, 10*time.Minute)
		slack := j.Deadline.Sub(now) - j.Left
		switch c.Action {
		case cloud.Buy:
			if !l.Of(c.Offer.Place).Closed(j.Machines, now).IsZero() {
				t.Fatalf("%v is closed", c.Offer.Place)
			}
			if save := saves(j); c.Offer.Spot && !j.Deadline.IsZero() && slack+j.Unsaved < startUp+save {
				t.Fatalf("slack %v, and on demand takes %v after the loss of %v", slack, startUp, save)
			}
		case cloud.Wait:
			if j.On != nil {
				t.Fatal("it waits, and runs")
			}
			if !c.Until.After(now) {
				t.Fatalf("waits until %v", c.Until)
			}
			if !j.Deadline.IsZero() && j.Deadline.Sub(c.Until)-j.Left < startUp {
				t.Fatalf("waits until %v, deadline %v, left %v", c.Until, j.Deadline, j.Left)
			}
		case cloud.Stay:
			if j.On == nil {
				t.Fatal("it stays nowhere")
			}
		}
	})
}

func saves(j *cloud.Job) time.Duration {
	if j.Checkpoint <= 0 {
		return j.Left
	}
	return min(j.Checkpoint, j.Left)
}

func cmpOr(a, b time.Duration) time.Duration {
	if a > 0 {
		return a
	}
	return b
}

// TestOnlyWhatWasRefusedIsClosed, for longer each time, until machines are sold again.
func TestOnlyWhatWasRefusedIsClosed(t *testing.T) {
	l, p, now := &cloud.Learned{}, place("a", true), start
	for _, want := range []time.Duration{2, 4, 8, 8} {
		l.StockOut(p, 2, now)
		if got := l.Of(p).Closed(2, now).Sub(now); got != want*time.Minute {
			t.Errorf("closed for %v, want %v minutes", got, int64(want))
		}
		if !l.Of(p).Closed(1, now).IsZero() {
			t.Error("closed for a job that wants fewer")
		}
		now = now.Add(want * time.Minute)
	}
	l.Obtained(p, 2, now)
	if s := l.Of(p); !s.Closed(2, now).IsZero() || s.Failures != 0 {
		t.Errorf("after a sale: %+v", s)
	}
}

// TestRatesFollowWhatIsSeen: 100 hours on a place that is up for 9 hours and down for 1.
func TestRatesFollowWhatIsSeen(t *testing.T) {
	l, p := &cloud.Learned{}, place("a", true)
	for m := 0; m < 100*60; m += 5 {
		now := start.Add(time.Duration(m) * time.Minute)
		switch at := m % 600; {
		case at == 0:
			l.Obtained(p, 1, now)
		case at < 540:
			l.Running(p, now)
		case at == 540:
			l.Lost(p, 1, now)
		default:
			l.StockOut(p, 1, now)
		}
	}
	s := l.Of(p)
	if s.UpHours < 60 || s.DownHours > 11 || s.Losses < 6 || s.Returns < 5 {
		t.Errorf("up %v, down %v, losses %v, returns %v", s.UpHours, s.DownHours, s.Losses, s.Returns)
	}
	end := start.Add(100 * time.Hour)
	if soon, later := s.ChanceNow(end), s.ChanceNow(end.Add(500*time.Hour)); soon > 0.2 || math.Abs(later-0.88) > 0.05 {
		t.Errorf("chance %.2f, later %.2f", soon, later)
	}
	if soon, later := s.ReturnRate(end, 0.1), s.ReturnRate(end.Add(10*time.Hour), 0.1); soon < 4*later {
		t.Errorf("back %.2f times an hour, and %.2f if it stays away", soon, later)
	}
	l.Obtained(p, 1, end)
	fresh := s.LossRate(end, 1)
	l.Running(p, end.Add(8*time.Hour))
	if old := s.LossRate(end.Add(8*time.Hour), 1); fresh < 3*old {
		t.Errorf("lost %.2f times an hour, and %.2f after hours", fresh, old)
	}
}
