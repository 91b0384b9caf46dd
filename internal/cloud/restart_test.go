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
	j.On, j.Moves, j.Unsaved = &list[2], 1, j.Checkpoint
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
		run := cloud.Run{On: &list[2], Ran: time.Duration(rapid.IntRange(0, 300).Draw(t, "ran")) * time.Minute, Left: drawn.Left}
		if rapid.Bool().Draw(t, "says when it saves") { // also what cannot be
			run.Saved = now.Add(time.Duration(rapid.IntRange(-400, 30).Draw(t, "saved")) * time.Minute)
		}
		j := cloud.Restarting(*drawn, run, now)
		if j == nil {
			return
		}
		if j.Unsaved < 0 || j.Reported && j.Unsaved > run.Ran || !j.Reported && j.Unsaved != j.Checkpoint {
			t.Fatalf("%v is to do again, reported %t, after a run of %v", j.Unsaved, j.Reported, run.Ran)
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
		// Running while the spot machines start spends no slack. What a job says it will have saved by then does not count yet.
		worst := saves(j) + cmpOr(j.StartUp, 10*time.Minute) + 3*time.Minute
		if j.Reported {
			worst -= j.Unsaved
		}
		if slack := j.Deadline.Sub(now) - j.Left; !j.Deadline.IsZero() && slack < worst-time.Second {
			t.Fatalf("slack %v once all unsaved work is done again, and a loss and a start on demand take %v", slack, worst)
		}
		j.Next = &c.Offer.Place
		// By then it has run on; what it saves meanwhile it is not believed to have.
		j.Ran += time.Duration(startUp(l, j, c.Offer.Place) * float64(time.Hour)).Round(time.Second)
		again := cloud.Choose(j, list, l, now)
		if j.Reported { // it is another time by then
			return
		}
		if again.Action != cloud.Buy || again.Offer.Place != c.Offer.Place || again.Cost > c.Cost+1e-9 {
			t.Fatalf("%+v, and when they have come %+v", c, again)
		}
	})
}

// startUp of machines at a place, in hours.
func startUp(l *cloud.Learned, j *cloud.Job, p cloud.Place) float64 {
	if seen := l.Of(p); seen != nil && seen.StartUpHours > 0 {
		return seen.StartUpHours
	}
	return cmpOr(j.StartUp, 10*time.Minute).Hours()
}

// TestStopsOfWhoTellsAreSafe: a job that says when it saves is stopped, once its machines have come, only while it is in time on demand if
// all that it has not saved is done again and then its machines are lost before anything is saved. Machines wait for it no longer than they
// may, and only where it will save by then.
func TestStopsOfWhoTellsAreSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, now := drawLearned(t)
		list := offers()
		drawn := drawJob(t, list, now)
		ran := time.Duration(rapid.IntRange(0, 300).Draw(t, "ran")) * time.Minute
		saved := now.Add(-time.Duration(rapid.IntRange(-1, 100).Draw(t, "saved")) * time.Minute)
		drawn.Moves = 1
		j := cloud.Restarting(*drawn, cloud.Run{On: &list[2], Ran: ran, Left: drawn.Left, Saved: saved}, now)
		if j == nil {
			return
		}
		j.Next, j.Hold = &list[0].Place, time.Duration(rapid.IntRange(-3, 10).Draw(t, "hold"))*time.Minute
		switch c := cloud.Choose(j, list, l, now); c.Action {
		case cloud.Wait:
			if c.Until.Sub(now) > j.Hold || !c.Until.After(now) || c.Cost > 0.9*c.OnDemand+1e-9 {
				t.Fatalf("%+v, %v are left to wait", c, j.Hold)
			}
		case cloud.Buy:
			after := j.Deadline.Sub(now) - j.Left - saves(j) - cmpOr(j.StartUp, 10*time.Minute)
			if c.Offer.Place != *j.Next || !j.Deadline.IsZero() && after < 3*time.Minute-time.Second {
				t.Fatalf("%+v, and %v are left", c, after)
			}
		}
	})
}

