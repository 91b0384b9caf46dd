package admission

import (
	"cmp"
	"slices"
	"time"
)

// victim is a workload to displace and the rule that allows it.
type victim struct {
	w   *workload
	why Reason
}

// cursor walks the holders of one queue in the order they are displaced.
type cursor struct {
	queue     *queue
	list      []*workload // its holders in the order they are displaced
	next      int
	at        *workload // the candidate next points to, while merging
	lca       *node     // lowest cohort shared with the preemptor; nil in its own queue
	advantage bool      // the preemptor's subtree has a right to the quota
}

// search is one hunt for victims. It works on the future tree: those already
// leaving are gone there, so nobody is displaced for room that is coming anyway.
type search struct {
	a                 *assignment
	decision          uint64
	thisDecisionOnly  bool     // only admissions of this decision may be taken back
	usage             []amount // what must fit
	need              []int32  // flavor-resources that are short
	nodes             bool     // real nodes must have room too
	headsReserved     bool     // room is kept for blocked heads: the preemptor must fit beside it, but nobody borrows it
	lacksReservedOnly bool     // it lacks only what is kept for others
	prio              int64
	cursors           [3][]cursor // by group: reclaim by right, reclaim by priority, own queue
	merged            []cursor    // the group being walked
	victims           []victim
	rest              []amount
}

func (e *Engine) mayPreemptWhileBorrowing(q *queue) bool {
	p := &q.spec.Preemption
	return p.BorrowWithinCohort || q.node.root.tree.policy != PolicyFIFO && p.ReclaimWithinCohort != PreemptNever
}

// prospect rates what preemption could do for one flavor-resource. Without a
// choice of flavors the real search, for all resources at once, follows anyway.
func (e *Engine) prospect(a *assignment, fr int32, val int64, level int, choice bool) flavorFit {
	q := a.w.queue
	p := &q.spec.Preemption
	if e.scratch.fitOnly {
		return flavorFit{noFit, level}
	}
	if p.WithinQueue == PreemptNever && (q.node.parent == nil || p.ReclaimWithinCohort == PreemptNever) {
		return flavorFit{noCandidates, level}
	}
	if !choice {
		return flavorFit{preempt, level}
	}
	usage := []amount{{fr, val}}
	found := e.searchVictims(a, usage, []int32{fr}, false)
	if len(found) == 0 {
		return flavorFit{noCandidates, level}
	}
	m, lvl := e.after(q, usage, found)
	return flavorFit{m, lvl}
}

// after rates an admission that follows the removal of victims.
func (e *Engine) after(q *queue, usage []amount, victims []victim) (mode, int) {
	m, level := reclaim, 0
	if slices.ContainsFunc(victims, func(v victim) bool { return v.w.queue == q }) {
		m = preempt
	}
	e.shiftAll(victims, -1)
	for _, u := range usage {
		l, _ := q.node.borrowLevel(u.fr, u.v, future)
		level = max(level, l)
	}
	e.shiftAll(victims, 1)
	return m, level
}

// findVictims completes an assignment that needs preemption.
func (e *Engine) findVictims(a *assignment) {
	if e.scratch.fitOnly {
		a.mode = noCandidates
		return
	}
	found := e.searchVictims(a, a.usage, a.need, e.opts.Placer != nil)
	a.victims = append(a.victims[:0], found...)
	if len(found) == 0 {
		a.lacksReservedOnly = a.mode != noCandidates && e.scratch.search.lacksReservedOnly
		a.mode = noCandidates
		return
	}
	a.mode, a.borrow = e.after(a.w.queue, a.usage, found)
}

// shift takes a holder out of the future tree (sign -1), or puts it back.
func (e *Engine) shift(w *workload, sign int64) {
	for _, u := range w.usage {
		w.queue.node.add(u.fr, sign*u.v, future)
	}
}

