package queue

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// pacing makes decisions no faster than they can be written. The engine assumes what it decides: a
// workload whose admission waits to be written has quota it does not use yet, and a more important
// one that comes meanwhile finds that quota taken. So while the API server or its client's rate
// limit is slower than the engine, the rest is decided later, on newer state.
type pacing struct {
	writers  int
	underWay int  // decisions being written, or waiting to be
	dropped  bool // some decisions of the last plan were given back to the engine
}

// full says that every writer has a decision in hand and another one to go on with.
func (p pacing) full() bool { return p.underWay > 0 && p.underWay >= 2*p.writers }

// limit is how many of n decisions are written now. With many, an eighth of them is not too much:
// deciding all of them again costs as much each time.
func (p pacing) limit(n int) int { return max(3*p.writers-p.underWay, n/8, 1) }

// retry says that dropped decisions have to be made again although no write is under way whose end
// would start the next turn.
func (p pacing) retry() bool { return p.dropped && p.underWay == 0 }

// limitAdmits returns as many admissions as can be written soon, the most important and oldest
// ones, and gives the others back to the engine.
func (s *Shell) limitAdmits(admits []admission.Admit) []admission.Admit {
	limit := s.pacing.limit(len(admits))
	if s.pacing.writers == 0 || len(admits) <= limit {
		return admits
	}
	s.pacing.dropped = true
	slices.SortStableFunc(admits, func(a, b admission.Admit) int {
		x, y := s.importance(a.Workload), s.importance(b.Workload)
		return cmp.Or(cmp.Compare(y.priority, x.priority), x.created.Compare(y.created))
	})
	for _, admit := range admits[limit:] {
		s.engine.Apply(admission.DecisionDropped{Key: admit.Workload})
	}
	return admits[:limit]
}

type importance struct {
	priority int64
	created  time.Time
}

func (s *Shell) importance(key admission.Key) importance {
	t := s.workloads[key]
	if t == nil {
		return importance{}
	}
	i := importance{int64(ptr.Deref(t.object.Spec.Priority, 0)), t.object.CreationTimestamp.Time}
	if s.gates.boost {
		i.priority += workload.PriorityBoost(t.object)
	}
	return i
}
