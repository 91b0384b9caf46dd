package admission

import "time"

// rules are what held up a workload that could otherwise have been admitted or have preempted.
type rules uint16

// Each rule, and what makes a refused workload worth another look.
const (
	ruleYields       rules = 1 << iota // it would borrow quota that another queue's workload fits into: once all entries were processed
	ruleDelay                          // its preemption delay has not passed: at refusal.until
	ruleMinRuntime                     // its victims have not had their minimum runtime: at refusal.until
	ruleReserved                       // it lacks only what is reserved for others: once quota is freed
	ruleCooldown                       // it was preempted lately: when its cooldown ends
	ruleFutile                         // its victims would come straight back: after any change of usage
	ruleThisDecision                   // what it would take was given in this decision: in the next one
	ruleShared                         // it would preempt as others do that wait: after any change of usage
	ruleBudget                         // it would take a budget beyond its amount: at refusal.until, or when another uses less
	ruleAdvance                        // it would take what is reserved for others at a time: at refusal.until, or when there is more of it
	ruleGated                          // it would preempt others, and its preemption gate is closed: once that is open

	// rulesOfTime: it will get in by preempting others once time has passed or reservations are gone.
	rulesOfTime = ruleDelay | ruleMinRuntime | ruleReserved
	// rulesApart refuse it however much quota is free.
	rulesApart = ruleBudget | ruleAdvance
)

// refusal says which rules held a workload up, and until when those of time do. The zero value is
// a plain lack of quota: it is worth another look once some is freed.
type refusal struct {
	rules rules
	until time.Time
}

func (r *refusal) add(rule rules) { r.rules |= rule }

func (r *refusal) remove(rule rules) { r.rules &^= rule }

// by says whether one of the rules applied.
func (r *refusal) by(rule rules) bool { return r.rules&rule != 0 }

// wait adds a rule that ends with time; the earliest end counts.
func (r *refusal) wait(rule rules, until time.Time) {
	if !r.by(rulesOfTime) || until.Before(r.until) {
		r.until = until
	}
	r.add(rule)
}

// merge adds what an attempt that came to nothing says of later ones.
func (r *refusal) merge(o refusal) {
	r.add(o.rules & (ruleCooldown | ruleFutile | ruleShared | ruleThisDecision | ruleGated))
	if o.by(rulesOfTime) {
		r.wait(o.rules&rulesOfTime, o.until)
	}
}
