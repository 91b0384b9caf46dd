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
	// Moves is how often a job on demand is stopped to go back to spot machines once they have started, as the admission check that
	// buys nodes does it (movesToSpot of a CloudOffer).
	Moves int
	// Reports has jobs say when they have saved their work (elasticai.io/checkpointed-at).
	Reports bool
}

// Elastic is the rule of the product, with what its admission check does, for jobs that say how often they save their work.
var Elastic = Rule{Name: "elastic", Choose: cloud.Choose, Shared: true, Moves: 4}

// ElasticReporting is the same for jobs that say, too, when they have saved it.
var ElasticReporting = Rule{Name: "elastic-reporting", Choose: cloud.Choose, Shared: true, Moves: 4, Reports: true}

// Rules, the product's and those to compare it with.
var Rules = []Rule{
	{Name: "on-demand", Choose: onDemandOnly},
	{Name: "spot", Choose: spotOnly},
	{Name: "spot-else-on-demand", Choose: spotElseOnDemand},
	Elastic,
	ElasticReporting,
}

// Variants of the product's rule: jobs stay where they began, as they do where a CloudOffer does not say that they may move.
var Variants = []Rule{{Name: "elastic-stays", Choose: cloud.Choose, Shared: true}}

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
