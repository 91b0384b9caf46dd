package dependencies

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Standing is what a workload waits for.
type Standing struct {
	// Met has come true, and the workload does not say so yet.
	Met []workload.Dependency
	// Waits is what it waits for, in words for its user; "": nothing.
	Waits string
	// InVain: as things are, it waits for ever.
	InVain bool
	// Invalid is what is wrong with what it says; "": nothing.
	Invalid string
}

// Of is the standing of a workload that was set.
func (x *Index) Of(key admission.Key) Standing {
	if n := x.nodes[key]; n != nil {
		return x.standing(n)
	}
	return Standing{}
}

// Consider is the standing of a workload that does not exist.
func (x *Index) Consider(wl *kueue.Workload, may Policy) Standing {
	return x.standing(newNode(wl, sight(wl), may))
}

// mostNamed is how many a message names.
const mostNamed = 3

func (x *Index) standing(n *node) Standing {
	s := Standing{Invalid: n.invalid}
	if len(n.unmet) == 0 {
		return s
	}
	var waits, inVain []string
	for _, u := range n.unmet {
		met, never, why := x.stands(n, u)
		text := u.In(n.key.Namespace) + " (" + why + ")"
		switch {
		case met:
			s.Met = append(s.Met, u.Dependency)
		case never:
			inVain = append(inVain, text)
		default:
			waits = append(waits, text)
		}
	}
	s.InVain = len(inVain) > 0
	s.Waits = words(append(inVain, waits...))
	return s
}

func words(list []string) string {
	if len(list) == 0 {
		return "All that it comes after has ended"
	}
	text := "It comes after " + strings.Join(list[:min(len(list), mostNamed)], ", ")
	if more := len(list) - mostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// stands says of one dependency whether it has come true, or never will, and in words how that stands. Of what the
// workload may not wait for, the answer is the same whether it exists or not.
func (x *Index) stands(n *node, u unmet) (met, never bool, why string) {
	if u.forbidden {
		return false, true, "no QueuePolicy lets jobs of this queue wait for those of namespace " + u.Namespace
	}
	named := x.named[u.name()]
	if len(named) == 0 {
		return false, false, "not in a queue"
	}
	for _, m := range named {
		switch {
		case m.key == n.key:
			return false, true, "which it is itself"
		case slices.Contains(x.cycles[n.key], m.key):
			return false, true, "which comes after it"
		}
	}
	if slices.ContainsFunc(named, func(m *node) bool { return m.outcomeFor(u) == workload.NotEnded }) {
		return false, false, "has not ended"
	}
	last := slices.MaxFunc(named, func(a, b *node) int {
		return cmp.Or(a.created.Compare(b.created), strings.Compare(a.key.Name, b.key.Name))
	})
	succeeded := last.outcomeFor(u) == workload.Succeeded
	if u.When == workload.WhenAny || succeeded == (u.When == workload.WhenOK) {
		return true, false, ""
	}
	if succeeded {
		return false, true, "succeeded"
	}
	return false, true, "failed"
}

// outcomeFor is how a job ended for one that waits for it. An index that is not said to have ended by itself ended with its job.
func (n *node) outcomeFor(u unmet) workload.Outcome {
	if u.Index != "" {
		index, _ := strconv.Atoi(u.Index)
		if at := slices.IndexFunc(n.ended, func(r workload.IndexRange) bool { return r.First <= index && index <= r.Last }); at >= 0 {
			return n.ended[at].Outcome
		}
	}
	return n.seen.outcome
}
