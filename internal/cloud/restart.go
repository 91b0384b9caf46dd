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

// Restarting is a job that runs on an offer as one that moves by being stopped; nil: it stays. Of such a job it is known for how long it
// ran there and has left to run, and not when it saves its work: at worst, a whole interval is done again.
func Restarting(j Job, on *Offer, ran, left time.Duration) *Job {
	if on == nil || on.Spot || j.Moves <= 0 || j.Checkpoint <= 0 || ran < j.Checkpoint || left <= 0 { // with ran, nothing is saved yet
		return nil
	}
	j.On, j.Restarts, j.Unsaved, j.Left = on, true, j.Checkpoint, left+j.Checkpoint
	return &j
}

// restartOnSpot is for a job on demand that moves by being stopped once the spot machines have started, and that does not say when it
// saves its work. Until then it runs on, and both are paid for; if the others are refused or lost before, it never notices. The stop
// costs half a checkpoint interval of work as far as is expected, and a whole one at worst, which is what must be left of its slack.
// Asked again when they have come (Job.Next), it is stopped only if that pays still.
// It is compared with running on here to the end. A job that does not save its work stays.
func (s *sight) restartOnSpot() Choice {
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
	if left.Hours() <= start {
		return stay
	}
	move := f.goBack(chance, started, start, slack, left.Hours())
	if math.IsInf(move, 1) || move > (1-leastGain)*stay.Cost {
		return stay
	}
	return Choice{Action: Buy, Offer: s.spot, Cost: move, OnDemand: stay.Cost, Reason: "back to spot"}
}
