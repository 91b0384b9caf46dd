package cloudoffers

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
)

// What a status says of a cluster is read; what somebody broke in it is no price.
func TestOfCluster(t *testing.T) {
	offer := of(v1alpha1.CloudOfferSpec{Via: &v1alpha1.Via{Cluster: "east"}})
	if got := ofCluster(offer); got.Cluster != "east" || got.Resource != "nvidia.com/gpu" || len(got.Prices) != 0 {
		t.Errorf("before anybody has read its table: %+v", got)
	}
	offer.Status.Regions = []v1alpha1.RegionPrice{
		{Cloud: "aws", Region: "a", PricePerHour: "2.5", GPUs: "8", LossesPerHour: "0.1", StartUp: metav1.Duration{Duration: time.Minute}},
		{Cloud: "aws", Region: "b", PricePerHour: "NaN"},
		{Cloud: "aws", Region: "c", PricePerHour: "-1"},
		{Cloud: "aws", Region: "d", PricePerHour: "+Inf"},
		{Cloud: "aws", Region: "e", PricePerHour: ""},
		{Cloud: "aws", Region: "f", PricePerHour: "3", LossesPerHour: "many", StartUp: metav1.Duration{Duration: -time.Minute}},
	}
	got := ofCluster(offer)
	if len(got.Prices) != 2 || got.Prices[0].Price != 2.5 || got.Prices[0].LossRate != 0.1 || got.Prices[0].StartUp != time.Minute ||
		got.Prices[1].Region != "f" || got.Prices[1].LossRate != 0 || got.Prices[1].StartUp != 0 || got.Egress.OtherCloud != 0.09 {
		t.Errorf("%+v", got)
	}
}

