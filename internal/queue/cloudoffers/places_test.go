package cloudoffers

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
)

var noon = time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)

func place(zone string, spot bool) cloud.Place {
	return cloud.Place{Cloud: "aws", Region: "us-east-1", Zone: zone, InstanceType: "p5.48xlarge", Spot: spot}
}

func everywhere(cloud.Place) bool { return true }

// TestWhatWasLearnedIsReadAsItWasWritten: a status, stored and read again, knows the same of each place, so that a restart
// changes no choice. Times are whole seconds, as the program observes them.
func TestWhatWasLearnedIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, now := &cloud.Learned{}, noon
		for range rapid.IntRange(1, 30).Draw(t, "observations") {
			now = now.Add(time.Duration(rapid.IntRange(1, 9000).Draw(t, "seconds")) * time.Second)
			p, n := place(rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "zone"), rapid.Bool().Draw(t, "spot")), rapid.IntRange(1, 9).Draw(t, "nodes")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				l.Obtained(p, n, now)
				l.Started(p, time.Duration(rapid.IntRange(1, 4000).Draw(t, "start-up"))*4*time.Second)
			case 1:
				l.Running(p, now)
			case 2:
				l.Lost(p, n, now)
			default:
				l.StockOut(p, n, now)
			}
		}
		text, err := json.Marshal(v1alpha1.CloudOfferStatus{Places: Places(l, everywhere, now)})
		if err != nil {
			t.Fatal(err)
		}
		offers := make([]v1alpha1.CloudOffer, 2) // one of which knows nothing
		if err := json.Unmarshal(text, &offers[1].Status); err != nil {
			t.Fatal(err)
		}
		was, is := l.List(), Learned(offers, now).List()
		if len(was) != len(is) {
			t.Fatalf("%d places of %d", len(is), len(was))
		}
		for i := range was {
			// A mean of start-up times is stored to the second.
			if d := was[i].StartUpHours - is[i].StartUpHours; d > 0.51/3600 || d < -0.51/3600 {
				t.Fatalf("start-up %v, read %v", was[i].StartUpHours, is[i].StartUpHours)
			}
			was[i].StartUpHours = is[i].StartUpHours
			for _, s := range []*cloud.Seen{&was[i], &is[i]} {
				s.At, s.Since, s.ClosedUntil = s.At.UTC().Truncate(time.Second), s.Since.UTC().Truncate(time.Second), s.ClosedUntil.UTC()
			}
			if !reflect.DeepEqual(was[i], is[i]) {
				t.Fatalf("%+v\nread %+v", was[i], is[i])
			}
		}
	})
}

// Of a place that two CloudOffers sell, the last word counts; a CloudOffer writes of its own places alone; numbers that
// somebody broke are none.
func TestPlacesOfSeveralCloudOffers(t *testing.T) {
	first, second := &cloud.Learned{}, &cloud.Learned{}
	first.StockOut(place("a", true), 4, noon)
	second.Obtained(place("a", true), 4, noon.Add(time.Minute))
	second.Obtained(place("b", true), 4, noon)
	offers := make([]v1alpha1.CloudOffer, 2)
	offers[0].Status.Places = Places(second, everywhere, noon)
	offers[1].Status.Places = Places(first, everywhere, noon)
	if seen := Learned(offers, noon).Of(place("a", true)); !seen.Obtainable || seen.Failures != 0 {
		t.Errorf("%+v", seen)
	}
	if list := Places(second, func(p cloud.Place) bool { return p.Zone == "b" }, noon); len(list) != 1 || list[0].Zone != "b" {
		t.Errorf("%+v", list)
	}
	offers[1].Status.Places[0].LastSeen = metav1.NewTime(noon.AddDate(1, 0, 0)) // by a leader whose clock was a year ahead
	if seen := Learned(offers, noon.Add(time.Hour)).Of(place("a", true)); !seen.Obtainable {
		t.Errorf("what is seen in a year counts now: %+v", seen)
	}
	for _, text := range []string{"NaN", "-1", "1e300", "x"} {
		offers[0].Status.Places[0].History.UpHours = text
		if seen := Learned(offers, noon).Of(place("a", true)); seen.UpHours != 0 {
			t.Errorf("%s is %v", text, seen.UpHours)
		}
	}
	many := &cloud.Learned{}
	for i := range mostPlaces + 50 {
		p := place("a", true)
		p.InstanceType = time.Duration(i).String()
		many.Obtained(p, 1, noon.Add(time.Duration(i)*time.Minute))
	}
	list := Places(many, everywhere, noon)
	oldest := list[0].LastSeen.Time
	for i := range list {
		if list[i].LastSeen.Time.Before(oldest) {
			oldest = list[i].LastSeen.Time
		}
	}
	if len(list) != mostPlaces || !oldest.Equal(noon.Add(50*time.Minute)) {
		t.Errorf("%d places, the oldest of %v", len(list), oldest)
	}
}

