package multicluster

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cloud"
)

// priced is what a card costs an hour in a cluster; 0: nobody knows.
func priced(cluster string, price float64, closed bool) cloud.ClusterOffer {
	o := cloud.ClusterOffer{Cluster: cluster, Resource: "nvidia.com/gpu"}
	if price > 0 {
		o.Prices = []cloud.RegionPrice{{Price: price}}
	}
	if closed {
		o.ClosedUntil = noon.Add(24 * time.Hour)
	}
	return o
}

// Clusters are nominated in the order of expected cost, those that cost the same together, and none whose price nobody knows.
func TestCheapest(t *testing.T) {
	remotes := []remoteState{at("a", nil), at("b", nil), at("c", nil), lost("x", noon), at("d", nil), at("e", nil)}
	offers := []cloud.ClusterOffer{priced("a", 9, false), priced("b", 2, true), priced("c", 3, false), priced("e", 0, false), priced("x", 1, false)}
	for name, test := range map[string]struct {
		offers  []cloud.ClusterOffer
		before  []string
		after   time.Duration
		want    []string
		waiting time.Duration
	}{
		"without prices as the incremental dispatcher":   {want: []string{"a", "b"}, waiting: round},
		"a round later, too":                             {before: []string{"a", "b"}, after: round, want: []string{"a", "b", "c", "d"}, waiting: round},
		"the owned one, although more may go at once":    {offers: offers, want: []string{"d"}, waiting: round},
		"not before the round is over":                   {offers: offers, before: []string{"d"}, after: time.Minute, want: []string{"d"}, waiting: 4 * time.Minute},
		"then the cheapest":                              {offers: offers, before: []string{"d"}, after: round, want: []string{"d", "c"}, waiting: round},
		"a leader that comes late has missed no round":   {offers: offers, after: 2 * round, want: []string{"d", "c", "a"}, waiting: round},
		"what is sold out at last, and one without none": {offers: offers, after: time.Hour, want: []string{"d", "c", "a", "b"}},
		"one that has no price any more is taken back":   {offers: offers, before: []string{"e", "d"}, want: []string{"d"}, waiting: round},
		"one that got dearer stays":                      {offers: offers, before: []string{"a"}, want: []string{"a", "d"}, waiting: round},
		"those that cost the same together": {
			offers: []cloud.ClusterOffer{priced("a", 4, false), priced("b", 5, false), priced("c", 4, false), priced("d", 4, false), priced("e", 5, false)},
			want:   []string{"a", "c"}, waiting: round,
		},
		"no price at all": {
			offers: []cloud.ClusterOffer{priced("a", 0, false), priced("b", 0, false), priced("c", 0, false), priced("d", 0, false), priced("e", 0, false)},
			before: []string{"a"}, want: []string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			wl := waiting(nominated(test.before...))
			s := situation{local: wl, check: &wl.Status.AdmissionChecks[0], remotes: remotes, offers: test.offers, now: noon.Add(test.after)}
			wl.Status.Admission.PodSetAssignments = []kueue.PodSetAssignment{{ResourceUsage: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}}}
			d := dispatcher{name: v1alpha1.CheapestDispatcher, step: 2}
			if got, again := d.nominate(&s); !slices.Equal(got, test.want) || again != test.waiting {
				t.Errorf("got %v and again after %s, want %v after %s", got, again, test.want, test.waiting)
			}
		})
	}
}

// What was nominated at which cost is written with the nomination, and not whenever a price changes. Where nothing can be
// nominated, that is said once. No other dispatcher says anything.
func TestCheapestSays(t *testing.T) {
	wl := waiting()
	wl.Status.Admission.PodSetAssignments = []kueue.PodSetAssignment{{ResourceUsage: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}}}
	s := situation{
		local: wl, check: &wl.Status.AdmissionChecks[0], remotes: []remoteState{at("a", nil), at("b", nil), at("c", nil), at("d", nil)}, now: noon,
		offers: []cloud.ClusterOffer{priced("a", 9, false), priced("b", 2.5, true), priced("d", 0, false)},
	}
	cheapest := settings{dispatcher: dispatcher{name: v1alpha1.CheapestDispatcher, step: 3}}
	p := decide(s, cheapest)
	want := "Nominated c; expected cost for 1h0m0s in USD: c nothing more, a 18.00, b 5.00 (not to be had until 2026-11-16T12:00:00Z), d (it has no price, or costs more than it may)"
	if !slices.Equal(p.nominate, []string{"c"}) || p.say != want {
		t.Errorf("nominated %v, says %q", p.nominate, p.say)
	}
	wl.Status.NominatedClusterNames, s.offers[0] = []string{"c"}, priced("a", 8, false)
	if p := decide(s, cheapest); p.nominate != nil || p.say != "" || !slices.Equal(p.create, []string{"c"}) {
		t.Errorf("another price led to %+v", p)
	}
	s.remotes, s.offers, wl.Status.NominatedClusterNames = s.remotes[3:], s.offers[2:], []string{"d"} // it had a price until now
	p = decide(s, cheapest)
	want = "No cluster is nominated; expected cost for 1h0m0s in USD: d (it has no price, or costs more than it may)"
	if p.nominate == nil || len(p.nominate) > 0 || p.say != want {
		t.Errorf("nominated %v, says %q", p.nominate, p.say)
	}
	wl.Status.NominatedClusterNames, s.check.Message = nil, want
	if p := decide(s, cheapest); p.say != "" || p.nominate != nil {
		t.Errorf("said again: %+v", p)
	}
	if p := decide(s, settings{dispatcher: dispatcher{name: kueueconfig.MultiKueueDispatcherModeIncremental, step: 3}}); p.say != "" {
		t.Errorf("Kueue's dispatcher says %q", p.say)
	}
}
