package world

import (
	"slices"
	"time"
)

// BudgetUse is what became of a budget.
type BudgetUse struct {
	On     string  `json:"on"`
	Amount float64 `json:"amount"`
	Unit   string  `json:"unit"`
	Period string  `json:"period"`
	// Periods that the run met, the last one as far as it came.
	Periods []PeriodUse `json:"periods"`
}

// PeriodUse is what was spent of a budget in a period. Times are seconds from the start of the trace.
type PeriodUse struct {
	From  int64   `json:"from"`
	Until int64   `json:"until"`
	Spent float64 `json:"spent"`
}

// Waited is how many jobs waited for something, and how long in all.
type Waited struct {
	Jobs    int   `json:"jobs"`
	Seconds int64 `json:"seconds"`
}

func (s *Waited) add(seconds int64) {
	if seconds > 0 {
		s.Jobs++
		s.Seconds += seconds
	}
}

// ReservationUse is what became of an advance reservation at one of its times.
type ReservationUse struct {
	For   string `json:"for"`
	From  int64  `json:"from"`
	Until int64  `json:"until"`
	Cards int64  `json:"cards"`
	// Lacking is how many of them others had when it began, who could still run then.
	Lacking int64 `json:"lacking"`
}

// noteUse notes what was spent of a budget at the end of its period, or of the run.
func (p *policies) noteUse(w *World, i int, at time.Time) {
	b := p.budgets[i]
	use, _ := w.engine.BudgetUse(b.Name(), at)
	p.uses[i] = append(p.uses[i], PeriodUse{From: w.second(b.Window.From), Until: w.second(b.Window.Until), Spent: p.inUnits(i, use.Spent)})
}

func (p *policies) inUnits(i int, amount int64) float64 {
	_, one := p.budgets[i].Units()
	return float64(amount) / float64(one)
}

// spentParts is which part of each budget is spent now.
func (w *World) spentParts() map[string]float64 {
	if w.policies == nil || len(w.policies.budgets) == 0 {
		return nil
	}
	parts := map[string]float64{}
	for _, b := range w.policies.budgets {
		amount, _ := b.Units()
		use, _ := w.engine.BudgetUse(b.Name(), w.clock(w.figures.at))
		parts[b.Name()] = float64(use.Spent) / float64(amount)
	}
	return parts
}

// reportPolicies adds what came of budgets, reservations and defragmentation.
func (w *World) reportPolicies(r *Report) {
	r.Moves, r.MovedHours, r.Drained = w.figures.moves, hours(w.figures.movedCost), w.figures.drained
	p := w.policies
	if p == nil {
		return
	}
	for i, b := range p.budgets {
		p.noteUse(w, i, w.clock(w.now))
		amount, _ := b.Units()
		r.Budgets = append(r.Budgets, BudgetUse{On: b.Target(), Amount: p.inUnits(i, amount), Unit: b.Unit(), Period: string(b.Period), Periods: p.uses[i]})
	}
	queues := map[string]*Group{}
	for i := range r.ByQueue {
		queues[r.ByQueue[i].Name] = &r.ByQueue[i]
	}
	for job, s := range p.waited {
		if w.trace.Jobs[job].Found != nil {
			continue
		}
		budget, reservation := s.until(w.now)
		g := queues[w.trace.Jobs[job].Queue]
		r.ForBudget.add(budget)
		g.ForBudget.add(budget)
		r.ForReservation.add(reservation)
		g.ForReservation.add(reservation)
	}
	r.Reservations = p.begun
}

// noteReservations notes of those that begin now whether all is there that they are of.
func (p *policies) noteReservations(w *World) {
	for i := range p.known {
		r := &p.known[i]
		if w.second(r.From) != w.now {
			continue
		}
		use := ReservationUse{For: r.For, From: w.now, Until: w.second(r.Until)}
		for _, amounts := range r.Amounts {
			use.Cards += amounts[w.cluster.Cards]
		}
		for _, lacks := range w.engine.AdvanceLacking(w.clock(w.now)) {
			if lacks.Name == r.Name && lacks.From.Equal(r.From) && lacks.Resource == w.cluster.Cards {
				use.Lacking += lacks.Amount
			}
		}
		if !slices.ContainsFunc(p.begun, func(b ReservationUse) bool { return b.For == use.For && b.From == use.From }) {
			p.begun = append(p.begun, use)
		}
	}
}
