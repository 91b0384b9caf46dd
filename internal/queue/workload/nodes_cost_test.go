package workload

import (
	"math"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/budget"
)

// buy has a workload admitted, on nodes that were ordered before.
func buy(wl *kueue.Workload, price string, ordered, admitted time.Time) {
	set(wl, kueue.WorkloadAdmitted, true, "Admitted", "", admitted)
	wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "nodes", State: kueue.CheckStateReady, PodSetUpdates: []kueue.PodSetUpdate{{
		Name: "workers", NodeSelector: map[string]string{cloudv1.PurchaseLabel: "1-1"},
		Annotations: map[string]string{cloudv1.PriceAnnotation: price, cloudv1.BoughtAtAnnotation: ordered.Format(time.RFC3339)},
	}}}}
}

// unbudgeted is a workload with quota since began that uses no budget.
func unbudgeted() *kueue.Workload {
	wl := metered()
	wl.Finalizers = nil
	set(wl, kueue.WorkloadAdmitted, false, "Pending", "", began)
	return wl
}

// What a workload cost is what all its runs cost: each from the order of its nodes until its quota was given back, also where no budget counts it, and
// what is written with each of them.
func TestCostOfAllRuns(t *testing.T) {
	cost := func(wl *kueue.Workload, at time.Time, want float64) {
		t.Helper()
		patch, err := AdmissionPatch(wl)
		if err != nil {
			t.Fatal(err)
		}
		c, bought := CostOf(wl)
		if got := c.At(at); !bought || math.Abs(got-want) > 1e-4 {
			t.Errorf("%v, %v, want %v", got, bought, want)
		}
		if want > 0 && c.Since.IsZero() && !strings.Contains(string(patch), earlierRunsCondition) {
			t.Errorf("it is not written: %s", patch)
		}
	}
	wl := unbudgeted()
	if _, bought := CostOf(wl); bought {
		t.Error("nothing was bought yet")
	}
	buy(wl, "40.00", began.Add(15*time.Minute), began.Add(30*time.Minute))
	cost(wl, began.Add(time.Hour), 30)
	Evict(wl, "MachineLost", "", "", began.Add(time.Hour))
	cost(wl, began.Add(75*time.Minute), 40) // its pods have them until they have stopped
	Release(wl, "", began.Add(75*time.Minute))
	cost(wl, began.Add(5*time.Hour), 40)
	Release(wl, "", began.Add(6*time.Hour))
	cost(wl, began.Add(7*time.Hour), 40)

	second := began.Add(10 * time.Hour)
	Admit(wl, &admission.Admission{Queue: "cq"}, []string{"nodes"}, second)
	cost(wl, second.Add(time.Hour), 40) // what is paid until it starts counts then
	buy(wl, "10.00", second, second.Add(30*time.Minute))
	cost(wl, second.Add(time.Hour), 50)
	Finish(wl, "Succeeded", "", second.Add(2*time.Hour))
	cost(wl, second.Add(9*time.Hour), 60)
}

// Where others make nodes that have a price, a run costs what that was when it got its quota, from its admission on. What was bought for the flavor,
// as in another cluster, counts instead.
func TestCostAtPricesOfCloudOffers(t *testing.T) {
	wl := unbudgeted()
	NotePrices(wl, func(amounts []budget.Amount) []budget.Amount {
		if len(amounts) != 2 || amounts[1] != (budget.Amount{Flavor: "h100", Resource: "nvidia.com/gpu", Units: 8}) {
			t.Errorf("asked for the price of %+v", amounts)
		}
		return []budget.Amount{{Flavor: "h100", Resource: budget.Money, Units: 16_000_000}}
	}, began)
	if c, known := CostOf(wl); known || c.At(ended) != 0 {
		t.Errorf("it is not admitted yet: %+v", c)
	}
	set(wl, kueue.WorkloadAdmitted, true, "Admitted", "", began.Add(30*time.Minute))
	if run, _ := LastRun(wl); len(run.Amounts) != 2 {
		t.Errorf("budgets have the price of when the run ends: %+v", run.Amounts)
	}
	if c, known := CostOf(wl); !known || c.PerHour != 16 || c.At(ended) != 16 {
		t.Errorf("it runs: %+v", c)
	}
	bought := wl.DeepCopy()
	buy(bought, "40.00", began.Add(30*time.Minute), began.Add(30*time.Minute))
	if c, _ := CostOf(bought); c.At(ended) != 40 {
		t.Errorf("its nodes are bought: %+v", c)
	}
	Release(wl, "", ended)
	Admit(wl, &admission.Admission{Queue: "cq"}, nil, ended)
	if c, known := CostOf(wl); !known || c.PerHour != 0 || c.At(ended.Add(time.Hour)) != 16 {
		t.Errorf("on a flavor without a price: %+v", c)
	}
}

