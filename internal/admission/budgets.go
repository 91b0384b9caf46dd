package admission

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// A budget is what the workloads below an object may use of cards in a period, all together. What a workload uses is its
// amounts at their rates, from the reservation of its quota to its return. A workload starts if what was spent in the
// period, what those with quota will still use of it, and what it will use itself are within the amount. Nothing is
// known of one without a run time: it starts while something is left, and what it uses counts as it goes. So does what
// any workload uses beyond its time.
//
// All sums are of whole seconds, and of what lies within the period: a workload that runs into the next one spends the
// rest there. Time alone makes them larger, never smaller: a workload that was refused is looked at again at a time that
// is known, or when another ends early.

// Budget is one of them. Periods are the caller's, who knows calendars, and so is what runs that are over have spent.
type Budget struct {
	Name string // of no other budget
	// What it is on: a LocalQueue, a ClusterQueue or a cohort.
	LocalQueue    Key
	Queue, Cohort string

	From, Until time.Time // the period
	Amount      int64
	Spent       int64 // in the period, by runs that are over
	// Rates say by flavor and resource what a unit of it costs a second; those of flavor "" count for flavors that are
	// not named.
	Rates map[string]map[string]int64
	// Drain evicts what runs when all is spent.
	Drain bool

	// In words.
	On, Unit, Period string
	PerUnit          int64 // of Amount
}

type (
	// BudgetChanged describes a new or changed budget, or what was spent of it.
	BudgetChanged struct{ Budget Budget }
	// BudgetGone says that there is no such budget any more.
	BudgetGone struct{ Name string }
)

// budget is a Budget with what is known of it in a decision.
type budget struct {
	spec     Budget
	rates    []int64 // by flavor-resource
	decision uint64  // in which used was computed
	used     int64   // spent and committed
	spent    int64   // of that
	drained  bool    // everything is spent, and what runs has to leave
}

func (ev BudgetChanged) apply(e *Engine) {
	b := e.budgets[ev.Budget.Name]
	if b == nil {
		b = &budget{}
		if e.budgets == nil {
			e.budgets = map[string]*budget{}
		}
		e.budgets[ev.Budget.Name] = b
	}
	if ev.Budget.LocalQueue != b.spec.LocalQueue || ev.Budget.Queue != b.spec.Queue || ev.Budget.Cohort != b.spec.Cohort {
		defer e.budgetsListed()
	}
	if ev.Budget.Spent < b.spec.Spent || !sameBudget(&b.spec, &ev.Budget) {
		e.budgetFreed = true
	}
	b.spec, b.rates, b.decision = ev.Budget, b.rates[:0], 0
}

func sameBudget(a, b *Budget) bool {
	return a.LocalQueue == b.LocalQueue && a.Queue == b.Queue && a.Cohort == b.Cohort && a.From.Equal(b.From) && a.Until.Equal(b.Until) &&
		a.Amount == b.Amount && a.Drain == b.Drain && fmt.Sprint(a.Rates) == fmt.Sprint(b.Rates) // fmt sorts maps
}

func (ev BudgetGone) apply(e *Engine) {
	if e.budgets[ev.Name] != nil {
		delete(e.budgets, ev.Name)
		e.budgetFreed = true
		e.budgetsListed()
	}
}