// The price is that of the cheapest place that is open. Only if all are closed is the flavor.
func TestClosedPlaces(t *testing.T) {
	spec := v1alpha1.CloudOfferSpec{Match: v1alpha1.Match{GPUs: []string{"H100"}, CapacityType: v1alpha1.Spot}}
	l := &cloud.Learned{}
	l.StockOut(cloud.Place{Cloud: "aws", Region: "us-east-1", Zone: "use1-az1", InstanceType: "p5.48xlarge", Spot: true}, 8, noon)
	status, err := assess(of(spec), matching(of(spec), table), l, noon.Add(time.Second))
	if err != nil || status.ClosedUntil != nil || status.PricePerHour != "6.5" {
		t.Errorf("%v %+v", err, status)
	}
	dear := cloud.Place{Cloud: "gcp", Region: "us-central1", Zone: "us-central1-a", InstanceType: "a3-highgpu-8g", Spot: true}
	l.StockOut(dear, 2, noon.Add(time.Minute))
	status, err = assess(of(spec), matching(of(spec), table), l, noon.Add(time.Minute))
	if err != nil || status.ClosedUntil == nil || !status.ClosedUntil.Time.Equal(noon.Add(2*time.Minute)) || status.PricePerHour != "5" {
		t.Errorf("%v %+v", err, status)
	}
	l.Obtained(dear, 2, noon.Add(2*time.Minute))
	l.Started(dear, 3*time.Minute)
	status, err = assess(of(spec), matching(of(spec), table), l, noon.Add(2*time.Minute+time.Second))
	if err != nil || status.ClosedUntil != nil || status.PricePerHour != "5" {
		t.Errorf("what was closed longest ago may sell again: %v %+v", err, status)
	}
}

// Each place has what its nodes cost by the table now. Who writes what was learned leaves the prices, and a place that is not sold any more has
// none; what was learned of it is there still.
func TestPricesOfPlaces(t *testing.T) {
	l := &cloud.Learned{}
	l.Obtained(place("use1-az1", true), 2, noon)
	l.StockOut(place("use1-az9", true), 2, noon)
	offer := of(v1alpha1.CloudOfferSpec{})
	offer.Status.Places = Places(l, everywhere, noon)
	prices := func(what, want string) {
		t.Helper()
		got := ""
		for i := range offer.Status.Places {
			got += offer.Status.Places[i].Zone + "=" + offer.Status.Places[i].PricePerHour + " "
		}
		if got != want || !SamePlaces(offer.Status.Places, Places(l, everywhere, noon)) {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	assessed := func(table string) {
		status, err := assess(offer, matching(offer, table), l, noon)
		if err != nil {
			t.Fatal(err)
		}
		offer.Status.Places = status.Places
	}
	assessed(table)
	prices("sold", "use1-az1=40 use1-az9= ")
	l.Running(place("use1-az1", true), noon.Add(time.Minute))
	offer.Status.Places = WithPricesOf(Places(l, everywhere, noon), offer.Status.Places)
	prices("something is learned", "use1-az1=40 use1-az9= ")
	assessed(strings.ReplaceAll(table, "98.32,40", "98.32,41.5"))
	prices("another price", "use1-az1=41.5 use1-az9= ")
	assessed(strings.ReplaceAll(table, "98.32,40", "98.32,"))
	prices("sold on demand alone", "use1-az1= use1-az9= ")
}
