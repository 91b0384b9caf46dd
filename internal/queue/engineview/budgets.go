package engineview

import (
	"math/big"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/budget"
	"github.com/elastic-ai/elastic/internal/queue/policy"
)

// BudgetInForce is a budget of a policy, in its period. The engine counts what runs; what runs that are over have spent is
// in accounts.
type BudgetInForce struct {
	policy.Budget

	PerSecond map[string]map[string]int64 // what a unit costs, by flavor and resource
	// Now is the same for what runs, where that is at the prices of CloudOffers; nil: it is not.
	Now    map[string]map[string]int64
	Window budget.Window
}

// NewBudget is a budget whose period is not known yet.
func NewBudget(b policy.Budget) BudgetInForce {
	return BudgetInForce{Budget: b, PerSecond: BudgetRates(&b)}
}

// Begin puts the budget into the period of now, also when the clock went back, and says whether that is another one.
func (b *BudgetInForce) Begin(now time.Time) (began bool, err error) {
	if w := &b.Window; !w.From.IsZero() && !now.Before(w.From) && now.Before(w.Until) {
		return false, nil
	}
	window, err := budget.WindowAt(budget.Period(b.Period), b.Zone(), now)
	if err != nil {
		return false, err
	}
	b.Window = window
	return true, nil
}

// AddWindow adds the period of a budget to those of others, each once.
func (b *BudgetInForce) AddWindow(to []budget.Window) []budget.Window {
	if slices.ContainsFunc(to, func(w budget.Window) bool { return w.Same(b.Window) }) {
		return to
	}
	return append(to, b.Window)
}

// ForEngine is the budget as the engine sees it, of which runs that are over have spent so much.
func (b *BudgetInForce) ForEngine(spent int64) admission.Budget {
	amount, one := b.Units()
	rates := b.PerSecond
	if b.ByOffers() {
		rates = b.Now
	}
	out := admission.Budget{
		Name: b.Name(), From: b.Window.From, Until: b.Window.Until, Amount: amount, Spent: spent, Rates: rates,
		Drain: b.WhenSpent == v1alpha1.WhenSpentDrain,
		On:    b.Target(), Unit: b.Unit(), Period: "a " + strings.ToLower(string(b.Period)), PerUnit: one,
	}
	switch b.On.Kind {
	case v1alpha1.KindLocalQueue:
		out.LocalQueue = admission.Key{Namespace: b.On.Namespace, Name: b.On.Name}
	case v1alpha1.KindClusterQueue:
		out.Queue = b.On.Name
	case v1alpha1.KindCohort:
		out.Cohort = b.On.Name
	}
	return out
}

// IsOf says that what a LocalQueue's workloads use may count for the budget.
func (b *BudgetInForce) IsOf(localQueue types.NamespacedName) bool {
	return b.On.Kind != v1alpha1.KindLocalQueue || b.On.Namespace == localQueue.Namespace && b.On.Name == localQueue.Name
}

// Cost is what an account, and runs that it does not name, have spent of the budget. TargetsOf are what a ClusterQueue is,
// or is below.
func (b *BudgetInForce) Cost(a *budget.Account, runs []budget.Run, targetsOf func(clusterQueue string) []string) int64 {
	return budget.Cost(a.Used(b.Window, runs), b.PerSecond, func(clusterQueue string) bool {
		return b.On.Kind == v1alpha1.KindLocalQueue || slices.Contains(targetsOf(clusterQueue), b.Target())
	})
}

// GPUHours are the hours of cards that were used.
func GPUHours(used []budget.Used) string { return inUnits(used, policy.Budget{}) }

// Dollars are what nodes cost, at the prices of CloudOffers.
func Dollars(used []budget.Used) string {
	return inUnits(used, policy.Budget{Budget: v1alpha1.Budget{Currency: policy.Dollars}})
}

func inUnits(used []budget.Used, b policy.Budget) string {
	_, one := b.Units()
	return Decimal(budget.Cost(used, BudgetRates(&b), func(string) bool { return true }), one)
}

// Decimal is an amount in its unit. Six digits tell a second of a card from another.
func Decimal(v, one int64) string {
	text := big.NewRat(v, one).FloatString(6)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// OfferRates are what a unit costs a second by the prices that CloudOffers have now.
func (o *Objects) OfferRates() map[string]map[string]int64 {
	rates := make(map[string]map[string]int64, len(o.Offers))
	for name, offer := range o.Offers {
		if resource, price, known := PriceOf(offer); known {
			rates[name] = map[string]int64{resource: policy.RateOf(resource, price)}
		}
	}
	return rates
}

// Priced are what amounts cost by the prices that CloudOffers have now, as far as no nodes are bought for each workload.
func (o *Objects) Priced(amounts []budget.Amount) (list []budget.Amount) {
	for _, a := range o.Valued(budget.Run{Amounts: amounts}).Amounts {
		if a.Resource == budget.Money && a.Units > 0 {
			list = append(list, a)
		}
	}
	return list
}

// Valued is a run with what its nodes cost at the prices that CloudOffers have now. Of those that are bought for a workload, here or in another
// cluster, the run tells itself.
func (o *Objects) Valued(r budget.Run) budget.Run {
	if len(o.Offers) == 0 {
		return r
	}
	amounts := slices.Clone(r.Amounts)
	for _, a := range r.Amounts {
		offer := o.Offers[a.Flavor]
		if offer == nil || offer.Spec.NodeClass() != nil || tellsPrice(&r, a.Flavor) {
			continue
		}
		if resource, price, known := PriceOf(offer); known && resource == a.Resource {
			amounts = append(amounts, budget.Amount{Flavor: a.Flavor, Resource: budget.Money, Units: budget.Times(a.Units, policy.RateOf(resource, price))})
		}
	}
	r.Amounts = amounts
	return r
}

func tellsPrice(r *budget.Run, flavor string) bool {
	return slices.ContainsFunc(r.Amounts, func(a budget.Amount) bool { return a.Resource == budget.Money && a.Flavor == flavor })
}
