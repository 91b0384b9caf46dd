package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// An advance reservation sets quota, or nodes, aside for a time that is known beforehand, for the workloads of a queue or a
// LocalQueue, or for one of them. Nobody else starts on that quota who could still run then; who is over by then may. It
// is the rule of backfill with a date in place of a blocked head: at the moment when a reservation begins, or now while
// it lasts, those are gone whose run time is over by then; and of what is reserved, less what those have whom it is for,
// no more may be lacking with the workload than without it.
//
// What is reserved begins at some moments and ends at others; between them, as workloads end, there is only more of
// quota. So it suffices to look at the moments when a reservation begins. Time alone turns no refusal into a yes before
// the reservation is over.

// Nodes are simpler, as they have names: who could still run then does not start on them (advance_reservations_nodes.go).

// AdvanceReservation is one time for which quota or nodes are reserved. Calendars are the caller's: a reservation that comes again
// is several, which have the same name and do not overlap.
type AdvanceReservation struct {
	Name string
	// Whose workloads it is for: a LocalQueue's or a ClusterQueue's.
	LocalQueue Key
	Queue      string
	// Named: for those of them alone that name it (Workload.AdvanceReservation).
	Named bool

	From, Until time.Time
	Amounts     map[string]Requests // by flavor
	Nodes       []string            // by name

	For string // in words
}

// AdvanceReservationsChanged says which advance reservations there are, all of them.
type AdvanceReservationsChanged struct{ Reservations []AdvanceReservation }

// advance is an AdvanceReservation with its amounts as they are counted.
type advance struct {
	spec    AdvanceReservation
	amounts []quota.Amount
}

func (ev AdvanceReservationsChanged) apply(e *Engine) {
	e.advance, e.advanceNodes = nil, nil
	for _, spec := range ev.Reservations {
		r := &advance{spec: spec}
		for flavor, requests := range spec.Amounts { // sorted by flavor-resource
			for resource, v := range requests {
				if v > 0 {
					r.amounts = quota.AddAmount(r.amounts, e.intern(flavor, resource), min(v, quota.Unlimited))
				}
			}
		}
		if e.advance = append(e.advance, r); len(spec.Nodes) > 0 {
			e.advanceNodes = append(e.advanceNodes, r)
		}
	}
	slices.SortStableFunc(e.advanceNodes, func(a, b *advance) int { return a.spec.Until.Compare(b.spec.Until) })
	slices.SortFunc(e.advance, func(a, b *advance) int {
		return cmp.Or(a.spec.From.Compare(b.spec.From), strings.Compare(a.spec.Name, b.spec.Name))
	})
	e.advanceChanged = true
	before := e.advanceFor
	if e.advanceFor = forWhom(e.advance); !slices.Equal(before, e.advanceFor) { // workloads form other classes
		for _, q := range e.queues { // each queue on its own; the order does not matter
			e.requeueMembers(q, true)
		}
	}
}

// beneficiaries are those whom a reservation is for.
type beneficiaries struct {
	reservation, queue string
	local              Key
	named              bool
}

func (r *advance) beneficiaries() beneficiaries {
	return beneficiaries{r.spec.Name, r.spec.Queue, r.spec.LocalQueue, r.spec.Named}
}

// includes says that a workload is one of them.
func (b *beneficiaries) includes(w *Workload, l *localQueue, q *queue) bool {
	switch {
	case b.named && w.AdvanceReservation != b.reservation:
		return false
	case b.queue != "":
		return q != nil && q.name == b.queue
	default:
		return l != nil && l.spec.Key == b.local
	}
}

// forWhom lists for whom there are reservations, each once.
func forWhom(list []*advance) []beneficiaries {
	var all []beneficiaries
	for _, r := range list {
		all = append(all, r.beneficiaries())
	}
	slices.SortFunc(all, func(a, b beneficiaries) int {
		return cmp.Or(strings.Compare(a.reservation, b.reservation), strings.Compare(a.queue, b.queue),
			strings.Compare(a.local.String(), b.local.String()), boolOrder(a.named, b.named))
	})
	return slices.Compact(all)
}

// queueOfAdvance is the queue of whose quota a reservation is; nil: there is none.
func (e *Engine) queueOfAdvance(r *advance) *queue {
	if r.spec.Queue != "" {
		return e.queues[r.spec.Queue]
	}
	if l := e.locals[r.spec.LocalQueue]; l != nil {
		return l.queue
	}
	return nil
}

// reservedAt lists what is reserved in a tree at a moment.
func (e *Engine) reservedAt(t *tree, moment time.Time) []*advance {
	var list []*advance
	for _, r := range e.advance {
		if q := e.queueOfAdvance(r); q != nil && q.tree == t && !r.spec.From.After(moment) && r.spec.Until.After(moment) {
			list = append(list, r)
		}
	}
	return list
}

// starting is a workload that would start now.
type starting struct {
	w         *workload
	usage     []quota.Amount
	victims   []victim
	overrides []*workload
	beside    []returning // who starts with it
}