// budgetsListed finds out which budgets are on what. Where some are, workloads that run for another time, or come from
// another LocalQueue, may get another answer: they form other classes.
func (e *Engine) budgetsListed() {
	before := e.budgeted
	e.budgeted = budgeted{locals: map[Key][]*budget{}, queues: map[string][]*budget{}, cohorts: map[string][]*budget{}}
	for _, name := range sortedNames(e.budgets) {
		b := e.budgets[name]
		switch s := &b.spec; {
		case s.Queue != "":
			e.budgeted.queues[s.Queue] = append(e.budgeted.queues[s.Queue], b)
		case s.Cohort != "":
			e.budgeted.cohorts[s.Cohort] = append(e.budgeted.cohorts[s.Cohort], b)
		default:
			e.budgeted.locals[s.LocalQueue] = append(e.budgeted.locals[s.LocalQueue], b)
		}
	}
	if before.any() != e.budgeted.any() || (len(before.locals) > 0) != (len(e.budgeted.locals) > 0) {
		for _, q := range e.queues { // each queue on its own; the order does not matter
			e.requeueMembers(q, true)
		}
	}
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// budgeted are the budgets by what they are on, those on the same by name.
type budgeted struct {
	locals          map[Key][]*budget
	queues, cohorts map[string][]*budget
}

func (b *budgeted) any() bool { return len(b.locals)+len(b.queues)+len(b.cohorts) > 0 }

// budgetsOf calls f with the budgets that a workload of a LocalQueue and queue uses, from its LocalQueue outwards, until
// f returns false.
func (e *Engine) budgetsOf(l *localQueue, q *queue, f func(*budget) bool) {
	if !e.budgeted.any() {
		return
	}
	if l != nil && !eachBudget(e.budgeted.locals[l.spec.Key], f) || !eachBudget(e.budgeted.queues[q.name], f) {
		return
	}
	for n := q.node.Parent; n != nil; n = n.Parent {
		if !eachBudget(e.budgeted.cohorts[n.Name], f) {
			return
		}
	}
}

// eachBudget calls f with budgets until it returns false, and says whether it never did.
func eachBudget(list []*budget, f func(*budget) bool) bool {
	for _, b := range list {
		if !f(b) {
			return false
		}
	}
	return true
}

// eachUser calls f with the workloads that have quota and use a budget.
func (e *Engine) eachUser(b *budget, f func(*workload)) {
	switch s := &b.spec; {
	case s.Queue != "":
		if q := e.queues[s.Queue]; q != nil {
			for _, w := range q.quotaReserved {
				f(w)
			}
		}
	case s.Cohort != "":
		n := e.cohorts[s.Cohort]
		if n == nil || n.top.tree == nil {
			return
		}
		for _, q := range n.top.tree.queues {
			if q.node.Under(n.Node) {
				for _, w := range q.quotaReserved {
					f(w)
				}
			}
		}
	default:
		if l := e.locals[s.LocalQueue]; l != nil {
			for _, w := range l.members {
				if w.hasQuota() {
					f(w)
				}
			}
		}
	}
}

// rateOf is what a unit of a flavor-resource costs a second.
func (e *Engine) rateOf(b *budget, fr int32) int64 {
	for i := len(b.rates); i <= int(fr); i++ {
		key := e.frs[i]
		rates, named := b.spec.Rates[e.flavors[key.Flavor].spec.Name]
		if !named {
			rates = b.spec.Rates[""]
		}
		b.rates = append(b.rates, max(0, rates[e.resources[key.Resource]]))
	}
	return b.rates[fr]
}

// perSecond is what amounts cost a second.
func (e *Engine) perSecond(b *budget, usage []quota.Amount) int64 {
	sum := int64(0)
	for _, u := range usage {
		sum = quota.Sum(sum, times(u.V, e.rateOf(b, u.FR)))
	}
	return sum
}

// times multiplies, saturating; less than nothing is nothing.
func times(a, b int64) int64 {
	if a <= 0 || b <= 0 {
		return 0
	}
	if a > quota.Unlimited/b {
		return quota.Unlimited
	}
	return a * b
}

// within is how many seconds from one time to another lie within the period.
func (b *budget) within(from, to time.Time) int64 {
	return max(0, min(to.Unix(), b.spec.Until.Unix())-max(from.Unix(), b.spec.From.Unix()))
}

// chargedFor is what a workload with quota is charged for: all that it was given, although some of its pods may be done.
// What is left of its object when its run is over does not say when they were.
func (e *Engine) chargedFor(w *workload) []quota.Amount {
	if !slices.ContainsFunc(w.spec.PodSets, func(ps PodSet) bool { return ps.Reclaimable > 0 }) {
		return w.usage
	}
	all := w.spec
	all.PodSets = slices.Clone(all.PodSets)
	for i := range all.PodSets {
		all.PodSets[i].Reclaimable = 0
	}
	return e.usageOf(&all, nil)
}

// spentBy is what a workload with quota has spent so far.
func (e *Engine) spentBy(b *budget, w *workload) int64 {
	return times(e.perSecond(b, e.chargedFor(w)), b.within(w.spec.Admission.ReservedAt, e.at))
}

// committedTo is what a workload with quota will still spend, as far as that is known.
func (e *Engine) committedTo(b *budget, w *workload) int64 {
	run := w.runLimit()
	if run <= 0 || !w.moving && (w.phase == phaseEvicting || w.countedAgain) {
		return 0
	}
	start := w.spec.StartedAt
	switch {
	case w.moving && w.phase == phaseEvicting && w.spec.MaxRunTime <= 0: // it is expected to run so long anew
		start = e.at
	case start.IsZero():
		start = w.spec.Admission.ReservedAt
	}
	return times(e.perSecond(b, e.chargedFor(w)), b.within(e.at, start.Add(run)))
}

// usedOf is what is spent and committed as of this decision.
func (e *Engine) usedOf(b *budget) int64 {
	if b.decision == e.decision && e.decision != noDecision {
		return b.used
	}
	b.decision, b.spent = e.decision, max(0, b.spec.Spent)
	committed := int64(0)
	e.eachUser(b, func(w *workload) {
		b.spent, committed = quota.Sum(b.spent, e.spentBy(b, w)), quota.Sum(committed, e.committedTo(b, w))
	})
	b.used = quota.Sum(b.spent, committed)
	return b.used
}

// noteCommitted keeps sums up to date within a decision: w gets quota, or loses it. What it has spent stays.
func (e *Engine) noteCommitted(w *workload, sign int64) {
	e.budgetsOf(w.local, w.queue, func(b *budget) bool {
		if b.decision == e.decision {
			b.used += sign * e.committedTo(b, w)
		}
		return true
	})
	if sign < 0 {
		e.budgetFreed = true
	}
}

// overBudget is a budget that keeps a workload from starting.
type overBudget struct {
	budget      *budget
	used, needs int64
	spent       int64     // of what is used
	until       time.Time // when it may fit
}

// beyondBudget finds a budget that does not suffice for a workload at a cost.
func (e *Engine) beyondBudget(w *workload, victims []victim, cost func(*budget) int64) *overBudget {
	var over *overBudget
	e.budgetsOf(w.local, w.queue, func(b *budget) bool {
		rate := cost(b)
		if rate <= 0 || !e.at.Before(b.spec.Until) {
			return true
		}
		used := e.usedOf(b)
		for _, v := range victims {
			used -= e.committedIfUses(b, v.w)
		}
		left := b.spec.Amount - used
		needs := int64(0)
		if run := w.runLimit(); run > 0 {
			needs = times(rate, b.within(e.at, e.at.Add(run)))
		}
		if left > 0 && needs <= left {
			return true
		}
		until := b.spec.Until
		if seconds := left / rate; left > 0 && seconds > 0 { // so long before the end it needs no more than is left
			until = until.Add(-time.Duration(min(seconds, math.MaxInt64/int64(time.Second))) * time.Second)
		}
		over = &overBudget{budget: b, used: used, spent: b.spent, needs: needs, until: until}
		return false
	})
	return over
}

// committedIfUses is what preempting v leaves of a budget.
func (e *Engine) committedIfUses(b *budget, v *workload) int64 {
	uses := false
	e.budgetsOf(v.local, v.queue, func(o *budget) bool {
		uses = uses || o == b
		return !uses
	})
	if !uses {
		return 0
	}
	return e.committedTo(b, v)
}

// leastPerSecond is what a workload costs a second at least, whatever flavors it gets.
func (e *Engine) leastPerSecond(b *budget, q *queue, s *requestShape) int64 {
	sum := int64(0)
	for i := range s.podSets {
		for _, r := range s.requests[i] {
			if rg := q.group(r.resource); rg >= 0 && r.v > 0 {
				grp := &q.groups[rg]
				at, least := slices.Index(grp.resources, r.resource), int64(math.MaxInt64)
				for _, f := range grp.flavors {
					least = min(least, e.rateOf(b, f.frs[at]))
				}
				sum = quota.Sum(sum, times(quota.Times(r.v, s.counts[i]), least))
			}
		}
	}
	return sum
}

// exhausted refuses a workload that no flavor brings within its budgets.
func (e *Engine) exhausted(a *assignment) bool {
	if !e.budgeted.any() {
		return false
	}
	q := a.w.queue
	return a.refuseOver(e.beyondBudget(a.w, nil, func(b *budget) int64 { return e.leastPerSecond(b, q, a.shape) }))
}

// staysWithinBudgets refuses a workload that the flavors it would get take beyond a budget, and says whether it did not.
func (e *Engine) staysWithinBudgets(a *assignment) bool {
	if !e.budgeted.any() {
		return true
	}
	if !a.admissible() {
		return a.mode != noFit || a.reason != ReasonWaitingForBudget || !a.refuseOver(a.over)
	}
	a.over = nil
	return !a.refuseOver(e.beyondBudget(a.w, leavers(a.victims), func(b *budget) int64 { return e.perSecond(b, a.usage) }))
}

// flavorIsOver says that a flavor takes a group of pod sets beyond a budget; another may not.
func (e *Engine) flavorIsOver(a *assignment, grp *group, f *groupFlavor, total []podRequest) bool {
	if !e.budgeted.any() || len(grp.flavors) < 2 {
		return false
	}
	over := e.beyondBudget(a.w, nil, func(b *budget) int64 {
		sum := e.perSecond(b, a.usage)
		for _, t := range total {
			if i := slices.Index(grp.resources, t.resource); i >= 0 {
				sum = quota.Sum(sum, times(t.v, e.rateOf(b, f.frs[i])))
			}
		}
		return sum
	})
	if over != nil && (a.over == nil || over.until.Before(a.over.until)) {
		a.over = over
	}
	return over != nil
}

// refuseOver makes an assignment one that a budget refuses.
func (a *assignment) refuseOver(over *overBudget) bool {
	if over == nil {
		return false
	}
	a.refuseApart(ReasonWaitingForBudget, ruleBudget, over.until)
	a.over = over
	return true
}

// drainBudgets reviews what runs where everything is spent, and returns when the next budget will be; zero: none.
func (e *Engine) drainBudgets() (next time.Time) {
	if !e.budgeted.any() {
		return time.Time{}
	}
	for _, b := range e.budgets { // each on its own; reviews are sorted
		if b.drained = false; !b.spec.Drain || !e.at.Before(b.spec.Until) {
			continue
		}
		spent, rate := e.spentOf(b)
		if b.drained = spent >= b.spec.Amount; b.drained {
			e.eachUser(b, e.reviewLater)
			continue
		}
		if rate > 0 {
			left := min((b.spec.Amount-spent+rate-1)/rate, int64(b.spec.Until.Sub(e.at)/time.Second)+1)
			at := time.Unix(e.at.Unix()+left, 0)
			if next.IsZero() || at.Before(next) {
				next = at
			}
		}
	}
	return next
}

// spentOf is what is spent of a budget, and what is being spent a second.
func (e *Engine) spentOf(b *budget) (spent, rate int64) {
	spent = max(0, b.spec.Spent)
	e.eachUser(b, func(w *workload) {
		spent = quota.Sum(spent, e.spentBy(b, w))
		if w.phase == phaseReserved {
			rate = quota.Sum(rate, e.perSecond(b, e.chargedFor(w)))
		}
	})
	return spent, rate
}

// drainedFor is the budget that a workload must leave for, nil if there is none.
func (e *Engine) drainedFor(w *workload) *budget {
	var found *budget
	e.budgetsOf(w.local, w.queue, func(b *budget) bool {
		if b.drained && e.perSecond(b, w.usage) > 0 {
			found = b
		}
		return found == nil
	})
	return found
}

// words say what a workload waits for.
func (o *overBudget) words() string {
	b := &o.budget.spec
	text := fmt.Sprintf("waits until %s for the budget of %s: of %s %s %s, %s are spent and %s committed",
		calendar(o.until), b.On, b.format(b.Amount), b.Unit, b.Period, b.format(o.spent), b.format(max(0, o.used-o.spent)))
	if o.needs > 0 {
		text += ", and it needs " + b.format(o.needs)
	}
	return text
}

// calendar is a time by the calendar that it is of.
func calendar(at time.Time) string {
	return at.Format("Mon 2 Jan 2006 15:04 ") + at.Location().String()
}

func (b *Budget) format(v int64) string {
	return strconv.FormatFloat(math.Round(float64(v)/float64(max(1, b.PerUnit))*100)/100, 'f', -1, 64)
}

// explainBudget says when a workload that waits for a budget may start.
func (e *Engine) explainBudget(x *Explanation, a *assignment) {
	if !a.refused.by(ruleBudget) {
		return
	}
	b := &a.over.budget.spec
	if a.over.until.Before(b.Until) {
		x.Suggestions = append(x.Suggestions, "waiting until "+calendar(a.over.until)+", from when on what is left suffices until the period ends")
	} else {
		x.Suggestions = append(x.Suggestions, "waiting until "+calendar(b.Until)+", when the next period begins")
	}
	x.Suggestions = append(x.Suggestions, "a budget of "+b.format(quota.Sum(a.over.used, a.over.needs))+" "+b.Unit+" "+b.Period+" for "+b.On)
	x.StartsAt = a.over.until
}

// BudgetUse is what is used of a budget.
type BudgetUse struct {
	Spent, Committed int64
	PerSecond        int64 // what is being spent
}

// BudgetUse tells how much of a budget is used at a time. Nothing changes by asking.
func (e *Engine) BudgetUse(name string, at time.Time) (use BudgetUse, exists bool) {
	b := e.budgets[name]
	if b == nil {
		return use, false
	}
	e.rebuild()
	at0 := e.at
	e.at = at
	defer func() { e.at = at0 }()
	use.Spent, use.PerSecond = e.spentOf(b)
	e.eachUser(b, func(w *workload) { use.Committed = quota.Sum(use.Committed, e.committedTo(b, w)) })
	return use, true
}
