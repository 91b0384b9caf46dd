package admission

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// Explanation is why one workload is where it is.
type Explanation struct {
	Workload Key
	Queue    string
	State    State
	Reason   Reason
	Message  string

	// Backfill says in words what is reserved for the blocked head of its queue, and who may pass, where some may.
	Backfill string
	// Shares says in words which share its queue would have with it, where the tree goes by shares.
	Shares string
	// Moves says in words why nobody moves to other nodes for it, where its queue would have others move.
	Moves string
	// Cost says in words what its flavors are expected to cost, in the order in which they are tried, where their nodes
	// have prices.
	Cost string
	// ExpectedCost is that of the flavors that it would get; nil: not known.
	ExpectedCost *float64
	// Order says in words what its place follows from, where the queue orders by more than priority and age.
	Order    string
	Position int   // in its ClusterQueue, 1 is next; 0 when not pending
	Ahead    []Key // those before it in its ClusterQueue, nearest last, at most 10
	Missing  []Missing
	Blockers []Blocker // running workloads that have what is missing, at most 10
	// PreemptionTargets are those it would preempt, if it may; Suggestions what would let it in, in words.
	PreemptionTargets []Blocker
	Suggestions       []string

	// StartsAt is the estimated start, zero when it cannot be told.
	StartsAt time.Time
	// Would is what it would get if it were its turn now, nil where it would get
	// nothing at once.
	Would *Admission
}

// State is where a workload stands.
type State string

// The states.
const (
	StateUnknown   State = "Unknown"
	StatePending   State = "Pending"
	StateNominated State = "WaitingForPreemptedWorkloads"
	StateHeldBack  State = "HeldBack"
	StateReserved  State = "QuotaReserved"
	StateEvicting  State = "Evicting"
)

// Missing is an amount of a resource that is lacking, and at which node of the tree.
type Missing struct {
	PodSet, Resource, Flavor string
	Amount                   int64
	At                       string // queue or cohort whose quota or limit is exhausted
	AtCohort                 bool
	Reason                   Reason
}

// Blocker is a workload that has something another one wants.
type Blocker struct {
	Workload Key
	Queue    string
	Priority int64
	Rule     Reason // for preemption targets: what allows preempting it
}

// noDecision is a number that no decision has: what the last one admitted is not open to question any more.
const noDecision = math.MaxUint64

// Explain tells why a workload is where it is at the given time. Nothing changes by asking.
func (e *Engine) Explain(k Key, at time.Time) (x Explanation) {
	x = Explanation{Workload: k, State: StateUnknown}
	w := e.workloads[k]
	if w == nil {
		return x
	}
	e.rebuild()
	at0, decision, evals := e.at, e.decision, e.evals
	e.at, e.decision = at, noDecision
	defer func() {
		e.at, e.decision, e.evals = at0, decision, evals
		if v := recover(); v != nil {
			e.tx.Rollback(0)
			x.Reason, x.Message = ReasonMisconfigured, fmt.Sprintf("a defect in the queue (%v)", v)
		}
	}()
	if q := w.queue; q != nil {
		x.Queue = q.name
	} else if w.local.queue != nil {
		x.Queue = w.local.queue.name
	}
	switch w.phase {
	case phaseEvicting:
		x.State = StateEvicting
	case phaseReserved:
		x.State = StateReserved
	case phaseNominated:
		e.explainNominated(&x, w)
	case phasePending:
		e.explainPending(&x, w)
	default:
		x.State = StateHeldBack
		why := e.heldBack(w, w.local.queue)
		x.Reason, x.Message = why.reason, why.message
	}
	if w.waits() {
		x.Position, x.Ahead = w.queue.position(w)
		x.Order = e.explainOrder(w)
		x.Backfill = e.explainBackfill(w)
		x.Cost = e.explainCost(w)
		if x.StartsAt.IsZero() {
			x.StartsAt = e.forecast(w, at)
		}
	}
	return x
}

