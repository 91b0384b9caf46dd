package admission

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// scratch is memory reused from one decision to the next.
type scratch struct {
	key         []byte
	text        []byte
	names       []string
	total       []podRequest
	chosen      []int32
	usage       []amount
	entries     []*assignment
	free        []*assignment
	parks       []Pending
	search      search
	overrides   []*workload
	byUsage     bool // somebody was looked for in the order of usage
	fitOnly     bool // do not look for anyone to displace
	taken       []int64
	contested   []contestedQuota
	contestants []*equivClass
}

// Decide works out what to do now, and assumes it done: a later DecisionDropped undoes an item.
func (e *Engine) Decide(at time.Time) Plan {
	e.at = at
	e.decision++
	e.plan.Admit, e.plan.Evict = e.plan.Admit[:0], e.plan.Evict[:0]
	e.rebuild()
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
	e.fireTimers(at)
	e.reviewReserved(at)
	e.collectNominees()
	for len(e.work) > 0 && !e.opts.EvictOnly {
		if e.unsorted || e.opts.BlockUntilReady && e.unready == 0 {
			slices.SortFunc(e.work, e.compareTrees)
			e.unsorted = false
		}
		t := e.work[len(e.work)-1]
		e.work = e.work[:len(e.work)-1]
		if t.root.tree == t {
			e.decideTree(t)
			if t.nominationsOutdated(e) || len(t.reservations) > 0 && t.admittedIn == e.decision { // with others in, less may have to be kept
				e.again = append(e.again, t)
			}
		}
		t.listed = false
	}
	e.plan.Pending = slices.DeleteFunc(e.plan.Pending, e.outdated)
	plan := e.plan
	plan.NextAt = e.nextTimer()
	if !e.notesAt.IsZero() && (plan.NextAt.IsZero() || e.notesAt.Before(plan.NextAt)) {
		plan.NextAt = e.notesAt
	}
	e.plan.Pending, e.scratch.parks = e.scratch.parks[:0], e.plan.Pending
	return plan
}

// compareTrees orders trees for deciding, the first one last. Trees do not depend on
// each other, except where one admission anywhere makes all others wait.
func (e *Engine) compareTrees(a, b *tree) int {
	if e.opts.BlockUntilReady {
		x, y := a.head(), b.head()
		switch {
		case x != nil && y != nil:
			return queueOrder(y, x)
		case x != nil:
			return 1
		case y != nil:
			return -1
		}
	}
	return strings.Compare(b.root.name, a.root.name)
}

// head is the workload of the tree that is first by priority and age, whether it is known to be inadmissible or not.
func (t *tree) head() *workload {
	var best *workload
	if len(t.nominated) > 0 {
		best = t.nominated[0]
	}
	for _, q := range t.queues {
		for _, c := range q.classes { // the first is the first in any order
			if w := c.members[0]; best == nil || queueOrder(w, best) < 0 {
				best = w
			}
		}
	}
	return best
}

// outdated: things went on since the verdict was noted, or came to the same in the end.
func (e *Engine) outdated(p Pending) bool {
	w := e.workloads[p.Workload]
	if w == nil || w.hasQuota || w.reported != p.Reason {
		return true
	}
	w.spec.Nominated = p.Reason == ReasonWaitingForPreemptedWorkloads // as its object says from now on
	same := w.published == p.Reason
	w.published = p.Reason
	return same
}

// decideTree runs rounds until nobody in the tree can be helped further.
func (e *Engine) decideTree(t *tree) {
	if t.cyclic {
		e.reportCycle(t)
		return
	}
	for _, q := range t.queues {
		e.refreshShares(q)
	}
	for _, c := range slices.Clone(t.reservations) {
		t.usageChanges++
		e.requeue(c) // reservations are made anew in each decision
	}
	e.dropUnownedNominations(t)
	e.renominate(t)
	t.yielding = true
	for {
		e.admitNominated(t)
		e.spreadHints(t)
		if !e.round(t) && !t.anyFreed && len(t.newlyBorrowed) == 0 && (!t.usageFreed || e.unready > 0) && !e.retryRevoked(t) && !e.retryYieldedClasses(t) {
			e.setMinRuntimeTimer(t)
			return
		}
	}
}

// reportCycle: nothing can be decided in a ring of cohorts.
func (e *Engine) reportCycle(t *tree) {
	for _, q := range t.queues {
		for _, w := range q.pendingInOrder() {
			e.reportPending(w, ReasonMisconfigured, "Cohort "+q.spec.Cohort+" is part of a cycle")
		}
	}
}

// round takes from every queue the first workload that can be helped and
// settles them in the order of their rights, each followed in line by the next of its
// queue. It reports whether there was any.
// Passing over those that cannot be helped makes the outcome independent of
// who was known to be inadmissible before.
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

