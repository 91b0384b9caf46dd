package admission

import (
	"fmt"
	"math"
	"time"
)

// mostMoves are asked about when nobody moves: as many as a queue may allow.
const mostMoves = 16

// explainNoMoves notes why nobody moves for an assignment: moves is the plan that was found within bounds, and failed.
func (e *Engine) explainNoMoves(a *assignment, moves []victim) {
	if a.nobodyMoves != "" { // other flavors, and fewer pods, are tried after what was asked for
		return
	}
	switch {
	case len(e.evicting) > 0:
		a.nobodyMoves = "nobody moves for it while others are being evicted"
	case a.refused.by(ruleDelay):
		a.nobodyMoves = "nobody moves for it before its preemption delay has passed"
	case len(moves) > 0 && a.over != nil:
		a.nobodyMoves = "nobody moves for it: who would could not start again, by the budget of " + a.over.budget.spec.On
	case len(moves) > 0 && a.aside != nil:
		a.nobodyMoves = "nobody moves for it: who would could not start again beside what is reserved for " + a.aside.spec.For
	case len(moves) == 0:
		a.nobodyMoves = e.beyondBounds(a)
	}
	if a.nobodyMoves == "" {
		a.nobodyMoves = "nobody moves for it: of those who may, none leaves enough free for it and finds other nodes"
	}
}

// beyondBounds says which bound of its queue keeps others from moving; "": without bounds nobody would either.
func (e *Engine) beyondBounds(a *assignment) string {
	over, aside, failed, placed := a.over, a.aside, a.failed, a.placed
	defer func() { a.over, a.aside, a.failed, a.placed = over, aside, failed, placed }()
	bounds := *a.w.queue.spec.Defragmentation
	without := Defragmentation{Moves: bounds.Moves, LostWork: math.MaxInt64}
	if moves := e.planMoves(a, without); len(moves) > 0 && e.tryMoves(a, moves) {
		lost := int64(0)
		for _, m := range moves {
			lost += e.moveCost(a.w, m.w)
		}
		return fmt.Sprintf("nobody moves for it: %s would lose %s of work, and at most %s may be lost",
			workloads(len(moves)), time.Duration(lost).Round(time.Second), bounds.LostWork)
	}
	without.Moves = mostMoves
	if moves := e.planMoves(a, without); len(moves) > bounds.Moves && e.tryMoves(a, moves) {
		return fmt.Sprintf("nobody moves for it: %s would have to, and at most %d may", workloads(len(moves)), bounds.Moves)
	}
	return ""
}

func workloads(n int) string {
	if n == 1 {
		return "1 workload"
	}
	return fmt.Sprintf("%d workloads", n)
}
