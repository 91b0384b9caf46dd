package world

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/budget"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/policy"
)

// Account is what the jobs of a LocalQueue have used of budgets: what is stored, and runs that are over and not in it.
type Account struct {
	Stored budget.Account
	Runs   []budget.Run
}

// policies are budgets and advance reservations on the virtual clock. The engine knows times, not calendars: as in
// elastic-queue it is told which period it is, what runs that are over have spent in it, and when what is reserved.
type policies struct {
	budgets  []*engineview.BudgetInForce
	uses     [][]PeriodUse // of each budget, by period
	windows  []budget.Window
	accounts map[types.NamespacedName]*Account
	spent    map[string]int64 // as the engine knows it
	tree     *policy.Resolved
	targets  map[string][]string // what each queue is below
	roots    map[string]string   // the tree of each
	runs     map[int]budget.Run  // of jobs that have quota
	changed  bool                // a run is over, or a period began

	reservations []policy.Reservation
	reservedJobs engineview.ReservedJobs
	known        []admission.AdvanceReservation // to the engine
	again        time.Time                      // when there are others
	begun        []ReservationUse

	quotas *nominalQuotas // nil: all are as declared

	at     int64 // when to look again
	waited map[int]*waits
	ledger *ledger // to check them by
}

// waits is how long a job waited for what is not a lack of quota, in seconds.
type waits struct {
	budget, reservation int64
	why                 admission.Reason // it waits now
	since               int64
}

// newPolicies of the cluster; nil if it has none that need the calendar.
func (w *World) newPolicies(quotas *nominalQuotas) *policies {
	c := w.cluster
	if len(c.Budgets)+len(c.Reservations) == 0 && quotas == nil {
		return nil
	}
	p := &policies{
		quotas:   quotas,
		accounts: map[types.NamespacedName]*Account{}, spent: map[string]int64{}, tree: policy.Resolve(nil, c.tree()), targets: map[string][]string{}, roots: map[string]string{},
		runs: map[int]budget.Run{}, reservations: c.Reservations, reservedJobs: engineview.NewReservedJobs(c.Reservations), waited: map[int]*waits{},
	}
	for of, account := range c.Accounts {
		p.accounts[of] = &Account{account.Stored, slices.Clone(account.Runs)}
	}
	for _, b := range c.Budgets {
		one := engineview.NewBudget(b)
		p.budgets = append(p.budgets, &one)
	}
	p.uses = make([][]PeriodUse, len(p.budgets))
	if w.settings.Check {
		p.ledger = newLedger(w, p)
	}
	p.begin(w, w.now)
	p.tellReservations(w, w.now)
	p.quotas.follow(w)
	p.next(w)
	return p
}

// tree is the cohorts and queues by their names, as policies need them.
func (c *Cluster) tree() policy.World {
	t := policy.World{Cohorts: map[string]string{}, ClusterQueues: map[string]string{}, LocalQueues: map[types.NamespacedName]string{}, Flavors: map[string]bool{}}
	for i := range c.Queues {
		t.ClusterQueues[c.Queues[i].Name] = c.Queues[i].Cohort
		t.Cohorts[c.Queues[i].Cohort] = ""
	}
	for i := range c.Cohorts {
		t.Cohorts[c.Cohorts[i].Name] = c.Cohorts[i].Parent
	}
	for i := range c.Cohorts {
		if _, described := t.Cohorts[c.Cohorts[i].Parent]; !described {
			t.Cohorts[c.Cohorts[i].Parent] = ""
		}
	}
	for i := range c.LocalQueues {
		l := &c.LocalQueues[i]
		t.LocalQueues[namespaced(l.Key)] = l.Queue
	}
	for i := range c.Flavors {
		t.Flavors[c.Flavors[i].Name] = true
	}
	return t
}

// begin puts budgets into their periods, and notes what was used in those that are over.
func (p *policies) begin(w *World, at int64) {
	now := w.clock(at)
	p.windows = p.windows[:0]
	for i, b := range p.budgets {
		if was := b.Window; !was.From.IsZero() && !now.Before(was.Until) {
			p.noteUse(w, i, was.Until)
		}
		began, err := b.Begin(now)
		if err != nil {
			w.err = err
			return
		}
		if began {
			p.changed = true
			p.ledger.begin(i)
		}
		p.windows = b.AddWindow(p.windows)
	}
}

// next finds out when to look again.
func (p *policies) next(w *World) {
	p.at = never
	for _, b := range p.budgets {
		p.at = min(p.at, w.second(b.Window.Until))
	}
	if !p.again.IsZero() {
		p.at = min(p.at, w.second(p.again))
	}
	if p.quotas != nil && !p.quotas.again.IsZero() {
		p.at = min(p.at, w.second(p.quotas.again))
	}
	for i := range p.known {
		if from := w.second(p.known[i].From); from > w.now {
			p.at = min(p.at, from)
		}
	}
}

// pass the time to a step: periods that are over by then end before anything happens in it.
func (p *policies) pass(w *World, at int64) {
	p.ledger.pass(at)
	if at < p.at {
		return
	}
	p.begin(w, at)
	if !p.again.IsZero() && !w.clock(at).Before(p.again) {
		p.tellReservations(w, at)
	}
	p.next(w)
}

// followNodes has nominal quotas follow what happened to nodes in this step, and the hour.
func (p *policies) followNodes(w *World) {
	if p != nil && p.quotas != nil {
		p.quotas.follow(w)
		p.next(w)
	}
}

// nodesChanged notes that nodes came or went.
func (p *policies) nodesChanged() {
	if p != nil && p.quotas != nil {
		p.quotas.stale = true
	}
}

