package cloud

import (
	"fmt"
	"math"
	"time"
)

// Action is what to do about a job's machines.
type Action string

// What a job can do.
const (
	Wait Action = "Wait" // have nothing, and look again; with Next: go on where it runs until it has saved its work
	Buy  Action = "Buy"  // buy machines of an offer; if it runs elsewhere, it moves there when they have started
	Stay Action = "Stay" // go on where it runs
)

// Choice is what to do now.
type Choice struct {
	Action Action
	Offer  *Offer    // with Buy
	Until  time.Time // look again then; zero: when something changes
	Cost   float64   // expected from here on, US dollars; infinite where no machines are sold
	Reason string

	// With Wait for spot, and with Buy where the job runs: what is expected from here on if machines on demand are bought now, or
	// kept. With Wait for spot, too: when they are bought at the latest; zero: a deadline does not say.
	OnDemand float64
	Latest   time.Time
}

// margin is what a job in need of machines on demand has left for a failed try and for delays.
const margin = 3 * time.Minute

// Choose says what is cheapest for a job now. Offers are those that it may use.
func Choose(j *Job, offers []Offer, l *Learned, now time.Time) Choice {
	s := survey(j, offers, l, now)
	switch {
	case s.onDemand == nil || j.Deadline.IsZero() && j.DelayPrice <= 0:
		return s.cheapestOpen()
	case j.On == nil:
		return s.begin()
	case j.On.Spot:
		return Choice{Action: Stay, Cost: s.runOn(j.On), Reason: "spot"}
	}
	return s.backToSpot()
}

// sight is what a job sees of the offers.
type sight struct {
	j        *Job
	l        *Learned
	now      time.Time
	onDemand *Offer // cheapest that is not closed
	spot     *Offer // cheapest that is not closed
	hidden   *Offer // cheapest on spot, closed or not
	next     *Offer // where the machines are there that it moves to
	cost     map[bool]float64
	back     float64   // rate at which any spot place comes back
	none     float64   // chance that none but the cheapest sells spot machines
	opens    time.Time // when the first closed place is tried again
}

func survey(j *Job, offers []Offer, l *Learned, now time.Time) *sight {
	s := &sight{j: j, l: l, now: now, none: 1, cost: map[bool]float64{}}
	hidden := math.Inf(1)
	for i := range offers {
		o := &offers[i]
		seen := l.Of(o.Place)
		cost := ExpectedCost(j, o, l, now)
		if j.Next != nil && o.Place == *j.Next {
			s.next = o
		}
		if o.Spot {
			s.back += seen.ReturnRate(now, s.horizon())
			s.none *= 1 - seen.ChanceNow(now)
			if cost < hidden {
				hidden, s.hidden = cost, o
			}
		}
		if until := seen.Closed(j.toBuy(o), now); !until.IsZero() {
			if s.opens.IsZero() || until.Before(s.opens) {
				s.opens = until
			}
			continue
		}
		best := &s.onDemand
		if o.Spot {
			best = &s.spot
		}
		if *best == nil || cost < s.cost[o.Spot] {
			*best, s.cost[o.Spot] = o, cost
		}
	}
	return s
}

// horizon is for how many hours a job could wait.
func (s *sight) horizon() float64 { return max(0.5, min(24, s.slack(s.j.Left))) }

// cheapestOpen is for jobs for which nothing says how long to wait.
func (s *sight) cheapestOpen() Choice {
	if s.j.On != nil {
		return Choice{Action: Stay, Cost: s.runOn(s.j.On), Reason: "no deadline"}
	}
	best := s.onDemand
	if s.spot != nil && (best == nil || s.cost[true] <= s.cost[false]) {
		best = s.spot
	}
	if best == nil {
		return Choice{Action: Wait, Until: s.opens, Cost: math.Inf(1), Reason: "no place sells machines now"}
	}
	return Choice{Action: Buy, Offer: best, Cost: s.cost[best.Spot], Reason: "cheapest"}
}

// runOn is what it costs to run on to the end, if nothing happens.
func (s *sight) runOn(o *Offer) float64 {
	return (s.j.Left - s.j.Unsaved).Hours() * (float64(s.j.machines(o))*o.Price + s.j.DelayPrice)
}

// begin: the job has nothing.
func (s *sight) begin() Choice {
	slack, left := s.slack(s.j.Left), s.j.Left.Hours()
	o := s.spot
	if o == nil {
		o = s.hidden
	}
	if o == nil {
		return Choice{Action: Buy, Offer: s.onDemand, Cost: s.cost[false], Reason: "no spot offer"}
	}
	f := s.forecast(o, slack, left)
	buy := f.buy(slack, left)
	if s.spot != nil {
		if move := f.moveTo(f.first, slack, left); move <= buy {
			return Choice{Action: Buy, Offer: s.spot, Cost: move, Reason: fmt.Sprintf("spot; on demand %.2f", buy)}
		}
	}
	wait := f.wait(slack, left)
	spend := slack - f.startOnDemand - margin.Hours()
	if spend <= 0 || wait >= buy {
		return Choice{Action: Buy, Offer: s.onDemand, Cost: buy, Reason: "waiting for spot costs more"}
	}
	until := s.now.Add(time.Duration(min(spend, f.step) * float64(time.Hour)))
	if !s.opens.IsZero() && s.opens.Before(until) {
		until = s.opens
	}
	waits := Choice{Action: Wait, Until: until, Cost: wait, Reason: "waits for spot", OnDemand: buy}
	if !s.j.Deadline.IsZero() {
		start := time.Duration(f.startOnDemand * float64(time.Hour))
		waits.Latest = s.j.Deadline.Add(-s.j.Left - start - margin) // whenever it is asked, the same
	}
	return waits
}

// slack is the time to the deadline less the time that is still to run. Without a deadline there is enough of it; what
// waiting costs is the price of delay.
func (s *sight) slack(left time.Duration) float64 {
	if s.j.Deadline.IsZero() {
		return 2*left.Hours() + 48
	}
	return (s.j.Deadline.Sub(s.now) - left).Hours()
}

func (s *sight) forecast(spot *Offer, slack, left float64) *forecast {
	seen := s.l.Of(spot.Place)
	none := 1.0
	if chance := seen.ChanceNow(s.now); chance < 1 {
		none = s.none / (1 - chance)
	}
	start, save := s.j.startUp(spot.Place, s.l), s.j.saveHours()
	redone := s.j.unreported(margin) // it is stopped as it should have saved its work
	if s.j.Reported {
		redone = stop{again: min(save, reportDelay.Hours()), reserve: (reportDelay + margin).Hours()}
	}
	return newForecast(market{
		stays: s.j.Moves <= 0 || s.j.Checkpoint <= 0, stop: redone,
		spot: float64(s.j.machines(spot)) * spot.Price, onDemand: float64(s.j.machines(s.onDemand)) * s.onDemand.Price,
		fixedSpot: spot.Fixed, fixedOnDemand: s.onDemand.Fixed,
		startSpot: start, startOnDemand: s.j.startUp(s.onDemand.Place, s.l),
		back: s.back, another: 1 - min(1, none), save: save, delay: s.j.DelayPrice,
		fresh: seen.chanceOf(0, start+save), first: seen.chanceOf(seen.age(s.now), start+save),
		freshStart: seen.chanceOf(0, start), firstStart: seen.chanceOf(seen.age(s.now), start),
		loss: seen.rate(seen.age(s.now)+start+save, max(left, 1)),
	}, slack, left)
}
