package queue

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/inbox"
	"github.com/elastic-ai/elastic/internal/queue/budget"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// budgets is what the loop notes of budgets: the policies', and what was used (budget_accounts.go). The engine counts what
// runs, and hears from here what runs that are over have spent.
type budgets struct {
	inForce  []*inForce
	windows  []budget.Window                   // the periods of all of them, each once
	reported map[string]admission.Budget       // as the engine knows them
	accounts map[types.NamespacedName]*account // by LocalQueue
	covered  map[string]bool                   // LocalQueues and ClusterQueues whose workloads use a budget, as far as that was asked
	// changed: what was spent has to be summed up again.
	changed bool
	// unserved: the cluster has no BudgetAccounts, so nothing can be counted.
	unserved bool
}

// inForce is a budget of a policy, in its period.
type inForce struct {
	engineview.BudgetInForce

	// warned: more of it is spent than its soft line; checkAt is when to look again.
	warned  bool
	checkAt time.Time
}

const (
	leastWarnDelay = time.Second
	mostWarnDelay  = time.Minute // what runs may change meanwhile
)

// resolveBudgets takes in what policies say of budgets.
func (s *Shell) resolveBudgets() {
	b := &s.budgets
	had := len(b.inForce) > 0
	known := map[string]*inForce{}
	for _, old := range b.inForce {
		known[old.Name()] = old
	}
	b.inForce, b.covered, b.changed = nil, map[string]bool{}, true
	if b.unserved {
		return
	}
	for _, one := range s.objects.Budgets() {
		next := &inForce{BudgetInForce: engineview.NewBudget(one)}
		next.Now = s.objects.OfferRates()
		if old := known[one.Name()]; old != nil && old.Zone() == one.Zone() {
			next.Window, next.warned = old.Window, old.warned
		}
		b.inForce = append(b.inForce, next)
	}
	if !had && len(b.inForce) == 0 && len(b.accounts) == 0 {
		return
	}
	for _, a := range b.accounts {
		a.due = true
	}
	for _, t := range s.workloads {
		if workload.TellsRuns(t.object) || s.usesQuota(t.object) {
			s.scheduleStep(t)
		}
	}
}

// usesBudget says that a workload uses a budget, or did when it last had quota.
func (s *Shell) usesBudget(wl *kueue.Workload) bool {
	if len(s.budgets.inForce) == 0 {
		return false
	}
	local := types.NamespacedName{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}
	if s.isCovered(local.String(), func() []string { return s.objects.BudgetTargets(local) }) {
		return true
	}
	run, _ := workload.LastRun(wl)
	return run != nil && s.isCovered(run.Queue, func() []string { return s.objects.BudgetTargetsOf(run.Queue) })
}

// isCovered says that a budget is on one of some targets; a queue's are asked for once.
func (s *Shell) isCovered(queue string, targets func() []string) bool {
	covered, known := s.budgets.covered[queue]
	if !known {
		list := targets()
		covered = slices.ContainsFunc(s.budgets.inForce, func(b *inForce) bool { return slices.Contains(list, b.Target()) })
		if s.budgets.covered == nil {
			s.budgets.covered = map[string]bool{}
		}
		s.budgets.covered[queue] = covered
	}
	return covered
}

// updateBudgets begins periods, stores what was used, and tells the engine what was spent. It returns when to call it
// again; zero: after the next event.
func (s *Shell) updateBudgets(now time.Time) (next time.Time) {
	b := &s.budgets
	if len(b.inForce)+len(b.accounts)+len(b.reported) == 0 {
		return time.Time{}
	}
	s.beginPeriods(now)
	for name, a := range b.accounts {
		next = inbox.Earlier(next, s.storeAccount(name, a, now))
	}
	if b.changed {
		b.changed = false
		s.tellBudgets(now)
	}
	for _, one := range b.inForce {
		next = earliest(next, one.Window.Until, s.warn(one, now))
	}
	return next
}

// beginPeriods puts budgets into the period of now, also when the clock went back.
func (s *Shell) beginPeriods(now time.Time) {
	b := &s.budgets
	for _, one := range b.inForce {
		began, err := one.Begin(now)
		if err != nil {
			s.options.Log.Error(err, "a budget has no period", "budget", one.Name()) // the policy was checked
		}
		if began {
			one.warned, one.checkAt, b.changed = false, time.Time{}, true
			s.policies.reported = false
		}
	}
	if b.changed {
		b.windows = b.windows[:0]
		for _, one := range b.inForce {
			b.windows = one.AddWindow(b.windows)
		}
	}
}

