package engineview

import (
	"reflect"
	"testing"

	"github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/budget"
)

// A run costs what its flavor's CloudOffer says, also where cluster-autoscaler makes the nodes. Where they were bought for it the run says what they
// cost, and nothing is counted twice.
func TestValuedRuns(t *testing.T) {
	cards := budget.Amount{Flavor: "h100", Resource: "nvidia.com/gpu", Units: 8}
	bought := budget.Amount{Flavor: "h100", Resource: budget.Money, Units: 7_000_000}
	byPrice := budget.Amount{Flavor: "h100", Resource: budget.Money, Units: 16_000_000}
	for name, test := range map[string]struct {
		via  *v1alpha1.Via
		run  []budget.Amount
		want []budget.Amount
	}{
		"nodes that are there":       {nil, []budget.Amount{cards}, []budget.Amount{cards, byPrice}},
		"by cluster-autoscaler":      {&v1alpha1.Via{ProvisioningClass: "dws"}, []budget.Amount{cards}, []budget.Amount{cards, byPrice}},
		"none is bought yet":         {&v1alpha1.Via{NodeClass: &v1alpha1.NodeClass{}}, []budget.Amount{cards}, []budget.Amount{cards}},
		"bought":                     {&v1alpha1.Via{NodeClass: &v1alpha1.NodeClass{}}, []budget.Amount{cards, bought}, []budget.Amount{cards, bought}},
		"bought, in another cluster": {nil, []budget.Amount{cards, bought}, []budget.Amount{cards, bought}},
	} {
		offer := &v1alpha1.CloudOffer{Spec: v1alpha1.CloudOfferSpec{Via: test.via}}
		offer.Name, offer.Status.PricePerHour = "h100", "2"
		o := &Objects{Offers: map[string]*v1alpha1.CloudOffer{"h100": offer}}
		if got := o.Valued(budget.Run{Amounts: test.run}).Amounts; !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
