package cloudoffers

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
)

// What was learned of places is in the statuses of CloudOffers and nowhere else: a new leader knows as much, and everybody
// can read it.

// mostPlaces is how many places a CloudOffer remembers.
const mostPlaces = 256

// mostAhead is how far a clock may be ahead that wrote what was learned: it was another leader's.
const mostAhead = time.Hour

// Learned is what the statuses of CloudOffers say. Of a place that several of them sell, the last word counts. What other clusters have
// reported is in the statuses of theirs, and counts for those alone. Nothing is believed that was seen at a time to come: a place would be closed
// until then, and nothing would be learned of it.
func Learned(offers []v1alpha1.CloudOffer, now time.Time) *cloud.Learned {
	return learnedUntil(offers, now.Add(mostAhead))
}

// learnedUntil is what was seen until a time; zero: at any.
func learnedUntil(offers []v1alpha1.CloudOffer, until time.Time) *cloud.Learned {
	l := &cloud.Learned{}
	for i := range offers {
		if offers[i].Spec.Cluster() != "" {
			continue
		}
		for j := range offers[i].Status.Places {
			if s := seen(&offers[i].Status.Places[j]); until.IsZero() || !s.At.After(until) {
				l.Remember(s)
			}
		}
	}
	return l
}

// learnedFor is what counts for one of the CloudOffers.
func learnedFor(offer *v1alpha1.CloudOffer, all []v1alpha1.CloudOffer, now time.Time) *cloud.Learned {
	l := Learned(all, now)
	if offer.Spec.Cluster() != "" {
		for i := range offer.Status.Places {
			l.Remember(seen(&offer.Status.Places[i]))
		}
	}
	return l
}

// Places are what was learned, for the status of a CloudOffer that sells at some of them.
func Places(l *cloud.Learned, sells func(cloud.Place) bool, now time.Time) []v1alpha1.PlaceStatus {
	list := slices.DeleteFunc(l.List(), func(s cloud.Seen) bool { return s.At.IsZero() || !sells(s.Place) })
	if len(list) > mostPlaces {
		slices.SortStableFunc(list, func(a, b cloud.Seen) int { return b.At.Compare(a.At) })
		list = list[:mostPlaces]
	}
	out := make([]v1alpha1.PlaceStatus, len(list))
	for i := range list {
		out[i] = placeStatus(&list[i], now)
	}
	slices.SortFunc(out, func(a, b v1alpha1.PlaceStatus) int {
		return cmp.Or(cmp.Compare(a.Cloud, b.Cloud), cmp.Compare(a.Region, b.Region), cmp.Compare(a.Zone, b.Zone),
			cmp.Compare(a.InstanceType, b.InstanceType), cmp.Compare(a.CapacityType, b.CapacityType))
	})
	return out
}

// withPrices are places with what their nodes cost now, by the offers of a table.
func withPrices(places []v1alpha1.PlaceStatus, offers []cloud.Offer) []v1alpha1.PlaceStatus {
	if len(places) == 0 {
		return places
	}
	prices := make(map[cloud.Place]string, len(offers))
	for i := range offers {
		prices[offers[i].Place] = decimal(offers[i].Price)
	}
	out := slices.Clone(places)
	for i := range out {
		out[i].PricePerHour = prices[placeOf(&out[i])]
	}
	return out
}

// WithPricesOf are places with the prices that they had in a status, which its controller brings up to date.
func WithPricesOf(places, had []v1alpha1.PlaceStatus) []v1alpha1.PlaceStatus {
	prices := make(map[cloud.Place]string, len(had))
	for i := range had {
		prices[placeOf(&had[i])] = had[i].PricePerHour
	}
	for i := range places {
		places[i].PricePerHour = prices[placeOf(&places[i])]
	}
	return places
}

func placeOf(p *v1alpha1.PlaceStatus) cloud.Place {
	return cloud.Place{Cloud: p.Cloud, Region: p.Region, Zone: p.Zone, InstanceType: p.InstanceType, Spot: p.CapacityType == v1alpha1.Spot}
}

func placeStatus(s *cloud.Seen, now time.Time) v1alpha1.PlaceStatus {
	p := v1alpha1.PlaceStatus{
		Cloud: s.Cloud, Region: s.Region, Zone: s.Zone, InstanceType: s.InstanceType, CapacityType: capacityType(s.Spot),
		Obtainable: s.Obtainable, LastSeen: metav1.NewTime(s.At), Since: metav1.NewTime(s.Since),
		ClosedFor: int32(min(s.ClosedFor, 1<<30)), Failures: int32(min(s.Failures, 1<<30)),
		History: v1alpha1.PlaceHistory{
			UpHours: exact(s.UpHours), DownHours: exact(s.DownHours), UpSpan: exact(s.UpSpan), DownSpan: exact(s.DownSpan),
			Losses: exact(s.Losses), Returns: exact(s.Returns),
		},
	}
	if !s.ClosedUntil.IsZero() {
		p.ClosedUntil = &metav1.Time{Time: s.ClosedUntil}
	}
	if s.StartUpHours > 0 {
		p.StartUp = &metav1.Duration{Duration: hours(s.StartUpHours)}
	}
	if s.Spot {
		p.LossesPerHour = decimal(s.LossRate(now, usualRun))
	}
	return p
}

// seen is what a status says of a place. A number that somebody made unreadable is none.
func seen(p *v1alpha1.PlaceStatus) cloud.Seen {
	s := cloud.Seen{
		Place: placeOf(p),
		At:    p.LastSeen.Time, Obtainable: p.Obtainable, Since: p.Since.Time, ClosedFor: int(p.ClosedFor), Failures: int(p.Failures),
		UpHours: number(p.History.UpHours), DownHours: number(p.History.DownHours), UpSpan: number(p.History.UpSpan),
		DownSpan: number(p.History.DownSpan), Losses: number(p.History.Losses), Returns: number(p.History.Returns),
	}
	if p.ClosedUntil != nil {
		s.ClosedUntil = p.ClosedUntil.Time
	}
	if p.StartUp != nil {
		s.StartUpHours = max(0, p.StartUp.Hours())
	}
	return s
}

// exact writes a number so that it can be read again as it was; zero is not written.
func exact(v float64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

func number(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0 && v < 1e9) { // so that NaN is none
		return 0
	}
	return v
}
