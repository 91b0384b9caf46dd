package admission

import "github.com/elastic-ai/elastic/internal/admission/quota"

// Under fair sharing quota that is being freed goes to the lowest share, as all quota does: a workload takes over a
// nomination of another queue if it would have come first had both been pending. It preempts nobody beside that. A queue
// has one nomination at a time that takes from others, so one that has a nomination takes over none.

// attemptOverLaterNominations tries again without nominations that come later in the tournament, as few as will do.
func (e *Engine) attemptOverLaterNominations(t *tree, a *assignment) {
	if len(a.w.queue.nominated) > 0 || a.w.queue.node.Parent == nil {
		return
	}
	b := e.newAssignment()
	defer e.recycle(b)
	mark := e.tx.Checkpoint()
	later := e.laterNominations(t, a, b)
	e.tx.Rollback(mark)
	for i, p := range later {
		e.liftNominations(p)
		b.reset(a.w, a.shape, fitOnly)
		if e.attempt(b); !b.admissible() {
			continue
		}
		e.tx.Rollback(mark)
		b.how, b.overrides = a.how, append(b.overrides[:0], later[:i+1]...)
		*a, *b = *b, *a
		a.refused.merge(b.refused)
		return
	}
	e.tx.Rollback(mark)
}

// laterNominations are those of other queues that the workload comes before, if it fits without them; it leaves them out
// of the future.
func (e *Engine) laterNominations(t *tree, a, b *assignment) []*workload {
	own := a.w.queue
	list := e.scratch.overrides[:0]
	for _, p := range t.nominated {
		mine, theirs := quota.Fork(own.node, p.queue.node)
		switch {
		case p.queue == own || p.in.overridden == e.decision || e.share(t, mine).Compare(e.share(t, theirs)) > 0:
		case p.in.preempted == e.decision:
			a.refused.add(ruleThisDecision)
		default:
			list = append(list, p)
		}
	}
	e.scratch.overrides = list
	if len(list) == 0 {
		return nil
	}
	e.liftNominations(list...)
	b.reset(a.w, a.shape, fitOnly)
	if e.attempt(b); !b.admissible() {
		return nil
	}
	later := list[:0]
	for _, p := range list {
		mine, theirs := quota.Fork(own.node, p.queue.node)
		first, second := contender{entry: b}, contender{entry: p.nomination}
		e.weighFor(t, mine, &first)
		e.weighFor(t, theirs, &second)
		if first.before(&second) {
			later = append(later, p)
		}
	}
	return later
}
