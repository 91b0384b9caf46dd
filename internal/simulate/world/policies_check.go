package world

import (
	"fmt"
	"slices"
	"time"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/budget"
)

// ledger counts what is spent of budgets in another way than the engine and accounts do: what runs, times the seconds that
// pass. Decisions are held against it.
type ledger struct {
	policies *policies
	world    *World
	at       int64
	spent    []int64         // of each budget, in its period
	rates    []int64         // what is being spent a second
	costs    map[int][]int64 // what each job that runs costs a second of each budget
}

func newLedger(w *World, p *policies) *ledger {
	return &ledger{policies: p, world: w, at: w.now, spent: make([]int64, len(p.budgets)), rates: make([]int64, len(p.budgets)), costs: map[int][]int64{}}
}

// pass the time to a step. None passes the end of a period.
func (l *ledger) pass(at int64) {
	if l == nil {
		return
	}
	for i := range l.spent {
		l.spent[i] += l.rates[i] * (at - l.at)
	}
	l.at = at
}

// begin a period.
func (l *ledger) begin(i int) {
	if l != nil {
		l.spent[i] = 0
	}
}

// cost is what a job's run costs a second of each budget.
func (l *ledger) cost(job int) []int64 {
	costs, run := make([]int64, len(l.policies.budgets)), l.policies.runs[job]
	for i, b := range l.policies.budgets {
		one := budget.Run{Start: b.Window.From, End: b.Window.From.Add(time.Second), Queue: run.Queue, Amounts: run.Amounts}
		if b.IsOf(namespaced(l.world.localQueue(job))) {
			costs[i] = b.Cost(&budget.Account{}, []budget.Run{one}, l.policies.targetsOf)
		}
	}
	return costs
}

// started counts a job that runs, and says whether a budget should have stopped it: what is spent, what those that run will
// use for as long as they may, and what it will use itself are at most the amount; of one without a limit nothing is known.
func (l *ledger) started(job int) error {
	if l == nil {
		return nil
	}
	w, costs := l.world, l.cost(job)
	l.costs[job] = costs
	for i, b := range l.policies.budgets {
		if costs[i] == 0 {
			continue
		}
		l.rates[i] += costs[i]
		if w.jobs[job].since != w.now {
			continue
		}
		amount, _ := b.Units()
		used, until := l.spent[i], w.second(b.Window.Until)
		for other, costs := range l.costs {
			if costs[i] != 0 && other != job && !w.leaving[other] {
				used += costs[i] * w.untilLimit(other, until)
			}
		}
		if needs := costs[i] * w.untilLimit(job, until); used >= amount || used+needs > amount {
			return fmt.Errorf("at %d s: %s started, which takes the budget %s to %d of %d", w.now, w.trace.Jobs[job].ID, b.Name(), used+needs, amount)
		}
	}
	return nil
}

func (l *ledger) stopped(job int) {
	if l == nil {
		return
	}
	for i, cost := range l.costs[job] {
		l.rates[i] -= cost
	}
	delete(l.costs, job)
}

// untilLimit is for how many seconds a job may still run before a time; 0 if nobody knows.
func (w *World) untilLimit(job int, before int64) int64 {
	j, s := &w.trace.Jobs[job], &w.jobs[job]
	if j.Limit == 0 {
		return 0
	}
	return max(0, min(before, s.since+j.Limit-s.ran)-w.now)
}

// honoured says that what is reserved now is free, or used by those whom it is for.
func (w *World) honoured() error {
	for i := range w.policies.known {
		r := &w.policies.known[i]
		if w.second(r.From) > w.now || w.second(r.Until) <= w.now || w.found > w.foundWaiting {
			continue
		}
		queue := r.Queue
		if queue == "" {
			queue = w.policies.tree.Above(namespaced(r.LocalQueue))[1]
		}
		root := w.policies.rootOf(w.cluster, queue)
		for flavor, amounts := range r.Amounts {
			for resource, amount := range amounts {
				used, own := w.usedBelow(root, r, flavor, resource)
				all := w.cluster.nominalBelow(root, flavor, resource)
				late := w.policies.quotas.fallen(w, root, flavor, resource) + w.overrun(root, r, flavor, resource)
				if used+max(0, amount-own) > all+late { // nobody knew that it would
					return fmt.Errorf("at %d s: %d of %d %s are used, and %d of %d that are reserved for %s are not there", w.now, used, all, resource, amount-own, amount, r.For)
				}
			}
		}
	}
	return nil
}

// overrun is what others use who were expected to be over when a reservation began, and run on: nobody is stopped for that.
func (w *World) overrun(root string, r *admission.AdvanceReservation, flavor, resource string) (sum int64) {
	if w.learned == nil {
		return 0
	}
	for job, run := range w.policies.runs {
		j, expected := &w.trace.Jobs[job], w.learned.running[job].ExpectedRunTime
		if j.Limit > 0 || expected <= 0 || run.Start.Add(expected).After(r.From) || w.policies.rootOf(w.cluster, j.Queue) != root {
			continue
		}
		for _, a := range run.Amounts {
			if a.Flavor == flavor && a.Resource == resource {
				sum += a.Units
			}
		}
	}
	return sum
}