// A job that does not say when it saves is believed half to do so as often as it says: its machines are ordered so that they come then, or
// wait for that. When it began moves nothing but the time: slack must be left for a whole interval.
func TestAStopAsItShouldHaveSaved(t *testing.T) {
	const minute = time.Minute
	for _, c := range []struct {
		name  string
		ran   time.Duration
		slack time.Duration
		there bool // the machines
		hold  time.Duration
		want  cloud.Action
		until time.Duration
	}{
		{"they would come eight minutes before it should have saved", 192 * minute, 2 * time.Hour, false, 0, cloud.Stay, 8 * minute},
		{"they would come as it should have", 200 * minute, 2 * time.Hour, false, 0, cloud.Buy, 0},
		{"they are there, and it should have just saved", 213 * minute, 2 * time.Hour, true, cloud.LongestHold, cloud.Buy, 0},
		{"they are there, and it should save in two minutes", 208 * minute, 2 * time.Hour, true, cloud.LongestHold, cloud.Wait, 5 * minute},
		{"it should save too late for them to wait", 208 * minute, 2 * time.Hour, true, 4 * minute, cloud.Buy, 0},
		{"a whole interval would make it late", 213 * minute, 75 * minute, true, cloud.LongestHold, cloud.Stay, cloud.LookAgain},
		{"and here it would not", 213 * minute, 77 * minute, true, cloud.LongestHold, cloud.Buy, 0},
	} {
		list, drawn := offers(), job(8*time.Hour, c.slack)
		drawn.Moves = 1
		j := cloud.Restarting(*drawn, cloud.Run{On: &list[2], Ran: c.ran, Left: drawn.Left}, start)
		if c.there {
			j.Next, j.Hold = &list[0].Place, c.hold
		}
		got := cloud.Choose(j, list, selling(), start)
		if got.Action != c.want || c.want != cloud.Buy && got.Until.Sub(start).Round(time.Second) != c.until {
			t.Errorf("%s: %s until %v, want %s until %v: %+v", c.name, got.Action, got.Until.Sub(start), c.want, c.until, got)
		}
	}
}

// A job that says when it saves its work is stopped then, and its machines are ordered so that they come then.
func TestAStopAsItSaves(t *testing.T) {
	list, now := offers(), start
	run := func(since time.Duration) *cloud.Job {
		j := job(8*time.Hour, 2*time.Hour)
		j.Moves = 1
		return cloud.Restarting(*j, cloud.Run{On: &list[2], Ran: 3 * time.Hour, Left: j.Left, Saved: now.Add(-since)}, now)
	}
	next := func(since, hold time.Duration) *cloud.Job {
		j := run(since)
		j.Next, j.Hold = &list[0].Place, hold
		return j
	}
	const minute = time.Minute
	for _, c := range []struct {
		name  string
		j     *cloud.Job
		want  cloud.Action
		until time.Duration
	}{
		{"they would come five minutes before it saves", run(12 * minute), cloud.Stay, 6 * minute},
		{"they would come as it says that it has saved", run(18 * minute), cloud.Buy, 0},
		{"they come after it has saved", run(22 * minute), cloud.Buy, 0},
		{"they are there, and it has just saved", next(minute, cloud.LongestHold), cloud.Buy, 0},
		{"they are there, and it saves in two minutes", next(28*minute, cloud.LongestHold), cloud.Wait, 3 * minute},
		{"it saves too late for them to wait", next(28*minute, 2*minute), cloud.Buy, 0},
		{"it should have saved by now", next(33*minute, cloud.LongestHold), cloud.Wait, minute},
		{"it has not, for as long as they may wait", next(33*minute, 0), cloud.Buy, 0},
	} {
		got := cloud.Choose(c.j, list, selling(), now)
		if got.Action != c.want || c.want != cloud.Buy && got.Until.Sub(now).Round(time.Second) != c.until {
			t.Errorf("%s: %s until %v, want %s until %v: %+v", c.name, got.Action, got.Until.Sub(now), c.want, c.until, got)
		}
	}
	j := job(8*time.Hour, time.Hour) // of a time to come nothing is believed
	j.Moves = 1
	ahead := cloud.Restarting(*j, cloud.Run{On: &list[2], Ran: 3 * time.Hour, Left: j.Left, Saved: now.Add(time.Hour)}, now)
	silent := cloud.Restarting(*j, cloud.Run{On: &list[2], Ran: 3 * time.Hour, Left: j.Left}, now)
	if *ahead != *silent || ahead.Reported {
		t.Errorf("a time to come: %+v, and none %+v", ahead, silent)
	}
	// What was saved before it began is of another run: all of this one is not saved.
	old := cloud.Restarting(*j, cloud.Run{On: &list[2], Ran: time.Hour, Left: j.Left, Saved: now.Add(-200 * time.Hour)}, now)
	if !old.Reported || old.Unsaved != time.Hour {
		t.Errorf("saved before it began: %+v", old)
	}
}
