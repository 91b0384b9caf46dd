package cloudoffers

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
)

// A table is read once for a CloudOffer, and again when it or the CloudOffer has changed, or either is another one of the same name.
func TestTablesAreReadOnce(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	prices := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prices"}, Data: map[string]string{"prices.csv": table}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(prices).Build()
	tables := NewTables(c, "ns")
	offer := of(v1alpha1.CloudOfferSpec{Prices: v1alpha1.PriceTable{ConfigMap: &v1alpha1.ConfigMapKey{Name: "prices", Key: "prices.csv"}}})
	offer.UID = "first"
	var last *sold
	look := func(what string, again bool, offers int) {
		t.Helper()
		got, err := tables.sold(t.Context(), offer)
		if err != nil || len(got.offers) != offers || (got != last) != again {
			t.Fatalf("%s: %d offers, read again: %v, %v", what, len(got.offers), got != last, err)
		}
		last = got
	}
	look("at first", true, 8)
	look("nothing changed", false, 8)
	prices.Data["prices.csv"] = strings.Replace(table, "88,52", "88,", 1)
	if err := c.Update(t.Context(), prices); err != nil {
		t.Fatal(err)
	}
	look("another table", true, 7)
	offer.Generation, offer.Spec.Match.Clouds = offer.Generation+1, []string{"gcp"}
	look("it means other offers", true, 3)
	look("and is read once", false, 3)
	offer.UID, offer.Generation, offer.Spec.Match.Clouds = "second", 1, nil
	look("another CloudOffer of its name", true, 7)
	prices.Data["prices.csv"] = "?"
	if err := c.Update(t.Context(), prices); err != nil {
		t.Fatal(err)
	}
	look("what cannot be read", true, 0)
	look("is not read again, either", false, 0)
	if _, err := tables.Offers(t.Context(), offer); !IsProblem(err) {
		t.Errorf("%v", err)
	}
	if err := c.Delete(t.Context(), prices); err != nil {
		t.Fatal(err)
	}
	if _, err := tables.Offers(t.Context(), offer); !IsProblem(err) || !strings.Contains(err.Error(), "there is no ConfigMap prices") {
		t.Errorf("%v", err)
	}
}

// A cloud that nobody here knows is a slip of the pen, unless the CloudOffer names it.
func TestCloudsThatAreNamed(t *testing.T) {
	rows := strings.ReplaceAll(table, "gcp", "coreweave")
	if s := matching(of(v1alpha1.CloudOfferSpec{}), rows); len(s.bad) != 2 || s.err != nil {
		t.Errorf("%d rows are left out, %v", len(s.bad), s.err)
	}
	s := matching(of(v1alpha1.CloudOfferSpec{Match: v1alpha1.Match{Clouds: []string{"coreweave"}}}), rows)
	if len(s.bad) > 0 || len(s.offers) != 4 || slices.ContainsFunc(s.offers, func(o cloud.Offer) bool { return o.Cloud != "coreweave" }) {
		t.Errorf("%+v, %v", s.offers, s.bad)
	}
}
