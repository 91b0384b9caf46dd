package cost

import (
	"time"

	"github.com/elastic-ai/elastic/internal/cloud"
)

// Rule says where a job goes. cloud.Choose is one.
type Rule struct {
	Name   string
	Choose func(*cloud.Job, []cloud.Offer, *cloud.Learned, time.Time) cloud.Choice
	// Shared: what one job saw, the others know.
	Shared bool
	// Moves is how often a job is stopped to go elsewhere. 0: it runs on until the machines that it moves to have started, as
	// often as the rule says.
	Moves int
}

// Elastic is the rule of the product.
var Elastic = Rule{Name: "elastic", Choose: cloud.Choose, Shared: true}

// Rules, the product's and those to compare it with.
var Rules = []Rule{
	{Name: "on-demand", Choose: onDemandOnly},
	{Name: "spot", Choose: spotOnly},
	{Name: "spot-else-on-demand", Choose: spotElseOnDemand},
	Elastic,
}

// Checks are what the admission check that buys nodes does with the product's rule: jobs stay where they began, or are stopped to go
// back to spot at most twice (movesToSpot).
var Checks = []Rule{
	{Name: "elastic-stays", Choose: stays, Shared: true},
	{Name: "elastic-restarts", Choose: restarts, Shared: true, Moves: 2},
}

func stays(j *cloud.Job, offers []cloud.Offer, l *cloud.Learned, now time.Time) cloud.Choice {
	if j.On != nil {
		return cloud.Choice{Action: cloud.Stay}
	}
	return cloud.Choose(j, offers, l, now)
}

// restarts: the check does not know when a job saves its work, so that the whole interval may be lost, and looks every ten minutes.
func restarts(j *cloud.Job, offers []cloud.Offer, l *cloud.Learned, now time.Time) cloud.Choice {
	if j.On == nil || j.On.Spot {
		return stays(j, offers, l, now)
	}
	worst := *j
	worst.Restarts, worst.Unsaved = true, min(j.Checkpoint, j.Left)
	worst.Left += worst.Unsaved - j.Unsaved
	choice := cloud.Choose(&worst, offers, l, now)
	choice.Until = now.Add(10 * time.Minute)
	return choice
}

func onDemandOnly(j *cloud.Job, offers []cloud.Offer, _ *cloud.Learned, _ time.Time) cloud.Choice {
	if j.On != nil {
		return cloud.Choice{Action: cloud.Stay}
	}
	return cloud.Choice{Action: cloud.Buy, Offer: cheapest(offers, func(o *cloud.Offer) bool { return !o.Spot })}
}

// spotOnly tries spot offers from the cheapest up, and begins again.
func spotOnly(j *cloud.Job, offers []cloud.Offer, l *cloud.Learned, now time.Time) cloud.Choice {
	if j.On != nil {
		return cloud.Choice{Action: cloud.Stay}
	}
	if o := openSpot(offers, l, now); o != nil {
		return cloud.Choice{Action: cloud.Buy, Offer: o}
	}
	return cloud.Choice{Action: cloud.Wait, Until: now.Add(time.Minute)}
}

// spotElseOnDemand tries spot offers from the cheapest up, and then buys on demand.
func spotElseOnDemand(j *cloud.Job, offers []cloud.Offer, l *cloud.Learned, now time.Time) cloud.Choice {
	if j.On == nil {
		if o := openSpot(offers, l, now); o != nil {
			return cloud.Choice{Action: cloud.Buy, Offer: o}
		}
	}
	return onDemandOnly(j, offers, l, now)
}

// openSpot is the cheapest spot offer that did not refuse the job in its round of tries: each offer once, a minute each.
func openSpot(offers []cloud.Offer, l *cloud.Learned, now time.Time) *cloud.Offer {
	round := now.Add(-time.Duration(len(offers)/2) * time.Minute)
	return cheapest(offers, func(o *cloud.Offer) bool {
		seen := l.Of(o.Place)
		return o.Spot && (seen == nil || seen.Obtainable || seen.At.Before(round))
	})
}

func cheapest(offers []cloud.Offer, which func(*cloud.Offer) bool) *cloud.Offer {
	var best *cloud.Offer
	for i := range offers {
		if o := &offers[i]; which(o) && (best == nil || o.Price < best.Price) {
			best = o
		}
	}
	return best
}
