package cloud

import (
	"cmp"
	"time"
)

// defaultStartUp is how long machines take to start where nobody said and nothing was seen.
const defaultStartUp = 10 * time.Minute

// Job is a job as far as buying machines for it is concerned.
type Job struct {
	Machines int // at least 1; where offers are of several sizes, each says how many of it
	// Left is how long it still has to run from what it last saved, Unsaved what it has run since: as it says itself where Reported, and
	// otherwise at worst.
	Left, Unsaved time.Duration
	Reported      bool
	// Ran is how long it has run where it is.
	Ran time.Duration
	// Checkpoint is how often it saves its work; 0: never.
	Checkpoint time.Duration
	// StartUp is how long machines take to start where that was never seen; 0: a default.
	StartUp time.Duration
	// Deadline is when it should be done; zero: it never waits for cheaper machines, unless DelayPrice says what for.
	Deadline time.Time
	// DelayPrice is what an hour until its end is worth, in US dollars.
	DelayPrice float64
	// On is where it runs; nil: nowhere.
	On *Offer
	// Moves is how often it may still be stopped to go from machines on demand to spot machines, once those have started.
	Moves int
	// Next is where the spot machines are there that it moves to, and Hold for how long they may wait until it saves its work; nil:
	// none are there.
	Next *Place
	Hold time.Duration
}

// ExpectedCost is what a job costs that starts at a place now and runs there to its end: machines × price × (run time +
// start-up + losses × (start-up + half a checkpoint interval)), what that time is worth, and what each start costs beside.
func ExpectedCost(j *Job, o *Offer, l *Learned, now time.Time) float64 {
	start, lossRate := j.startUp(o.Place, l), 0.0
	if o.Spot {
		lossRate = l.Of(o.Place).LossRate(now, max(j.Left.Hours(), 1))
	}
	first := start
	if j.toBuy(o) == 0 {
		first = 0
	}
	return j.cost(float64(j.machines(o))*o.Price, first, start, lossRate, o.Fixed)
}

// cost is the formula: what all machines cost an hour, their start-up, now and after a loss, and losses, in hours, and what
// each start costs beside.
func (j *Job) cost(price, first, start, lossRate, fixed float64) float64 {
	losses := j.Left.Hours() * lossRate
	hours := j.Left.Hours() + first + losses*(start+j.saveHours()/2)
	return hours*(price+j.DelayPrice) + (1+losses)*fixed
}

// machines is how many of an offer the job wants.
func (j *Job) machines(o *Offer) int { return max(1, cmp.Or(o.Machines, j.Machines)) }

// toBuy is how many of them are not there yet.
func (j *Job) toBuy(o *Offer) int { return max(0, j.machines(o)-o.Idle) }

// startUp of machines at a place in hours: seen, or declared.
func (j *Job) startUp(p Place, l *Learned) float64 {
	if s := l.Of(p); s != nil && s.StartUpHours > 0 {
		return s.StartUpHours
	}
	if j.StartUp > 0 {
		return j.StartUp.Hours()
	}
	return defaultStartUp.Hours()
}

// saveHours is the most work that a loss costs.
func (j *Job) saveHours() float64 {
	if j.Checkpoint <= 0 {
		return j.Left.Hours()
	}
	return min(j.Checkpoint, j.Left).Hours()
}
