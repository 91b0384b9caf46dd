package admission

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// scratch is memory reused from one evaluation to the next. It carries no meaning between them.
type scratch struct {
	key         []byte
	text        []byte
	names       []string
	total       []podRequest
	chosen      []int32
	usage       []quota.Amount
	entries     []*assignment
	trees       []*tree
	nominees    []nominee
	free        []*assignment
	pending     []Pending
	search      search
	overrides   []*workload
	contested   []contestedQuota
	contestants []*equivClass
}

// Decide works out what to do now, and assumes it done: a later DecisionDropped undoes an item.
func (e *Engine) Decide(at time.Time) Plan {
	e.at = at
	e.decision++
	e.nodeChanges++
	evals := e.evals
	e.plan.Admit, e.plan.Evict, e.plan.Panics = e.plan.Admit[:0], e.plan.Evict[:0], e.plan.Panics[:0]
	e.rebuild()
	e.reviewNodesAside()
	for _, c := range e.retryNext {
		e.reconsider(c)
	}
	e.retryNext = e.retryNext[:0]
	for _, t := range e.again {
		e.enlist(t)
	}
	e.again = e.again[:0]
	e.noteUsage()
	e.reorderByUsage()
	e.updateRanks()
	e.fireTimers(at)
	drainAt := e.drainBudgets()
	e.reviewReserved(at)
	e.reviewApart()
	e.collectNominees()
	e.decideTrees()
	e.plan.Pending = slices.DeleteFunc(e.plan.Pending, e.superseded)
	plan := e.plan
	plan.NextAt, plan.Evaluated = e.nextTimer(), e.evals-evals
	if ranks := e.nextRankChange(); !ranks.IsZero() && (plan.NextAt.IsZero() || ranks.Before(plan.NextAt)) {
		plan.NextAt = ranks
	}
	if !e.notesAt.IsZero() && (plan.NextAt.IsZero() || e.notesAt.Before(plan.NextAt)) {
		plan.NextAt = e.notesAt
	}
	if !drainAt.IsZero() && (plan.NextAt.IsZero() || drainAt.Before(plan.NextAt)) {
		plan.NextAt = drainAt
	}
	e.plan.Pending, e.scratch.pending = e.scratch.pending[:0], e.plan.Pending
	return plan
}

// decideTrees decides every tree in which something changed.
func (e *Engine) decideTrees() {
	if e.opts.EvictOnly {
		return
	}
	if e.opts.Placer != nil {
		e.prepareTrees()
	}
	for len(e.work) > 0 {
		if e.unsorted || e.opts.BlockUntilReady && e.unready == 0 {
			slices.SortFunc(e.work, e.compareTrees)
			e.unsorted = false
		}
		t := e.work[len(e.work)-1]
		e.work = e.work[:len(e.work)-1]
		if t.root.tree == t {
			e.decideTree(t)
			if t.nominationsOutdated() || len(t.reservations) > 0 && t.admittedIn == e.decision { // with others in, less may have to be reserved
				e.again = append(e.again, t)
			}
		}
		t.listed = false
	}
}

// compareTrees orders trees for deciding, the first one last. Trees do not depend on each other,
// except where one admission anywhere makes all others wait.
func (e *Engine) compareTrees(a, b *tree) int {
	if e.opts.BlockUntilReady {
		x, y := a.head(), b.head()
		switch {
		case x != nil && y != nil:
			return cmp.Or(turnOrder(y.spec.AwaitsPods, x.spec.AwaitsPods), queueOrder(y, x))
		case x != nil:
			return 1
		case y != nil:
			return -1
		}
	}
	return strings.Compare(b.root.Name, a.root.Name)
}

// head is the workload of the tree that is first by priority and age, whether it is known to be inadmissible or not.
func (t *tree) head() *workload {
	var best *workload
	if len(t.nominated) > 0 {
		best = t.nominated[0]
	}
	for _, q := range t.queues {
		for _, c := range q.classes { // the first is the first in any order
			if w := c.members[0]; best == nil || cmp.Or(turnOrder(w.spec.AwaitsPods, best.spec.AwaitsPods), queueOrder(w, best)) < 0 {
				best = w
			}
		}
	}
	return best
}