// leaves says that somebody leaves for it.
func (s *starting) leaves(v *workload) bool {
	return slices.ContainsFunc(s.victims, func(x victim) bool { return x.w == v }) || slices.Contains(s.overrides, v)
}

// takesReserved is a reservation of which a workload would take something if it started now; nil: there is none.
func (e *Engine) takesReserved(s *starting) *advance {
	t := s.w.queue.tree
	var last time.Time
	for _, r := range e.advance {
		q := e.queueOfAdvance(r)
		if q == nil || q.tree != t || !r.spec.Until.After(e.at) || !r.uses(s.usage) {
			continue
		}
		moment := r.spec.From
		if moment.Before(e.at) {
			moment = e.at
		}
		if e.overBy(s.w, moment) || moment.Equal(last) {
			continue
		}
		last = moment
		if taken := e.takesReservedAt(t, moment, s); taken != nil {
			return taken
		}
	}
	return nil
}

// overBy says that a workload which starts now is over at a later moment.
func (e *Engine) overBy(w *workload, moment time.Time) bool {
	run := w.runLimit()
	return run > 0 && !e.at.Add(run).After(moment)
}

// uses says that a reservation is of something that is in a list.
func (r *advance) uses(usage []quota.Amount) bool {
	return slices.ContainsFunc(r.amounts, func(u quota.Amount) bool { return quota.AmountOf(usage, u.FR) > 0 })
}

// takesReservedAt compares what is lacking at a moment with the workload and without it.
func (e *Engine) takesReservedAt(t *tree, moment time.Time, s *starting) *advance {
	inForce := e.reservedAt(t, moment)
	if e.fitBeside(inForce, s) {
		return nil
	}
	without, with := e.lacking(t, moment, inForce, s)
	n := 0
	for _, r := range inForce {
		for range r.amounts {
			if with[n] > without[n] {
				return r
			}
			n++
		}
	}
	return nil
}

// fitBeside says that all that is reserved is free beside the workload as things are: then nothing is lacking later.
func (e *Engine) fitBeside(inForce []*advance, s *starting) bool {
	mark := e.tx.Checkpoint()
	defer e.tx.Rollback(mark)
	e.tx.Add(s.w.queue.node, s.usage, quota.Future)
	for _, o := range s.beside {
		e.tx.Add(o.w.queue.node, o.usage, quota.Future)
	}
	for _, r := range inForce {
		q := e.queueOfAdvance(r)
		for _, u := range r.amounts {
			if !q.node.Fits(u.FR, u.V, quota.Future) {
				return false
			}
		}
		e.tx.Add(q.node, r.amounts, quota.Future)
	}
	return true
}

// lacking is what is lacking at a moment of each amount that is reserved then, without a workload and if it starts now. Whom
// it preempts has no part in either.
func (e *Engine) lacking(t *tree, moment time.Time, inForce []*advance, s *starting) (without, with []int64) {
	mark := e.tx.Checkpoint()
	defer e.tx.Rollback(mark)
	e.liftReservations(t, ofHeads) // for workloads that have not started; each is asked in turn
	e.liftReservations(t, ofDelayed)
	used := e.playUntilMoment(t, moment, inForce, s)
	for _, o := range s.beside {
		if !e.overBy(o.w, moment) {
			e.tx.Add(o.w.queue.node, o.usage, quota.Future)
			countUsed(used, inForce, o.w, o.usage)
		}
	}
	without = e.lackingBeside(inForce, used)
	e.tx.Add(s.w.queue.node, s.usage, quota.Future)
	countUsed(used, inForce, s.w, s.usage)
	return without, e.lackingBeside(inForce, used)
}

// lackingBeside is what is lacking of each amount that is reserved, beside what those have whom it is for.
func (e *Engine) lackingBeside(inForce []*advance, used [][]quota.Amount) (lacks []int64) {
	mark := e.tx.Checkpoint()
	defer e.tx.Rollback(mark)
	for i, r := range inForce {
		q := e.queueOfAdvance(r)
		for _, u := range r.amounts {
			left := max(0, u.V-quota.AmountOf(used[i], u.FR))
			lacks = append(lacks, max(0, left-max(0, q.node.Available(u.FR, quota.Future))))
			e.tx.Add(q.node, []quota.Amount{{FR: u.FR, V: left}}, quota.Future)
		}
	}
	return lacks
}

// leavesReserved refuses a workload that would take what is reserved for others, and says whether it did not. One that
// lacks quota, too, is refused for this: it must not reserve what it may not have.
func (e *Engine) leavesReserved(a *assignment) bool {
	switch {
	case len(e.advance) == 0:
		return true
	case a.mode == noFit && a.reason == ReasonReservedForOthers:
		return !a.refuseAside(a.aside)
	case a.mode == noFit:
		return !e.lacksReservedNodes(a)
	}
	if a.admissible() {
		a.aside = nil
	}
	return !a.refuseAside(e.takesReserved(&starting{w: a.w, usage: a.usage, victims: leavers(a.victims), overrides: a.overrides})) && !e.lacksReservedNodes(a)
}