// Whatever is written where a price or a time should be, a run is not dearer than its time, and a sum that nobody can read is none.
func TestCostIsBounded(t *testing.T) {
	wl := unbudgeted()
	buy(wl, "40.00", time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC), began.Add(time.Hour))
	if c, _ := CostOf(wl); c.Paid != 40 || c.At(began) != 40 {
		t.Errorf("ordered before it had quota: %+v", c)
	}
	for _, text := range []string{"", "NaN US dollars", "-1 US dollars", "1e300 US dollars", "much"} {
		set(wl, earlierRunsCondition, true, "QuotaReleased", text, began)
		if c, _ := CostOf(wl); c.Paid != 40 {
			t.Errorf("%q: %+v", text, c)
		}
	}
	Release(wl, "", began.Add(-time.Hour)) // by a clock that is behind
	if c, bought := CostOf(wl); !bought || c.At(ended) != 40 {
		t.Errorf("released before it began: %+v", c)
	}
}

// Another cluster says what the nodes cost that it bought for its copy. Of each pod no more is believed than the dearest node may cost.
func TestCostElsewhere(t *testing.T) {
	for name, test := range map[string]struct {
		price string
		most  float64
		want  int64
	}{
		"as it says":                     {"40.00", 30, 40_000_000},
		"more than two pods may cost":    {"90.00", 30, 60_000_000},
		"much":                           {"999999", 2e9, 999_999_000_000},
		"no price":                       {"NaN", 30, 0},
		"nothing is known of its prices": {"40.00", 0, 0},
		"a price without a bound":        {"40.00", math.NaN(), 0},
	} {
		here, there := unbudgeted(), unbudgeted()
		here.Spec.PodSets = []kueue.PodSet{{Name: "driver", Count: 1}, {Name: "workers", Count: 1}}
		buy(there, test.price, began.Add(10*time.Minute), began.Add(20*time.Minute))
		there.Status.Admission.PodSetAssignments[1].Flavors["nvidia.com/gpu"] = "theirs"
		NoteBoughtElsewhere(here, there, test.most, began.Add(30*time.Minute))
		set(here, kueue.WorkloadAdmitted, true, "Admitted", "", began.Add(30*time.Minute))
		amounts := boughtAmounts(here)
		if test.want == 0 {
			if len(amounts) > 0 {
				t.Errorf("%s: %+v", name, amounts)
			}
			continue
		}
		if len(amounts) != 1 || amounts[0].Units != test.want || amounts[0].Flavor != "h100" || !amounts[0].Since.Equal(began.Add(10*time.Minute)) {
			t.Errorf("%s: %+v", name, amounts)
		}
		Evict(here, "Preempted", "", "", ended)
		Release(here, "", ended)
		if c, bought := CostOf(here); !bought || math.Abs(c.Paid-float64(test.want)/1e6*80/60) > 1 {
			t.Errorf("%s: after the run %+v", name, c)
		}
	}
	here, there := unbudgeted(), unbudgeted()
	here.Spec.PodSets = []kueue.PodSet{{Name: "driver", Count: 1}, {Name: "workers", Count: 1}}
	NotePrices(there, func([]budget.Amount) []budget.Amount {
		return []budget.Amount{{Flavor: "theirs", Resource: budget.Money, Units: 16_000_000}}
	}, began)
	NoteBoughtElsewhere(here, there, 5, ended)
	set(here, kueue.WorkloadAdmitted, true, "Admitted", "", ended)
	if got := boughtAmounts(here); len(got) != 1 || got[0].Units != 10_000_000 || got[0].Flavor != "h100" || !got[0].Since.Equal(ended) {
		t.Errorf("at the price of a flavor there: %+v", got)
	}
	wl := unbudgeted()
	wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: boughtCondition, Status: metav1.ConditionTrue, Message: `[{"flavor":"h100","resource":"` + budget.Money + `","units":-5}]`})
	set(wl, kueue.WorkloadAdmitted, true, "Admitted", "", began)
	if got := boughtAmounts(wl); len(got) > 0 {
		t.Errorf("less than nothing: %+v", got)
	}
}
