package queue

import (
	"time"

	"github.com/elastic-ai/elastic/internal/admission"
)

// budget bounds the writes that only tell: queues' counts, why a workload
// waits, and events. Deciding comes first. While nothing is decided it grows with
// time; while decisions are written as fast as they are made, with them, a fraction
// of a write for each; and while they pile up, because the API server or its
// client's limit is slower than we are, it hardly grows at all.
type budget struct {
	perDecision, perSecond, perIdleSecond float64
	most                                  float64

	left      float64
	at        time.Time
	decidedAt time.Time
}

// The budgets are such that a busy queue writes less than twice for each
// workload it admits, events included, and a quiet one tells everything at
// once. A reason that is told is two writes, the status and an event.
func statusBudget() budget {
	return budget{perDecision: 0.2, perSecond: 2, perIdleSecond: 50, most: 60, left: 60}
}

func reasonBudget() budget {
	return budget{perDecision: 0.1, perSecond: 0.5, perIdleSecond: 10, most: 50, left: 50}
}

func eventBudget() budget {
	return budget{perDecision: 0.3, perSecond: 0.5, perIdleSecond: 20, most: 100, left: 100}
}

const (
	// lull is how long nothing must have been decided for a queue to be quiet.
	lull = 500 * time.Millisecond
	// keepingUp is how many decisions may be under way while they are still written
	// as fast as they are made.
	keepingUp = 4
)

// pass lets time pass; underWay is how many decisions are being written.
func (b *budget) pass(now time.Time, underWay int) {
	rate := b.perSecond
	if underWay == 0 && now.Sub(b.decidedAt) >= lull {
		rate = b.perIdleSecond
	}
	if !b.at.IsZero() {
		b.left = min(b.most, b.left+rate*max(0, now.Sub(b.at).Seconds()))
	}
	b.at = now
}

// decided takes in that n decisions are made while others are under way.
func (b *budget) decided(n, underWay int, now time.Time) {
	if n == 0 {
		return
	}
	b.decidedAt = now
	if underWay <= keepingUp {
		b.left = min(b.most, b.left+b.perDecision*float64(n))
	}
}

// take spends one write, if there is one to spend.
func (b *budget) take() bool {
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// next is when there is a write to spend at the latest.
func (b *budget) next() time.Time {
	return b.at.Add(time.Duration(max(0, 1-b.left) / b.perSecond * float64(time.Second)))
}

// reasons are verdicts that wait to be told, the oldest first. One that is
// overtaken by a newer one, or by a decision, is never told.
type reasons struct {
	budget budget
	order  []admission.Key
	parks  map[admission.Key]admission.Pending
}

func newReasons() *reasons {
	return &reasons{budget: reasonBudget(), parks: map[admission.Key]admission.Pending{}}
}

func (r *reasons) add(p admission.Pending) {
	if _, waiting := r.parks[p.Workload]; !waiting {
		r.order = append(r.order, p.Workload)
	}
	r.parks[p.Workload] = p
}

func (r *reasons) drop(key admission.Key) { delete(r.parks, key) }

// pop takes the next one that may be told now.
func (r *reasons) pop() (admission.Pending, bool) {
	for len(r.order) > 0 {
		p, waiting := r.parks[r.order[0]]
		if waiting && !r.budget.take() {
			return admission.Pending{}, false
		}
		delete(r.parks, r.order[0])
		r.order = r.order[1:]
		if waiting {
			return p, true
		}
	}
	return admission.Pending{}, false
}

// next is when to look again; zero: when there is something new.
func (r *reasons) next() time.Time {
	if len(r.parks) == 0 {
		return time.Time{}
	}
	return r.budget.next()
}
