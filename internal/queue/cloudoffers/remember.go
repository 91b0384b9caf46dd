package cloudoffers

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
)

// Remember writes what was learned into the status of a CloudOffer: of places that it knew, with what a caller last wrote in offer, and of those
// that are new to it. It fails if somebody else has written since.
func Remember(ctx context.Context, c client.Client, offer *v1alpha1.CloudOffer, learned *cloud.Learned, counted []cloud.Place, now time.Time) ([]v1alpha1.PlaceStatus, error) {
	is := &v1alpha1.CloudOffer{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(offer), is); err != nil {
		return nil, err
	}
	if is.ResourceVersion != offer.ResourceVersion {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "cloudoffers"}, offer.Name, errors.New("it has changed since"))
	}
	was := is.DeepCopy()
	known := Learned([]v1alpha1.CloudOffer{*offer}, now)
	is.Status.Places = WithPricesOf(Places(learned, func(p cloud.Place) bool {
		return known.Of(p) != nil || slices.Contains(counted, p)
	}, now), was.Status.Places)
	return is.Status.Places, c.Status().Patch(ctx, is, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}))
}
