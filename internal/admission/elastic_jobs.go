package admission

// An elastic job has its minimum as one workload, all or nothing, and what it has beyond that as further ones, the extras.
// Shells give these the lowest priority there is, so they come after all others of their queue and leave before them.
// The engine adds two rules. Extras are for idle quota: they preempt nobody, reserve nothing, and no minimum runtime
// protects them. And who could preempt asks first whether it is enough that elastic jobs give up extras, wherever in the
// tree they are: else a whole job of another queue would be stopped while one of the preemptor's own could shrink.

// searchExtras looks for extras alone that let the preemptor in.
func (e *Engine) searchExtras(t *tree, s *search) []victim {
	s.extrasOnly = true
	found := e.searchByPolicy(t, s)
	s.extrasOnly = false
	if len(found) == 0 {
		s.victims = s.victims[:0]
	}
	return found
}

// countExtra counts extras that have quota: without any there is nothing to look for.
func (e *Engine) countExtra(w *workload, n int) {
	if w.spec.Extra {
		e.extras += n
	}
}
