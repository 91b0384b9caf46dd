package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/budget"
)

// Budget is a budget in force, and what it is on.
type Budget struct {
	v1alpha1.Budget

	On     v1alpha1.TargetRef
	Policy string
}

// Budgets are counted in millionths of their unit an hour, in whole seconds.
const (
	perUnit = 3600 * perHour
	perHour = 1_000_000

	defaultWarnAt = 80
)

var (
	mostAmount = resource.MustParse("1000000000")
	mostRate   = resource.MustParse("1000000")
)

// Name is of no other budget.
func (b *Budget) Name() string { return targetOf(b.On).String() + ", " + string(b.Period) }

// Target is what it is on, as in Cohort/research.
func (b *Budget) Target() string { return targetOf(b.On).String() }

// Unit is what the amount is of.
func (b *Budget) Unit() string { return cmp.Or(b.Currency, "GPU-hours") }

// Dollars is the currency of CloudOffers.
const Dollars = "USD"

// ByOffers says that it is in money, and that CloudOffers have the prices.
func (b *Budget) ByOffers() bool { return b.Currency == Dollars && len(b.Budget.Rates) == 0 }

// Zone is the time zone of its calendar.
func (b *Budget) Zone() string { return cmp.Or(b.TimeZone, "UTC") }

// Units is the amount as it is counted, and how many are one of its unit.
func (b *Budget) Units() (amount, one int64) {
	return b.Amount.ScaledValue(resource.Micro) * 3600, perUnit
}

// WarnFrom is from how much on to warn.
func (b *Budget) WarnFrom() int64 {
	amount, _ := b.Units()
	percent := int64(b.WarnPercent())
	return amount/100*percent + amount%100*percent/100
}

// WarnPercent is the soft line.
func (b *Budget) WarnPercent() int32 {
	if b.WarnAt == nil {
		return defaultWarnAt
	}
	return *b.WarnAt
}

// Rates are what a unit of a resource costs a second, by flavor, "" for those that are not named. Cards are the
// resources that are cards, or parts of them, and how much of one a unit is.
func (b *Budget) Rates(cards map[string]float64) map[string]map[string]int64 {
	others := map[string]int64{}
	if b.ByOffers() {
		others[budget.Money] = 1 // which is counted as budgets are
	}
	if b.Currency == "" {
		for name, part := range cards {
			others[name] = int64(part * perHour)
		}
	}
	for i := range b.Budget.Rates {
		if r := &b.Budget.Rates[i]; r.Flavor == "" {
			others[r.Resource], _ = rate(r)
		}
	}
	rates := map[string]map[string]int64{"": others}
	for i := range b.Budget.Rates {
		r := &b.Budget.Rates[i]
		if r.Flavor == "" {
			continue
		}
		if rates[r.Flavor] == nil {
			rates[r.Flavor] = map[string]int64{}
			for name, other := range others {
				rates[r.Flavor][name] = other
			}
		}
		rates[r.Flavor][r.Resource], _ = rate(r)
	}
	return rates
}

// RateOf a price of a unit for an hour is what that costs a second, as budgets are counted.
func RateOf(resourceName string, price float64) int64 {
	if !(price > 0) { // so that NaN is none
		return 0
	}
	price = min(price, mostRate.AsApproximateFloat64()) * perHour
	if resourceName == string(corev1.ResourceCPU) {
		price /= 1000 // it is counted in thousandths
	}
	return int64(math.Round(price))
}

// rate is what a unit costs a second, as budgets are counted. CPU is counted in thousandths.
func rate(r *v1alpha1.Rate) (int64, error) {
	scale := resource.Micro
	if r.Resource == string(corev1.ResourceCPU) {
		scale = resource.Milli
	}
	n := r.PerHour.ScaledValue(scale)
	if exact := resource.NewScaledQuantity(n, scale); exact.Cmp(r.PerHour) != 0 {
		return n, fmt.Errorf("%s is too fine: count in steps of %s", r.PerHour.String(), resource.NewScaledQuantity(1, scale))
	}
	return n, nil
}

// Budgets are those in force, by name.
func (r *Resolved) Budgets() []Budget {
	var list []Budget
	for t, p := range r.counts {
		if len(p.Spec.Budgets) == 0 || !r.exists(t) || checkBudgets(&p.Spec) != nil {
			continue
		}
		for i := range p.Spec.Budgets {
			list = append(list, Budget{
				Budget: p.Spec.Budgets[i], Policy: p.Name,
				On: v1alpha1.TargetRef{Kind: t.kind, Name: t.name.Name, Namespace: t.name.Namespace},
			})
		}
	}
	slices.SortFunc(list, func(a, b Budget) int { return strings.Compare(a.Name(), b.Name()) })
	return list
}