func (p *policies) tellReservations(w *World, at int64) {
	ahead := engineview.AdvanceReservations(p.reservations, w.clock(at))
	if p.again = ahead.Again; !engineview.SameAdvanceReservations(ahead.List, p.known) {
		p.known = ahead.List
		w.engine.Apply(admission.AdvanceReservationsChanged{Reservations: ahead.List})
	}
}

// tell the engine what was spent, if that has changed.
func (p *policies) tell(w *World) {
	if !p.changed {
		return
	}
	p.changed = false
	gone := func(string, time.Time) bool { return false } // a job that ends tells of its run once
	for _, a := range p.accounts {
		if len(a.Runs) > 0 {
			a.Stored = a.Stored.Settle(a.Runs, p.windows, gone, w.clock(w.now))
			a.Runs = a.Stored.Unsettled(a.Runs)
		}
	}
	for _, b := range p.budgets {
		sum := int64(0)
		for of, a := range p.accounts {
			if b.IsOf(of) {
				sum = budget.Plus(sum, b.Cost(&a.Stored, a.Runs, p.targetsOf))
			}
		}
		name := b.Name() + b.Window.From.String()
		if before, known := p.spent[name]; !known || before != sum {
			p.spent[name] = sum
			w.engine.Apply(admission.BudgetChanged{Budget: b.ForEngine(sum)})
		}
	}
}

// targetsOf are what a queue is, or is below.
func (p *policies) targetsOf(queue string) []string {
	list, known := p.targets[queue]
	if !known {
		list = p.tree.AboveClusterQueue(queue)
		p.targets[queue] = list
	}
	return list
}

// started notes the run of a job that has quota from now on, or had it when the simulation began.
func (p *policies) started(w *World, i int, a *admission.Admission) {
	if p == nil {
		return
	}
	p.release(i, w.now)
	run := budget.Run{UID: w.requests.name(i), Start: a.ReservedAt, Queue: a.Queue}
	for j := range a.PodSets {
		set := &a.PodSets[j]
		for _, resource := range slices.Sorted(maps.Keys(set.Usage)) {
			run.Amounts = append(run.Amounts, budget.Amount{Flavor: set.Flavors[resource], Resource: resource, Units: set.Usage[resource]})
		}
	}
	p.runs[i] = run
	w.fail(p.ledger.started(i))
}

// stopped notes that a run is over.
func (p *policies) stopped(w *World, i int) {
	if p == nil {
		return
	}
	p.ledger.stopped(i)
	run := p.runs[i]
	delete(p.runs, i)
	if run.End = w.clock(w.now); len(p.budgets) == 0 || !run.End.After(run.Start) {
		return
	}
	of := namespaced(w.localQueue(i))
	a := p.accounts[of]
	if a == nil {
		a = &Account{}
		p.accounts[of] = a
	}
	a.Runs = append(a.Runs, run)
	p.changed = true
}

// note who waits for a budget or a reservation, and who does no longer.
func (p *policies) note(w *World, pending []admission.Pending) {
	for i := range pending {
		job := JobOf(pending[i].Workload)
		p.release(job, w.now)
		what := WaitsForBudget
		switch pending[i].Reason {
		case admission.ReasonWaitingForBudget:
		case admission.ReasonReservedForOthers:
			what = WaitsForReservation
		default:
			continue
		}
		if p.waited[job] == nil {
			p.waited[job] = &waits{}
		}
		p.waited[job].why, p.waited[job].since = pending[i].Reason, w.now
		w.watch(Moment{At: w.now, Job: job, What: what, By: -1, Why: w.named(pending[i].Message)})
	}
}

// release a job that waits for something else by now, or not at all.
func (p *policies) release(job int, now int64) {
	if s := p.waited[job]; s != nil {
		s.budget, s.reservation = s.until(now)
		s.why = ""
	}
}

// until is how long it waited up to now.
func (s *waits) until(now int64) (budget, reservation int64) {
	switch s.why {
	case admission.ReasonWaitingForBudget:
		return s.budget + now - s.since, s.reservation
	case admission.ReasonReservedForOthers:
		return s.budget, s.reservation + now - s.since
	}
	return s.budget, s.reservation
}

// helpsUntil is how long it may help to wait while nothing runs and nothing comes: periods end, and so do reservations.
// Whom a whole period does not help waits for ever.
func (p *policies) helpsUntil(w *World) int64 {
	if p == nil {
		return -1
	}
	helps := w.now + 1
	for _, b := range p.budgets {
		next := *b
		if _, err := next.Begin(b.Window.Until); err == nil {
			helps = max(helps, w.second(next.Window.Until))
		}
	}
	for i := range p.known {
		helps = max(helps, w.second(p.known[i].Until))
	}
	if p.quotas != nil {
		for _, rule := range p.quotas.rules {
			helps = max(helps, w.second(rule.Opened(w.clock(w.now))))
		}
	}
	return helps
}

// reservationOf is the reservation that is for a job alone; "": none. A job of the trace is known by its name.
func (w *World) reservationOf(j *Job) string {
	p := w.policies
	switch {
	case p == nil || len(p.reservedJobs) == 0 || j.Local == nil:
		return ""
	case j.Found != nil:
		return p.reservedJobs.Of(j.Found.object)
	}
	kind, name, ok := strings.Cut(j.ID, "/")
	if !ok {
		kind, name = "job", j.ID
	}
	return p.reservedJobs.Named(namespaced(*j.Local), kind, name)
}

func namespaced(k admission.Key) types.NamespacedName {
	return types.NamespacedName{Namespace: k.Namespace, Name: k.Name}
}