// superseded says whether a pending reason is not worth reporting: things went on since it was
// noted, or it came to the same as before.
func (e *Engine) superseded(p Pending) bool {
	w := e.workloads[p.Workload]
	if w == nil || w.hasQuota() || w.reported != p.Reason || w.phase == phaseHeldBack && w.heldBackWhy != p.Message {
		return true
	}
	// As its object says from now on.
	w.spec.Nominated, w.spec.AwaitsPods = p.Reason == ReasonWaitingForPreemptedWorkloads, p.Reason == ReasonWaitingForPodsReady
	w.spec.Moving = w.spec.Moving && w.spec.Nominated
	w.moving = w.spec.returns()
	same := w.published == p.Reason && !p.Again
	w.published = p.Reason
	return same
}

// decideTree runs rounds until no workload of the tree can be helped further.
func (e *Engine) decideTree(t *tree) {
	if t.cyclic {
		e.reportCycle(t)
		return
	}
	if !t.prepared {
		e.prepare(t)
		e.renominate(t)
	}
	t.prepared, t.yielding = false, true
	for {
		e.admitNominated(t)
		e.spreadHints(t)
		if !e.round(t) && !t.anyFreed && len(t.newlyBorrowed) == 0 && (!t.usageFreed || e.unready > 0) && !e.retryRevoked(t) && !e.retryYieldedClasses(t) {
			e.setMinRuntimeTimer(t)
			return
		}
	}
}

// prepareTrees rebuilds the nominations of all trees before any of them is decided. Trees share no quota, but they
// share nodes: what is nominated in one is not there for the others.
func (e *Engine) prepareTrees() {
	slices.SortFunc(e.work, e.compareTrees)
	e.unsorted = false
	trees := e.scratch.trees[:0]
	for _, t := range slices.Backward(e.work) {
		if t.root.tree == t && !t.cyclic {
			e.prepare(t)
			trees = append(trees, t)
		}
	}
	e.renominate(trees...)
	for _, t := range trees {
		t.prepared = true
	}
	clear(trees)
	e.scratch.trees = trees[:0]
}

// prepare takes out of the future what is found anew in each decision.
func (e *Engine) prepare(t *tree) {
	for _, q := range t.queues {
		e.refreshShares(q)
	}
	for _, c := range slices.Clone(t.reservations) {
		t.usageChanges++
		e.requeue(c) // reservations are made anew in each decision
	}
	e.dropUnownedNominations(t)
}

// reportCycle: nothing can be decided in a cycle of cohorts.
func (e *Engine) reportCycle(t *tree) {
	for _, q := range t.queues {
		for _, w := range q.pendingInOrder() {
			e.reportPending(w, ReasonMisconfigured, "Cohort "+q.spec.Cohort+" is part of a cycle")
		}
	}
}

// round takes an entry from every queue, the first workload that can be helped, and processes them
// in order, each followed by the next entry of its queue. It reports whether there was any.
// Passing over workloads that cannot be helped makes the outcome independent of which were known to
// be inadmissible before.
func (e *Engine) round(t *tree) bool {
	entries := e.scratch.entries[:0]
	for _, q := range t.queues {
		if a := e.nextEntry(t, q); a != nil {
			entries = append(entries, a)
		}
	}
	e.scratch.entries = entries
	if len(entries) == 0 {
		return false
	}
	if t.policy == PolicyFIFO {
		e.processInOrder(t, entries)
	} else {
		e.processFairly(t, entries)
	}
	return true
}

// nextEntry evaluates a queue's workloads in order up to the first that can be helped; those before
// it are inadmissible.
func (e *Engine) nextEntry(t *tree, q *queue) *assignment {
	e.spreadHints(t)
	if e.unready > 0 {
		if w := e.next(t, q); w != nil {
			e.reportPodsAwaited(w)
		}
		return nil
	}
	for w := e.next(t, q); w != nil; w = e.next(t, q) {
		a := e.newAssignment()
		e.consider(w, w.class.shape, a)
		if a.admissible() || a.reserves() {
			return a
		}
		e.refuse(a)
		e.recycle(a)
	}
	return e.backfill(t, q)
}

// processInOrder processes entries in entryOrder. An entry that others made outdated is evaluated again
// when it is first, and goes back if it comes later by now. It can come earlier only with another flavor, or
// with the workload that follows it in its queue: then it is evaluated at once.
func (e *Engine) processInOrder(t *tree, entries []*assignment) {
	slices.SortFunc(entries, entryOrder)
	for len(entries) > 0 {
		a := entries[0]
		q := a.w.queue
		switch {
		case a.version != t.version && !e.refresh(t, a):
		case len(entries) > 1 && entryOrder(a, entries[1]) > 0:
			slices.SortFunc(entries, entryOrder)
			continue
		default:
			e.process(a)
		}
		e.recycle(a)
		entries = entries[1:]
		if a = e.nextEntry(t, q); a != nil {
			i, _ := slices.BinarySearchFunc(entries, a, entryOrder)
			entries = slices.Insert(entries, i, a)
		}
		entries = e.refreshOthers(t, entries)
	}
}

