package admission

// phase is where a workload stands. It has exactly one, which only Engine.enter changes; marks of
// one decision are apart (marks). docs/design/admission.md draws the transitions.
type phase uint8

const (
	// phaseNew: known, and between two other phases.
	phaseNew phase = iota
	// phaseHeldBack: not considered: deactivated, gated, in backoff, or without a queue that takes it.
	phaseHeldBack
	// phasePending: in an equivalence class of its queue, admissible or not.
	phasePending
	// phaseRevoked: admitted in this decision and revoked for another; it is tried again at the end of the decision.
	phaseRevoked
	// phaseNominating: out of its queue while its nomination is found anew.
	phaseNominating
	// phaseNominated: its quota is counted in the future; it waits until victims have left.
	phaseNominated
	// phaseReserved: its quota is reserved.
	phaseReserved
	// phaseEvicting: its quota is still reserved, and not counted in the future unless it moves.
	phaseEvicting
	// phaseGone: finished or deleted.
	phaseGone

	phases
)

var phaseNames = [phases]string{"New", "HeldBack", "Pending", "Revoked", "Nominating", "Nominated", "Reserved", "Evicting", "Gone"}

func (p phase) String() string { return phaseNames[p] }

// transitions lists, for each phase, those that may follow. Tests hold every change against it.
var transitions = [phases][]phase{
	phaseNew:        {phaseHeldBack, phasePending, phaseRevoked, phaseNominating, phaseReserved, phaseGone},
	phaseHeldBack:   {phaseNew},
	phasePending:    {phaseNew},
	phaseRevoked:    {phasePending, phaseNew},
	phaseNominating: {phaseNominated, phasePending, phaseReserved},
	phaseNominated:  {phaseNominating, phaseNew},
	phaseReserved:   {phaseEvicting, phaseNew},
	phaseEvicting:   {phaseReserved, phaseNew},
	phaseGone:       {},
}

// enter moves a workload to another phase.
func (e *Engine) enter(w *workload, to phase) {
	if e.opts.onPhase != nil {
		e.opts.onPhase(w.phase, to)
	}
	w.phase = to
	e.phaseChanges++
}

// hasQuota says whether the workload's quota is reserved.
func (w *workload) hasQuota() bool { return w.phase == phaseReserved || w.phase == phaseEvicting }

// waits says whether the workload waits in its queue or with a nomination.
func (w *workload) waits() bool { return w.phase == phasePending || w.phase == phaseNominated }

// marks are what happened to a workload within a decision; each is the number of that decision.
type marks struct {
	admitted   uint64 // we admitted it
	preempted  uint64 // others are evicted for it: nobody takes from it in that decision
	overridden uint64 // its nomination was overridden, which happens at most once in each
	cooldown   uint64 // another queue had its admission revoked
}
