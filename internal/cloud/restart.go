package cloud

import (
	"math"
	"time"
)

// leastGain is the part of what it costs to run on that a restart must save: what is expected of spot machines may be wrong, and
// what a stop costs is certain.
const leastGain = 0.1

// LookAgain is how often a job that waits for spot machines, or could go back to them, is looked at, at least; and how often it is learned
// that machines which run are there still.
const LookAgain = 10 * time.Minute

// LongestHold is for how long machines that have started wait until the job which moves to them saves its work.
const LongestHold = 10 * time.Minute

const (
	// reportDelay is how long it takes at most until it is known that a job has saved its work.
	reportDelay = time.Minute
	// clockSkew is how far ahead of ours a job's clock may be.
	clockSkew = time.Minute
)

// believed is how far a job that does not say when it saved its work is believed to save it as often as it says, from the start of its run
// on. It may have read its input first, and saving takes time, too: for the rest nobody knows when it saves.
const believed = 0.5

// Run is a job's run so far, on the machines that it has.
type Run struct {
	On        *Offer // nil: nobody knows
	Ran, Left time.Duration
	// Saved is when it last saved its work, as it says itself; zero: it does not.
	Saved time.Time
}

// Reported says that a job says when it last saved its work. Nothing is believed of a time to come.
func Reported(saved, now time.Time) bool { return !saved.IsZero() && !saved.After(now.Add(clockSkew)) }

// Restarting is a job that runs as one that moves by being stopped; nil: it stays. What it does again is what it has not saved: where it
// does not say when that was, a whole interval at worst.
func Restarting(j Job, r Run, now time.Time) *Job {
	if r.On == nil || r.On.Spot || j.Moves <= 0 || j.Checkpoint <= 0 || r.Left <= 0 {
		return nil
	}
	j.On, j.Ran, j.Unsaved, j.Reported = r.On, r.Ran, j.Checkpoint, false
	switch {
	case Reported(r.Saved, now):
		j.Unsaved, j.Reported = max(0, min(now.Sub(r.Saved), r.Ran)), true // what was saved before it began is of another run
	case r.Ran < j.Checkpoint: // nothing is saved yet
		return nil
	}
	j.Left = r.Left + j.Unsaved
	return &j
}

// backToSpot is for a job on demand, that moves by being stopped once the spot machines have started. Until then it runs on, and both are
// paid for; if the others are refused or lost before, it never notices. The stop has it do again what it has not saved. A job that says when
// it saves has machines ordered so that they come as it does, or has them wait for it, where that costs less than what it would do again.
// Any other is believed half to save as often as it says since its run began, and to do half an interval again for the rest; at worst it is a
// whole one, which is what must be left of its slack.
// Asked again when they have come (Job.Next), it is stopped only if that pays still.
// It is compared with running on here to the end. A job that does not save its work stays.
func (s *sight) backToSpot() Choice {
	stay := Choice{Action: Stay, Until: s.now.Add(LookAgain), Cost: s.runOn(s.j.On), Reason: "on demand"}
	if s.j.Next != nil {
		s.spot = s.next
	}
	if s.spot == nil {
		stay.Until = s.opens
		return stay
	}
	left := s.j.Left - s.j.Unsaved
	slack := s.slack(left)
	f := s.forecast(s.spot, slack, s.j.Left.Hours())
	start, started, chance := f.startSpot, f.firstStart, f.first
	if seen := s.l.Of(s.spot.Place); s.j.Next != nil || s.j.toBuy(s.spot) == 0 {
		start, started, chance = 0, 1, seen.chanceOf(seen.age(s.now), f.save)
	}
	if left.Hours() <= start || f.stays {
		return stay
	}
	by, saves := s.stopAfter(start)
	move := f.goBack(chance, started, start, by, slack, left.Hours())
	if saves > 0 && saves < left.Hours()-start && (s.j.Next == nil || saves <= s.j.Hold.Hours()) {
		price := f.onDemand + f.delay
		if s.j.Next != nil {
			price += f.spot
		}
		later := price*saves + f.goBack(chance, started, start, f.stop, slack, left.Hours()-saves)
		if later < move && later <= (1-leastGain)*stay.Cost {
			return s.whenItSaves(stay, saves, later)
		}
	}
	if math.IsInf(move, 1) || move > (1-leastGain)*stay.Cost {
		return stay
	}
	return Choice{Action: Buy, Offer: s.spot, Cost: move, OnDemand: stay.Cost, Reason: "back to spot"}
}

// stopAfter is what a stop costs that is some hours ahead, and how many hours later it would cost least, as the job has just saved its
// work, or is believed to have; 0: nobody knows.
func (s *sight) stopAfter(start float64) (by stop, saves float64) {
	ahead := time.Duration(start * float64(time.Hour)).Round(time.Second)
	if !s.j.Reported {
		since, wait := s.j.sinceSaved(s.j.Ran+ahead, margin)
		return s.j.unreported(since), wait.Hours()
	}
	unsaved, wait := s.j.Unsaved+ahead, time.Duration(0)
	switch {
	case s.j.Unsaved <= s.j.Checkpoint+reportDelay: // it saves as often as it says
		unsaved, wait = s.j.sinceSaved(unsaved, reportDelay)
	case s.j.Next != nil:
		wait = reportDelay
	}
	return stop{again: unsaved.Hours(), reserve: (unsaved + margin).Hours()}, wait.Hours()
}

// sinceSaved is how long ago a job has saved its work that did so before and does so as often as it says, and how long it is until it has
// done so again. It is done a while later than it should be.
func (j *Job) sinceSaved(before, later time.Duration) (since, wait time.Duration) {
	since = (before - later) % j.Checkpoint
	return since + later, j.Checkpoint - since
}

// unreported is what it costs to stop a job that does not say when it saved its work, so long after it should have.
func (j *Job) unreported(since time.Duration) stop {
	save := j.saveHours()
	return stop{again: believed*min(save, since.Hours()) + (1-believed)*save/2, reserve: save + margin.Hours()}
}

// whenItSaves has machines ordered later, or has those wait that have come.
func (s *sight) whenItSaves(stay Choice, hours, cost float64) Choice {
	in := time.Duration(hours * float64(time.Hour))
	if s.j.Next == nil {
		stay.Until = s.now.Add(min(in, LookAgain))
		return stay
	}
	return Choice{Action: Wait, Until: s.now.Add(in), Cost: cost, OnDemand: stay.Cost, Reason: "waits until it has saved its work"}
}
