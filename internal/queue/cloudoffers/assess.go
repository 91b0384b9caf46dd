package cloudoffers

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
)

const (
	defaultStartUp = 10 * time.Minute
	// usualRun is over which losses are reckoned of which nothing was declared.
	usualRun = 24 // hours
	// namedRows is how many rows that could not be read are named.
	namedRows = 8
)

// problem is why a CloudOffer gives its flavor no price.
type problem struct{ reason, text string }

func (p problem) Error() string { return p.text }

// assess is what a CloudOffer's table says, and what was learned of the places in it: all of its status but the
// conditions; of places only the prices are new. Rows that cannot be read are reported and left out; err is a problem.
func assess(offer *v1alpha1.CloudOffer, s *sold, learned *cloud.Learned, now time.Time) (status v1alpha1.CloudOfferStatus, err error) {
	startUp, err := StartUp(offer)
	if err != nil {
		return status, err
	}
	status.Places = withPrices(offer.Status.Places, s.offers)
	status.RowsLeftOut = int32(len(s.bad))
	for _, row := range s.bad[:min(len(s.bad), namedRows)] {
		status.RowProblems = append(status.RowProblems, row.Error())
	}
	if s.err != nil {
		return status, s.err
	}
	price(&status, offer, s.offers, startUp, learned, now)
	return status, nil
}

// Priced is the status of a CloudOffer that means these offers, at least one.
func Priced(offer *v1alpha1.CloudOffer, offers []cloud.Offer, startUp time.Duration, learned *cloud.Learned, now time.Time) (status v1alpha1.CloudOfferStatus) {
	price(&status, offer, offers, startUp, learned, now)
	return status
}

func price(status *v1alpha1.CloudOfferStatus, offer *v1alpha1.CloudOffer, offers []cloud.Offer, startUp time.Duration, learned *cloud.Learned, now time.Time) {
	status.Offers = int32(len(offers))
	o, opens := cheapest(offers, learned, now)
	if !opens.IsZero() {
		status.ClosedUntil = &metav1.Time{Time: opens}
	}
	status.Regions = regions(offer, offers, startUp, learned, now)
	if offer.Spec.Via != nil && offer.Spec.Cluster() == "" {
		status.Largest = largest(offers, offer.Spec.CardResource())
	}
	status.Cheapest = &v1alpha1.Sale{
		Cloud: o.Cloud, Region: o.Region, Zone: o.Zone, InstanceType: o.InstanceType, CapacityType: capacityType(o.Spot),
		GPUs: decimal(o.GPUs), PricePerHour: decimal(o.Price),
	}
	best := regionPrice(offer, o, startUp, learned, now)
	status.PricePerHour, status.LossesPerHour, status.StartUp = best.PricePerHour, best.LossesPerHour, best.StartUp
}

// mostRegions is of how many regions a status has the price.
const mostRegions = 128

// regions are those with nodes that can be had, or all where there are none, with the cheapest of each; where nodes are bought
// for each job, with the cheapest of each size. One that costs as much as a larger one is left out: it is cheaper for nobody.
func regions(offer *v1alpha1.CloudOffer, offers []cloud.Offer, startUp time.Duration, learned *cloud.Learned, now time.Time) []v1alpha1.RegionPrice {
	type size struct {
		cloud, region string
		gpus          float64
	}
	in := map[size][]cloud.Offer{}
	for i := range offers {
		at := size{cloud: offers[i].Cloud, region: offers[i].Region}
		if offer.Spec.Via != nil {
			at.gpus = offers[i].GPUs
		}
		in[at] = append(in[at], offers[i])
	}
	var open, shut []*cloud.Offer
	for _, list := range in {
		if o, opens := cheapest(list, learned, now); opens.IsZero() {
			open = append(open, o)
		} else {
			shut = append(shut, o)
		}
	}
	if len(open) == 0 {
		open = shut
	}
	slices.SortFunc(open, func(a, b *cloud.Offer) int { // the largest of a region first
		return cmp.Or(cmp.Compare(a.Cloud, b.Cloud), cmp.Compare(a.Region, b.Region), cmp.Compare(b.GPUs, a.GPUs))
	})
	var larger *cloud.Offer
	open = slices.DeleteFunc(open, func(o *cloud.Offer) bool {
		if larger != nil && larger.Cloud == o.Cloud && larger.Region == o.Region && larger.Price <= o.Price {
			return true
		}
		larger = o
		return false
	})
	slices.SortFunc(open, func(a, b *cloud.Offer) int {
		return cmp.Or(cmp.Compare(a.Price/a.GPUs, b.Price/b.GPUs), cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Cloud, b.Cloud), cmp.Compare(a.Region, b.Region))
	})
	out := make([]v1alpha1.RegionPrice, 0, min(len(open), mostRegions))
	for _, o := range open[:min(len(open), mostRegions)] {
		out = append(out, regionPrice(offer, o, startUp, learned, now))
	}
	return out
}

// regionPrice is what the queue reckons with of an offer.
func regionPrice(offer *v1alpha1.CloudOffer, o *cloud.Offer, startUp time.Duration, learned *cloud.Learned, now time.Time) v1alpha1.RegionPrice {
	seen := learned.Of(o.Place)
	if seen != nil && seen.StartUpHours > 0 {
		startUp = hours(seen.StartUpHours)
	}
	p := v1alpha1.RegionPrice{
		Cloud: o.Cloud, Region: o.Region, PricePerHour: decimal(o.Price / o.GPUs), LossesPerHour: decimal(lossesPerHour(offer, o, seen, now)),
		StartUp: metav1.Duration{Duration: startUp},
	}
	if offer.Spec.Via != nil {
		p.GPUs = decimal(o.GPUs)
	}
	return p
}

