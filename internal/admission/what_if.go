package admission

import (
	"fmt"
	"slices"
	"time"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// QuotaChange is another nominal quota that a queue could have.
type QuotaChange struct {
	Queue, Flavor, Resource string
	Nominal                 int64
}

// StartForecast is when a pending workload starts as things are, and with other quotas; zero: not in the time asked about, or
// that cannot be told.
type StartForecast struct {
	Workload  Key
	Queue     string
	Now, Then time.Time
}

// WhatIf says how the starts of pending workloads would change with other quotas, until a time. Workloads run as long as is
// known of them, nobody is preempted, and those that come later are not there. Of each tree the first pending workloads are
// looked at; complete says that these were all. Nothing changes by asking.
func (e *Engine) WhatIf(changes []QuotaChange, at, until time.Time) (starts []StartForecast, complete bool, err error) {
	e.rebuild()
	trees := map[*tree]bool{}
	for i := range changes {
		q, err := e.quotaOf(&changes[i])
		if err != nil {
			return nil, false, err
		}
		trees[q.tree] = true
	}
	complete = true
	for _, t := range e.trees {
		if !trees[t] || t.cyclic {
			continue
		}
		pending, all := t.firstPending(whatIfPending)
		complete = complete && all
		now, enough := e.playUntil(t, nil, pending, at, until)
		then, enoughThen := e.playUntil(t, changes, pending, at, until)
		complete = complete && enough && enoughThen
		for _, w := range pending {
			starts = append(starts, StartForecast{Workload: w.spec.Key, Queue: w.queue.name, Now: now[w], Then: then[w]})
		}
	}
	return starts, complete, nil
}

// Bounds of a what-if: pending workloads of a tree, and how often one is tried, where a look at the nodes counts as many. The
// queue's loop stands still meanwhile.
const (
	whatIfPending = 2000
	whatIfTries   = 20_000
	lookAtNodes   = 20
)

// quotaOf finds the queue whose quota a change is about.
func (e *Engine) quotaOf(c *QuotaChange) (*queue, error) {
	q := e.queues[c.Queue]
	if q == nil || !q.exists {
		return nil, fmt.Errorf("there is no queue %s", c.Queue)
	}
	for _, group := range q.spec.Groups {
		for _, f := range group.Flavors {
			if _, there := f.Quotas[c.Resource]; there && f.Flavor == c.Flavor {
				return q, nil
			}
		}
	}
	return nil, fmt.Errorf("queue %s has no quota for %s in flavor %s", c.Queue, c.Resource, c.Flavor)
}

// firstPending are the first pending workloads of a tree in its order, and whether these are all.
func (t *tree) firstPending(most int) (list []*workload, all bool) {
	for _, q := range t.queues {
		for _, c := range q.classes {
			list = append(list, c.members...)
		}
		list = append(list, q.nominated...)
	}
	slices.SortFunc(list, queueOrder)
	return list[:min(most, len(list))], len(list) <= most
}

// playUntil says when pending workloads of a tree start with other quotas; false where it was given up.
func (e *Engine) playUntil(t *tree, changes []QuotaChange, pending []*workload, at, until time.Time) (starts map[*workload]time.Time, enough bool) {
	at0, decision, evals := e.at, e.decision, e.evals
	e.at, e.decision = at, noDecision
	restore := t.saveQuotas()
	mark := e.tx.Checkpoint()
	starts = map[*workload]time.Time{}
	defer func() {
		e.at, e.decision, e.evals = at0, decision, evals
		if v := recover(); v != nil {
			mark, enough = 0, false
		}
		e.tx.Rollback(mark)
		restore()
	}()
	for _, c := range changes {
		if q := e.queues[c.Queue]; q.tree == t {
			q.node.Cells[e.intern(c.Flavor, c.Resource)].Nominal = max(0, min(c.Nominal, quota.Unlimited))
		}
	}
	t.root.Settle(e.frs, len(e.resources))
	e.liftNominations(t.nominated...)
	e.liftReservations(t, ofHeads)
	e.liftReservations(t, ofDelayed)
	e.playEvictions(t)
	return starts, e.playStarts(t, pending, at, until, starts)
}

// asked is what a workload asks for, of which queue.
type asked struct {
	queue *queue
	shape *requestShape
}

// playStarts lets time pass: workloads that fit start, and give back what they have at their end.
func (e *Engine) playStarts(t *tree, pending []*workload, at, until time.Time, starts map[*workload]time.Time) bool {
	ends := t.endings(at, (*workload).runTime)
	a := e.newAssignment()
	defer e.recycle(a)
	tries := 0
	for {
		var left []*workload
		refused := map[asked]bool{} // what did not fit in this round does not fit for the next one, either
		blocked := map[*queue]bool{}
		for _, p := range pending {
			shape := p.shape()
			if blocked[p.queue] || refused[asked{p.queue, shape}] {
				left = append(left, p)
				continue
			}
			if tries++; tries > whatIfTries {
				return false
			}
			fits := e.fitsNow(p, shape, a)
			if fits && e.opts.Placer != nil {
				tries += lookAtNodes
			}
			if !fits || !e.takeNodes(a) {
				left = append(left, p)
				refused[asked{p.queue, shape}] = true
				if p.queue.spec.StrictFIFO {
					blocked[p.queue] = true
				}
				continue
			}
			starts[p] = at
			usage := slices.Clone(a.usage)
			e.addBoth(p.queue, usage)
			if run := p.runTime(); run > 0 {
				end := ending{p.spec.Key, at.Add(run), p.queue, usage}
				i, _ := slices.BinarySearchFunc(ends, end, byEnd)
				ends = slices.Insert(ends, i, end)
			}
		}
		pending = left
		if len(pending) == 0 || len(ends) == 0 || ends[0].at.After(until) {
			return true
		}
		at = ends[0].at
		for len(ends) > 0 && ends[0].at.Equal(at) {
			e.playEnd(ends[0])
			ends = ends[1:]
		}
	}
}

// saveQuotas copies what a tree has of quota and usage, and returns how to put it back.
func (t *tree) saveQuotas() (restore func()) {
	type saved struct {
		cells    []quota.Cell
		lendable []int64
	}
	all := make(map[*treeNode]saved, len(t.nodes))
	for _, n := range t.nodes {
		all[n] = saved{slices.Clone(n.Cells), slices.Clone(n.Lendable)}
	}
	return func() {
		for n, was := range all { // each on its own; the order does not matter
			copy(n.Cells, was.cells)
			n.Lendable = append(n.Lendable[:0], was.lendable...)
		}
	}
}
