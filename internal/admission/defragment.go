package admission

import (
	"slices"
	"time"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// Quota may be free while the nodes that have it are scattered: a workload fits into quota, and its pods fit nowhere
// together. Where the queues allow it, others move: they are evicted, and fit at once on other nodes, with the quota that
// they had. A plan of moves is tried as a whole before anybody is evicted: the workload gets its nodes, and all who move
// get others. There is one plan at a time: nobody moves while anybody is being evicted.

// Defragmentation is what a queue allows: its workloads move for others, and others of its tree that allow it for them.
type Defragmentation struct {
	// Moves is how many workloads move for one.
	Moves int
	// LostWork is how much time of work they lose by it, all together: since each started, or last saved its work.
	LostWork time.Duration
}

// DefragmentPlan says what a Placer may plan.
type DefragmentPlan struct {
	Moves    int
	LostWork int64
	// Cost is what moving a workload costs of LostWork; below 0: it stays.
	Cost func(Key) int64
}

// findMoves finds workloads to move for one that quota allows and nodes do not; nil if there are none.
func (e *Engine) findMoves(a *assignment) []victim {
	d := a.w.queue.spec.Defragmentation
	if d == nil || d.Moves <= 0 || !a.fits(quota.Future) || !a.fits(quota.Now) {
		return nil
	}
	var moves []victim
	if len(e.evicting) == 0 && !a.refused.by(ruleDelay) && !e.knownImmovable(a) {
		if moves = e.planMoves(a, *d); len(moves) == 0 {
			e.noteImmovable(a)
		}
	}
	if len(moves) > 0 && e.tryMoves(a, moves) {
		return moves
	}
	if e.decision == noDecision {
		e.explainNoMoves(a, moves)
	}
	return nil
}

// planMoves asks the Placer for moves within bounds.
func (e *Engine) planMoves(a *assignment, d Defragmentation) []victim {
	keys := e.opts.Placer.Defragment(e.placeRequest(a), DefragmentPlan{
		Moves: d.Moves, LostWork: int64(d.LostWork),
		Cost: func(k Key) int64 { return e.moveCost(a.w, e.workloads[k]) },
	})
	moves := make([]victim, 0, len(keys))
	for _, k := range keys {
		moves = append(moves, victim{e.workloads[k], ReasonDefragmentation})
	}
	return moves
}

// immovable is what no plan of moves was found for. A plan is the same for all who ask the same nodes for the same; many do,
// each in a class of its own by its run time, and a search in vain is the longest.
type immovable struct {
	onNodes uint64 // Engine.nodeChanges of all of them
	asked   []askedMoves
}

type askedMoves struct {
	shape    *requestShape
	counts   []int32
	flavors  [][]int32
	queue    *queue
	priority int64
}

// knownImmovable says that there is no plan of moves for an assignment, since there was none for its like.
func (e *Engine) knownImmovable(a *assignment) bool {
	return len(e.advanceNodes) == 0 && e.immovable.onNodes == e.nodeChanges && e.tx.NodesAsTheyAre() && slices.ContainsFunc(e.immovable.asked, a.asksLike)
}

func (e *Engine) noteImmovable(a *assignment) {
	if !e.tx.NodesAsTheyAre() {
		return
	}
	if e.immovable.onNodes != e.nodeChanges {
		clear(e.immovable.asked)
		e.immovable = immovable{onNodes: e.nodeChanges, asked: e.immovable.asked[:0]}
	}
	asked := askedMoves{a.shape, slices.Clone(a.counts), make([][]int32, len(a.shape.podSets)), a.w.queue, a.w.spec.Priority}
	for i := range asked.flavors {
		asked.flavors[i] = slices.Clone(a.flavors[i])
	}
	e.immovable.asked = append(e.immovable.asked, asked)
}

// asksLike says that moves for another would be moves for this assignment.
func (a *assignment) asksLike(o askedMoves) bool {
	q := a.w.queue
	return a.shape == o.shape && a.w.spec.Priority == o.priority && q.tree == o.queue.tree && *q.spec.Defragmentation == *o.queue.spec.Defragmentation &&
		slices.Equal(q.spec.DelayedPlacement, o.queue.spec.DelayedPlacement) &&
		slices.Equal(a.counts, o.counts) && slices.EqualFunc(a.flavors[:len(o.flavors)], o.flavors, slices.Equal)
}

// moveCost is the work that v loses if it moves for w; below 0: it stays.
func (e *Engine) moveCost(w, v *workload) int64 {
	switch {
	case v == nil || v == w || v.phase != phaseReserved || v.assumed || v.queue.tree != w.queue.tree || v.queue.spec.Defragmentation == nil:
		return -1
	case v.safe || v.spec.Stays || v.preemptor != nil || v.spec.Priority > w.spec.Priority || len(v.queue.spec.DelayedPlacement) > 0:
		return -1
	}
	return max(0, nanos(e.at)-v.savedAt)
}

// tryMoves says whether the workload fits once others have left, and they beside it.
func (e *Engine) tryMoves(a *assignment, moves []victim) bool {
	mark := e.tx.Checkpoint()
	defer e.tx.Rollback(mark)
	e.removeEvicting()
	for _, v := range moves {
		e.opts.Placer.Remove(v.w.spec.Key)
	}
	if !e.tryPlace(a) || !e.takeNodes(a) || !e.mayReturn(a, moves) {
		return false
	}
	return !slices.ContainsFunc(inQueueOrder(moves), func(v victim) bool {
		_, refusal := e.opts.Placer.Place(e.placeAgainRequest(v.w))
		return refusal != nil
	})
}

// mayReturn says whether budgets and advance reservations let those start again who move for a workload, beside it and those
// of them that are tried before; if not, the workload is looked at again when they might. Who starts again may run on longer than it
// would have.
func (e *Engine) mayReturn(a *assignment, moves []victim) bool {
	if !e.refusesApart() {
		return true
	}
	beside := []returning{{w: a.w, usage: a.usage}}
	for _, v := range inQueueOrder(moves) {
		if over := e.returnsBeyondBudget(v.w, beside); over != nil {
			a.over = over
			return false
		}
		if r := e.takesReserved(&starting{w: v.w, usage: v.w.usage, victims: moves, beside: beside}); r != nil {
			a.aside = r
			return false
		}
		beside = append(beside, returning{v.w, v.w.usage})
	}
	return true
}

// returning is a workload that starts, for the first time or again, when others move.
type returning struct {
	w     *workload
	usage []quota.Amount
}

// returnNeeds is what a workload takes of a budget that starts, or starts again, and what of that is committed already.
func (e *Engine) returnNeeds(b *budget, r returning) (needs, frees int64) {
	rate := e.perSecond(b, r.usage)
	if !r.w.hasQuota() {
		if run := r.w.runLimit(); run > 0 {
			needs = times(rate, b.within(e.at, e.at.Add(run)))
		}
		return needs, 0
	}
	frees = e.committedTo(b, r.w)
	if needs = frees; r.w.spec.MaxRunTime <= 0 && r.w.spec.ExpectedRunTime > 0 { // it is expected to run so long anew
		needs = times(rate, b.within(e.at, e.at.Add(r.w.spec.ExpectedRunTime)))
	}
	return needs, frees
}

// returnsBeyondBudget is a budget of which too little is left, beside others, for one that starts again; nil: there is none.
func (e *Engine) returnsBeyondBudget(v *workload, beside []returning) *overBudget {
	var over *overBudget
	e.budgetsOf(v.local, v.queue, func(b *budget) bool {
		rate := e.perSecond(b, v.usage)
		if rate <= 0 || !e.at.Before(b.spec.Until) {
			return true
		}
		needs, frees := e.returnNeeds(b, returning{v, v.usage})
		used := e.usedOf(b) - frees
		for _, o := range beside {
			e.budgetsOf(o.w.local, o.w.queue, func(other *budget) bool {
				if other == b {
					needs, frees := e.returnNeeds(b, o)
					used += needs - frees
				}
				return true
			})
		}
		if left := b.spec.Amount - used; left <= 0 || needs > left {
			over = &overBudget{budget: b, used: used, spent: b.spent, needs: needs, until: b.spec.Until}
		}
		return over == nil
	})
	return over
}

// leavers are the victims that do not come back at once: who moves has its quota again.
func leavers(victims []victim) []victim {
	if move(victims) {
		return nil
	}
	return victims
}

// move says of victims that they move to other nodes: all of them, or none.
func move(victims []victim) bool {
	return len(victims) > 0 && victims[0].why == ReasonDefragmentation
}

// Who moves has its quota until it is back, or cannot come back: it stays counted in the future while the workload is
// evicted, and is nominated for it from the moment that it is pending. All of that follows from its object: that it was
// evicted to move, and was told of no other reason to wait since.

// returns says that a workload has its quota again once it has moved.
func (s *Workload) returns() bool { return s.Moving && !s.mayShrink() }

// mayShrink says that it may be admitted with fewer pods. Such a one could come back with more of them than it had.
func (s *Workload) mayShrink() bool {
	return slices.ContainsFunc(s.PodSets, func(ps PodSet) bool { return ps.MinCount > 0 && ps.MinCount < ps.Count })
}

// setMoving notes whether a workload that is evicted comes back.
func (e *Engine) setMoving(w *workload, moving bool) {
	if w.moving == moving || w.phase != phaseEvicting {
		w.moving = moving
		return
	}
	e.setEvicting(w, false)
	w.moving = moving
	e.setEvicting(w, true)
}

// stayAway ends the return of one that moved: it does not fit, and is pending like others.
func (e *Engine) stayAway(w *workload) {
	if w.moving {
		w.moving = false
		e.reportPending(w, ReasonPending, cannotReturnMessage)
	}
}

// placeAgainRequest asks for nodes for what a workload was given.
func (e *Engine) placeAgainRequest(w *workload) PlaceRequest {
	req := PlaceRequest{Workload: w.spec.Key, AvoidNodes: e.avoidNodes(w)}
	for i := range w.spec.PodSets {
		set := &w.spec.PodSets[i]
		at := slices.IndexFunc(w.spec.Admission.PodSets, func(p PodSetAssignment) bool { return p.Name == set.Name })
		if at < 0 {
			continue
		}
		given := &w.spec.Admission.PodSets[at]
		ps := PlacePodSet{Spec: set, Count: given.Count}
		flavors := given.NodeFlavors()
		for _, resource := range sortedNames(flavors) {
			f := &e.flavors[e.flavor(flavors[resource])].spec
			if !slices.Contains(ps.Flavors, f) {
				ps.Flavors = append(ps.Flavors, f)
			}
		}
		req.PodSets = append(req.PodSets, ps)
	}
	return req
}