// Consider tells what would become of a workload that is not there. Nothing is
// decided meanwhile, so that nobody else notices.
func (e *Engine) Consider(spec Workload, at time.Time) Explanation {
	e.Apply(WorkloadChanged{Workload: spec})
	x := e.Explain(spec.Key, at)
	e.Apply(WorkloadGone{Key: spec.Key})
	return x
}

// explainNominated lists the victims that still have the quota it waits for.
func (e *Engine) explainNominated(x *Explanation, w *workload) {
	x.State, x.Reason = StateNominated, ReasonWaitingForPreemptedWorkloads
	for v := range e.evicting {
		if v.queue.tree == w.queue.tree && v.usesAny(w.nominatedUsage) {
			x.Blockers = append(x.Blockers, v.blocker(""))
		}
	}
	slices.SortFunc(x.Blockers, func(a, b Blocker) int { return strings.Compare(a.Workload.String(), b.Workload.String()) })
	x.Message = fmt.Sprintf("%d evicted workload(s) still hold the quota freed for it", len(x.Blockers))
	x.Suggestions = []string{"the evicted workloads letting go"}
}

// explainPending evaluates the workload as a round would, and takes notes.
func (e *Engine) explainPending(x *Explanation, w *workload) {
	x.State = StatePending
	a := e.newAssignment()
	defer e.recycle(a)
	defer e.liftReservation(w.class)() // a search lifts reservations, and would lift this one twice
	e.evaluate(w, w.class.shape, a, asIs)
	x.Shares = e.explainShares(w, a.usage)
	for _, v := range a.victims {
		x.PreemptionTargets = append(x.PreemptionTargets, v.w.blocker(v.why))
	}
	if a.mode == fit {
		x.Would = e.admissionOf(a)
		x.Would.Placement = a.placed
	}
	if a.admissible() {
		if cost, known := e.costOf(a); known {
			x.ExpectedCost = &cost
		}
		x.Reason, x.Message = ReasonPending, "It can be admitted when its turn comes"
		if h := w.queue.blockedBy(); h != nil && h != w {
			x.Message = "It could be admitted, but the queue is StrictFIFO and " + h.spec.String() + " is before it"
			x.Suggestions = append(x.Suggestions, "the start or the removal of "+h.spec.String())
		}
		return
	}
	x.Reason, x.Message, x.Moves = a.refusalReason(), e.message(a), a.nobodyMoves
	if a.refused.by(rulesOfTime) && e.explainLater(x, w) {
		x.Suggestions = append(x.Suggestions, "waiting until "+a.refused.until.Format(time.RFC3339)+", when it may preempt others"+e.whyNotNow(w, &a.refused))
	}
	if ends := w.cooldownEnds(e); a.refused.by(ruleCooldown) && ends.After(e.at) {
		x.Suggestions = append(x.Suggestions, "waiting until "+ends.Format(time.RFC3339)+", when its preemption cooldown of "+w.timing(e).Cooldown.String()+" ends")
	}
	e.explainBudget(x, a)
	e.explainReserved(x, a)
	e.explainNeverPreempt(x, w)
	for i := range a.misses {
		e.explainMiss(x, w, a, &a.misses[i])
	}
	if a.failed != nil {
		x.Missing = append(x.Missing, Missing{PodSet: a.failed.PodSet, Reason: ReasonTopologyPlacementFailed})
		x.Suggestions = append(x.Suggestions, "capacity on nodes for all its pods at once ("+a.failed.Reason.Error()+")")
	}
}

// explainLater says whom a delayed workload would preempt once its preemption delay has passed, and whether it would.
func (e *Engine) explainLater(x *Explanation, w *workload) bool {
	a := e.newAssignment()
	defer e.recycle(a)
	e.evaluate(w, w.class.shape, a, afterDelay)
	for _, v := range a.victims {
		x.PreemptionTargets = append(x.PreemptionTargets, v.w.blocker(v.why))
	}
	return len(a.victims) > 0
}