// refreshOthers evaluates outdated entries again that may choose between flavors and, before one that
// borrows is processed, those that lost their fit.
func (e *Engine) refreshOthers(t *tree, entries []*assignment) []*assignment {
	if len(entries) == 0 {
		return entries
	}
	borrows, reserves := entries[0].borrow > 0, !entries[0].admissible()
	losesFit := borrows && (reserves || t.unreclaims)
	if !losesFit && !t.choice {
		return entries
	}
	left, moved := entries[:0], false
	for _, a := range entries {
		q := a.w.queue
		if a.version != t.version && (q.choice || borrows && a.lostFit(reserves)) {
			moved = true
			if !e.refresh(t, a) {
				e.recycle(a)
				if a = e.nextEntry(t, q); a == nil {
					continue
				}
			}
		}
		left = append(left, a)
	}
	if moved {
		slices.SortFunc(left, entryOrder)
	}
	return left
}

// lostFit: an entry does not fit any more, and the next workload of its queue may do with nominal
// quota that the first entry would take, or reserve. Where the queue can reclaim it, a borrower yields.
func (a *assignment) lostFit(reserved bool) bool {
	q := a.w.queue
	return a.mode == fit && (q.spec.Preemption.ReclaimWithinCohort != PreemptAny || reserved) && !a.fits(quota.Future) &&
		slices.ContainsFunc(a.usage, func(u quota.Amount) bool { return q.node.Cells[u.FR].Unused() > 0 })
}

// refresh brings an entry up to date; false if it has nothing to process any more.
func (e *Engine) refresh(t *tree, a *assignment) bool {
	switch {
	case a.w.phase != phasePending || a.backfill:
		return false
	case a.mode == fit && len(a.overrides) == 0 && e.opts.Placer == nil && !a.w.queue.choice && !e.refusesApart() && a.fits(quota.Now) && a.fits(quota.Future):
		return e.refreshFit(t, a)
	case e.stillBeyond(t, a.w.class):
		return false
	}
	e.consider(a.w, a.shape, a)
	if a.admissible() || a.reserves() {
		return true
	}
	e.refuse(a)
	return false
}

// refreshFit brings an entry up to date that still fits as it is.
func (e *Engine) refreshFit(t *tree, a *assignment) bool {
	a.borrow = 0
	for _, u := range a.usage {
		level, _ := a.w.queue.node.BorrowLevel(u.FR, u.V, quota.Now)
		a.borrow = max(a.borrow, level)
	}
	a.version = t.version
	a.refused.remove(ruleYields)
	if e.borrowerYields(t, a) {
		a.refused.add(ruleYields)
		e.yieldClass(a)
		return false
	}
	return true
}

func (e *Engine) newAssignment() *assignment {
	if n := len(e.scratch.free); n > 0 {
		a := e.scratch.free[n-1]
		e.scratch.free = e.scratch.free[:n-1]
		return a
	}
	return &assignment{}
}

func (e *Engine) recycle(a *assignment) {
	a.w, a.shape, a.placed, a.failed, a.over, a.aside = nil, nil, nil, nil, nil, nil
	e.scratch.free = append(e.scratch.free, a)
}

// consider is evaluate for a decision: it notes whose minimum runtime the tree waits for.
func (e *Engine) consider(w *workload, s *requestShape, a *assignment) {
	e.evaluate(w, s, a, asIs)
	if a.refused.by(ruleMinRuntime) {
		w.queue.tree.awaitsMinRuntime = true
	}
}

// evaluate finds the best a workload can get. It changes nothing, so a panic harms that workload alone.
func (e *Engine) evaluate(w *workload, s *requestShape, a *assignment, how evalMode) {
	defer e.containPanic(w, a, e.tx.Checkpoint())
	e.evals++
	t := w.queue.tree
	if w.spec.Extra {
		how = fitOnly
	}
	a.reset(w, s, how)
	if a.version = t.version; e.exhausted(a) {
		return
	}
	e.attempt(a)
	if !a.admissible() && s.shrinks {
		e.attemptPartial(a)
	}
	if a.mode != fit || a.partial {
		e.attemptOverNominations(t, a)
	}
	if !e.staysWithinBudgets(a) || !e.leavesReserved(a) {
		return
	}
	if e.borrowerYields(t, a) {
		a.refused.add(ruleYields)
	}
	switch {
	case a.admissible() || a.refused.by(ruleYields):
	case a.lacksReservedOnly:
		a.refused.add(ruleReserved)
		a.reserveFree(false)
	case a.refused.by(rulesOfTime):
		e.reserveAhead(a)
	}
	a.version = t.version
}

