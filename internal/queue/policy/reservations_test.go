package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

func reservation(start, duration, zone string) v1alpha1.Reservation {
	return v1alpha1.Reservation{
		Name: "r", Start: start, Duration: v1alpha1.Duration(duration), TimeZone: zone,
		Quotas: []v1alpha1.ReservedQuota{{Flavor: "h100", Resource: "nvidia.com/gpu", Amount: resource.MustParse("8")}},
	}
}

// Dates and times are of a time zone, whatever its clocks do; those that come again touch or overlap in one.
func TestReservationTimes(t *testing.T) {
	for _, test := range []struct{ start, duration, zone, now, want string }{
		{"2026-12-01T08:00", "2h", "Europe/Berlin", "2026-11-20T00:00:00Z", "2026-12-01T07:00:00Z/2h0m0s"},
		{"2026-07-01T08:00", "2h", "Europe/Berlin", "2026-06-20T00:00:00Z", "2026-07-01T06:00:00Z/2h0m0s"},
		{"2028-07-01T08:00:30", "2h", "", "2026-06-20T00:00:00Z", "2028-07-01T08:00:30Z/2h0m0s"}, // however far ahead
		{"2026-07-01T08:00", "2h", "", "2026-07-01T09:59:59Z", "2026-07-01T08:00:00Z/2h0m0s"},
		{"2026-07-01T08:00", "2h", "", "2026-07-01T10:00:00Z", ""},
		{"2026-03-29T02:30", "1h", "Europe/Berlin", "2026-03-01T00:00:00Z", "2026-03-29T01:30:00Z/1h0m0s"}, // a time that does not exist
		{"0 8 * * 0", "1h", "Europe/Berlin", "2026-03-21T00:00:00Z", "2026-03-22T07:00:00Z/1h0m0s 2026-03-29T06:00:00Z/1h0m0s 2026-04-05T06:00:00Z/1h0m0s 2026-04-12T06:00:00Z/1h0m0s 2026-04-19T06:00:00Z/1h0m0s"},
		{"0 8 29 2 *", "1h", "", "2026-03-01T00:00:00Z", "2028-02-29T08:00:00Z/1h0m0s"},
		{"*/2 * * * *", "1m", "", "2026-03-01T00:00:30Z", "2026-03-01T00:00:00Z/1m0s 2026-03-01T00:02:00Z/1m0s"},
	} {
		now, err := time.Parse(time.RFC3339, test.now)
		if err != nil {
			t.Fatal(err)
		}
		r := Reservation{Reservation: reservation(test.start, test.duration, test.zone)}
		spans, again := r.Times(now)
		var got []string
		for _, s := range spans {
			got = append(got, s.From.UTC().Format(time.RFC3339)+"/"+s.Until.Sub(s.From).String())
		}
		if text := strings.Join(got, " "); !strings.HasPrefix(text, test.want) || test.want == "" && text != "" || len(spans) > mostSpans {
			t.Errorf("%s in %s: %s", test.start, test.zone, text)
		}
		if len(spans) > 0 && (!again.After(now) || again.After(now.Add(24*time.Hour)) || again.After(spans[0].Until)) {
			t.Errorf("%s: asks again at %s", test.start, again)
		}
		for i := 1; i < len(spans); i++ {
			if !spans[i].From.After(spans[i-1].Until) {
				t.Errorf("%s: %v", test.start, spans)
			}
		}
	}
	always := Reservation{Reservation: reservation("0 * * * *", "1h", "")}
	if spans, _ := always.Times(time.Date(2026, 3, 1, 0, 30, 0, 0, time.UTC)); len(spans) != 1 || spans[0].Until.Sub(spans[0].From) < reservedAhead {
		t.Errorf("one that is always: %v", spans)
	}
}