// nextEntry finds the queue's first workload that can be helped, and parks
// those before it.
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
		e.evaluate(w, w.class.shape, a)
		if a.admissible() || a.reserves() {
			return a
		}
		e.refuse(a)
		e.recycle(a)
	}
	return e.backfill(t, q)
}

// processInOrder settles entries by rights. An entry that others made outdated
// is looked at again when its turn comes, and goes back if its rights are less by now.
// They can be better only with another flavor, or with who follows it in line: then it is looked at at once.
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

// refreshOthers looks again at outdated entries that may choose between flavors and, before one that borrows is settled, at
// those that were outdone.
func (e *Engine) refreshOthers(t *tree, entries []*assignment) []*assignment {
	if len(entries) == 0 {
		return entries
	}
	borrows, keeps := entries[0].borrow > 0, !entries[0].admissible()
	kept, moved := entries[:0], false
	for _, a := range entries {
		q := a.w.queue
		if a.version != t.version && (q.choice || borrows && a.lostFit(keeps)) {
			moved = true
			if !e.refresh(t, a) {
				e.recycle(a)
				if a = e.nextEntry(t, q); a == nil {
					continue
				}
			}
		}
		kept = append(kept, a)
	}
	if moved {
		slices.SortFunc(kept, entryOrder)
	}
	return kept
}

// lostFit: an entry has no room any more, and who follows it in line may do with quota of its own that others would take, or only
// keep from it. Where the queue can take it back, who borrows it steps back.
func (a *assignment) lostFit(kept bool) bool {
	q := a.w.queue
	return a.mode == fit && (q.spec.Preemption.ReclaimWithinCohort != PreemptAny || kept) && !a.fits(future) &&
		slices.ContainsFunc(a.usage, func(u amount) bool { return q.node.cells[u.fr].unused() > 0 })
}

// refresh brings an entry up to date; false if it has nothing to settle any more.
func (e *Engine) refresh(t *tree, a *assignment) bool {
	switch {
	case a.w.class == nil || a.backfill:
		return false
	case a.mode == fit && len(a.overrides) == 0 && e.opts.Placer == nil && !a.w.queue.choice && a.fits(now) && a.fits(future):
		a.borrow = 0
		for _, u := range a.usage {
			level, _ := a.w.queue.node.borrowLevel(u.fr, u.v, now)
			a.borrow = max(a.borrow, level)
		}
		a.version = t.version
		if a.yields = e.borrowerYields(t, a); a.yields {
			e.yieldClass(a)
		}
		return !a.yields
	case e.stillBeyond(t, a.w.class):
		return false
	}
	e.evaluate(a.w, a.shape, a)
	if a.admissible() || a.reserves() {
		return true
	}
	e.refuse(a)
	return false
}

// entryOrder: own quota before borrowed, then priority, then age.
func entryOrder(a, b *assignment) int {
	if a.borrow != b.borrow {
		return cmp.Compare(a.borrow, b.borrow)
	}
	if c := queueOrder(a.w, b.w); c != 0 {
		return c
	}
	return strings.Compare(a.w.queue.name, b.w.queue.name)
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
	a.w, a.shape, a.placed, a.failed = nil, nil, nil, nil
	e.scratch.free = append(e.scratch.free, a)
}

// admissible: it can be admitted, at once or after others have left.
func (a *assignment) admissible() bool {
	return !a.yields && (a.mode >= deferred || len(a.victims) > 0)
}

// evaluate finds the best a workload can get as things stand.
func (e *Engine) evaluate(w *workload, s *requestShape, a *assignment) {
	e.evals++
	t := w.queue.node.root.tree
	a.reset(w, s)
	e.attempt(a)
	if !a.admissible() && s.shrinks {
		e.attemptPartial(a)
	}
	if a.mode != fit || a.partial {
		e.attemptOverNominations(t, a)
	}
	a.yields = e.borrowerYields(t, a)
	switch {
	case a.admissible() || a.yields:
	case a.lacksReservedOnly:
		a.delayed = true
		a.reserveFree(false)
	case a.delayed:
		e.reserveAhead(a)
	}
	a.version = t.version
}

// attempt assigns flavors at the present counts and looks for real nodes and,
// if need be, for workloads to displace.
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
	if w.hasVictims() {
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
	if a.mode == fit || len(a.victims) > 0 && a.fits(now) && e.opts.Placer == nil {
		e.admit(a)
		return
	}
	e.nominate(a)
}

func (a *assignment) fits(k int) bool {
	for _, u := range a.usage {
		if !a.w.queue.node.fits(u.fr, u.v, k) {
			return false
		}
	}
	return true
}

