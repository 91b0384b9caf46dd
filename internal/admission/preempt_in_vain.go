package admission

import (
	"slices"
	"time"

	"github.com/elastic-ai/elastic/internal/admission/quota"
)

// Many workloads ask for the same in classes of their own, because they differ in their run times: budgets, advance
// reservations and backfill go by those, and preemption does not. A search for victims in vain is the longest, so it is made
// once for all of them, for as long as nothing changes.

// vainSearches are the searches for victims that came to nothing.
type vainSearches struct {
	decision, version, onNodes, phases uint64 // Engine.decision, tree.version, Engine.nodeChanges and Engine.phaseChanges of all of them
	tree                               *tree
	known                              map[vainKey]vainSearch
	recalled                           int // for tests of how little work is done
}

// vainKey is what a search depends on, apart from usage, nodes and what it asks for.
type vainKey struct {
	shape      *requestShape
	queue      *queue
	rank       int64
	order      int64 // 0 where age decides nothing
	standing   int64
	how        evalMode
	lacksNodes bool
	bound      bool // by minimum runtimes, though nothing can be reserved for it
}

// vainSearch is what one asked for, and what came of it.
type vainSearch struct {
	counts  []int32
	flavors [][]int32
	usage   []quota.Amount
	need    []int32

	rules             rules
	until             time.Time // when the victims that it found have had their minimum runtime; zero: it found none
	lacksReservedOnly bool
	awaitsMinRuntime  bool // the tree does, by this search
	failed            *Refusal
}

// searchUnlessVain is searchVictims for all that an assignment asks for.
func (e *Engine) searchUnlessVain(a *assignment) []victim {
	if !e.comparesSearches(a) {
		return e.searchVictims(a, a.usage, a.need, e.opts.Placer != nil)
	}
	a.lacksNodes = a.failed != nil
	key := e.vainKeyOf(a)
	if known, ok := e.vainSearches(a.w.queue.tree)[key]; ok && known.asks(a) {
		e.recallVain(a, &known)
		return nil
	}
	t := a.w.queue.tree
	refused, awaits := a.refused, t.awaitsMinRuntime
	a.refused, t.awaitsMinRuntime = refusal{}, false
	found := e.searchVictims(a, a.usage, a.need, e.opts.Placer != nil)
	of := a.refused
	if len(found) == 0 {
		e.noteVain(a, key)
	}
	a.refused = refused
	a.refused.add(of.rules &^ ruleMinRuntime)
	if of.by(ruleMinRuntime) {
		a.refused.wait(ruleMinRuntime, of.until)
	}
	t.awaitsMinRuntime = t.awaitsMinRuntime || awaits
	return found
}

// comparesSearches says that the answer to a search is the answer to all with its key: it is made in a decision, with usage
// and nodes as they are, and no rule goes by what happened to the workload itself. Where no class is one by its run time, none
// asks what another has asked.
func (e *Engine) comparesSearches(a *assignment) bool {
	w := a.w
	return (e.refusesApart() || w.queue.backfills()) && !e.opts.unpruned && e.decision != noDecision && e.tx.Unchanged() && len(e.advanceNodes) == 0 &&
		len(w.victims) == 0 && !w.queue.spec.UsageFairSharing && !e.inCooldown(w, false) && !e.delayed(a).After(e.at)
}

func (e *Engine) vainKeyOf(a *assignment) vainKey {
	w := a.w
	key := vainKey{
		shape: a.shape, queue: w.queue, rank: w.rank, standing: w.spec.standing(), how: a.how, lacksNodes: a.lacksNodes,
		bound: !a.canReserve() && w.minRuntimeBinds(e).After(e.at),
	}
	if w.queue.tree.preemptsByAge() {
		key.order = w.order
	}
	return key
}

// preemptsByAge says that somewhere in the tree age decides who may preempt whom.
func (t *tree) preemptsByAge() bool {
	return slices.ContainsFunc(t.queues, func(q *queue) bool {
		p := &q.spec.Preemption
		return p.WithinQueue == PreemptLowerOrNewerEqualPriority || p.ReclaimWithinCohort == PreemptLowerOrNewerEqualPriority
	})
}

// vainSearches of a tree, as long as nothing has changed since.
func (e *Engine) vainSearches(t *tree) map[vainKey]vainSearch {
	v := &e.vain
	if v.tree != t || v.decision != e.decision || v.version != t.version || v.onNodes != e.nodeChanges || v.phases != e.phaseChanges {
		clear(v.known)
		*v = vainSearches{decision: e.decision, version: t.version, onNodes: e.nodeChanges, phases: e.phaseChanges, tree: t, known: v.known, recalled: v.recalled}
	}
	return v.known
}

// asks says that a search asked for the same.
func (v *vainSearch) asks(a *assignment) bool {
	return slices.Equal(v.counts, a.counts) && slices.Equal(v.usage, a.usage) && slices.Equal(v.need, a.need) && slices.EqualFunc(v.flavors, a.podSetFlavors(), slices.Equal)
}

// podSetFlavors are the flavors of all pod sets.
func (a *assignment) podSetFlavors() [][]int32 { return a.flavors[:len(a.shape.podSets)] }

func (e *Engine) noteVain(a *assignment, key vainKey) {
	s, t := &e.scratch.search, a.w.queue.tree
	v := vainSearch{
		counts: slices.Clone(a.counts), usage: slices.Clone(a.usage), need: slices.Clone(a.need),
		rules: a.refused.rules &^ ruleMinRuntime, lacksReservedOnly: s.lacksReservedOnly, awaitsMinRuntime: t.awaitsMinRuntime, failed: a.failed,
	}
	for _, flavors := range a.podSetFlavors() {
		v.flavors = append(v.flavors, slices.Clone(flavors))
	}
	if a.refused.by(ruleMinRuntime) {
		v.until = s.victimsSafeUntil(e)
	}
	if e.vain.known == nil {
		e.vain.known = map[vainKey]vainSearch{}
	}
	e.vain.known[key] = v
}

// victimsSafeUntil is when all victims of a search have had their minimum runtime, however long that binds who searches.
func (s *search) victimsSafeUntil(e *Engine) time.Time {
	var until time.Time
	for _, v := range s.victims {
		if v.w.spec.Extra || v.w.in.admitted == e.decision {
			continue
		}
		if end := v.w.minRuntimeEnd(v.w.timing(e).MinRuntime.by(v.why)); end.After(until) {
			until = end
		}
	}
	return until
}

// recallVain has come of a search what came of another.
func (e *Engine) recallVain(a *assignment, v *vainSearch) {
	e.vain.recalled++
	e.scratch.search.lacksReservedOnly = v.lacksReservedOnly
	a.refused.add(v.rules)
	a.failed, a.placed, a.onNodes = v.failed, nil, 0
	t := a.w.queue.tree
	t.awaitsMinRuntime = t.awaitsMinRuntime || v.awaitsMinRuntime
	if v.until.IsZero() {
		return
	}
	until := v.until
	if last := a.w.minRuntimeBinds(e); !a.canReserve() && until.After(last) {
		until = last
	}
	a.refused.wait(ruleMinRuntime, until)
}