// attempt assigns flavors at the present counts and looks for real nodes and, if need be, for
// workloads to preempt.
func (e *Engine) attempt(a *assignment) {
	a.victims, a.placed, a.failed = a.victims[:0], nil, nil
	e.assign(a)
	if a.mode == noFit {
		return
	}
	if e.opts.Placer != nil && a.mode >= deferred && !e.findPlacement(a) {
		return
	}
	if a.mode < deferred {
		e.findVictims(a)
	}
}

// reportPodsAwaited tells a workload that nobody is admitted now.
func (e *Engine) reportPodsAwaited(w *workload) {
	if w.nominable() {
		return // it was told what it waits for
	}
	e.reportPending(w, ReasonWaitingForPodsReady, "waiting for all admitted workloads to be in PodsReady condition")
}

// process carries out what evaluate found.
func (e *Engine) process(a *assignment) {
	switch {
	case !a.admissible():
		e.refuse(a)
		return
	case e.unready > 0: // another was admitted meanwhile
		e.reportPodsAwaited(a.w)
		return
	}
	for _, p := range a.overrides {
		e.overrideNomination(p)
	}
	for _, v := range a.victims {
		e.preempt(a.w, v)
	}
	if a.mode == fit || len(a.victims) > 0 && a.fits(quota.Now) && e.opts.Placer == nil {
		e.admit(a)
		return
	}
	e.nominate(a)
	if move(a.victims) {
		e.setNodesAside(a.victims)
	}
}

// admit reserves the workload's quota.
func (e *Engine) admit(a *assignment) {
	w := a.w
	adm := e.admissionOf(a)
	if e.opts.Placer != nil {
		placed, refusal := e.place(a)
		if refusal != nil {
			return // another took the nodes since; next round
		}
		adm.Placement = placed
	}
	if w.phase == phasePending {
		e.dequeue(w)
	}
	w.spec.Admission, w.spec.PodsReady = adm, false // whatever it was when it ran before
	w.setVictimPlace(&w.spec, nanos(e.at))
	w.assumed, w.in.admitted, w.reported, w.published = true, e.decision, "", ""
	e.setPreemptor(w, nil)
	w.moving = false
	w.queue.tree.admittedIn = e.decision
	usage := slices.Clone(a.usage)
	if e.samplesUsage(w.queue) {
		w.local.usage.Note(&e.usageRules, e.at)
		w.local.charge(e, usage, 1)
	}
	e.occupyQuota(w, usage)
	e.refreshShares(w.queue)
	e.plan.Admit = append(e.plan.Admit, Admit{Workload: w.spec.Key, UID: w.spec.UID, Admission: adm, Borrows: a.borrow > 0, Partial: a.partial, Backfill: a.backfill})
}

func (e *Engine) admissionOf(a *assignment) *Admission {
	return &Admission{Queue: a.w.queue.name, ReservedAt: e.at, PodSets: e.podSetsOf(a), AvoidNodes: e.avoidNodes(a.w)}
}

// podSetsOf is what the pod sets get, shared with the last workload of the request shape that got the same.
func (e *Engine) podSetsOf(a *assignment) []PodSetAssignment {
	last := &a.shape.last
	if last.podSets != nil && slices.Equal(last.counts, a.counts) && slices.EqualFunc(last.flavors, a.flavors, slices.Equal) {
		return last.podSets
	}
	podSets := make([]PodSetAssignment, len(a.shape.podSets))
	*last = sharedPodSets{counts: slices.Clone(a.counts), flavors: make([][]int32, len(podSets)), podSets: podSets}
	for i := range podSets {
		ps := &podSets[i]
		ps.Name, ps.Count = a.shape.podSets[i].Name, a.counts[i]
		ps.Flavors = make(map[string]string, len(a.flavors[i]))
		ps.Usage = make(Requests, len(a.flavors[i]))
		last.flavors[i] = slices.Clone(a.flavors[i])
		for j, fl := range a.flavors[i] {
			if fl >= 0 {
				r := a.shape.requests[i][j]
				ps.Flavors[e.resources[r.resource]] = e.flavors[fl].spec.Name
				ps.Usage[e.resources[r.resource]] = quota.Times(r.v, a.counts[i])
			}
		}
	}
	return podSets
}
