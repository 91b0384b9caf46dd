package writes

import (
	"time"
)

// Budget bounds the writes that only inform: the counts in queues' statuses, why a workload waits,
// and events. Writing decisions comes first. While nothing is decided the budget grows with time;
// while decisions are written as fast as they are made, it grows by a fraction of a write for each;
// and while decisions pile up, because the API server or its client's rate limit is slower than the
// engine, it hardly grows at all.
type Budget struct {
	PerDecision, PerSecond, PerIdleSecond float64
	Most                                  float64 // it saves up no more than this
	Left                                  float64 // writes to spend now

	at        time.Time
	decidedAt time.Time
}

// StatusBudget is for queues' statuses. The three budgets are such that a busy queue writes less
// than twice for each workload it admits, events included, and a quiet one writes everything at once.
func StatusBudget() Budget {
	return Budget{PerDecision: 0.2, PerSecond: 2, PerIdleSecond: 50, Most: 60, Left: 60}
}

// ReasonBudget is for the reasons why workloads wait. One reason is two writes, the status and an
// event.
func ReasonBudget() Budget {
	return Budget{PerDecision: 0.1, PerSecond: 0.5, PerIdleSecond: 10, Most: 50, Left: 50}
}

// EventBudget is for events about what the status says as well.
func EventBudget() Budget {
	return Budget{PerDecision: 0.3, PerSecond: 0.5, PerIdleSecond: 20, Most: 100, Left: 100}
}

const (
	// quietAfter is how long nothing must have been decided for a queue to be quiet.
	quietAfter = 500 * time.Millisecond
	// keepingUp is how many decisions may be under way while they are still written
	// as fast as they are made.
	keepingUp = 4
)

// Advance grows the budget with time; underWay is how many decisions are being written.
func (b *Budget) Advance(now time.Time, underWay int) {
	rate := b.PerSecond
	if underWay == 0 && now.Sub(b.decidedAt) >= quietAfter {
		rate = b.PerIdleSecond
	}
	if !b.at.IsZero() {
		b.Left = min(b.Most, b.Left+rate*max(0, now.Sub(b.at).Seconds()))
	}
	b.at = now
}

// Decided grows the budget with n new decisions, while underWay others are being written.
func (b *Budget) Decided(n, underWay int, now time.Time) {
	if n == 0 {
		return
	}
	b.decidedAt = now
	if underWay <= keepingUp {
		b.Left = min(b.Most, b.Left+b.PerDecision*float64(n))
	}
}

// Take spends one write and reports whether there was one to spend.
func (b *Budget) Take() bool {
	if b.Left < 1 {
		return false
	}
	b.Left--
	return true
}

// Next is when there is a write to spend at the latest.
func (b *Budget) Next() time.Time {
	return b.at.Add(time.Duration(max(0, 1-b.Left) / b.PerSecond * float64(time.Second)))
}
