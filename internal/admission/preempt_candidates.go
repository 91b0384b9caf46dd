package admission

import (
	"cmp"
	"slices"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// cursor walks a queue's running workloads in the order they are preempted.
type cursor struct {
	queue     *queue
	list      []*workload
	next      int
	at        *workload   // the candidate next points to, while merging
	lca       *quota.Node // lowest cohort shared with the preemptor; nil in its own queue
	advantage bool        // the preemptor's subtree has a right to the quota
}

// Before orders cursors by whose candidate is preempted first.
func (c *cursor) Before(o *cursor) bool { return victimOrder(c.at, o.at) < 0 }

// SetPos does nothing: no cursor leaves from the middle.
func (c *cursor) SetPos(int) {}

// victimOrder orders workloads with quota reserved by which is preempted first: the lower priority, then who loses
// least work, which without checkpoints is the latest admitted. Who asked not to be preempted comes last.
func victimOrder(a, b *workload) int {
	if a.safe != b.safe {
		return boolOrder(a.safe, b.safe)
	}
	if a.rank != b.rank {
		return cmp.Compare(a.rank, b.rank)
	}
	if a.savedAt != b.savedAt {
		return cmp.Compare(b.savedAt, a.savedAt)
	}
	if a.reservedAt != b.reservedAt {
		return cmp.Compare(b.reservedAt, a.reservedAt)
	}
	return tieOrder(a, b)
}

// boolOrder puts false first.
func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// Candidates come in groups, one after the other, as in Kueue.
const (
	reclaimByRight    = iota // the preemptor's subtree has the quota for it
	reclaimByPriority        // it would borrow
	withinQueue
	candidateGroups
)

// collect opens cursors on the queues to take from, nearest cohort first. From the first subtree on
// whose quota covers the request, the preemptor has the better right.
func (e *Engine) collect(s *search) {
	q := s.a.w.queue
	for g := range s.cursors {
		s.cursors[g] = s.cursors[g][:0]
	}
	p := &q.spec.Preemption
	if p.WithinQueue != PreemptNever {
		s.cursors[withinQueue] = append(s.cursors[withinQueue], cursor{queue: q, list: s.candidates(q)})
	}
	if p.ReclaimWithinCohort == PreemptNever {
		return
	}
	s.rest = append(s.rest[:0], s.usage...)
	right := s.covers(q.node)
	if e.checkCooldown(s.a, right) {
		return
	}
	skip := q.node
	for n := q.node.Parent; n != nil; n = n.Parent {
		s.gather(n, n, skip, right)
		right = s.covers(n) || right
		skip = n
	}
}

// covers says whether a node's quota suffices for the rest of the request, and takes off what
// guaranteed quota covers there.
func (s *search) covers(n *quota.Node) bool {
	ok := true
	for i := range s.rest {
		u := &s.rest[i]
		if n.Borrowing(u.FR, u.V, quota.Future) {
			ok = false
		}
		u.V = max(0, u.V-n.Cells[u.FR].LocalFree(quota.Future))
	}
	return ok
}

func (s *search) gather(n, lca, skip *quota.Node, right bool) {
	for _, ch := range n.Children {
		if ch == skip || ch.WithinNominal(s.need) {
			continue
		}
		if !ch.Leaf {
			s.gather(ch, lca, skip, right)
			continue
		}
		g := reclaimByPriority
		if right {
			g = reclaimByRight
		}
		q := s.a.w.queue.tree.at(ch).queue
		s.cursors[g] = append(s.cursors[g], cursor{queue: q, list: s.candidates(q), lca: lca, advantage: right})
	}
}

// candidates lists a queue's running workloads in the order they are preempted: where usage decides,
// those of the LocalQueue that used most come first.
func (s *search) candidates(q *queue) []*workload {
	if !q.spec.UsageFairSharing {
		return q.quotaReserved
	}
	s.byUsage = true
	list := slices.Clone(q.quotaReserved)
	slices.SortStableFunc(list, func(a, b *workload) int {
		return cmp.Or(boolOrder(a.safe, b.safe), cmp.Compare(b.local.share, a.local.share))
	})
	return list
}

func (s *search) anyCandidate(group int) bool {
	for _, c := range s.cursors[group] {
		if s.peek(&c) != nil {
			return true
		}
	}
	return false
}

// peek moves the cursor to the next workload that policy lets us preempt.
func (s *search) peek(c *cursor) *workload {
	w := s.a.w
	policy := w.queue.spec.Preemption.ReclaimWithinCohort
	if c.lca == nil {
		policy = w.queue.spec.Preemption.WithinQueue
	}
	sorted := !c.queue.spec.UsageFairSharing // by priority
	for ; c.next < len(c.list); c.next++ {
		v := c.list[c.next]
		if sorted && v.spec.Priority > s.prio && policy != PreemptAny && !c.queue.anySafe() {
			return nil
		}
		if !policy.allows(w, v) || v.safe && c.lca == nil {
			continue
		}
		if v.phase == phaseEvicting || v.preemptor != nil && v.preemptor != w || !v.uses(s.need) || s.thisDecisionOnly && v.in.admitted != s.decision {
			continue
		}
		if v.in.preempted != s.decision {
			return v
		}
		s.a.refused.add(ruleThisDecision)
	}
	return nil
}

func (w *workload) uses(frs []int32) bool {
	for _, u := range w.usage {
		if slices.Contains(frs, u.FR) {
			return true
		}
	}
	return false
}

// merge makes a heap of a group's cursors by whose candidate is preempted first.
func (s *search) merge(group int) {
	s.walk, s.merged = append(s.walk[:0], s.cursors[group]...), s.merged[:0]
	for i := range s.walk {
		c := &s.walk[i]
		if c.at = s.peek(c); c.at != nil {
			s.merged = append(s.merged, c)
		}
	}
	s.merged.Init()
}

// advance moves the first cursor on.
func (s *search) advance() {
	c := s.merged[0]
	c.next++
	if c.at = s.peek(c); c.at == nil {
		s.merged.Remove(0)
		return
	}
	s.merged.Fix(0)
}

// allowed says by which rule a candidate may be preempted, if by any.
func (s *search) allowed(c *cursor, borrow bool) (Reason, bool) {
	if c.lca == nil {
		return ReasonInClusterQueue, true
	}
	why := ReasonInCohortReclamation
	if !c.advantage {
		p := &s.a.w.queue.spec.Preemption
		if v := c.at; !p.BorrowWithinCohort || v.spec.Priority >= s.prio || p.BorrowMaxPriority != nil && v.spec.Priority > *p.BorrowMaxPriority {
			if borrow {
				return "", false
			}
		} else {
			why = ReasonInCohortReclaimWhileBorrowing
		}
	}
	return why, true
}

// atNominal says whether nobody of a queue is preempted any more: no queue is pushed below its nominal quota, and no
// cohort between it and the preemptor.
func (s *search) atNominal(c *cursor) bool {
	for n := c.queue.node; c.lca != nil && n != c.lca; n = n.Parent {
		if n.WithinNominal(s.need) {
			return true
		}
	}
	return false
}
