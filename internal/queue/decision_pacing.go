package queue

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// pace keeps deciding near to writing. The engine assumes what it decides, so
// that a workload whose admission waits to be written holds quota that nobody
// uses, and one that comes meanwhile, however important, finds it taken. While
// the API server or its client's limit is slower than we are, decisions are made
// as they can be written, on what is known by then.
type pacing struct {
	writers  int
	underWay int  // decisions being written, or waiting to be
	dropped  bool // the engine has more to decide than there was time for
}

// ahead says every writer has a decision in hand and another one to go on with.
func (p pacing) full() bool { return p.underWay > 0 && p.underWay >= 2*p.writers }

// room is for how many more of n decisions there is time now. An eighth of many
// is as good as a few: deciding all of them again costs as much each time.
func (p pacing) limit(n int) int { return max(3*p.writers-p.underWay, n/8, 1) }

// again says that nothing is under way whose end would remind us of the rest.
func (p pacing) retry() bool { return p.dropped && p.underWay == 0 }

// inTurn keeps as many admissions as can be written soon, the most important and
// oldest ones, and gives the others back to the engine.
func (s *Shell) limitAdmits(admits []admission.Admit) []admission.Admit {
	room := s.pacing.limit(len(admits))
	s.pacing.dropped = s.pacing.writers > 0 && len(admits) > room
	if !s.pacing.dropped {
		return admits
	}
	slices.SortStableFunc(admits, func(a, b admission.Admit) int {
		x, y := s.importance(a.Workload), s.importance(b.Workload)
		return cmp.Or(cmp.Compare(y.priority, x.priority), x.created.Compare(y.created))
	})
	for _, admit := range admits[room:] {
		s.engine.Apply(admission.DecisionDropped{Key: admit.Workload})
	}
	return admits[:room]
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