// Above are the targets that a LocalQueue is, or is below, as Budget.Target has them.
func (r *Resolved) Above(localQueue types.NamespacedName) []string {
	return names(r.path(target{v1alpha1.KindLocalQueue, localQueue}))
}

// AboveClusterQueue are those that a ClusterQueue is, or is below.
func (r *Resolved) AboveClusterQueue(name string) []string {
	return names(r.path(target{v1alpha1.KindClusterQueue, types.NamespacedName{Name: name}}))
}

func names(path []target) []string {
	list := make([]string, len(path))
	for i, t := range path {
		list[i] = t.String()
	}
	return list
}

// budgetsText are budgets in a line.
func budgetsText(s *v1alpha1.QueuePolicySpec) string {
	var list []string
	for i := range s.Budgets {
		b := Budget{Budget: s.Budgets[i]}
		list = append(list, fmt.Sprintf("%s %s a %s (%s, %s)", b.Amount.String(), b.Unit(), strings.ToLower(string(b.Period)), b.Zone(),
			cmp.Or(b.WhenSpent, v1alpha1.WhenSpentWait)))
	}
	return strings.Join(list, ", ")
}

func checkBudgets(s *v1alpha1.QueuePolicySpec) error {
	seen := map[v1alpha1.BudgetPeriod]bool{}
	for i := range s.Budgets {
		b := &s.Budgets[i]
		if err := checkBudget(b); err != nil {
			return fmt.Errorf("%s: %w", b.Period, err)
		}
		if seen[b.Period] {
			return fmt.Errorf("%s: there are two of this period", b.Period)
		}
		seen[b.Period] = true
	}
	return nil
}

func checkBudget(b *v1alpha1.Budget) error {
	if err := oneOf(v1alpha1.PeriodDay, v1alpha1.PeriodWeek, v1alpha1.PeriodMonth)(string(b.Period)); err != nil {
		return fmt.Errorf("period: %w", err)
	}
	if b.Amount.Sign() <= 0 || b.Amount.Cmp(mostAmount) > 0 {
		return fmt.Errorf("amount: %s must be more than 0 and at most %s", b.Amount.String(), mostAmount.String())
	}
	if _, err := time.LoadLocation(b.TimeZone); err != nil || b.TimeZone == "Local" {
		return fmt.Errorf("timeZone: unknown time zone %s", b.TimeZone)
	}
	if err := oneOf("", v1alpha1.WhenSpentWait, v1alpha1.WhenSpentDrain)(string(b.WhenSpent)); err != nil {
		return fmt.Errorf("whenSpent: %w", err)
	}
	if b.WarnAt != nil && (*b.WarnAt < 1 || *b.WarnAt > 100) {
		return fmt.Errorf("warnAt: %d must be at least 1 and at most 100", *b.WarnAt)
	}
	if b.Currency != "" && b.Currency != Dollars && len(b.Rates) == 0 {
		return fmt.Errorf("rates: %s needs some: say what a unit of a resource costs an hour; without rates it is %s, at the prices of CloudOffers", b.Currency, Dollars)
	}
	for i := range b.Rates {
		r := &b.Rates[i]
		if r.PerHour.Sign() < 0 || r.PerHour.Cmp(mostRate) > 0 {
			return fmt.Errorf("rates: %s of flavor %q: %s must be at least 0 and at most %s", r.Resource, r.Flavor, r.PerHour.String(), mostRate.String())
		}
		if _, err := rate(r); err != nil {
			return fmt.Errorf("rates: %s of flavor %q: %w", r.Resource, r.Flavor, err)
		}
	}
	return nil
}

// unknownFlavors are those that rates and reservations name and that do not exist.
func (r *Resolved) unknownFlavors(p *v1alpha1.QueuePolicy) []problem {
	var found []problem
	for i := range p.Spec.Budgets {
		for _, rate := range p.Spec.Budgets[i].Rates {
			if rate.Flavor != "" && !r.world.Flavors[rate.Flavor] {
				found = append(found, problem{v1alpha1.ReasonNoEffect, fmt.Sprintf("spec.%s: %s: rates: there is no ResourceFlavor %s", Budgets, p.Spec.Budgets[i].Period, rate.Flavor)})
			}
		}
	}
	for i := range p.Spec.Reservations {
		for _, q := range p.Spec.Reservations[i].Quotas {
			if !r.world.Flavors[q.Flavor] {
				found = append(found, problem{v1alpha1.ReasonNoEffect, fmt.Sprintf("spec.%s: %s: quotas: there is no ResourceFlavor %s", Reservations, p.Spec.Reservations[i].Name, q.Flavor)})
			}
		}
	}
	return found
}
