package cloud

import "math"

// leastGain is the part of what it costs to run on that a restart must save: what is expected of spot machines may be wrong, and
// what a stop costs is certain.
const leastGain = 0.1

// restartOnSpot is for a job on demand that moves by being stopped and started again. It pays for nothing meanwhile, but does again
// what it had not saved, spends slack on the start-up, and may find that nobody sells spot machines after all. It is compared with
// running on here to the end. A job that does not save its work stays.
func (s *sight) restartOnSpot() Choice {
	stay := Choice{Action: Stay, Until: s.now.Add(lookAgain), Cost: s.runOn(s.j.On), Reason: "on demand"}
	if s.spot == nil || s.j.Checkpoint <= 0 {
		stay.Until = s.opens
		return stay
	}
	slack, left := s.slack(s.j.Left), s.j.Left.Hours()
	f := s.forecast(s.spot, slack, left)
	sold := f.moveTo(f.first, slack, left)
	if math.IsInf(sold, 1) { // the next loss could make it late
		return stay
	}
	chance := 1.0
	if s.j.toBuy(s.spot) > 0 {
		chance = s.l.Of(s.spot.Place).ChanceNow(s.now)
	}
	move := chance*sold + (1-chance)*f.at(f.nothing, slack-margin.Hours(), left)
	if move > (1-leastGain)*stay.Cost {
		return stay
	}
	return Choice{Action: Buy, Offer: s.spot, Cost: move, OnDemand: stay.Cost, Reason: "back to spot"}
}