func (e *Engine) shiftAll(victims []victim, sign int64) {
	for _, v := range victims {
		e.shift(v.w, sign)
	}
}

// searchVictims finds a minimal set of victims that lets usage in, nil if there is none.
// The result is valid until the next hunt.
func (e *Engine) searchVictims(a *assignment, usage []amount, need []int32, nodes bool) []victim {
	s := &e.scratch.search
	s.a, s.usage, s.need, s.nodes, s.prio, s.decision = a, usage, need, nodes, a.w.spec.Priority, e.decision
	s.victims, s.thisDecisionOnly, s.lacksReservedOnly = s.victims[:0], false, false
	a.lacksNodes = a.failed != nil
	t := a.w.queue.node.root.tree
	if from := a.w.preemptsFrom(e); from.After(e.at) {
		s.thisDecisionOnly = true
		a.delayUntil(from)
		if t.admittedIn != e.decision {
			return nil
		}
	}
	mark := 0
	if nodes {
		mark = e.opts.Placer.Checkpoint()
		e.removeEvicting()
	}
	var found []victim
	e.scratch.byUsage = false
	t.shiftReservations(-1, true) // nobody who runs is displaced for it
	s.headsReserved = t.shiftReservations(-1, false)
	s.lacksReservedOnly = e.preemptorFits(s, true)
	switch {
	case s.lacksReservedOnly:
	case t.policy == PolicyFIFO:
		found = e.searchClassic(s)
	default:
		found = e.searchFairSharing(s)
	}
	t.shiftReservations(1, true)
	t.shiftReservations(1, false)
	if nodes {
		e.opts.Placer.Rollback(mark)
	}
	s.a = nil
	if !e.fitsBesideReservations(t, a.w.queue, usage, found) {
		found = found[:0]
	}
	if until := e.minRuntimeUntil(a, found); until.After(e.at) {
		a.delayUntil(until)
		t.awaitsMinRuntime = true
		return nil
	}
	a.retryNext = a.retryNext || e.scratch.byUsage && len(found) == 0 // the order changes with time
	return found
}

func (e *Engine) searchClassic(s *search) []victim {
	q := s.a.w.queue
	e.collect(s)
	others := s.anyCandidate(0) || s.anyCandidate(1)
	if others || s.anyCandidate(2) {
	} else {
		return nil
	}
	mayBorrow := q.spec.Preemption.BorrowWithinCohort
	var tries []bool // may the preemptor borrow?
	switch {
	case !others || !mayBorrow && !s.underNominal():
		tries = []bool{true}
	case !mayBorrow && !s.anyCandidate(0):
		tries = []bool{false, true}
	default:
		tries = []bool{true, false}
	}
	for _, borrow := range tries {
		if e.remove(s, borrow) {
			e.restoreUnneeded(s, borrow)
			futile := !e.minRuntimeUntil(s.a, s.victims).After(e.at) && e.futile(s)
			e.restoreVictims(s)
			if !futile {
				return s.victims
			}
			s.victims = s.victims[:0]
			continue
		}
		e.restoreVictims(s)
		s.victims = s.victims[:0]
	}
	return nil
}

// underNominal: the preemptor's queue uses less than its own quota of all that is short.
func (s *search) underNominal() bool {
	n := s.a.w.queue.node
	for _, fr := range s.need {
		if n.cells[fr].unused() <= 0 {
			return false
		}
	}
	return true
}

// collect lines up the queues to take from, nearest cohort first. From the
// first subtree on whose quota covers the request, the preemptor has the better right.
func (e *Engine) collect(s *search) {
	q := s.a.w.queue
	for g := range s.cursors {
		s.cursors[g] = s.cursors[g][:0]
	}
	p := &q.spec.Preemption
	if p.WithinQueue != PreemptNever {
		s.cursors[2] = append(s.cursors[2], cursor{queue: q, list: e.victimList(q)})
	}
	if p.ReclaimWithinCohort == PreemptNever || e.checkCooldown(s) {
		return
	}
	s.rest = append(s.rest[:0], s.usage...)
	right := s.covers(q.node)
	skip := q.node
	for n := q.node.parent; n != nil; n = n.parent {
		e.gather(s, n, n, skip, right)
		right = s.covers(n) || right
		skip = n
	}
}