// StartUp is how long nodes take that nobody has seen starting.
func StartUp(offer *v1alpha1.CloudOffer) (time.Duration, error) {
	text := offer.Spec.StartUp
	if text == "" {
		return defaultStartUp, nil
	}
	startUp, err := time.ParseDuration(text)
	if err != nil || startUp < 0 {
		return 0, problem{v1alpha1.ReasonInvalid, fmt.Sprintf("spec.startUp: %q is not a time span", text)}
	}
	return startUp, nil
}

// sold is what a CloudOffer means of a table: offers, at least one, or a problem, and the rows that could not be read.
type sold struct {
	offers []cloud.Offer
	bad    []cloud.RowError
	err    error
}

// matching are the offers of a table that are meant. Who names a cloud in match means that name.
func matching(offer *v1alpha1.CloudOffer, table string) *sold {
	offers, bad, err := cloud.ReadPriceTable(strings.NewReader(table), offer.Spec.Match.Clouds...)
	if err != nil {
		return &sold{err: problem{v1alpha1.ReasonInvalid, "the price table: " + err.Error()}}
	}
	most := maxPrice(offer.Spec.MaxPricePerHour)
	offers = slices.DeleteFunc(offers, func(o cloud.Offer) bool {
		return o.GPUs <= 0 || !matches(&offer.Spec.Match, &o) || o.Price > most
	})
	if len(offers) == 0 {
		return &sold{bad: bad, err: problem{v1alpha1.ReasonNothingMatches, "no offer of the price table is one that spec.match and spec.maxPricePerHour mean"}}
	}
	return &sold{offers: slices.Clip(slices.Clone(offers)), bad: bad} // of a large table often few are meant
}

// cheapest is the offer with the lowest price of a card among those that can be had. If none can, it is the lowest of all,
// and opens says when that ends. A place that refused many nodes at once may still sell fewer; for the order of flavors it
// counts as closed, since the workload that was refused would come back to it at once.
func cheapest(offers []cloud.Offer, learned *cloud.Learned, now time.Time) (best *cloud.Offer, opens time.Time) {
	lower := func(o, than *cloud.Offer) bool { return than == nil || o.Price/o.GPUs < than.Price/than.GPUs }
	var open *cloud.Offer
	for i := range offers {
		o := &offers[i]
		until := learned.Of(o.Place).Closed(math.MaxInt, now)
		switch {
		case until.IsZero() && lower(o, open):
			open = o
		case !until.IsZero() && (opens.IsZero() || until.Before(opens)):
			opens = until
		}
		if lower(o, best) {
			best = o
		}
	}
	if open != nil {
		return open, time.Time{}
	}
	return best, opens
}

func hours(h float64) time.Duration {
	return time.Duration(h * float64(time.Hour)).Round(time.Second)
}

func maxPrice(q *resource.Quantity) float64 {
	if q == nil {
		return 1e9
	}
	return q.AsApproximateFloat64()
}

// lossesPerHour are those on spot: declared, until something was seen, or usual.
func lossesPerHour(offer *v1alpha1.CloudOffer, o *cloud.Offer, seen *cloud.Seen, now time.Time) float64 {
	switch declared := offer.Spec.LossesPerHour; {
	case !o.Spot:
		return 0
	case declared != nil && (seen == nil || seen.Losses == 0 && seen.UpHours < usualRun):
		return declared.AsApproximateFloat64()
	}
	return seen.LossRate(now, usualRun)
}

func capacityType(spot bool) v1alpha1.CapacityType {
	if spot {
		return v1alpha1.Spot
	}
	return v1alpha1.OnDemand
}

// matches says that an offer is one of those that are meant.
func matches(m *v1alpha1.Match, o *cloud.Offer) bool {
	return among(m.Clouds, o.Cloud) && among(m.Regions, o.Region) && among(m.InstanceTypes, o.InstanceType) && among(m.GPUs, o.GPU) &&
		(m.CapacityType == "" || m.CapacityType == capacityType(o.Spot))
}

func among(list []string, name string) bool { return len(list) == 0 || slices.Contains(list, name) }

// decimal writes a number as people do, to four digits.
func decimal(v float64) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64) // it was written a moment ago
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// condition says whether there is a price.
func condition(offer *v1alpha1.CloudOffer, status *v1alpha1.CloudOfferStatus, err error) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.Priced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPriced, ObservedGeneration: offer.Generation}
	var p problem
	switch {
	case errors.As(err, &p):
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, p.reason, p.text
		if status.RowsLeftOut > 0 {
			c.Message += "; " + leftOut(status)
		}
	case status.RowsLeftOut > 0:
		c.Reason, c.Message = v1alpha1.ReasonRowsLeftOut, leftOut(status)
	default:
		c.Message = fmt.Sprintf("%d offers; the cheapest is %s", status.Offers, status.Cheapest.InstanceType)
	}
	return c
}

func leftOut(status *v1alpha1.CloudOfferStatus) string {
	return fmt.Sprintf("%d rows of the price table were left out: %s", status.RowsLeftOut, status.RowProblems[0])
}
