package queue

import (
	"cmp"
	"context"
	"math/big"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/budget"
	"github.com/elastic-ai/elastic/internal/queue/metrics"
)

// Budgets tells how much is used of the budgets that a LocalQueue's workloads use.
func (s *Shell) Budgets(ctx context.Context, localQueue admission.Key) ([]v1alpha1.Budget, error) {
	list := []v1alpha1.Budget{}
	name := types.NamespacedName{Namespace: localQueue.Namespace, Name: localQueue.Name}
	known := false
	s.options.Metrics.Inc("elastic_explanations_total", "budget")
	err := s.ask(ctx, func() {
		known = s.objects.LocalQueues[name] != nil
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
	return list, err
}

func (s *Shell) budgetReport(b *inForce, localQueue types.NamespacedName) v1alpha1.Budget {
	now := s.now()
	use, _ := s.engine.BudgetUse(b.Name(), now)
	amount, one := b.Units()
	here := int64(0)
	if a := s.budgets.accounts[localQueue]; a != nil {
		here = b.Cost(&a.stored, a.runsSoFar(now), s.objects.BudgetTargetsOf)
	}
	used := budget.Plus(use.Spent, use.Committed)
	return v1alpha1.Budget{
		Target: b.Target(), Period: string(b.Period), TimeZone: b.Zone(), From: metav1.NewTime(b.Window.From), Until: metav1.NewTime(b.Window.Until),
		Unit: b.Unit(), Amount: decimal(amount, one), Spent: decimal(use.Spent, one), Committed: decimal(use.Committed, one),
		Left: decimal(max(0, amount-used), one), SpentHere: decimal(here, one),
		WhenSpent: string(cmp.Or(b.WhenSpent, queuepolicy.WhenSpentWait)), NearlySpent: use.Spent >= b.WarnFrom(), Policy: b.Policy,
	}
}

// decimal is an amount in its unit. Six digits tell a second of a card from another.
func decimal(v, one int64) string {
	text := big.NewRat(v, one).FloatString(6)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

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
