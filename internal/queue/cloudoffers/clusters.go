package cloudoffers

import (
	"context"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
)

// OfClusters are the prices of other clusters, as the statuses of CloudOffers have them.
func OfClusters(ctx context.Context, c client.Reader) ([]cloud.ClusterOffer, error) {
	all := &v1alpha1.CloudOfferList{}
	if err := c.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil { // they are only read
		return nil, err
	}
	var offers []cloud.ClusterOffer
	for i := range all.Items {
		if o := &all.Items[i]; o.Spec.Cluster() != "" {
			offers = append(offers, ofCluster(o))
		}
	}
	return offers, nil
}

// ofCluster is what a CloudOffer's status says. One without a price, since its table is broken or was not read yet, has none;
// a region that cannot be read is left out.
func ofCluster(o *v1alpha1.CloudOffer) cloud.ClusterOffer {
	offer := cloud.ClusterOffer{Cluster: o.Spec.Cluster(), Resource: o.Spec.CardResource()}
	offer.Egress.OtherRegion, offer.Egress.OtherCloud = o.Spec.Egress.Prices()
	if until := o.Status.ClosedUntil; until != nil {
		offer.ClosedUntil = until.Time
	}
	for i := range o.Status.Regions {
		r := &o.Status.Regions[i]
		price, err := strconv.ParseFloat(r.PricePerHour, 64)
		if err != nil || !(price >= 0) || math.IsInf(price, 0) {
			continue
		}
		offer.Prices = append(offer.Prices, cloud.RegionPrice{
			Cloud: r.Cloud, Region: r.Region, Price: price, Size: number(r.GPUs), StartUp: max(0, r.StartUp.Duration), LossRate: number(r.LossesPerHour),
		})
	}
	return offer
}

// Dearest is what the dearest node costs an hour that another cluster may buy, by the tables here, in US dollars; 0: nobody knows.
func (t Tables) Dearest(ctx context.Context, cluster string) (most float64, err error) {
	all := &v1alpha1.CloudOfferList{}
	if err := t.client.List(ctx, all); err != nil {
		return 0, err
	}
	for i := range all.Items {
		if all.Items[i].Spec.Cluster() != cluster {
			continue
		}
		sold, err := t.Offers(ctx, &all.Items[i])
		if err != nil && !IsProblem(err) {
			return 0, err
		}
		for j := range sold {
			most = max(most, sold[j].Price)
		}
	}
	return most, nil
}

// longestReported is how far ahead another cluster may say that a place is closed. By itself it closes none for longer.
const longestReported = 15 * time.Minute

// Reported is what the CloudOffers of another cluster say of places, for the status of a CloudOffer of it here that sells at some of
// them. It counts for that cluster alone, and no longer than the other one could have learned it: a clock that is ahead there, or one who
// does not mean well, closes a place for some minutes.
func Reported(theirs []v1alpha1.CloudOffer, sold []cloud.Offer, now time.Time) []v1alpha1.PlaceStatus {
	bounded := &cloud.Learned{}
	for _, s := range learnedUntil(theirs, time.Time{}).List() {
		s.At, s.ClosedUntil = earlier(s.At, now), earlier(s.ClosedUntil, now.Add(longestReported))
		s.Since = earlier(s.Since, s.At)
		bounded.Remember(s)
	}
	return Places(bounded, func(p cloud.Place) bool {
		return slices.ContainsFunc(sold, func(o cloud.Offer) bool { return o.Place == p })
	}, now)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b.Truncate(time.Second)
	}
	return a
}

// SamePlaces says that two statuses know the same of places; what follows from that for now may differ.
func SamePlaces(a, b []v1alpha1.PlaceStatus) bool {
	return slices.EqualFunc(a, b, func(x, y v1alpha1.PlaceStatus) bool {
		p, q := seen(&x), seen(&y)
		same := p.At.Equal(q.At) && p.Since.Equal(q.Since) && p.ClosedUntil.Equal(q.ClosedUntil)
		p.At, p.Since, p.ClosedUntil, q.At, q.Since, q.ClosedUntil = time.Time{}, time.Time{}, time.Time{}, time.Time{}, time.Time{}, time.Time{}
		return same && p == q
	})
}

// ClusterPriceChanged selects the CloudOffers of other clusters when their prices may have changed.
func ClusterPriceChanged() predicate.Predicate {
	of := func(obj client.Object) bool {
		offer, ok := obj.(*v1alpha1.CloudOffer)
		return ok && offer.Spec.Cluster() != ""
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return of(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return of(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return (of(e.ObjectOld) || of(e.ObjectNew)) &&
				!reflect.DeepEqual(ofCluster(e.ObjectOld.(*v1alpha1.CloudOffer)), ofCluster(e.ObjectNew.(*v1alpha1.CloudOffer)))
		},
	}
}