// covers says whether a node's quota has room for the rest of the request, and
// takes off what guaranteed quota covers there.
func (s *search) covers(n *node) bool {
	ok := true
	for i := range s.rest {
		u := &s.rest[i]
		if n.borrowing(u.fr, u.v, future) {
			ok = false
		}
		u.v = max(0, u.v-n.cells[u.fr].localFree(future))
	}
	return ok
}

func (e *Engine) gather(s *search, n, lca, skip *node, right bool) {
	for _, ch := range n.children {
		if ch == skip || ch.withinNominal(s.need) {
			continue
		}
		if ch.queue == nil {
			e.gather(s, ch, lca, skip, right)
			continue
		}
		g := 1
		if right {
			g = 0
		}
		s.cursors[g] = append(s.cursors[g], cursor{queue: ch.queue, list: e.victimList(ch.queue), lca: lca, advantage: right})
	}
}

func (s *search) anyCandidate(g int) bool {
	for _, c := range s.cursors[g] {
		if s.peek(&c) != nil {
			return true
		}
	}
	return false
}

// peek moves the cursor to the next workload that policy lets us displace.
func (s *search) peek(c *cursor) *workload {
	w := s.a.w
	policy := w.queue.spec.Preemption.ReclaimWithinCohort
	if c.lca == nil {
		policy = w.queue.spec.Preemption.WithinQueue
	}
	sorted := !c.queue.spec.UsageFairSharing // by priority
	for ; c.next < len(c.list); c.next++ {
		v := c.list[c.next]
		if sorted && v.spec.Priority > s.prio && policy != PreemptAny {
			return nil
		}
		if !policy.allows(w, v) {
			continue
		}
		if v.evicting || v.preemptor != nil && v.preemptor != w || !v.uses(s.need) || s.thisDecisionOnly && v.admitted != s.decision {
			continue
		}
		if v.preemptedIn != s.decision {
			return v
		}
		s.a.retryNext = true
	}
	return nil
}

// victimList is the queue's holders in the order they are displaced: where
// usage decides, those of the local queue that used most go first.
func (e *Engine) victimList(q *queue) []*workload {
	if !q.spec.UsageFairSharing {
		return q.quotaReserved
	}
	e.scratch.byUsage = true
	list := slices.Clone(q.quotaReserved)
	slices.SortStableFunc(list, func(a, b *workload) int { return cmp.Compare(b.local.share, a.local.share) })
	return list
}

func (w *workload) uses(frs []int32) bool {
	for _, u := range w.usage {
		if slices.Contains(frs, u.fr) {
			return true
		}
	}
	return false
}