// admit gives the workload its quota.
func (e *Engine) admit(a *assignment) {
	w := a.w
	adm := e.admissionOf(a)
	if e.opts.Placer != nil {
		placed, refusal := e.opts.Placer.Place(e.placeRequest(a))
		if refusal != nil {
			return // another took the nodes since; next round
		}
		adm.Placement = placed
	}
	if w.class != nil {
		e.dequeue(w)
	}
	w.spec.Admission, w.spec.PodsReady = adm, false // whatever it was when it ran before
	w.reservedAt = nanos(e.at)
	w.assumed, w.admitted, w.reported, w.published = true, e.decision, "", ""
	e.setPreemptor(w, nil)
	w.queue.node.root.tree.admittedIn = e.decision
	usage := slices.Clone(a.usage)
	if w.queue.spec.UsageFairSharing {
		w.local.usage.note(e)
		w.local.usage.charge(e, usage, 1)
	}
	e.occupyQuota(w, usage)
	e.refreshShares(w.queue)
	e.plan.Admit = append(e.plan.Admit, Admit{Workload: w.spec.Key, UID: w.spec.UID, Admission: adm, Borrows: a.borrow > 0, Partial: a.partial, Backfill: a.backfill})
}

func (e *Engine) admissionOf(a *assignment) *Admission {
	return &Admission{Queue: a.w.queue.name, ReservedAt: e.at, PodSets: e.podSetsOf(a)}
}

// podSetsOf is what the pod sets get, shared with whoever of the shape got the same last.
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
				ps.Usage[e.resources[r.resource]] = r.v * int64(a.counts[i])
			}
		}
	}
	return podSets
}

// refuse parks the class of a workload that cannot be admitted, and
// says which changes could help.
func (e *Engine) refuse(a *assignment) {
	if a.yields {
		e.yieldClass(a)
		return
	}
	c := a.w.class
	v := verdict{reason: a.refusal()}
	if v.reason == c.reported && len(c.unreported) == 0 {
		v.message = c.verdict.message // nobody is told again: spare the words
	} else {
		v.message = e.message(a)
	}
	e.setInadmissible(c, v)
	c.refusedAt = c.queue.node.root.tree.improvements
	e.noteDelays(c, a)
	if a.retryNext || a.w.cooldownIn == e.decision {
		e.retryNext = append(e.retryNext, c)
	}
	e.registerHints(c, a)
	if c.queue.spec.StrictFIFO || len(a.reservation)+len(c.liftedReservation) > 0 {
		e.reserve(c, a)
	}
	// What it kept so far and leaves to others is of no help to itself.
	t := c.queue.node.root.tree
	c.refusedAt, c.refusedUsage = t.improvements, t.usageChanges
}

// noteDelays notes what keeps a class from displacing others for a time.
func (e *Engine) noteDelays(c *equivClass, a *assignment) {
	c.delayed, c.canReserve, c.cooldown = a.delayed, a.canReserve(), a.cooldown
	e.setRetryTimer(c)
}

// refusal is the token for why the assignment is not possible now.
func (a *assignment) refusal() Reason {
	switch {
	case a.failed != nil:
		return ReasonTopologyPlacementFailed
	case a.mode == noFit && a.reason != "":
		return a.reason
	}
	return ReasonWaitingForQuota
}

// registerHints says what could turn the refusal into an admission.
func (e *Engine) registerHints(c *equivClass, a *assignment) {
	n := c.queue.node
	if a.failed != nil {
		for _, f := range c.queue.flavors() {
			e.flavors[f].awaitNodes(c)
		}
	}
	if a.futile || len(a.shape.groups) > 1 && c.queue.choice {
		e.watch(c)
		return
	}
	e.unwatch(c)
	if a.shape.shrinks { // fewer pods may do: whatever is freed counts
		for _, g := range c.queue.groups {
			for _, f := range g.flavors {
				for _, fr := range f.frs {
					c.queue.waitFor(c, fr, math.MinInt64)
				}
			}
		}
		return
	}
	lastFlavor := int32(-1)
	for _, m := range a.misses {
		if m.reason == ReasonWaitingForQuota && m.flavor != lastFlavor {
			lastFlavor = m.flavor // one lacking resource per flavor is enough to watch
			need := n.available(m.fr, future) + m.amount
			l := c.queue.waitFor(c, m.fr, need)
			if e.monotone(a) {
				l.refuse(need, c.refusedAt)
			}
		}
	}
}

// monotone: where this request was refused, a larger one of its priority would be too.
func (e *Engine) monotone(a *assignment) bool {
	q := a.w.queue
	return a.shape.simple && e.opts.Placer == nil && q.node.root.tree.policy == PolicyFIFO && !e.inCooldown(a.w) && !a.delayed && !a.retryNext && !a.futile &&
		q.spec.Preemption.WithinQueue != PreemptLowerOrNewerEqualPriority
}

// flavors lists the queue's flavors.
func (q *queue) flavors() []int32 {
	var fls []int32
	for _, g := range q.groups {
		for _, f := range g.flavors {
			if !slices.Contains(fls, f.flavor) {
				fls = append(fls, f.flavor)
			}
		}
	}
	return fls
}