// tellBudgets tells the engine of the budgets, as far as they are others than it knows.
func (s *Shell) tellBudgets(now time.Time) {
	b := &s.budgets
	reported := make(map[string]admission.Budget, len(b.inForce))
	for _, one := range b.inForce {
		next := one.ForEngine(s.spentOf(one, now))
		if was, known := b.reported[next.Name]; !known || !reflect.DeepEqual(was, next) {
			s.engine.Apply(admission.BudgetChanged{Budget: next})
		}
		reported[next.Name] = next
	}
	for name := range b.reported {
		if _, still := reported[name]; !still {
			s.engine.Apply(admission.BudgetGone{Name: name})
		}
	}
	b.reported = reported
}

// spentOf is what runs that are over have spent of a budget.
func (s *Shell) spentOf(b *inForce, now time.Time) int64 {
	sum := int64(0)
	for name, a := range s.budgets.accounts {
		if b.IsOf(name) {
			sum = budget.Plus(sum, b.Cost(&a.stored, s.valued(a.runsOver(now)), s.objects.BudgetTargetsOf))
		}
	}
	return sum
}

// pricesChanged has budgets that are at the prices of CloudOffers know them.
func (s *Shell) pricesChanged() {
	rates := s.objects.OfferRates()
	for _, one := range s.budgets.inForce {
		if one.ByOffers() && !reflect.DeepEqual(one.Now, rates) {
			one.Now, s.budgets.changed = rates, true
		}
	}
}

// valued are runs with what their nodes cost. It is written down with a run as it goes into its account, at the price of
// then: one that changes later changes nothing that was spent.
func (s *Shell) valued(runs []budget.Run) []budget.Run {
	for i := range runs {
		runs[i] = s.objects.Valued(runs[i])
	}
	return runs
}

// warn notes that more of a budget is spent than its soft line, and returns when to look again.
func (s *Shell) warn(b *inForce, now time.Time) time.Time {
	if b.warned || now.Before(b.checkAt) {
		return b.checkAt
	}
	use, known := s.engine.BudgetUse(b.Name(), now)
	if !known {
		return time.Time{}
	}
	left := b.WarnFrom() - use.Spent
	if left > 0 {
		delay := mostWarnDelay
		if use.PerSecond > 0 {
			delay = min(delay, max(leastWarnDelay, time.Duration(min(left/use.PerSecond, int64(mostWarnDelay/time.Second)))*time.Second))
		}
		b.checkAt = now.Add(delay)
		return b.checkAt
	}
	b.warned, b.checkAt = true, time.Time{}
	s.policies.reported = false
	if p := s.objects.Policies[b.Policy]; p == nil || !strings.Contains(nearlySpent(p), b.warning()) {
		s.options.Recorder.Eventf(s.budgetTarget(b), nil, corev1.EventTypeWarning, "BudgetNearlySpent", "BudgetNearlySpent", "%s", b.warning())
	}
	return time.Time{}
}

// warning says in words that a budget is nearly spent. It says the same for the whole period.
func (b *inForce) warning() string {
	return fmt.Sprintf("%d%% of the budget of %s, %s %s a %s, are spent; the next period begins %s",
		b.WarnPercent(), b.Target(), b.Amount.String(), b.Unit(), strings.ToLower(string(b.Period)), b.Window.Until.Format(time.RFC3339))
}

// budgetTarget is the object that a budget is on, or its policy where others only name it.
func (s *Shell) budgetTarget(b *inForce) client.Object {
	switch b.On.Kind {
	case v1alpha1.KindLocalQueue:
		if lq := s.objects.LocalQueues[types.NamespacedName{Namespace: b.On.Namespace, Name: b.On.Name}]; lq != nil {
			return lq
		}
	case v1alpha1.KindClusterQueue:
		if cq := s.objects.ClusterQueues[b.On.Name]; cq != nil {
			return cq
		}
	case v1alpha1.KindCohort:
		if cohort := s.objects.Cohorts[b.On.Name]; cohort != nil {
			return cohort
		}
	}
	return s.objects.Policies[b.Policy]
}

// nearlySpent is what the status of a policy says of its budgets.
func nearlySpent(p *v1alpha1.QueuePolicy) string {
	for _, c := range p.Status.Conditions {
		if c.Type == v1alpha1.BudgetsNearlySpent && c.Status == metav1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// budgetCondition is what to tell a policy of its budgets; nil: it has none.
func (s *Shell) budgetCondition(p *v1alpha1.QueuePolicy) *metav1.Condition {
	var warnings []string
	has := false
	for _, b := range s.budgets.inForce {
		if b.Policy == p.Name {
			has = true
			if b.warned {
				warnings = append(warnings, b.warning())
			}
		}
	}
	c := &metav1.Condition{
		Type: v1alpha1.BudgetsNearlySpent, Status: metav1.ConditionFalse, Reason: "BelowWarnAt", Message: "Less than warnAt is spent of each budget",
		ObservedGeneration: p.Generation,
	}
	switch {
	case len(warnings) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "BudgetNearlySpent", strings.Join(warnings, "; ")
	case !has:
		return nil
	}
	return c
}
