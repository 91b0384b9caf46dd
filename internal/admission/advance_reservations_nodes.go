package admission

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Nodes that are reserved ahead of time are for those whom the reservation is for; who could still run when it begins, or
// would start while it lasts, does not start there. That is asked of the Placer with each question about nodes, and is part
// of an admission, for the pods whose nodes a scheduler chooses. Who is over by then starts there: backfill uses the gap.

// excludes says that a workload which starts now must not be on the nodes of a reservation.
func (e *Engine) excludes(r *advance, w *workload) bool {
	if !r.spec.Until.After(e.at) {
		return false
	}
	moment := r.spec.From
	if moment.Before(e.at) {
		moment = e.at
	}
	b := r.beneficiaries()
	return !b.includes(&w.spec, w.local, w.queue) && !e.overBy(w, moment)
}

// avoidNodes are the nodes that a workload which starts now must not be on.
func (e *Engine) avoidNodes(w *workload) []string {
	var nodes []string
	for _, r := range e.advanceNodes {
		switch {
		case slices.Contains(e.liftedNodes, r) || !e.excludes(r, w):
		case len(nodes) == 0:
			nodes = r.spec.Nodes // nobody changes them
		default:
			nodes = slices.Concat(nodes, r.spec.Nodes)
			slices.Sort(nodes)
			nodes = slices.Compact(nodes)
		}
	}
	return nodes
}

// AvoidNodes are the nodes that pods of a workload with quota must not come to at a time, whatever was reserved when it was
// admitted.
func (e *Engine) AvoidNodes(k Key, at time.Time) []string {
	var nodes []string
	for _, r := range e.advanceNodes {
		moment := r.spec.From
		if moment.Before(at) {
			moment = at
		}
		if r.spec.Until.After(at) && !e.IsFor(&r.spec, k) && !e.EndsBy(k, at, moment) {
			nodes = append(nodes, r.spec.Nodes...)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// mostBlamed bounds for how many reservations it is tried whether the nodes of one alone are lacking.
const mostBlamed = 8

// lacksReservedNodes refuses a workload that finds no nodes, and would on some that are reserved for others. It is looked
// at again when a reservation that excludes it is over, in any case.
func (e *Engine) lacksReservedNodes(a *assignment) bool {
	if len(e.advanceNodes) == 0 || a.failed == nil || a.admissible() {
		return false
	}
	var all []*advance
	for _, r := range e.advanceNodes {
		if e.excludes(r, a.w) {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return false
	}
	if !e.admissibleWithout(a, all) {
		if a.aside == nil || all[0].spec.Until.Before(a.aside.spec.Until) {
			a.aside = all[0]
		}
		return false
	}
	for i := range all[:min(len(all)-1, mostBlamed)] {
		if e.admissibleWithout(a, all[i:i+1]) {
			return a.refuseAside(all[i])
		}
	}
	return a.refuseAside(all[0])
}

// admissibleWithout says whether a workload would get in if the nodes of some reservations were not reserved.
func (e *Engine) admissibleWithout(a *assignment, reservations []*advance) bool {
	b := e.newAssignment()
	defer e.recycle(b)
	e.liftedNodes = reservations
	defer func() { e.liftedNodes = nil }()
	b.reset(a.w, a.shape, a.how)
	e.attempt(b)
	return b.admissible()
}

// mostNodeWords is how many nodes are named in words.
const mostNodeWords = 4

// nodeWords names nodes.
func nodeWords(nodes []string) string {
	text := strings.Join(nodes[:min(len(nodes), mostNodeWords)], ", ")
	switch more := len(nodes) - mostNodeWords; {
	case more > 0:
		return fmt.Sprintf("nodes %s and %d more", text, more)
	case len(nodes) == 1:
		return "node " + text
	}
	return "nodes " + text
}

// EndsBy says that a workload with quota is over at a moment, by what is known of its run time.
func (e *Engine) EndsBy(k Key, at, moment time.Time) bool {
	w := e.workloads[k]
	if w == nil || !w.hasQuota() || w.phase == phaseEvicting {
		return true
	}
	end := w.endOf((*workload).runLimit)
	return end.After(at) && !end.After(moment)
}

// IsFor says that a reservation is for a workload.
func (e *Engine) IsFor(r *AdvanceReservation, k Key) bool {
	w := e.workloads[k]
	b := (&advance{spec: *r}).beneficiaries()
	return w != nil && b.includes(&w.spec, w.local, w.queue)
}
