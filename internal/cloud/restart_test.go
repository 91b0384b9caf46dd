package cloud_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elastic-ai/elastic/internal/cloud"
)

// onDemand is a job that runs on demand and moves by being stopped, with slack beside a whole interval that is done again.
func onDemand(list []cloud.Offer, left, slack time.Duration) *cloud.Job {
	j := job(left, slack)
	j.On, j.Restarts, j.Moves, j.Unsaved = &list[2], true, 1, j.Checkpoint
	return j
}

// selling is what is known where both spot places have sold machines for a day.
func selling() *cloud.Learned {
	l := &cloud.Learned{}
	for at := start.Add(-24 * time.Hour); !at.After(start); at = at.Add(30 * time.Minute) {
		l.Obtained(place("a", true), 1, at)
		l.Obtained(place("b", true), 1, at)
	}
	return l
}

func TestARestartOnSpotWhenItPays(t *testing.T) {
	list := offers()
	dear := offers()
	dear[0].Price, dear[1].Price = 2.6, 2.7
	far := offers()
	far[0].Fixed, far[1].Fixed = 20, 20
	forgetful := onDemand(list, 8*time.Hour, 6*time.Hour)
	forgetful.Checkpoint = 0
	endless := onDemand(list, 8*time.Hour, 6*time.Hour)
	endless.Deadline = time.Time{}
	hourly := onDemand(list, 8*time.Hour, 6*time.Hour)
	hourly.Deadline, hourly.DelayPrice = time.Time{}, 0.5
	precious := onDemand(list, 8*time.Hour, 6*time.Hour)
	precious.Deadline, precious.DelayPrice = time.Time{}, 40
	onSpot := onDemand(list, 8*time.Hour, 6*time.Hour)
	onSpot.On = &list[1]
	for name, test := range map[string]struct {
		j       *cloud.Job
		list    []cloud.Offer
		learned *cloud.Learned
		moves   bool
	}{
		"much is left, and spot sells":          {onDemand(list, 8*time.Hour, 6*time.Hour), list, selling(), true},
		"a price of delay and no deadline":      {hourly, list, selling(), true},
		"little is left":                        {onDemand(list, 40*time.Minute, 6*time.Hour), list, selling(), false},
		"a loss would make it late":             {onDemand(list, 8*time.Hour, 40*time.Minute), list, selling(), false},
		"spot is sold out":                      {onDemand(list, 8*time.Hour, 6*time.Hour), list, closed(), false},
		"spot costs nearly as much":             {onDemand(dear, 8*time.Hour, 6*time.Hour), dear, selling(), false},
		"its input would have to be brought":    {onDemand(far, 8*time.Hour, 6*time.Hour), far, selling(), false},
		"it never saves its work":               {forgetful, list, selling(), false},
		"nothing says what its delay is worth":  {endless, list, selling(), false},
		"its delay is worth more than it saves": {precious, list, selling(), false},
		"it runs on spot":                       {onSpot, list, selling(), false},
		"nothing is sold on spot":               {onDemand(list, 8*time.Hour, 6*time.Hour), list[2:], selling(), false},
	} {
		t.Run(name, func(t *testing.T) {
			c := cloud.Choose(test.j, test.list, test.learned, start)
			if moves := c.Action == cloud.Buy; moves != test.moves || moves && !c.Offer.Spot || !moves && c.Action != cloud.Stay {
				t.Errorf("%+v", c)
			}
		})
	}
}

// A place that refused and was not seen since is hardly worth a stop; the longer ago, and the more it sold before, the more.
func TestARestartOnSpotAsksWhetherItSells(t *testing.T) {
	list, l := offers(), selling()
	l.StockOut(place("a", true), 1, start)
	l.StockOut(place("b", true), 1, start)
	j := onDemand(list, 8*time.Hour, 24*time.Hour)
	just := start.Add(3 * time.Minute)
	c := cloud.Choose(j, list, l, just)
	l.Obtained(place("a", true), 1, just)
	again := cloud.Choose(j, list, l, just)
	if again.Action != cloud.Buy || again.Offer.Place != place("a", true) || c.Action == cloud.Buy && c.Cost <= again.Cost {
		t.Errorf("after a refusal %+v, and after a sale %+v", c, again)
	}
}

// TestRestartsAreSafe: a job moves only to spot machines at a place that is open, with a tenth to save of what it costs to run
// on, and only while it is in time on demand whatever happens: all is done again, and machines are lost before anything is saved. What pays
// when they are bought pays when they have come.
func TestRestartsAreSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, now := drawLearned(t)
		list := offers()
		drawn := drawJob(t, list, now)
		drawn.Moves = rapid.IntRange(0, 2).Draw(t, "moves")
		j := cloud.Restarting(*drawn, &list[2], time.Duration(rapid.IntRange(0, 300).Draw(t, "ran"))*time.Minute, drawn.Left)
		if j == nil {
			return
		}
		c := cloud.Choose(j, list, l, now)
		if math.IsNaN(c.Cost) || math.IsInf(c.Cost, 0) || c.Cost < 0 {
			t.Fatalf("cost %v", c.Cost)
		}
		if c.Action == cloud.Stay {
			return
		}
		if c.Action != cloud.Buy || !c.Offer.Spot || j.Checkpoint <= 0 || j.Deadline.IsZero() && j.DelayPrice <= 0 {
			t.Fatalf("%+v for %+v", c, j)
		}
		if !l.Of(c.Offer.Place).Closed(j.Machines, now).IsZero() {
			t.Fatalf("%v is closed", c.Offer.Place)
		}
		runOn := (j.Left - j.Unsaved).Hours() * (float64(j.Machines)*3 + j.DelayPrice)
		if c.Cost > 0.9*runOn+1e-9 {
			t.Fatalf("%v is expected, and to run on costs %v", c.Cost, runOn)
		}
		// Running while the spot machines start spends no slack.
		worst := saves(j) + cmpOr(j.StartUp, 10*time.Minute) + 3*time.Minute
		if slack := j.Deadline.Sub(now) - j.Left; !j.Deadline.IsZero() && slack < worst-time.Second {
			t.Fatalf("slack %v once all unsaved work is done again, and a loss and a start on demand take %v", slack, worst)
		}
		j.Next = &c.Offer.Place
		again := cloud.Choose(j, list, l, now)
		if again.Action != cloud.Buy || again.Offer.Place != c.Offer.Place || again.Cost > c.Cost+1e-9 {
			t.Fatalf("%+v, and when they have come %+v", c, again)
		}
	})
}
