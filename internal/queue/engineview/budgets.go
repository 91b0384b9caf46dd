package engineview

import (
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
	Window    budget.Window
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
	out := admission.Budget{
		Name: b.Name(), From: b.Window.From, Until: b.Window.Until, Amount: amount, Spent: spent, Rates: b.PerSecond,
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
