package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// budget tells the engine of a budget, and notes it as an object would be.
func (s *shell) budget(b Budget) {
	if s.budgets == nil {
		s.budgets = map[string]Budget{}
	}
	s.budgets[b.Name] = b
	s.apply(BudgetChanged{b})
}

// covers says whether a workload with quota uses a budget.
func (s *shell) covers(b *Budget, w Workload) bool {
	switch {
	case b.Queue != "":
		return w.Admission.Queue == b.Queue
	case b.Cohort != "":
		seen := map[string]bool{}
		for c := s.queues[w.Admission.Queue].Cohort; c != "" && !seen[c]; c = s.cohorts[c].Parent {
			if c == b.Cohort {
				return true
			}
			seen[c] = true
		}
		return false
	}
	return b.LocalQueue == Key{w.Namespace, w.LocalQueue}
}

// spentIn is what a workload with quota has spent of a budget by now.
func (s *shell) spentIn(b *Budget, w Workload) int64 {
	from, to := max(w.Admission.ReservedAt.Unix(), b.From.Unix()), min(s.now.Unix(), b.Until.Unix())
	sum := int64(0)
	for _, ps := range w.Admission.PodSets {
		for res, fl := range ps.Flavors {
			rates, named := b.Rates[fl]
			if !named {
				rates = b.Rates[""]
			}
			spec := w.PodSets[slices.IndexFunc(w.PodSets, func(p PodSet) bool { return p.Name == ps.Name })]
			spec.Reclaimable = 0 // it is charged for all that it was given
			sum += reservedAmount(&ps, &spec, res) * rates[res]
		}
	}
	return sum * max(0, to-from)
}

// spend adds what a workload spent, whose quota is given back, to its budgets, before the engine hears of its end.
func (s *shell) spend(w Workload) {
	if w.Admission == nil {
		return
	}
	for _, b := range s.budgets {
		if s.covers(&b, w) {
			b.Spent += s.spentIn(&b, w)
			s.budget(b)
		}
	}
}

func (sc *scenario) budgetStatement(name string, a arguments) {
	s := sc.shell
	was, known := s.budgets[name]
	b := Budget{Name: name, From: s.now, Until: s.now.Add(7 * 24 * time.Hour), Amount: a.num("hours") * 3600, PerUnit: 3600, Drain: a.has("drain"),
		Unit: "GPU-hours", Period: "this week", Rates: map[string]map[string]int64{"": {"gpu": 1}}}
	if known && !a.has("for") {
		b.From, b.Until, b.Spent = was.From, was.Until, was.Spent
	}
	if a.has("for") {
		b.Until = s.now.Add(a.duration("for"))
	}
	for _, rate := range a["rate"] {
		p := strings.Split(rate, ":")
		if b.Rates[p[0]] == nil {
			b.Rates[p[0]] = map[string]int64{}
		}
		b.Rates[p[0]][p[1]] = parseAmount(p[1], p[2])
	}
	kind, on, _ := strings.Cut(a.str("on"), ":")
	b.On = on
	switch kind {
	case "queue":
		b.Queue = on
	case "cohort":
		b.Cohort = on
	default:
		b.LocalQueue = Key{"default", on}
	}
	s.budget(b)
}

// drawBudget draws a budget that some of the workloads use.
func (w *world) drawBudget(name string) {
	b := Budget{Name: name, On: name, From: w.now.Add(-time.Minute), Until: w.now.Add(rapid.SampledFrom([]time.Duration{time.Minute, 5 * time.Minute, time.Hour}).Draw(w.t, name+" lasts")),
		Amount: rapid.Int64Range(0, 2000).Draw(w.t, name+" amount"), PerUnit: 1, Drain: rapid.IntRange(0, 3).Draw(w.t, name+" drains") == 0,
		Rates: map[string]map[string]int64{"": {CPU: 1}, "f1": {CPU: rapid.Int64Range(0, 3).Draw(w.t, name+" rate")}}}
	switch rapid.IntRange(0, 2).Draw(w.t, name+" is on") {
	case 0:
		b.Queue = fmt.Sprintf("q%d", rapid.IntRange(0, 2).Draw(w.t, name+" queue"))
	case 1:
		b.Cohort = rapid.SampledFrom([]string{"top", "left"}).Draw(w.t, name+" cohort")
	default:
		b.LocalQueue = rapid.SampledFrom(sortedKeys(w.locals)).Draw(w.t, name+" local queue")
	}
	if was, known := w.budgets[name]; known && was.Until.After(w.now) && rapid.Bool().Draw(w.t, name+" changes its amount alone") {
		amount := b.Amount
		b = was
		b.Amount = amount
	} else {
		w.spendAnew(&b)
	}
	w.budget(b)
}

// spendAnew: nothing is known of runs that ended before a budget came.
func (w *world) spendAnew(b *Budget) { b.Spent = 0 }

// nextPeriods begins the next period of budgets whose period is over, as the shell does before each decision.
func (w *world) nextPeriods() {
	for _, b := range w.budgets {
		if !b.Until.After(w.now) {
			b.From, b.Until, b.Spent = b.Until, w.now.Add(5*time.Minute), 0
			w.budget(b)
		}
	}
}

// Nobody is admitted whom a budget does not suffice for: right after a decision what is spent, what is committed and what
// has no end that is known is within the amount, unless it was not before.
func TestBudgetsAreKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, worldConfig{flavors: 2, policy: PolicyFIFO, strict: true, backfill: true, budgets: true})
		for range rapid.IntRange(1, 20).Draw(t, "times") {
			for range rapid.IntRange(1, 4).Draw(t, "steps") {
				w.step()
			}
			w.nextPeriods()
			before := map[string]BudgetUse{}
			w.decide() // what has to leave for a budget, or may stay
			for name := range w.budgets {
				before[name], _ = w.e.BudgetUse(name, w.now)
			}
			p := w.decide()
			for name, b := range w.budgets {
				use, _ := w.e.BudgetUse(name, w.now)
				was := before[name].Spent + before[name].Committed
				if now := use.Spent + use.Committed; now > max(b.Amount, was) {
					t.Fatalf("%s: %d of %d, before the decision %d:\n%s", name, now, b.Amount, was, planText(p))
				}
				want := b.Spent
				for _, wl := range w.workloads {
					if wl.Admission != nil && w.covers(&b, wl) {
						want += w.spentIn(&b, wl)
					}
				}
				if use.Spent != want {
					t.Fatalf("%s: %d spent, not %d", name, use.Spent, want)
				}
				if was >= b.Amount {
					for _, a := range p.Admit {
						wl := w.workloads[a.Workload]
						if w.covers(&b, wl) && wl.Admission != nil && w.rate(&b, wl) > 0 && len(p.Evict) == 0 {
							t.Fatalf("%s starts, and nothing is left of %s", wl.Name, name)
						}
					}
				}
			}
		}
	})
}

// rate is what a workload costs a second.
func (s *shell) rate(b *Budget, w Workload) int64 {
	c := *b
	c.From, c.Until = s.now, s.now.Add(time.Hour)
	adm := *w.Admission
	adm.ReservedAt = s.now
	w.Admission = &adm
	later := *s
	later.now = s.now.Add(time.Second)
	return later.spentIn(&c, w)
}
