package cloudoffers

import (
	"errors"
	"fmt"
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

// assess is what a CloudOffer's table says: all of its status but the conditions. Rows that cannot be read are reported and
// left out; err is a problem.
func assess(offer *v1alpha1.CloudOffer, table string) (status v1alpha1.CloudOfferStatus, err error) {
	startUp := defaultStartUp
	if text := offer.Spec.StartUp; text != "" {
		if startUp, err = time.ParseDuration(text); err != nil || startUp < 0 {
			return status, problem{v1alpha1.ReasonInvalid, fmt.Sprintf("spec.startUp: %q is not a time span", text)}
		}
	}
	offers, bad, err := cloud.ReadPriceTable(strings.NewReader(table))
	if err != nil {
		return status, problem{v1alpha1.ReasonInvalid, "the price table: " + err.Error()}
	}
	status.StartUp.Duration = startUp
	status.RowsLeftOut = int32(len(bad))
	for _, row := range bad[:min(len(bad), namedRows)] {
		status.RowProblems = append(status.RowProblems, row.Error())
	}
	best, most := -1, maxPrice(offer.Spec.MaxPricePerHour)
	for i := range offers {
		o := &offers[i]
		if o.GPUs <= 0 || !matches(&offer.Spec.Match, o) || o.Price > most {
			continue
		}
		status.Offers++
		if best < 0 || o.Price/o.GPUs < offers[best].Price/offers[best].GPUs {
			best = i
		}
	}
	if best < 0 {
		return status, problem{v1alpha1.ReasonNothingMatches, "no offer of the price table is one that spec.match and spec.maxPricePerHour mean"}
	}
	o := &offers[best]
	status.Cheapest = &v1alpha1.Sale{
		Cloud: o.Cloud, Region: o.Region, Zone: o.Zone, InstanceType: o.InstanceType, CapacityType: capacityType(o),
		GPUs: decimal(o.GPUs), PricePerHour: decimal(o.Price),
	}
	status.PricePerHour = decimal(o.Price / o.GPUs)
	status.LossesPerHour = decimal(lossesPerHour(offer, o))
	return status, nil
}

func maxPrice(q *resource.Quantity) float64 {
	if q == nil {
		return 1e9
	}
	return q.AsApproximateFloat64()
}

// lossesPerHour are those on spot, declared or usual.
func lossesPerHour(offer *v1alpha1.CloudOffer, o *cloud.Offer) float64 {
	var nothingSeen *cloud.Learned
	switch declared := offer.Spec.LossesPerHour; {
	case !o.Spot:
		return 0
	case declared != nil:
		return declared.AsApproximateFloat64()
	}
	return nothingSeen.Of(o.Place).LossRate(time.Time{}, usualRun)
}

func capacityType(o *cloud.Offer) v1alpha1.CapacityType {
	if o.Spot {
		return v1alpha1.Spot
	}
	return v1alpha1.OnDemand
}

// matches says that an offer is one of those that are meant.
func matches(m *v1alpha1.Match, o *cloud.Offer) bool {
	return among(m.Clouds, o.Cloud) && among(m.Regions, o.Region) && among(m.InstanceTypes, o.InstanceType) && among(m.GPUs, o.GPU) &&
		(m.CapacityType == "" || m.CapacityType == capacityType(o))
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
