package admission

import (
	"slices"

	"github.com/elastic-ai/elastic/internal/admission/index"
	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// victim is a workload to preempt and the rule that allows it.
type victim struct {
	w   *workload
	why Reason
}

// search is one search for victims. It works on the future view: workloads being evicted are gone
// there, so nobody is preempted for quota that is coming free anyway.
type search struct {
	a                 *assignment
	decision          uint64
	thisDecisionOnly  bool           // only admissions of this decision may be revoked
	usage             []quota.Amount // what must fit
	need              []int32        // flavor-resources that are short
	nodes             bool           // real nodes must have the capacity too
	headsReserved     bool           // blocked heads have reservations: the preemptor must fit beside them, but nobody borrows them
	lacksReservedOnly bool
	byUsage           bool // candidates were ordered by usage, which changes with time
	extrasOnly        bool // of elastic jobs, what they have beyond their minimum
	pastMinRuntime    bool // those within their minimum runtime are passed over ...
	skipped           bool // ... and some were
	prio              int64
	cursors           [candidateGroups][]cursor
	walk              []cursor // the group under way
	merged            index.Heap[*cursor]
	givers            []giver // under fair sharing
	victims           []victim
	rest              []quota.Amount
}

func (e *Engine) mayPreemptWhileBorrowing(q *queue) bool {
	p := &q.spec.Preemption
	return p.BorrowWithinCohort || q.tree.policy != PolicyFIFO && p.ReclaimWithinCohort != PreemptNever
}

// prospect rates what preemption could do for one flavor-resource. Without a choice of flavors the
// search for all resources at once follows anyway.
func (e *Engine) prospect(a *assignment, fr int32, val int64, level int, choice bool) flavorFit {
	q := a.w.queue
	p := &q.spec.Preemption
	if a.how == fitOnly {
		return flavorFit{noFit, level}
	}
	if p.WithinQueue == PreemptNever && (q.node.Parent == nil || p.ReclaimWithinCohort == PreemptNever) {
		return flavorFit{noCandidates, level}
	}
	if !choice {
		return flavorFit{preempt, level}
	}
	usage := []quota.Amount{{FR: fr, V: val}}
	if how := a.how; q.spec.Fungibility.PreemptStay { // it waits for this flavor rather than take the next
		a.how = afterDelay
		defer func() { a.how = how }()
	}
	found := e.searchVictims(a, usage, []int32{fr}, false)
	if len(found) == 0 {
		return flavorFit{noCandidates, level}
	}
	m, lvl := e.fitAfter(q, usage, found)
	return flavorFit{m, lvl}
}

// fitAfter rates an admission that follows the removal of victims.
func (e *Engine) fitAfter(q *queue, usage []quota.Amount, victims []victim) (mode, int) {
	m, level := reclaim, 0
	if slices.ContainsFunc(victims, func(v victim) bool { return v.w.queue == q }) {
		m = preempt
	}
	mark := e.tx.Checkpoint()
	e.discount(victims)
	for _, u := range usage {
		l, _ := q.node.BorrowLevel(u.FR, u.V, quota.Future)
		level = max(level, l)
	}
	e.tx.Rollback(mark)
	return m, level
}

// discount takes victims' quota out of the future (in a what-if).
func (e *Engine) discount(victims []victim) {
	for _, v := range victims {
		e.tx.Sub(v.w.queue.node, v.w.usage, quota.Future)
	}
}

// findVictims completes an assignment that needs preemption.
func (e *Engine) findVictims(a *assignment) {
	if a.how == fitOnly {
		a.mode = noCandidates
		return
	}
	failed := a.failed
	found := e.searchUnlessVain(a)
	a.victims = append(a.victims[:0], found...)
	if len(found) == 0 && failed != nil && !a.w.spec.PreemptionGated {
		if moves := e.findMoves(a); len(moves) > 0 {
			a.victims = append(a.victims[:0], moves...)
			a.mode = preempt // its quota is free already
			return
		}
	}
	if len(found) == 0 {
		if failed != nil { // nodes on which it was tried meanwhile are not free
			a.failed, a.placed = failed, nil
		}
		a.lacksReservedOnly = a.mode != noCandidates && e.scratch.search.lacksReservedOnly
		a.mode = noCandidates
		return
	}
	if why := e.mayNotPreempt(a); why != 0 {
		a.refused.add(why)
		a.victims, a.mode = a.victims[:0], noCandidates
		return
	}
	a.mode, a.borrow = e.fitAfter(a.w.queue, a.usage, found)
}

// mayNotPreempt is the rule that keeps an assignment from preempting those it has found; 0: none does.
func (e *Engine) mayNotPreempt(a *assignment) rules {
	switch {
	case a.w.spec.PreemptionGated:
		return ruleGated
	case e.sharesVictims(a):
		return ruleShared
	}
	return 0
}

// searchVictims finds a minimal set of victims that lets usage in, nil if there is none or a rule
// forbids it for now. The result is valid until the next search.
func (e *Engine) searchVictims(a *assignment, usage []quota.Amount, need []int32, nodes bool) []victim {
	s := &e.scratch.search
	s.a, s.usage, s.need, s.nodes, s.prio, s.decision = a, usage, need, nodes, a.w.spec.Priority, e.decision
	s.victims, s.thisDecisionOnly, s.lacksReservedOnly, s.byUsage = s.victims[:0], false, false, false
	a.lacksNodes = a.failed != nil
	t := a.w.queue.tree
	if from := e.delayed(a); from.After(e.at) {
		s.thisDecisionOnly = true
		a.refused.wait(ruleDelay, from)
		if t.admittedIn != e.decision {
			return nil
		}
	}
	found := e.searchTree(t, s)
	s.a = nil
	if !e.fitsBesideReservations(t, a.w.queue, usage, found) {
		found = found[:0]
	}
	if until := e.minRuntimeUntil(a, found); until.After(e.at) {
		a.refused.wait(ruleMinRuntime, until)
		return nil
	}
	if s.byUsage && len(found) == 0 {
		a.refused.add(ruleThisDecision)
	}
	return found
}

// searchTree searches with reservations out of the way: nobody who runs is preempted for them.
func (e *Engine) searchTree(t *tree, s *search) []victim {
	mark := e.tx.Checkpoint()
	defer e.tx.Rollback(mark)
	if s.nodes {
		e.removeEvicting()
	}
	later := e.opts.unpruned || e.decision == noDecision || s.a.mayReserveAhead()
	e.liftReservations(t, ofDelayed)
	s.headsReserved = e.liftReservations(t, ofHeads)
	s.lacksReservedOnly = (!s.nodes || s.a.failed == nil) && e.preemptorFits(s, true) // nodes were lacking without the evicted, too
	if s.lacksReservedOnly {
		return nil
	}
	if e.extras > 0 {
		if found := e.searchExtras(t, s); len(found) > 0 {
			return found
		}
	}
	s.pastMinRuntime, s.skipped = true, false
	found := e.searchByPolicy(t, s)
	if len(found) > 0 || !s.skipped {
		return found
	}
	if !later { // whom it will preempt then makes no difference now
		t.awaitsMinRuntime = true
		return nil
	}
	s.pastMinRuntime, s.victims = false, s.victims[:0] // whom it will preempt once they had their minimum runtime
	return e.searchByPolicy(t, s)
}

func (e *Engine) searchByPolicy(t *tree, s *search) []victim {
	if t.policy == PolicyFIFO {
		return e.searchClassic(s)
	}
	return e.searchFairSharing(t, s)
}

func (e *Engine) searchClassic(s *search) []victim {
	e.collect(s)
	others := s.anyCandidate(reclaimByRight) || s.anyCandidate(reclaimByPriority)
	if !others && !s.anyCandidate(withinQueue) {
		return nil
	}
	mayBorrow := s.a.w.queue.spec.Preemption.BorrowWithinCohort
	tries := []bool{true, false} // may the preemptor borrow?
	switch {
	case !others || !mayBorrow && !s.underNominal():
		tries = []bool{true}
	case !mayBorrow && !s.anyCandidate(reclaimByRight):
		tries = []bool{false, true}
	}
	for _, borrow := range tries {
		if e.searchGroups(s, borrow) {
			return s.victims
		}
		s.victims = s.victims[:0]
	}
	return nil
}

// searchGroups preempts candidates group by group and leaves in s.victims those that are needed; false if
// that is not enough, or in vain.
func (e *Engine) searchGroups(s *search, borrow bool) bool {
	if !borrow && s.wouldBorrow() && !s.anyCandidate(withinQueue) {
		return false // whatever others give up
	}
	mark := e.tx.Checkpoint()
	defer e.tx.Rollback(mark)
	if !e.preemptUntilFits(s, borrow) {
		return false
	}
	e.restoreUnneeded(s, borrow)
	return e.minRuntimeUntil(s.a, s.victims).After(e.at) || !e.futile(s)
}

// underNominal says whether the preemptor's queue uses less than its nominal quota of all that is short.
func (s *search) underNominal() bool {
	n := s.a.w.queue.node
	for _, fr := range s.need {
		if n.Cells[fr].Unused() <= 0 {
			return false
		}
	}
	return true
}

// withinNominal says whether the preemptor's queue needs no more than its nominal quota of what is short.
func (s *search) withinNominal() bool {
	n := s.a.w.queue.node
	for _, fr := range s.need {
		if quota.AmountOf(s.usage, fr) > n.Cells[fr].Unused() {
			return false
		}
	}
	return true
}

// wouldBorrow says whether the request is beyond what its queue has of its own.
func (s *search) wouldBorrow() bool {
	n := s.a.w.queue.node
	return n.Parent != nil && slices.ContainsFunc(s.usage, func(u quota.Amount) bool { return n.Borrowing(u.FR, u.V, quota.Future) })
}

// preemptUntilFits removes candidates until the preemptor fits.
func (e *Engine) preemptUntilFits(s *search, borrow bool) bool {
	for g := range s.cursors {
		if g == reclaimByPriority && borrow && !s.a.w.queue.spec.Preemption.BorrowWithinCohort {
			continue // nobody in it is allowed
		}
		s.merge(g)
		for len(s.merged) > 0 {
			c := s.merged[0]
			if s.atNominal(c) { // and stays so: usage only falls
				s.merged.Remove(0)
				continue
			}
			v := c.at
			why, ok := s.allowed(c, borrow)
			s.advance()
			if !ok || e.skips(s, victim{v, why}) {
				continue
			}
			e.removeVictim(s, victim{v, why})
			if e.preemptorFits(s, borrow) {
				return true
			}
		}
	}
	return false
}

func (e *Engine) removeVictim(s *search, v victim) {
	e.tx.Sub(v.w.queue.node, v.w.usage, quota.Future)
	e.searchSteps++
	if s.nodes {
		e.tx.ChangeNodes()
		e.opts.Placer.Remove(v.w.spec.Key)
	}
	s.victims = append(s.victims, v)
}

// restoreUnneeded takes victims out again that turn out not to be needed, the last one first.
func (e *Engine) restoreUnneeded(s *search, borrow bool) {
	for i := len(s.victims) - 2; i >= 0; i-- {
		w := s.victims[i].w
		mark := e.tx.Checkpoint()
		e.tx.Add(w.queue.node, w.usage, quota.Future)
		if s.nodes {
			e.tx.ChangeNodes()
			e.opts.Placer.Hold(w.spec.Key, w.spec.Admission.Placement)
		}
		if e.preemptorFits(s, borrow) {
			s.victims = slices.Delete(s.victims, i, i+1)
		} else {
			e.tx.Rollback(mark)
		}
	}
}

// preemptorFits says whether the preemptor fits as things stand in the search.
func (e *Engine) preemptorFits(s *search, borrow bool) bool {
	if !s.headsReserved {
		return s.fitsQuota(borrow) && (!s.nodes || e.tryPlace(s.a))
	}
	mark := e.tx.Checkpoint()
	e.restoreReservations(s.a.w.queue.tree, ofHeads)
	fits := s.fitsQuota(borrow)
	e.tx.Rollback(mark)
	return fits && (!s.nodes || e.tryPlace(s.a))
}

func (s *search) fitsQuota(borrow bool) bool {
	n := s.a.w.queue.node
	for _, u := range s.usage {
		if !borrow && n.Parent != nil && n.Borrowing(u.FR, u.V, quota.Future) {
			return false
		}
		if !n.Fits(u.FR, u.V, quota.Future) {
			return false
		}
	}
	return true
}

// preempt evicts a victim for w. An admission of this decision is revoked: nobody has heard of it yet.
func (e *Engine) preempt(w *workload, v victim) {
	if v.w.in.admitted == e.decision {
		if w.queue != v.w.queue || e.inCooldown(w, false) {
			v.w.in.cooldown = e.decision
		}
		e.revokeAdmission(v.w)
		return
	}
	w.in.preempted = e.decision
	e.setPreemptor(v.w, w)
	v.w.moving = v.why == ReasonDefragmentation && !v.w.spec.mayShrink()
	if v.w.moving && e.budgeted.any() {
		defer e.noteCommitted(v.w, 1) // what it will use from when it is back
		e.noteCommitted(v.w, -1)
	}
	e.evict(Evict{
		Reason: ReasonPreempted, Preempted: v.why, Preemptor: w.spec.Key, PreemptorUID: w.spec.UID,
		Message: "Preempted to accommodate a workload (UID: " + w.spec.UID + ") due to " + ruleText(v.why) +
			"; preemptor path: " + w.queue.node.Path() + "; preemptee path: " + v.w.queue.node.Path(),
	}, v.w)
}

// revokeAdmission takes back an admission of the decision under way.
func (e *Engine) revokeAdmission(w *workload) {
	e.revokes++
	q := w.queue
	e.plan.Admit = slices.DeleteFunc(e.plan.Admit, func(a Admit) bool { return a.Workload == w.spec.Key })
	e.uncharge(w)
	e.releaseQuota(w)
	w.spec.Admission = nil
	w.in.admitted = 0
	w.queue = q
	if q.spec.StrictFIFO { // nobody passes it
		e.enqueue(w)
		return
	}
	q.pending++
	e.enter(w, phaseRevoked)
	q.tree.revoked = append(q.tree.revoked, w)
}

// retryRevoked puts workloads whose admission was revoked back into their queues, after all others
// were processed: while other queues reclaim nominal quota, borrowers would only be revoked once more. It reports
// whether there were any.
func (e *Engine) retryRevoked(t *tree) bool {
	again := t.revoked
	for _, w := range again {
		w.queue.pending--
		e.enqueue(w)
	}
	t.revoked = again[:0]
	return len(again) > 0
}

func ruleText(why Reason) string {
	switch why {
	case ReasonInClusterQueue:
		return "prioritization in the ClusterQueue"
	case ReasonInCohortReclamation:
		return "reclamation within the cohort"
	case ReasonInCohortFairSharing:
		return "Fair Sharing within the cohort"
	case ReasonDefragmentation:
		return "defragmentation of nodes: it fits on others at once"
	}
	return "reclamation within the cohort while borrowing"
}