// Jobs are looked at again for what counts: the price of a cluster, and not that of a flavor or what was learned of places.
func TestClusterPriceChanged(t *testing.T) {
	is := ClusterPriceChanged()
	flavor, cluster := of(v1alpha1.CloudOfferSpec{}), of(v1alpha1.CloudOfferSpec{Via: &v1alpha1.Via{Cluster: "east"}})
	dearer, learned := cluster.DeepCopy(), cluster.DeepCopy()
	dearer.Status.Regions = []v1alpha1.RegionPrice{{PricePerHour: "2"}}
	learned.Status.Places = []v1alpha1.PlaceStatus{{Cloud: "aws"}}
	if is.Create(event.CreateEvent{Object: flavor}) || !is.Create(event.CreateEvent{Object: cluster}) || !is.Delete(event.DeleteEvent{Object: cluster}) {
		t.Error("created or deleted")
	}
	for name, change := range map[string]struct {
		from, to *v1alpha1.CloudOffer
		want     bool
	}{
		"a price": {cluster, dearer, true}, "a place": {cluster, learned, false}, "no cluster's any more": {cluster, flavor, true}, "a flavor's": {flavor, flavor, false},
	} {
		if got := is.Update(event.UpdateEvent{ObjectOld: change.from, ObjectNew: change.to}); got != change.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A CloudOffer is assessed again when the first of its places opens, also where another one learned that it is closed.
func TestReopens(t *testing.T) {
	in := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: noon.Add(d)} }
	for name, test := range map[string]struct {
		places []v1alpha1.PlaceStatus
		first  *metav1.Time
		want   time.Duration
	}{
		"none is closed": {},
		"its own":        {places: []v1alpha1.PlaceStatus{{}, {ClosedUntil: in(time.Hour)}, {ClosedUntil: in(time.Minute)}, {ClosedUntil: in(-time.Minute)}}, want: time.Minute},
		"of another":     {first: in(2 * time.Minute), want: 2 * time.Minute},
		"both":           {places: []v1alpha1.PlaceStatus{{ClosedUntil: in(time.Minute)}}, first: in(2 * time.Minute), want: time.Minute},
	} {
		if got := reopens(test.places, test.first, noon); got != test.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// What a cluster may cost at most is what its dearest node does that is meant here; those of others, and broken tables, do not count.
func TestDearest(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	offer := func(name, cluster, text string, match v1alpha1.Match) *v1alpha1.CloudOffer {
		o := of(v1alpha1.CloudOfferSpec{Prices: v1alpha1.PriceTable{Inline: text}, Match: match, Via: &v1alpha1.Via{Cluster: cluster}})
		o.Name = name
		return o
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		offer("a", "east", table, v1alpha1.Match{Clouds: []string{"gcp"}, CapacityType: v1alpha1.Spot}), offer("b", "east", "?", v1alpha1.Match{}),
		offer("c", "west", table, v1alpha1.Match{}),
	).Build()
	tables := NewTables(c, "ns")
	for cluster, want := range map[string]float64{"east": 52, "west": 98.32, "north": 0} {
		if got, err := tables.Dearest(t.Context(), cluster); got != want || err != nil {
			t.Errorf("%s: %v, %v, want %v", cluster, got, err, want)
		}
	}
}

// What another cluster reports of places counts for its CloudOffer here and for no other, of places that this one sells, and for no longer
// than it could have been learned.
func TestReported(t *testing.T) {
	learned := &cloud.Learned{}
	learned.StockOut(place("a", true), 1, noon)
	learned.StockOut(place("elsewhere", true), 1, noon)
	theirs := []v1alpha1.CloudOffer{*of(v1alpha1.CloudOfferSpec{}), *of(v1alpha1.CloudOfferSpec{Via: &v1alpha1.Via{Cluster: "further"}})}
	theirs[0].Status.Places = Places(learned, everywhere, noon)
	sold := []cloud.Offer{{Place: place("a", true), GPUs: 8, Price: 40}, {Place: place("b", true), GPUs: 8, Price: 44}}
	got := Reported(theirs, sold, noon)
	if len(got) != 1 || got[0].Zone != "a" || got[0].ClosedUntil == nil || !got[0].ClosedUntil.Equal(&metav1.Time{Time: noon.Add(2 * time.Minute)}) {
		t.Fatalf("%+v", got)
	}
	if later := Reported(theirs, sold, noon.Add(time.Minute)); !SamePlaces(got, later) || SamePlaces(got, nil) {
		t.Errorf("nothing was learned since, and it is written again: %+v", later)
	}
	if theirs[0].Status.Places[1].LastSeen = metav1.NewTime(noon.Add(time.Second)); SamePlaces(theirs[0].Status.Places, Places(learned, everywhere, noon)) {
		t.Error("something was seen since, and it is not written")
	}
	here, there := of(v1alpha1.CloudOfferSpec{}), of(v1alpha1.CloudOfferSpec{Via: &v1alpha1.Via{Cluster: "east"}})
	there.Status.Places = got
	all := []v1alpha1.CloudOffer{*here, *there}
	if learnedFor(there, all, noon).Of(place("a", true)).Closed(1, noon).IsZero() || learnedFor(here, all, noon).Of(place("a", true)) != nil || Learned(all, noon).Of(place("a", true)) != nil {
		t.Error("what a cluster reports does not count for it, or counts for others")
	}
	// One whose clock is ahead, or that does not mean well.
	theirs[0].Status.Places[0] = v1alpha1.PlaceStatus{
		Cloud: "aws", Region: "us-east-1", Zone: "a", InstanceType: "p5.48xlarge", CapacityType: v1alpha1.Spot, LastSeen: metav1.NewTime(noon.Add(1000 * time.Hour)),
		Since: metav1.NewTime(noon.Add(2000 * time.Hour)), ClosedUntil: &metav1.Time{Time: noon.Add(9000 * time.Hour)}, ClosedFor: -5, Failures: -1,
		History: v1alpha1.PlaceHistory{Losses: "NaN", UpHours: "-3", UpSpan: "1e300"},
	}
	got = Reported(theirs, sold, noon)
	if len(got) != 1 || got[0].LastSeen.After(noon) || got[0].Since.After(noon) || got[0].ClosedUntil.After(noon.Add(longestReported)) || got[0].History.Losses != "" {
		t.Errorf("%+v", got)
	}
}
