package queue

import (
	"cmp"
	"context"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/budget"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/metrics"
)

// Budgets tells how much is used of the budgets that a LocalQueue's workloads use, and what these have spent, by period.
func (s *Shell) Budgets(ctx context.Context, localQueue admission.Key) (list []v1alpha1.Budget, spending []v1alpha1.Spending, err error) {
	list = []v1alpha1.Budget{}
	name := types.NamespacedName{Namespace: localQueue.Namespace, Name: localQueue.Name}
	known := false
	s.options.Metrics.Inc("elastic_explanations_total", "budget")
	err = s.ask(ctx, func() {
		known = s.objects.LocalQueues[name] != nil
		spending = s.spending(name)
		targets := s.objects.BudgetTargets(name)
		for _, b := range s.budgets.inForce {
			if slices.Contains(targets, b.Target()) {
				list = append(list, s.budgetReport(b, name))
			}
		}
	})
	if err == nil && !known {
		err = ErrUnknown
	}
	return list, spending, err
}

// spending is what a LocalQueue's workloads have used, by period.
func (s *Shell) spending(localQueue types.NamespacedName) (list []v1alpha1.Spending) {
	a := s.budgets.accounts[localQueue]
	if a == nil {
		return nil
	}
	windows := slices.Clone(s.budgets.windows)
	for i := range a.stored.Sums {
		if w := a.stored.Sums[i].Window; !slices.ContainsFunc(windows, w.Same) {
			windows = append(windows, w)
		}
	}
	slices.SortFunc(windows, func(x, y budget.Window) int {
		return cmp.Or(cmp.Compare(x.Period, y.Period), cmp.Compare(x.Zone, y.Zone), y.From.Compare(x.From))
	})
	runs := s.valued(a.runsSoFar(s.now()))
	for _, w := range windows {
		if used := a.stored.Used(w, runs); len(used) > 0 {
			spent := spendingIn(w, used)
			spent.Users = userSpending(a.stored.UsedBy(w, runs))
			list = append(list, spent)
		}
	}
	return list
}

// spendingIn is what was used in a period, altogether and by flavor.
func spendingIn(w budget.Window, used []budget.Used) v1alpha1.Spending {
	amounts := func(used []budget.Used) (hours, dollars string) {
		return engineview.GPUHours(used), engineview.Dollars(used)
	}
	out := v1alpha1.Spending{Period: string(w.Period), TimeZone: w.Zone, From: metav1.NewTime(w.From), Until: metav1.NewTime(w.Until)}
	out.GPUHours, out.Dollars = amounts(used)
	byFlavor := map[string][]budget.Used{}
	for _, u := range used {
		byFlavor[u.Flavor] = append(byFlavor[u.Flavor], u)
	}
	for _, flavor := range slices.Sorted(maps.Keys(byFlavor)) {
		by := v1alpha1.FlavorSpending{Flavor: flavor}
		if by.GPUHours, by.Dollars = amounts(byFlavor[flavor]); by.GPUHours != "0" || by.Dollars != "0" {
			out.By = append(out.By, by)
		}
	}
	return out
}

// userSpending is what was used in a period by user.
func userSpending(used []budget.UserUsed) (list []v1alpha1.UserSpending) {
	byUser := map[string][]budget.Used{}
	for _, u := range used {
		byUser[u.User] = append(byUser[u.User], budget.Used{Resource: u.Resource, UnitSeconds: u.UnitSeconds})
	}
	for _, user := range slices.Sorted(maps.Keys(byUser)) {
		by := v1alpha1.UserSpending{User: user, GPUHours: engineview.GPUHours(byUser[user]), Dollars: engineview.Dollars(byUser[user])}
		if by.GPUHours != "0" || by.Dollars != "0" {
			list = append(list, by)
		}
	}
	return list
}

func (s *Shell) budgetReport(b *inForce, localQueue types.NamespacedName) v1alpha1.Budget {
	now := s.now()
	use, _ := s.engine.BudgetUse(b.Name(), now)
	amount, one := b.Units()
	here := int64(0)
	if a := s.budgets.accounts[localQueue]; a != nil {
		here = b.Cost(&a.stored, s.valued(a.runsSoFar(now)), s.objects.BudgetTargetsOf)
	}
	used := budget.Plus(use.Spent, use.Committed)
	return v1alpha1.Budget{
		Target: b.Target(), Period: string(b.Period), TimeZone: b.Zone(), From: metav1.NewTime(b.Window.From), Until: metav1.NewTime(b.Window.Until),
		Unit: b.Unit(), Amount: decimal(amount, one), Spent: decimal(use.Spent, one), Committed: decimal(use.Committed, one),
		Left: decimal(max(0, amount-used), one), SpentHere: decimal(here, one),
		WhenSpent: string(cmp.Or(b.WhenSpent, queuepolicy.WhenSpentWait)), NearlySpent: use.Spent >= b.WarnFrom(), Policy: b.Policy,
	}
}

// decimal is an amount in its unit.
func decimal(v, one int64) string { return engineview.Decimal(v, one) }

// budgetUses are the budgets for the metrics.
func (s *Shell) budgetUses() []metrics.Budget {
	var list []metrics.Budget
	now := s.now()
	for _, b := range s.budgets.inForce {
		use, known := s.engine.BudgetUse(b.Name(), now)
		if !known {
			continue
		}
		amount, one := b.Units()
		in := func(v int64) float64 { return float64(v) / float64(one) }
		list = append(list, metrics.Budget{
			Target: b.Target(), Period: string(b.Period), Unit: b.Unit(), Amount: in(amount), Spent: in(use.Spent), Committed: in(use.Committed),
		})
	}
	return list
}