func TestReservationsAreChecked(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.QueuePolicySpec){
		"":                        func(*v1alpha1.QueuePolicySpec) {},
		"r: start: ":              func(s *v1alpha1.QueuePolicySpec) { s.Reservations[0].Start = "tomorrow at eight" },
		"r: duration: 0s is less": func(s *v1alpha1.QueuePolicySpec) { s.Reservations[0].Duration = "0s" },
		"r: duration: 721h must":  func(s *v1alpha1.QueuePolicySpec) { s.Reservations[0].Duration = "721h" },
		"r: timeZone: unknown":    func(s *v1alpha1.QueuePolicySpec) { s.Reservations[0].TimeZone = "Mars/Olympus" },
		"r: there are two":        func(s *v1alpha1.QueuePolicySpec) { s.Reservations = append(s.Reservations, s.Reservations[0]) },
		"r: quotas: it reserves":  func(s *v1alpha1.QueuePolicySpec) { s.Reservations[0].Quotas = nil },
		"r: nodes: 65 are more": func(s *v1alpha1.QueuePolicySpec) {
			for i := range 65 {
				s.Reservations[0].Nodes = append(s.Reservations[0].Nodes, fmt.Sprint("n", i))
			}
		},
		"r: nodes: n1 is there twice":           func(s *v1alpha1.QueuePolicySpec) { s.Reservations[0].Nodes = []string{"n1", "n1"} },
		`r: nodes: "Über" is no name of a node`: func(s *v1alpha1.QueuePolicySpec) { s.Reservations[0].Nodes = []string{"Über"} },
		"0 must be more than 0":                 func(s *v1alpha1.QueuePolicySpec) { s.Reservations[0].Quotas[0].Amount = resource.MustParse("0") },
		"2E must be more than 0":                func(s *v1alpha1.QueuePolicySpec) { s.Reservations[0].Quotas[0].Amount = resource.MustParse("2E") },
		"is no kind and name":                   func(s *v1alpha1.QueuePolicySpec) { s.Reservations[0].Job = "paper" },
		"target that LocalQueue": func(s *v1alpha1.QueuePolicySpec) {
			s.Reservations[0].Job, s.TargetRefs[0] = "job/paper", v1alpha1.TargetRef{Kind: v1alpha1.KindClusterQueue, Name: "a"}
		},
		"means something at a Clu": func(s *v1alpha1.QueuePolicySpec) {
			s.TargetRefs[0] = v1alpha1.TargetRef{Kind: v1alpha1.KindCohort, Name: "top"}
		},
		"no ResourceFlavor h200": func(s *v1alpha1.QueuePolicySpec) { s.Reservations[0].Quotas[0].Flavor = "h200" },
	} {
		p := policy("p", 0, "LocalQueue/team/main")
		p.Spec.Preemption = nil
		p.Spec.Reservations = []v1alpha1.Reservation{reservation("2026-12-01T08:00", "2h", "Europe/Berlin")}
		change(&p.Spec)
		world := tree()
		world.Flavors = map[string]bool{"h100": true}
		r := Resolve([]*v1alpha1.QueuePolicy{p}, world)
		_, accepted := r.Status(p)
		if want == "" {
			if accepted.Reason != v1alpha1.ReasonAccepted || len(r.Reservations()) != 1 {
				t.Errorf("%+v", accepted)
			}
			continue
		}
		if !strings.Contains(accepted.Message, "spec.reservations") || !strings.Contains(accepted.Message, want) {
			t.Errorf("%q: %+v", want, accepted)
		}
	}
}

// Those of a LocalQueue and of its ClusterQueue are in force side by side.
func TestReservationsInForce(t *testing.T) {
	world := tree()
	world.Flavors = map[string]bool{"h100": true}
	both := policy("both", 0, "LocalQueue/team/main ClusterQueue/a")
	both.Spec.Preemption, both.Spec.Reservations = nil, []v1alpha1.Reservation{reservation("0 8 * * 2", "2h", "")}
	r := Resolve([]*v1alpha1.QueuePolicy{both}, world)
	var got []string
	for _, one := range r.Reservations() {
		got = append(got, one.ID()+" for "+one.Whom())
	}
	if fmt.Sprint(got) != "[ClusterQueue/a, r for ClusterQueue/a LocalQueue/team/main, r for LocalQueue/team/main]" {
		t.Error(got)
	}
	if n := len(r.LocalQueue(types.NamespacedName{Namespace: "team", Name: "main"})); n != 2 {
		t.Errorf("%d values in force", n)
	}
}
