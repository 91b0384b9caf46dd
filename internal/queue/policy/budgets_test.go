package policy

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

func euros(edit func(*v1alpha1.Budget)) []v1alpha1.Budget {
	b := v1alpha1.Budget{Period: v1alpha1.PeriodWeek, Amount: resource.MustParse("100"), Currency: "EUR", Rates: []v1alpha1.Rate{{Resource: "nvidia.com/gpu", PerHour: resource.MustParse("2.5")}}}
	if edit != nil {
		edit(&b)
	}
	return []v1alpha1.Budget{b}
}

// What is wrong with a budget is said, with the field.
func TestBudgetsAreChecked(t *testing.T) {
	for want, edit := range map[string]func(*v1alpha1.Budget){
		"":                                     nil,
		`Year: period: "Year" is none of Day`:  func(b *v1alpha1.Budget) { b.Period = "Year" },
		"Week: amount: 0 must be more than 0":  func(b *v1alpha1.Budget) { b.Amount = resource.MustParse("0") },
		"Week: amount: -1 must":                func(b *v1alpha1.Budget) { b.Amount = resource.MustParse("-1") },
		"Week: amount: 1e30 must":              func(b *v1alpha1.Budget) { b.Amount = resource.MustParse("1e30") },
		"Week: timeZone: unknown time zone Lu": func(b *v1alpha1.Budget) { b.TimeZone = "Lummerland" },
		"Week: timeZone: unknown time zone Lo": func(b *v1alpha1.Budget) { b.TimeZone = "Local" },
		`Week: whenSpent: "Panic" is none of`:  func(b *v1alpha1.Budget) { b.WhenSpent = "Panic" },
		"Week: warnAt: 0 must":                 func(b *v1alpha1.Budget) { b.WarnAt = ptr.To[int32](0) },
		"Week: rates: EUR needs some":          func(b *v1alpha1.Budget) { b.Rates = nil },
		`flavor "": -1 must be at least 0`:     func(b *v1alpha1.Budget) { b.Rates[0].PerHour = resource.MustParse("-1") },
		"at most 1M":                           func(b *v1alpha1.Budget) { b.Rates[0].PerHour = resource.MustParse("2000000") },
		"500n is too fine":                     func(b *v1alpha1.Budget) { b.Rates[0].PerHour = resource.MustParse("500n") },
	} {
		err := checkBudgets(&v1alpha1.QueuePolicySpec{Budgets: euros(edit)})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	dollars := &v1alpha1.QueuePolicySpec{Budgets: euros(func(b *v1alpha1.Budget) { b.Currency, b.Rates = Dollars, nil })}
	if err := checkBudgets(dollars); err != nil || !(&Budget{Budget: dollars.Budgets[0]}).ByOffers() {
		t.Errorf("dollars without rates: %v", err)
	}
	twice := &v1alpha1.QueuePolicySpec{Budgets: append(euros(nil), euros(nil)...)}
	if err := checkBudgets(twice); err == nil || !strings.Contains(err.Error(), "two of this period") {
		t.Error(err)
	}
}

// A flavor's rate is in place of the one of all others; in GPU-hours a card that nobody names costs 1.
func TestBudgetRates(t *testing.T) {
	cards := map[string]float64{"nvidia.com/gpu": 1, "elasticgpu.io/gpu-core": 0.01}
	money := Budget{Budget: euros(func(b *v1alpha1.Budget) {
		b.Rates = append(b.Rates, v1alpha1.Rate{Flavor: "h100", Resource: "nvidia.com/gpu", PerHour: resource.MustParse("4")}, v1alpha1.Rate{Resource: "cpu", PerHour: resource.MustParse("0.02")})
	})[0]}
	rates := money.Rates(cards)
	if rates[""]["nvidia.com/gpu"] != 2_500_000 || rates["h100"]["nvidia.com/gpu"] != 4_000_000 || rates["h100"]["cpu"] != 20 || rates[""]["elasticgpu.io/gpu-core"] != 0 {
		t.Error(rates)
	}
	hours := Budget{Budget: v1alpha1.Budget{Period: v1alpha1.PeriodDay, Amount: resource.MustParse("1000000000"), Rates: []v1alpha1.Rate{{Flavor: "t4", Resource: "nvidia.com/gpu", PerHour: resource.MustParse("0.25")}}}}
	rates = hours.Rates(cards)
	if rates[""]["nvidia.com/gpu"] != 1_000_000 || rates["t4"]["nvidia.com/gpu"] != 250_000 || rates["t4"]["elasticgpu.io/gpu-core"] != 10_000 {
		t.Error(rates)
	}
	amount, one := hours.Units()
	if amount != 1_000_000_000*one || hours.WarnFrom() != amount/10*8 {
		t.Errorf("%d of %d, warns from %d", amount, one, hours.WarnFrom())
	}
	// A card for an hour is one.
	if rates[""]["nvidia.com/gpu"]*int64(time.Hour/time.Second) != one {
		t.Errorf("an hour costs %d, not %d", rates[""]["nvidia.com/gpu"]*3600, one)
	}
}

// Budgets on all levels are in force at once, and flavors that do not exist are told.
func TestBudgetsInForce(t *testing.T) {
	world := World{
		Cohorts: map[string]string{"org": ""}, ClusterQueues: map[string]string{"cq": "org"},
		LocalQueues: map[types.NamespacedName]string{{Namespace: "ns", Name: "main"}: "cq"}, Flavors: map[string]bool{"h100": true},
	}
	policy := func(name string, targets ...v1alpha1.TargetRef) *v1alpha1.QueuePolicy {
		p := &v1alpha1.QueuePolicy{}
		p.Name, p.Spec.TargetRefs, p.Spec.Budgets = name, targets, euros(nil)
		return p
	}
	local := v1alpha1.TargetRef{Kind: v1alpha1.KindLocalQueue, Namespace: "ns", Name: "main"}
	broken := policy("broken", v1alpha1.TargetRef{Kind: v1alpha1.KindClusterQueue, Name: "cq"})
	broken.Spec.Budgets[0].Amount = resource.MustParse("-1")
	unknown := policy("team", local)
	unknown.Spec.Budgets[0].Rates[0].Flavor = "h200"
	r := Resolve([]*v1alpha1.QueuePolicy{policy("org", v1alpha1.TargetRef{Kind: v1alpha1.KindCohort, Name: "org"}), broken, unknown}, world)
	var names []string
	for _, b := range r.Budgets() {
		names = append(names, b.Name())
	}
	if got := strings.Join(names, "; "); got != "Cohort/org, Week; LocalQueue/ns/main, Week" {
		t.Errorf("in force: %s", got)
	}
	if got := r.LocalQueue(types.NamespacedName{Namespace: "ns", Name: "main"}); len(got) != 2 || got[0].Value != "100 EUR a week (UTC, Wait)" || got[1].From != "Cohort/org" {
		t.Errorf("at the LocalQueue: %v", got)
	}
	if got := strings.Join(r.Above(types.NamespacedName{Namespace: "ns", Name: "main"}), " "); got != "LocalQueue/ns/main ClusterQueue/cq Cohort/org" {
		t.Error(got)
	}
	if _, c := r.Status(unknown); c.Reason != v1alpha1.ReasonNoEffect || !strings.Contains(c.Message, "spec.budgets: Week: rates: there is no ResourceFlavor h200") {
		t.Errorf("%+v", c)
	}
	if _, c := r.Status(broken); c.Reason != v1alpha1.ReasonInvalid || !strings.Contains(c.Message, "spec.budgets: Week: amount") {
		t.Errorf("%+v", c)
	}
}
