package admission

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Explanation is why one workload is where it is.
type Explanation struct {
	Workload Key
	Queue    string
	State    State
	Reason   Reason
	Message  string

	Position int   // in its ClusterQueue, 1 is next; 0 when not in line
	Ahead    []Key // who is before it in its ClusterQueue, nearest last, at most 10
	Missing  []Missing
	Blockers []Blocker // running workloads that hold what is missing, at most 10
	Victims  []Blocker // whom it would displace, if it may
	Helps    []string  // what would let it in, in words

	// StartsAt is the estimated start, zero when it cannot be told.
	StartsAt time.Time
}

// State is where a workload stands.
type State string

// The states.
const (
	StateUnknown  State = "Unknown"
	StatePending  State = "Pending"
	StateWaiting  State = "WaitingForPreemptedWorkloads"
	StateHeldBack State = "HeldBack"
	StateReserved State = "QuotaReserved"
	StateEvicting State = "Evicting"
)

// Missing is an amount of a resource that is lacking, and at which node of the tree.
type Missing struct {
	PodSet, Resource, Flavor string
	Amount                   int64
	At                       string // queue or cohort whose quota or limit is exhausted
	Reason                   Reason
}

// Blocker is a workload that holds something another one wants.
type Blocker struct {
	Workload Key
	Queue    string
	Priority int64
	Rule     Reason // for victims: what allows displacing it
}

// message words a refusal as Kueue does.
func (e *Engine) message(a *assignment) string {
	var b strings.Builder
	podSet := int32(-1)
	var parts []string
	flush := func() {
		if len(parts) == 0 {
			return
		}
		if b.Len() > 0 {
			b.WriteString("; ")
		}
		b.WriteString("couldn't assign flavors to pod set ")
		b.WriteString(a.shape.podSets[podSet].Name)
		b.WriteString(": ")
		slices.Sort(parts)
		b.WriteString(strings.Join(slices.Compact(parts), ", "))
		parts = parts[:0]
	}
	for i := range a.misses {
		m := &a.misses[i]
		if m.podSet != podSet {
			flush()
			podSet = m.podSet
		}
		parts = append(parts, e.missText(m))
	}
	flush()
	switch {
	case len(a.victims) > 0:
		fmt.Fprintf(&b, ". Pending the preemption of %d workload(s)", len(a.victims))
	case a.mode == deferred:
		b.WriteString(". It will fit once evicted workloads have left")
	}
	if a.failed != nil {
		if b.Len() > 0 {
			b.WriteString("; ")
		}
		b.WriteString(a.failed.Reason)
	}
	return b.String()
}

func (e *Engine) missText(m *miss) string {
	if m.text != "" {
		return m.text
	}
	res, fl := e.resources[m.resource], e.flavors[m.flavor].spec.Name
	if m.reason == ReasonExceedsMaxQuota {
		return "insufficient quota for " + res + " in flavor " + fl + ", previously considered podsets requests (" +
			e.opts.Format(res, m.asked) + ") + current podset request (" + e.opts.Format(res, m.amount) +
			") > maximum capacity (" + e.opts.Format(res, m.limit) + ")"
	}
	return "insufficient unused quota for " + res + " in flavor " + fl + ", " + e.opts.Format(res, m.amount) + " more needed"
}

// Explain tells why a workload is where it is at the given time. Nothing changes by asking.
func (e *Engine) Explain(k Key, at time.Time) Explanation {
	x := Explanation{Workload: k, State: StateUnknown}
	w := e.workloads[k]
	if w == nil {
		return x
	}
	e.rebuild()
	if w.queue != nil {
		x.Queue = w.queue.name
	}
	switch {
	case w.holds && w.leaving:
		x.State = StateEvicting
	case w.holds:
		x.State = StateReserved
	case w.claim != nil:
		x.State, x.Reason = StateWaiting, w.told
	case w.class == nil:
		x.State = StateHeldBack
		x.Reason, x.Message = e.heldBack(w, w.local.queue)
	default:
		x.State = StatePending
	}
	return x
}