// flavorIsReserved says that a group of pod sets would take what is reserved of a flavor; there may be another.
func (e *Engine) flavorIsReserved(a *assignment, grp *group, f *groupFlavor, total []podRequest) bool {
	if len(e.advance) == 0 || len(grp.flavors) < 2 {
		return false
	}
	usage := slices.Clone(a.usage)
	for _, t := range total {
		if i := slices.Index(grp.resources, t.resource); i >= 0 {
			usage = quota.AddAmount(usage, f.frs[i], t.v)
		}
	}
	r := e.takesReserved(&starting{w: a.w, usage: usage})
	if r != nil && (a.aside == nil || r.spec.Until.Before(a.aside.spec.Until)) {
		a.aside = r
	}
	return r != nil
}

// refuseAside makes an assignment one that an advance reservation refuses.
func (a *assignment) refuseAside(r *advance) bool {
	if r == nil {
		return false
	}
	a.refuseApart(ReasonReservedForOthers, ruleAdvance, r.spec.Until)
	a.aside = r
	return true
}

// retryReserved looks again at what advance reservations were asked about: as time goes by, who was over in time is not
// any more, so nominations and what is reserved for those who wait are found again in every decision.
func (e *Engine) retryReserved() {
	for _, r := range e.advance {
		if q := e.queueOfAdvance(r); q != nil {
			q.tree.nominatedAt = 0
			e.enlist(q.tree)
		}
	}
	for _, t := range e.trees {
		if len(e.advanceNodes) > 0 && len(t.nominated) > 0 {
			t.nominatedAt = 0
			e.enlist(t)
		}
	}
}

// reservedWords say what a workload waits for.
func (e *Engine) reservedWords(a *assignment) string {
	s := &a.aside.spec
	var amounts []string
	for _, flavor := range sortedNames(s.Amounts) {
		for _, resource := range sortedNames(s.Amounts[flavor]) {
			amounts = append(amounts, e.opts.Format(resource, s.Amounts[flavor][resource])+" "+resource+" of "+flavor)
		}
	}
	if len(s.Nodes) > 0 {
		amounts = append(amounts, nodeWords(s.Nodes))
	}
	are := "are"
	if len(amounts) == 1 && len(s.Nodes) == 1 {
		are = "is"
	}
	text := fmt.Sprintf("%s %s reserved for %s from %s until %s", strings.Join(amounts, ", "), are, s.For, calendar(s.From), calendar(s.Until))
	if run := a.w.runLimit(); run > 0 {
		return fmt.Sprintf("%s, and it may run for %s", text, run)
	}
	return text + ", and nobody knows how long it runs"
}

// explainReserved says when a workload may start that would take what is reserved for others.
func (e *Engine) explainReserved(x *Explanation, a *assignment) {
	if !a.refused.by(ruleAdvance) {
		return
	}
	s := &a.aside.spec
	if gap := s.From.Sub(e.at).Truncate(time.Second); gap > 0 {
		x.Suggestions = append(x.Suggestions, "a run time of at most "+gap.String()+", which is over before the reservation begins")
	}
	x.Suggestions = append(x.Suggestions, "waiting until "+calendar(s.Until)+", when the reservation ends")
	x.StartsAt = s.Until
}

// AdvanceLacking is how much of an advance reservation is not there when it begins, as far as can be told, because
// others have it who may run longer.
type AdvanceLacking struct {
	Name             string
	From             time.Time
	Flavor, Resource string
	Amount           int64
	Words            string // of what, and how much
}

// AdvanceLacking lists what is lacking of advance reservations at a time. Nothing changes by asking.
func (e *Engine) AdvanceLacking(at time.Time) []AdvanceLacking {
	if len(e.advance) == 0 {
		return nil
	}
	e.rebuild()
	defer func(at time.Time, decision uint64) { e.at, e.decision = at, decision }(e.at, e.decision)
	e.at, e.decision = at, noDecision
	var list []AdvanceLacking
	for _, r := range e.advance {
		q := e.queueOfAdvance(r)
		if q == nil || !r.spec.Until.After(at) {
			continue
		}
		moment := r.spec.From
		if moment.Before(at) {
			moment = at
		}
		inForce := e.reservedAt(q.tree, moment)
		lacks, _ := e.lacking(q.tree, moment, inForce, &starting{w: &workload{queue: q}})
		n := 0
		for _, o := range inForce {
			for _, u := range o.amounts {
				if key := e.frs[u.FR]; o == r && lacks[n] > 0 {
					flavor, resource := e.flavors[key.Flavor].spec.Name, e.resources[key.Resource]
					words := e.opts.Format(resource, lacks[n]) + " " + resource + " of " + flavor
					list = append(list, AdvanceLacking{r.spec.Name, r.spec.From, flavor, resource, lacks[n], words})
				}
				n++
			}
		}
	}
	return list
}
