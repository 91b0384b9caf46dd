package cloud_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elastic-ai/elastic/internal/cloud"
)

// at is an offer of a cluster in one region, where a card costs so much.
func at(cluster string, price float64, change ...func(*cloud.ClusterOffer)) cloud.ClusterOffer {
	o := cloud.ClusterOffer{
		Cluster: cluster, Resource: "gpu", Egress: cloud.Egress{OtherRegion: 0.02, OtherCloud: 0.09},
		Prices: []cloud.RegionPrice{{Cloud: "aws", Region: cluster, Price: price, StartUp: 6 * time.Minute}},
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

func lossy(rate float64) func(*cloud.ClusterOffer) {
	return func(o *cloud.ClusterOffer) { o.Prices[0].LossRate = rate }
}

func starts(after time.Duration) func(*cloud.ClusterOffer) {
	return func(o *cloud.ClusterOffer) { o.Prices[0].StartUp = after }
}

func ofSize(cards float64) func(*cloud.ClusterOffer) {
	return func(o *cloud.ClusterOffer) { o.Prices[0].Size = cards }
}

func soldOut(o *cloud.ClusterOffer) { o.ClosedUntil = start.Add(time.Hour) }

func noPrice(o *cloud.ClusterOffer) { o.Prices = nil }

func TestOrderClusters(t *testing.T) {
	for name, test := range map[string]struct {
		job      cloud.Job
		amount   float64
		input    cloud.Input
		offers   []cloud.ClusterOffer
		clusters string
		want     string
	}{
		"without offers the order given": {clusters: "west lab east", want: "west owned, lab owned, east owned"},
		"owned ones first, then the cheapest": {
			clusters: "east lab west", offers: []cloud.ClusterOffer{at("east", 5), at("west", 2)},
			want: "lab owned, west 16.40, east 41.00", // 2 cards, 4 h and 6 min of start-up
			job:  cloud.Job{Left: 4 * time.Hour}, amount: 2,
		},
		"losses make a low price dear": {
			clusters: "east west", offers: []cloud.ClusterOffer{at("east", 5), at("west", 4, lossy(0.25))},
			want: "east 41.00, west 49.60", // one loss: 6 min of start-up and half of 4 h more
			job:  cloud.Job{Left: 4 * time.Hour}, amount: 2,
		},
		"but less where work is saved": {
			clusters: "east west", offers: []cloud.ClusterOffer{at("east", 5), at("west", 4, lossy(0.25))},
			want: "west 35.60, east 41.00",
			job:  cloud.Job{Left: 4 * time.Hour, Checkpoint: 30 * time.Minute}, amount: 2,
		},
		"a long start-up counts for short jobs": {
			clusters: "east west", offers: []cloud.ClusterOffer{at("east", 2), at("west", 1.8, starts(time.Hour))},
			want: "east 0.70, west 2.25",
			job:  cloud.Job{Left: 15 * time.Minute}, amount: 1,
		},
		"and what an hour is worth": {
			clusters: "east west", offers: []cloud.ClusterOffer{at("east", 2), at("west", 1, starts(time.Hour))},
			want: "east 27.30, west 36.00",
			job:  cloud.Job{Left: 2 * time.Hour, DelayPrice: 11}, amount: 1,
		},
		"whole machines are paid for": {
			clusters: "east west", offers: []cloud.ClusterOffer{at("east", 2, ofSize(8)), at("west", 5, ofSize(1))},
			want: "west 11.00, east 17.60",
			job:  cloud.Job{Left: time.Hour}, amount: 2,
		},
		"as few as will do": {
			clusters: "east west", offers: []cloud.ClusterOffer{at("east", 2, ofSize(8)), at("west", 5, ofSize(1))},
			want: "east 35.20, west 49.50",
			job:  cloud.Job{Left: time.Hour}, amount: 9,
		},
		"the input lies in the dearer region": {
			clusters: "east west", offers: []cloud.ClusterOffer{at("east", 5), at("west", 4)},
			want: "east 5.50, west 24.40",
			job:  cloud.Job{Left: time.Hour}, amount: 1, input: cloud.Input{Cloud: "aws", Region: "east", GiB: 1000},
		},
		"of several offers of a cluster the one that costs least": {
			clusters: "east west", offers: []cloud.ClusterOffer{at("east", 9), at("west", 4), at("east", 1), at("east", 0.1, soldOut), at("east", 0.1, noPrice)},
			want: "east 1.10, west 4.40",
			job:  cloud.Job{Left: time.Hour}, amount: 1,
		},
		"closed ones after all that are open, and then those without a price": {
			clusters: "a b c d", offers: []cloud.ClusterOffer{at("a", 0, noPrice), at("b", 1, soldOut), at("c", 9)},
			want: "d owned, c 9.90, b 1.10 closed, a unpriced",
			job:  cloud.Job{Left: time.Hour}, amount: 1,
		},
		"a price of something else": {
			clusters: "west lab", offers: []cloud.ClusterOffer{at("west", 4)},
			want: "lab owned, west 0.00",
			job:  cloud.Job{Left: time.Hour},
		},
	} {
		t.Run(name, func(t *testing.T) {
			costs := cloud.OrderClusters(&test.job, map[string]float64{"gpu": test.amount}, test.input, strings.Fields(test.clusters), test.offers, start)
			if got := text(costs); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func text(costs []cloud.ClusterCost) string {
	parts := make([]string, len(costs))
	for i, c := range costs {
		switch c.Kind {
		case cloud.Owned:
			parts[i] = c.Cluster + " owned"
		case cloud.Unpriced:
			parts[i] = c.Cluster + " unpriced"
		case cloud.Closed:
			parts[i] = fmt.Sprintf("%s %.2f closed", c.Cluster, c.Cost)
		case cloud.Open:
			parts[i] = fmt.Sprintf("%s %.2f", c.Cluster, c.Cost)
		}
	}
	return strings.Join(parts, ", ")
}

// A cluster costs what buying the same machines here would: one formula for both.
func TestAClusterCostsWhatItsMachinesCost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := &cloud.Job{
			Machines: rapid.IntRange(1, 64).Draw(t, "machines"), Left: time.Duration(rapid.IntRange(1, 6000).Draw(t, "minutes")) * time.Minute,
			Checkpoint: time.Duration(rapid.IntRange(0, 90).Draw(t, "checkpoint")) * time.Minute, DelayPrice: rapid.Float64Range(0, 100).Draw(t, "delay"),
		}
		o := &cloud.Offer{Place: place("a", rapid.Bool().Draw(t, "spot")), Price: rapid.Float64Range(0.01, 500).Draw(t, "price"), Fixed: 3}
		l := &cloud.Learned{}
		l.Obtained(o.Place, 1, start.Add(-time.Hour))
		l.Started(o.Place, 7*time.Minute)
		rate := 0.0
		if o.Spot {
			rate = l.Of(o.Place).LossRate(start, max(j.Left.Hours(), 1))
		}
		there := cloud.ClusterOffer{
			Cluster: "there", Resource: "machines", Egress: cloud.Egress{OtherCloud: 1},
			Prices: []cloud.RegionPrice{{Cloud: "aws", Price: o.Price, Size: 1, StartUp: 7 * time.Minute, LossRate: rate}},
		}
		want := cloud.ExpectedCost(j, o, l, start)
		got := cloud.OrderClusters(j, map[string]float64{"machines": float64(j.Machines)}, cloud.Input{Cloud: "gcp", GiB: 3}, []string{"there"}, []cloud.ClusterOffer{there}, start)[0].Cost
		if math.Abs(got-want) > 1e-6*want {
			t.Fatalf("%v there, %v here", got, want)
		}
	})
}

// Whatever the offers, each cluster is in the order once, and none comes before one that is better.
func TestEveryClusterHasAPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c", "d", "e"}
		var offers []cloud.ClusterOffer
		for range rapid.IntRange(0, 8).Draw(t, "offers") {
			o := at(rapid.SampledFrom(append(names, "unknown")).Draw(t, "cluster"), rapid.Float64Range(0, 9).Draw(t, "price"))
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				noPrice(&o)
			case 1:
				soldOut(&o)
			}
			offers = append(offers, o)
		}
		costs := cloud.OrderClusters(&cloud.Job{Left: time.Hour}, map[string]float64{"gpu": 1}, cloud.Input{}, names, offers, start)
		var got []string
		for i, c := range costs {
			got = append(got, c.Cluster)
			if i > 0 && (c.Kind < costs[i-1].Kind || c.Kind == costs[i-1].Kind && c.Cost < costs[i-1].Cost) {
				t.Fatalf("%s comes before %s", costs[i-1].Cluster, c.Cluster)
			}
			if owned := !slices.ContainsFunc(offers, func(o cloud.ClusterOffer) bool { return o.Cluster == c.Cluster }); owned != (c.Kind == cloud.Owned) {
				t.Fatalf("%s is %v", c.Cluster, c.Kind)
			}
		}
		if slices.Sort(got); !slices.Equal(got, names) {
			t.Fatalf("%v", got)
		}
	})
}
