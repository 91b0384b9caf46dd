package admission

import (
	"slices"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// mode says what has to happen before a flavor can be used; higher is better.
type mode uint8

const (
	noFit        mode = iota
	noCandidates      // preemption would be allowed, but there is nobody to preempt
	preempt           // by preempting workloads of the same queue
	reclaim           // by preempting workloads of other queues only
	deferred          // once workloads that are being evicted have left
	fit
)

// evalMode says under which assumptions a workload is evaluated.
type evalMode uint8

const (
	asIs       evalMode = iota // as a decision would now
	fitOnly                    // without preempting anyone or overriding nominations
	afterDelay                 // as if preemption delays and minimum runtimes were over
)

// assignment is an attempt to give a workload its flavors.
type assignment struct {
	w       *workload
	shape   *requestShape
	how     evalMode
	key     string // of the class, stored with a nomination
	mode    mode
	borrow  int // how far up the quota comes from; 0: the queue's nominal quota
	counts  []int32
	flavors [][]int32 // by pod set, parallel to shape.requests; -1: needs none
	usage   []quota.Amount
	need    []int32 // flavor-resources that preemption must free
	misses  []miss
	reason  Reason
	placed  any
	onNodes uint64 // Engine.nodeChanges when that was found; 0: in a what-if
	version uint64 // of the tree when this was computed

	partial   bool
	backfill  bool
	victims   []victim
	overrides []*workload // nominations that it overrides

	refused           refusal
	failed            *Refusal       // the Placer's
	over              *overBudget    // the budget that it, or a flavor, is beyond
	aside             *advance       // the advance reservation that it, or a flavor, would take from
	lacksReservedOnly bool           // it would fit without reservations for others
	lacksNodes        bool           // it has quota, and lacks nodes
	nobodyMoves       string         // why, in words: made only for an explanation
	reservation       []quota.Amount // what is free of the quota it will have

	avoid []int32 // flavors whose nodes had no capacity
	joint bool    // picks says which flavors to try
	floor mode    // the least that will do for each, then
	picks []pick  // by choice, in the order of choosing
	point int     // choices made
}

// admissible: it can be admitted, at once or after others have left.
func (a *assignment) admissible() bool {
	return !a.refused.by(ruleYields) && (a.mode >= deferred || len(a.victims) > 0)
}

func (a *assignment) fits(k quota.View) bool {
	for _, u := range a.usage {
		if !a.w.queue.node.Fits(u.FR, u.V, k) {
			return false
		}
	}
	return true
}

// miss is one thing that stood in the way.
type miss struct {
	reason   Reason
	podSet   int32 // first pod set of the group
	flavor   int32
	resource int32
	fr       int32
	amount   int64       // how much more is needed, or was asked for
	asked    int64       // by earlier pod sets (ExceedsMaxQuota)
	limit    int64       // what there is at most (ExceedsMaxQuota)
	at       *quota.Node // where it is missing
	text     string
}

type flavorFit struct {
	mode   mode
	borrow int
}

// better is the flavor preference of the queue.
func (f *Fungibility) better(a, b flavorFit) bool {
	if a.mode == noFit || b.mode == noFit {
		return a.mode != noFit
	}
	if (a.mode == noCandidates) != (b.mode == noCandidates) {
		return b.mode == noCandidates
	}
	if f.PreferPreemption && a.borrow != b.borrow {
		return a.borrow < b.borrow
	}
	if a.mode != b.mode {
		return a.mode > b.mode
	}
	return a.borrow < b.borrow
}

// tryNext says whether to look at further flavors although this one may do.
func (f *Fungibility) tryNext(g flavorFit) bool {
	switch {
	case g.mode <= noCandidates:
		return true
	case g.mode < fit && !f.PreemptStay:
		return true
	case g.borrow > 0 && f.BorrowTryNext:
		return true
	}
	return false
}

func (a *assignment) reset(w *workload, s *requestShape, how evalMode) {
	*a = assignment{
		w: w, shape: s, how: how, mode: fit,
		counts:  append(a.counts[:0], s.counts...),
		flavors: a.flavors[:0],
		usage:   a.usage[:0], need: a.need[:0], misses: a.misses[:0],
		victims: a.victims[:0], avoid: a.avoid[:0], overrides: a.overrides[:0], picks: a.picks[:0], reservation: a.reservation[:0],
	}
}

// assign chooses flavors for all pod sets at a.counts, against the tree as it
// stands. What is missing is noted either way. One after the other, each group of pod sets takes what
// is best for it; if that does not do for all, they look for a combination that does.
func (e *Engine) assign(a *assignment) {
	e.assignGroups(a)
	if len(a.shape.groups) > 1 && a.w.queue.choice && a.mode < deferred {
		e.assignJointly(a)
	}
}

func (e *Engine) assignGroups(a *assignment) {
	a.mode, a.borrow, a.reason = fit, 0, ""
	a.usage, a.need, a.misses, a.point = a.usage[:0], a.need[:0], a.misses[:0], 0
	s := a.shape
	for len(a.flavors) < len(s.podSets) {
		if cap(a.flavors) > len(a.flavors) {
			a.flavors = a.flavors[:len(a.flavors)+1]
		} else {
			a.flavors = append(a.flavors, nil)
		}
	}
	for g := range s.groups {
		if !e.assignGroup(a, g) {
			a.mode = noFit
			return
		}
	}
}

// assignGroup chooses flavors for one group of pod sets.
func (e *Engine) assignGroup(a *assignment, g int) bool {
	s, q := a.shape, a.w.queue
	total := e.groupTotal(a, g)
	chosen := e.scratch.chosen[:0]
	for range total {
		chosen = append(chosen, -1)
	}
	e.scratch.chosen = chosen
	for i, t := range total {
		if chosen[i] >= 0 {
			continue
		}
		rg := q.group(t.resource)
		if rg < 0 {
			if t.v == 0 || e.opts.IgnoreUndeclared {
				continue
			}
			a.miss(miss{reason: ReasonNoMatchingFlavor, podSet: int32(s.groups[g][0]), flavor: -1, resource: t.resource, fr: -1,
				text: "resource " + e.resources[t.resource] + " unavailable in ClusterQueue"})
			a.reason = worse(a.reason, ReasonNoMatchingFlavor)
			return false
		}
		if !e.findFlavor(a, g, rg, total, chosen) {
			return false
		}
	}
	e.addUsage(a, g, total, chosen)
	return true
}

// groupTotal is what a group of pod sets asks for, by resource. It is valid until the next call.
func (e *Engine) groupTotal(a *assignment, g int) []podRequest {
	total := e.scratch.total[:0]
	for _, id := range a.shape.groups[g] {
		for _, r := range a.shape.requests[id] {
			if r.resource == 0 && a.w.queue.group(0) < 0 {
				continue // pods are counted only where a queue lists them
			}
			total = addRequest(total, r.resource, quota.Times(r.v, a.counts[id]))
		}
	}
	e.scratch.total = total
	return total
}

// addUsage notes the flavors chosen for a group of pod sets and what they take.
func (e *Engine) addUsage(a *assignment, g int, total []podRequest, chosen []int32) {
	s := a.shape
	for _, id := range s.groups[g] {
		fl := a.flavors[id][:0]
		for _, r := range s.requests[id] {
			j := slices.IndexFunc(total, func(t podRequest) bool { return t.resource == r.resource })
			if j < 0 || chosen[j] < 0 {
				fl = append(fl, -1)
				continue
			}
			fl = append(fl, chosen[j])
			if v := quota.Times(r.v, a.counts[id]); v > 0 {
				a.usage = quota.AddAmount(a.usage, e.frIndex[quota.FlavorResource{Flavor: chosen[j], Resource: r.resource}], v)
			}
		}
		a.flavors[id] = fl
	}
}

func addRequest(list []podRequest, res int32, v int64) []podRequest {
	for i := range list {
		if list[i].resource == res {
			list[i].v = quota.Sum(list[i].v, v)
			return list
		}
	}
	return append(list, podRequest{res, v})
}

// findFlavor picks the flavor of one resource group for one group of pod sets.
func (e *Engine) findFlavor(a *assignment, g int, rg int32, total []podRequest, chosen []int32) bool {
	q := a.w.queue
	grp := &q.groups[rg]
	fung := &q.spec.Fungibility
	best, bestFlavor := flavorFit{noFit, 1 << 30}, -1
	groupReason := Reason("")
	order := e.flavorOrder(a, g, grp, total)
	for nth := range grp.flavors {
		if !a.picked(nth, len(grp.flavors)) {
			continue
		}
		i := nth
		if order != nil {
			i = order[nth]
		}
		f := &grp.flavors[i]
		got, reason := e.tryFlavor(a, g, grp, f, total)
		if reason != "" && (groupReason == "" || severity(reason) < severity(groupReason)) {
			groupReason = reason
		}
		if !fung.tryNext(got) || fung.better(got, best) {
			best, bestFlavor = got, i
		}
		if !fung.tryNext(got) {
			break
		}
	}
	if best.mode == noFit || bestFlavor < 0 || a.joint && best.mode < a.floor {
		a.reason = worse(a.reason, groupReason)
		return false
	}
	a.point++
	f := &grp.flavors[bestFlavor]
	a.mode = min(a.mode, best.mode)
	a.borrow = max(a.borrow, best.borrow)
	for i, t := range total {
		if q.group(t.resource) != rg {
			continue
		}
		chosen[i] = f.flavor
		if best.mode < deferred {
			fr := f.frs[slices.Index(grp.resources, t.resource)]
			if !q.node.Fits(fr, quota.AmountOf(a.usage, fr)+t.v, quota.Future) && !slices.Contains(a.need, fr) {
				a.need = append(a.need, fr)
			}
		}
	}
	return true
}

// tryFlavor rates one flavor: the worst over the resources it must supply.
func (e *Engine) tryFlavor(a *assignment, g int, grp *group, f *groupFlavor, total []podRequest) (flavorFit, Reason) {
	first := int32(a.shape.groups[g][0])
	if slices.Contains(a.avoid, f.flavor) {
		return flavorFit{noFit, 0}, ReasonTopologyPlacementFailed
	}
	if why := a.shape.refuses(e, f.flavor, g, grp.resources); why != "" {
		a.miss(miss{reason: ReasonNoMatchingFlavor, podSet: first, flavor: f.flavor, resource: -1, fr: -1, text: why})
		return flavorFit{noFit, 0}, ReasonNoMatchingFlavor
	}
	if e.flavorIsOver(a, grp, f, total) {
		return flavorFit{noFit, 0}, ReasonWaitingForBudget
	}
	if e.flavorIsReserved(a, grp, f, total) {
		return flavorFit{noFit, 0}, ReasonReservedForOthers
	}
	worst := flavorFit{fit, 0}
	reason := Reason("")
	for _, t := range total {
		i := slices.Index(grp.resources, t.resource)
		if i < 0 {
			continue
		}
		got, why := e.tryQuota(a, first, f.frs[i], t.v, len(grp.flavors) > 1)
		reason = worse(reason, why)
		if a.w.queue.spec.Fungibility.better(worst, got) {
			worst = got
		}
		if worst.mode == noFit {
			break
		}
	}
	if worst.mode != noFit {
		reason = ""
	}
	return worst, reason
}

// tryQuota rates one flavor-resource for v more, next to what earlier pod sets take.
func (e *Engine) tryQuota(a *assignment, podSet int32, fr int32, v int64, choice bool) (flavorFit, Reason) {
	n := a.w.queue.node
	c := &n.Cells[fr]
	used := quota.AmountOf(a.usage, fr)
	val := quota.Sum(used, v)
	key := e.frs[fr]
	if most := a.w.mostOf(c); val > most {
		a.miss(miss{reason: ReasonExceedsMaxQuota, podSet: podSet, flavor: key.Flavor, resource: key.Resource, fr: fr,
			amount: v, asked: used, limit: most})
		return flavorFit{noFit, 0}, ReasonExceedsMaxQuota
	}
	if short := a.w.beyondSafe(fr, val); short > 0 {
		a.miss(miss{reason: ReasonWaitingForQuota, podSet: podSet, flavor: key.Flavor, resource: key.Resource, fr: fr, amount: short, at: n})
		return flavorFit{noFit, 0}, ReasonWaitingForQuota
	}
	level, inside := n.BorrowLevel(fr, val, quota.Now)
	at, _ := n.Blocked(fr, val, quota.Future)
	if at == nil {
		at, short := n.Blocked(fr, val, quota.Now)
		if at == nil {
			return flavorFit{fit, level}, ""
		}
		a.miss(miss{reason: ReasonWaitingForPreemptedWorkloads, podSet: podSet, flavor: key.Flavor, resource: key.Resource, fr: fr, amount: short, at: at})
		level, _ = n.BorrowLevel(fr, val, quota.Future)
		return flavorFit{deferred, level}, ""
	}
	a.miss(miss{reason: ReasonWaitingForQuota, podSet: podSet, flavor: key.Flavor, resource: key.Resource, fr: fr, amount: val - n.Available(fr, quota.Future), at: at})
	if c.Nominal < val && !inside && !e.mayPreemptWhileBorrowing(a.w.queue) {
		return flavorFit{noFit, level}, ReasonWaitingForQuota
	}
	got := e.prospect(a, fr, val, level, choice)
	if got.mode == noFit {
		return got, ReasonWaitingForQuota
	}
	return got, ""
}

func (a *assignment) miss(m miss) { a.misses = append(a.misses, m) }

// Reasons rank by how little waiting alone would help.
func severity(r Reason) int {
	switch r {
	case ReasonNoMatchingFlavor:
		return 4
	case ReasonExceedsMaxQuota, ReasonWaitingForBudget, ReasonReservedForOthers:
		return 3
	case ReasonWaitingForQuota:
		return 2
	case ReasonTopologyPlacementFailed:
		return 1
	}
	return 0
}

func worse(a, b Reason) Reason {
	if severity(b) > severity(a) {
		return b
	}
	return a
}