// explainMiss adds one thing that is missing, which workloads have it, and what would help.
func (e *Engine) explainMiss(x *Explanation, w *workload, a *assignment, m *miss) {
	miss := Missing{PodSet: a.shape.podSets[m.podSet].Name, Reason: m.reason, Amount: m.amount}
	if m.resource >= 0 {
		miss.Resource = e.resources[m.resource]
	}
	if m.flavor >= 0 {
		miss.Flavor = e.flavors[m.flavor].spec.Name
	}
	what := e.opts.Format(miss.Resource, m.amount) + " " + miss.Resource + " in flavor " + miss.Flavor
	switch m.reason {
	case ReasonMisconfigured:
		x.Suggestions = append(x.Suggestions, "telling whoever runs the queue: its log has the details")
	case ReasonNoMatchingFlavor:
		x.Suggestions = append(x.Suggestions, "a queue or pods in which this does not hold: "+m.text)
	case ReasonExceedsMaxQuota:
		miss.At, miss.Amount = w.queue.name, m.asked+m.amount-m.limit
		x.Suggestions = append(x.Suggestions, "quota or a borrowing limit of at least "+e.opts.Format(miss.Resource, m.asked+m.amount)+" "+
			miss.Resource+" in flavor "+miss.Flavor+" for queue "+w.queue.name)
	default:
		miss.At = m.at.Name
		kind := "cohort "
		if m.at.Leaf {
			kind = "queue "
		} else {
			miss.AtCohort = true
		}
		x.Suggestions = append(x.Suggestions, what+" more quota, or as much given back, at "+kind+m.at.Name)
		e.explainBlockers(x, w, m)
	}
	x.Missing = append(x.Missing, miss)
}

// explainBlockers lists the workloads that have what is missing, below the node it is missing at, largest first.
func (e *Engine) explainBlockers(x *Explanation, w *workload, m *miss) {
	var list []*workload
	for _, q := range w.queue.tree.queues {
		if q.node.Under(m.at) {
			for _, v := range q.quotaReserved {
				if v.uses([]int32{m.fr}) && !slices.ContainsFunc(x.Blockers, func(b Blocker) bool { return b.Workload == v.spec.Key }) {
					list = append(list, v)
				}
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *workload) int {
		return cmp.Compare(quota.AmountOf(b.usage, m.fr), quota.AmountOf(a.usage, m.fr))
	})
	for _, v := range list {
		if len(x.Blockers) == explainLimit {
			return
		}
		x.Blockers = append(x.Blockers, v.blocker(""))
	}
}

// explainLimit bounds the lists in an explanation.
const explainLimit = 10

func (w *workload) blocker(rule Reason) Blocker {
	return Blocker{Workload: w.spec.Key, Queue: w.queue.name, Priority: w.spec.Priority, Rule: rule}
}

func (w *workload) usesAny(list []quota.Amount) bool {
	for _, u := range list {
		if quota.AmountOf(w.usage, u.FR) > 0 {
			return true
		}
	}
	return false
}

// blockedBy is the workload that blocks a StrictFIFO queue, if any.
func (q *queue) blockedBy() *workload {
	if !q.spec.StrictFIFO {
		return nil
	}
	if len(q.nominated) > 0 {
		return q.nominated[0]
	}
	if len(q.active) > 0 && q.active[0].inadmissible {
		return q.active[0].members[0]
	}
	return nil
}

// position counts from 1; ahead are the nearest before it.
func (q *queue) position(w *workload) (int, []Key) {
	n := 1
	var ahead []*workload
	see := func(p *workload) {
		if p != w && q.pendingOrder(p, w) < 0 {
			n++
			ahead = append(ahead, p)
		}
	}
	for _, p := range q.nominated {
		see(p)
	}
	for _, c := range q.classes {
		for _, p := range c.members {
			see(p)
		}
	}
	slices.SortFunc(ahead, q.pendingOrder)
	var keys []Key
	for _, p := range ahead[max(0, len(ahead)-explainLimit):] {
		keys = append(keys, p.spec.Key)
	}
	return n, keys
}