// usedBelow is what jobs of a tree use of a resource, and of that what a reservation is for.
func (w *World) usedBelow(root string, r *admission.AdvanceReservation, flavor, resource string) (all, own int64) {
	for job, run := range w.policies.runs {
		j := &w.trace.Jobs[job]
		if w.policies.rootOf(w.cluster, j.Queue) != root {
			continue
		}
		for _, a := range run.Amounts {
			if a.Flavor != flavor || a.Resource != resource {
				continue
			}
			all += a.Units
			if (r.Queue == j.Queue || r.Queue == "" && r.LocalQueue == w.localQueue(job)) && (!r.Named || w.reservationOf(j) == r.Name) {
				own += a.Units
			}
		}
	}
	return all, own
}

// rootOf a queue's tree, found once.
func (p *policies) rootOf(c *Cluster, queue string) string {
	root, known := p.roots[queue]
	if !known {
		root = c.rootOf(queue)
		p.roots[queue] = root
	}
	return root
}

// rootOf is the cohort at the top of a queue's tree, or the queue itself.
func (c *Cluster) rootOf(queue string) string {
	root := queue
	for i := range c.Queues {
		if c.Queues[i].Name == queue && c.Queues[i].Cohort != "" {
			root = "cohort " + c.Queues[i].Cohort
		}
	}
	return c.top(root)
}

// top of the tree that something is in.
func (c *Cluster) top(root string) string {
	for range c.Cohorts {
		for i := range c.Cohorts {
			if root == "cohort "+c.Cohorts[i].Name && c.Cohorts[i].Parent != "" {
				root = "cohort " + c.Cohorts[i].Parent
			}
		}
	}
	return root
}

// nominalBelow is the nominal quota of a tree.
func (c *Cluster) nominalBelow(root, flavor, resource string) int64 {
	var sum int64
	count := func(groups []admission.ResourceGroup) {
		for _, g := range groups {
			for _, f := range g.Flavors {
				if f.Flavor == flavor {
					sum += f.Quotas[resource].Nominal
				}
			}
		}
	}
	for i := range c.Queues {
		if c.rootOf(c.Queues[i].Name) == root {
			count(c.Queues[i].Groups)
		}
	}
	for i := range c.Cohorts {
		if c.top("cohort "+c.Cohorts[i].Name) == root {
			count(c.Cohorts[i].Groups)
		}
	}
	return sum
}

// moves are the jobs that moved in this step, and for whom, and what became of all so far.
type moves struct {
	jobs, of     []movedJob
	plans, gotIn int // plans, and those whose job started at once
	moved, again int // jobs that moved, and those that started again at once
	// waits is why others did not, and how many.
	waits map[admission.Reason]int
}

// movedJob is one that moved, or for which others did, and how often it had started by then.
type movedJob struct {
	job int
	run int32
}

// checkMoves says whether a plan moves more jobs for one than its queue allows, has them lose more work, or moves some for
// another as well.
func (w *World) checkMoves(plan []admission.Evict) error {
	of, moved, lost := -1, 0, int64(0)
	for i := range plan {
		if plan[i].Preempted != admission.ReasonDefragmentation {
			continue
		}
		mover, by := JobOf(plan[i].Workload), JobOf(plan[i].Preemptor)
		if of >= 0 && of != by {
			return fmt.Errorf("at %d s: jobs move for %s and for %s at once", w.now, w.trace.Jobs[of].ID, w.trace.Jobs[by].ID)
		}
		of = by
		moved++
		lost += w.now - w.jobs[mover].since
		w.moves.jobs = append(w.moves.jobs, movedJob{mover, w.jobs[mover].run})
	}
	if of < 0 {
		return nil
	}
	w.moves.of = append(w.moves.of, movedJob{of, w.jobs[of].run})
	j := &w.trace.Jobs[of]
	at := slices.IndexFunc(w.cluster.Queues, func(q admission.Queue) bool { return q.Name == j.Queue })
	if d := w.cluster.Queues[at].Defragmentation; d == nil || moved > d.Moves || lost > int64(d.LostWork/time.Second) {
		return fmt.Errorf("at %d s: %d jobs move for %s and lose %d s of work; %+v", w.now, moved, j.ID, lost, d)
	}
	return nil
}

// noteMoved counts who of them started in this step, whatever became of it then, and says why others did not.
func (w *World) noteMoved() {
	m := &w.moves
	started := func(jobs []movedJob) (sum int) {
		for _, one := range jobs {
			if w.jobs[one.job].run > one.run {
				sum++
				continue
			}
			if m.waits == nil {
				m.waits = map[admission.Reason]int{}
			}
			m.waits[w.Explain(one.job).Reason]++
		}
		return sum
	}
	m.plans, m.gotIn = m.plans+len(m.of), m.gotIn+started(m.of)
	m.moved, m.again = m.moved+len(m.jobs), m.again+started(m.jobs)
	m.of, m.jobs = m.of[:0], m.jobs[:0]
}