// remove displaces candidates until the preemptor fits.
func (e *Engine) remove(s *search, borrow bool) bool {
	for g := range s.cursors {
		s.merge(s.cursors[g])
		for len(s.merged) > 0 {
			c := &s.merged[0]
			v := c.at
			why, ok := s.allowed(c, v, borrow)
			s.advance()
			if !ok {
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

// merge makes a heap of cursors by who is displaced first.
func (s *search) merge(cursors []cursor) {
	s.merged = s.merged[:0]
	for _, c := range cursors {
		if c.at = s.peek(&c); c.at != nil {
			s.merged = append(s.merged, c)
		}
	}
	for i := len(s.merged)/2 - 1; i >= 0; i-- {
		s.sink(i)
	}
}

// advance moves the first cursor on.
func (s *search) advance() {
	c := &s.merged[0]
	c.next++
	if c.at = s.peek(c); c.at == nil {
		last := len(s.merged) - 1
		s.merged[0] = s.merged[last]
		s.merged = s.merged[:last]
	}
	s.sink(0)
}

func (s *search) sink(i int) {
	h := s.merged
	for {
		l := 2*i + 1
		if l >= len(h) {
			return
		}
		if r := l + 1; r < len(h) && victimOrder(h[r].at, h[l].at) < 0 {
			l = r
		}
		if victimOrder(h[l].at, h[i].at) >= 0 {
			return
		}
		h[i], h[l] = h[l], h[i]
		i = l
	}
}

// allowed checks a candidate against the tree as it is by now: nobody is
// pushed below the quota that is theirs.
func (s *search) allowed(c *cursor, v *workload, borrow bool) (Reason, bool) {
	if c.lca == nil {
		return ReasonInClusterQueue, true
	}
	why := ReasonInCohortReclamation
	if !c.advantage {
		p := &s.a.w.queue.spec.Preemption
		if !p.BorrowWithinCohort || v.spec.Priority >= s.prio || p.BorrowMaxPriority != nil && v.spec.Priority > *p.BorrowMaxPriority {
			if borrow {
				return "", false
			}
		} else {
			why = ReasonInCohortReclaimWhileBorrowing
		}
	}
	for n := c.queue.node; n != c.lca; n = n.parent {
		if n.withinNominal(s.need) {
			return "", false
		}
	}
	return why, true
}

func (e *Engine) removeVictim(s *search, v victim) {
	e.shift(v.w, -1)
	if s.nodes {
		e.opts.Placer.Remove(v.w.spec.Key)
	}
	s.victims = append(s.victims, v)
}

func (e *Engine) restoreVictim(s *search, w *workload) {
	e.shift(w, 1)
	if s.nodes {
		e.opts.Placer.Hold(w.spec.Key, w.spec.Admission.Placement)
	}
}

// restoreUnneeded spares victims that turn out not to be needed, the last displaced first.
func (e *Engine) restoreUnneeded(s *search, borrow bool) {
	for i := len(s.victims) - 2; i >= 0; i-- {
		w := s.victims[i].w
		e.restoreVictim(s, w)
		if e.preemptorFits(s, borrow) {
			s.victims = slices.Delete(s.victims, i, i+1)
			continue
		}
		e.shift(w, -1)
		if s.nodes {
			e.opts.Placer.Remove(w.spec.Key)
		}
	}
}

// futile: a victim, or one like it, could come straight back on its queue's own quota.
func (e *Engine) futile(s *search) bool {
	e.pretendPreemptor(s, 1)
	back := slices.ContainsFunc(s.victims, func(v victim) bool {
		return v.w.queue != s.a.w.queue && (s.comesBack(v.w, v.w.usage) || e.queueComesBack(s, v.w.queue))
	})
	e.pretendPreemptor(s, -1)
	s.a.futile = s.a.futile || back
	return back
}

// queueComesBack: someone in line could come in for the victim so.
func (e *Engine) queueComesBack(s *search, q *queue) bool {
	for _, u := range s.usage {
		if int(u.fr) < len(q.demand) && !q.spec.StrictFIFO {
			e.scratch.contestants = q.demand[u.fr].within(e.scratch.contestants[:0], q.node.available(u.fr, future), q.node.cells[u.fr].unused(), contestantLimit)
			if slices.ContainsFunc(e.scratch.contestants, func(c *equivClass) bool { return s.comesBack(c.members[0], c.fixedUsage) }) {
				return true
			}
		}
	}
	return false
}

// comesBack: with the preemptor in, w would have a right to the place.
func (s *search) comesBack(w *workload, usage []amount) bool {
	q, from := w.queue, s.a.w.queue.node
	if !q.spec.Preemption.ReclaimWithinCohort.allows(w, s.a.w) {
		return false
	}
	lacks, taken := false, false
	for _, u := range usage {
		if c := &q.node.cells[u.fr]; c.use[future]+u.v > c.nominal {
			return false
		}
		lacks = lacks || !q.node.fits(u.fr, u.v, future)
		taken = taken || canReclaim(q.node, from, u.fr)
	}
	return lacks && taken
}

func (e *Engine) restoreVictims(s *search) {
	for _, v := range s.victims {
		e.restoreVictim(s, v.w)
	}
}

// preemptorFits says whether the preemptor fits as things stand in the search.
func (e *Engine) preemptorFits(s *search, borrow bool) bool {
	n := s.a.w.queue.node
	if s.headsReserved {
		n.root.tree.shiftReservations(1, false)
		defer n.root.tree.shiftReservations(-1, false)
	}
	for _, u := range s.usage {
		if !borrow && n.parent != nil && n.borrowing(u.fr, u.v, future) {
			return false
		}
		if !n.fits(u.fr, u.v, future) {
			return false
		}
	}
	return !s.nodes || e.tryPlace(s.a)
}

// preempt evicts a victim for the sake of w.
func (e *Engine) preempt(w *workload, v victim) {
	if v.w.admitted == e.decision {
		if w.queue != v.w.queue || e.inCooldown(w) {
			v.w.cooldownIn = e.decision
		}
		e.revokeAdmission(v.w)
		return
	}
	w.preemptedIn = e.decision
	e.setPreemptor(v.w, w)
	e.evict(Evict{
		Reason: ReasonPreempted, Preempted: v.why, Preemptor: w.spec.Key, PreemptorUID: w.spec.UID,
		Message: "Preempted to accommodate a workload (UID: " + w.spec.UID + ") due to " + ruleText(v.why) +
			"; preemptor path: " + w.queue.node.path() + "; preemptee path: " + v.w.queue.node.path(),
	}, v.w)
}

// Kueue's rules allow rings of workloads that displace each other for ever. So whoever was preempted displaces
// nobody in other queues for a minute, and twice as long with each time it happens: a ring comes to rest. It
// is told by the objects alone, so a restart changes nothing.
const cooldown, cooldownDoublings = time.Minute, 11

// cooldownEnds is when a preempted workload may displace others in other queues again.
func (w *workload) cooldownEnds() time.Time {
	if w.spec.EvictedBy != string(ReasonPreempted) {
		return time.Time{}
	}
	return w.spec.EvictedAt.Add(cooldown << (min(max(w.spec.Preemptions, 1), cooldownDoublings) - 1))
}

// inCooldown: it displaces nobody in other queues yet. Within a decision that goes for those, too, whose
// admission another queue took back, or their own for one who is barred.
func (e *Engine) inCooldown(w *workload) bool {
	return w.cooldownIn == e.decision || e.at.Before(w.cooldownEnds())
}

// checkCooldown is barred, noted with the answer.
func (e *Engine) checkCooldown(s *search) bool {
	s.a.cooldown = s.a.cooldown || e.at.Before(s.a.w.cooldownEnds())
	return e.inCooldown(s.a.w)
}

// revokeAdmission takes back an admission of the decision under way: nobody has heard of it yet.
func (e *Engine) revokeAdmission(w *workload) {
	e.revokes++
	q := w.queue
	e.plan.Admit = slices.DeleteFunc(e.plan.Admit, func(a Admit) bool { return a.Workload == w.spec.Key })
	e.uncharge(w)
	e.releaseQuota(w)
	w.spec.Admission = nil
	w.admitted = 0
	w.queue = q
	if q.spec.StrictFIFO { // nobody passes it
		e.enqueue(w)
		return
	}
	q.pending++
	t := q.node.root.tree
	t.revoked = append(t.revoked, w)
}

// retryRevoked puts those in line again whose admission was taken back. It is their turn
// after all others have been settled: while owners take what is theirs, borrowers
// would only be taken back once more. It reports whether there were any.
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
	}
	return "reclamation within the cohort while borrowing"
}
