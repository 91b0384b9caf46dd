package queue

import (
	"time"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/writes"
)

// pendingReasons are the reasons why workloads wait that are not in their status yet, the oldest
// first. One that is overtaken by a newer one, or by a decision, is never written.
type pendingReasons struct {
	budget    writes.Budget
	order     []admission.Key
	unwritten map[admission.Key]admission.Pending
}

func newPendingReasons() *pendingReasons {
	return &pendingReasons{budget: writes.ReasonBudget(), unwritten: map[admission.Key]admission.Pending{}}
}

func (r *pendingReasons) add(p admission.Pending) {
	if _, found := r.unwritten[p.Workload]; !found {
		r.order = append(r.order, p.Workload)
	}
	r.unwritten[p.Workload] = p
}

func (r *pendingReasons) drop(key admission.Key) { delete(r.unwritten, key) }

// pop takes the next one that may be written now.
func (r *pendingReasons) pop() (admission.Pending, bool) {
	for len(r.order) > 0 {
		p, found := r.unwritten[r.order[0]]
		if found && !r.budget.Take() {
			return admission.Pending{}, false
		}
		delete(r.unwritten, r.order[0])
		r.order = r.order[1:]
		if found {
			return p, true
		}
	}
	return admission.Pending{}, false
}

// next is when to look again; zero: when there is something new.
func (r *pendingReasons) next() time.Time {
	if len(r.unwritten) == 0 {
		return time.Time{}
	}
	return r.budget.Next()
}
