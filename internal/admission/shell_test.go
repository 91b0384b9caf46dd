package admission

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// shell is the engine's caller in tests: it stores the objects, as the API server would, and carries
// plans out.
type shell struct {
	opts       Options
	e          *Engine
	now        time.Time
	cohorts    map[string]Cohort
	queues     map[string]Queue
	locals     map[Key]LocalQueue
	flavors    map[string]Flavor
	namespaces map[string]map[string]string
	workloads  map[Key]Workload
	budgets    map[string]Budget
	advance    []AdvanceReservation
	prices     map[string]FlavorPrice
	failing    func() bool // whether the next write fails; nil: never
	mirror     *Engine     // gets the same events; nil: there is none
}

// apply passes an event to the engine and to its mirror.
func (s *shell) apply(ev Event) {
	s.e.Apply(ev)
	if s.mirror != nil {
		s.mirror.Apply(ev)
	}
}

// restartWithMirror starts the engine and its mirror anew, and applies all objects but workloads to both.
func (s *shell) restartWithMirror() {
	s.e = New(s.opts)
	for _, n := range slices.Sorted(maps.Keys(s.namespaces)) {
		s.apply(NamespaceChanged{n, s.namespaces[n]})
	}
	for _, n := range slices.Sorted(maps.Keys(s.flavors)) {
		s.apply(FlavorChanged{s.flavors[n]})
	}
	for _, n := range slices.Sorted(maps.Keys(s.cohorts)) {
		s.apply(CohortChanged{s.cohorts[n]})
	}
	for _, n := range slices.Sorted(maps.Keys(s.queues)) {
		s.apply(QueueChanged{s.queues[n]})
	}
	for _, k := range sortedKeys(s.locals) {
		s.apply(LocalQueueChanged{s.locals[k]})
	}
}

func newShell(o Options) *shell {
	o.onPhase = func(from, to phase) {
		if !slices.Contains(transitions[from], to) {
			panic(fmt.Sprintf("a workload went from %s to %s", from, to))
		}
	}
	return &shell{
		opts: o, e: New(o), now: time.Unix(1_700_000_000, 0).UTC(),
		cohorts: map[string]Cohort{}, queues: map[string]Queue{}, locals: map[Key]LocalQueue{},
		flavors: map[string]Flavor{}, prices: map[string]FlavorPrice{}, namespaces: map[string]map[string]string{}, workloads: map[Key]Workload{},
	}
}

func (s *shell) namespace(name string, labels map[string]string) {
	s.namespaces[name] = labels
	s.apply(NamespaceChanged{name, labels})
}

func (s *shell) flavor(f Flavor) {
	s.flavors[f.Name] = f
	s.apply(FlavorChanged{f})
}

func (s *shell) price(p FlavorPrice) {
	s.prices[p.Flavor] = p
	s.apply(FlavorPriceChanged{p})
}

func (s *shell) noPrice(flavor string) {
	delete(s.prices, flavor)
	s.apply(FlavorPriceGone{flavor})
}

func (s *shell) cohort(c Cohort) {
	s.cohorts[c.Name] = c
	s.apply(CohortChanged{c})
}

func (s *shell) queue(q Queue) {
	s.queues[q.Name] = q
	s.apply(QueueChanged{q})
}

func (s *shell) local(l LocalQueue) {
	s.locals[l.Key] = l
	s.apply(LocalQueueChanged{l})
}

func (s *shell) workload(w Workload) {
	s.workloads[w.Key] = w
	s.apply(WorkloadChanged{w})
}

func (s *shell) gone(k Key) {
	s.spend(s.workloads[k])
	delete(s.workloads, k)
	s.apply(WorkloadGone{k})
}

func (s *shell) finish(k Key) {
	w := s.workloads[k]
	s.spend(w)
	w.Finished = true
	delete(s.workloads, k)
	s.apply(WorkloadChanged{w})
}

// decide asks for a plan and writes it to the objects; evicted workloads have
// their quota until they are released.
func (s *shell) decide() Plan {
	p := s.e.Decide(s.now)
	s.write(p, func(k Key) bool {
		if s.failing != nil && s.failing() {
			s.apply(DecisionDropped{k})
			return false
		}
		return true
	})
	return p
}

// write puts a plan, or what it says of some, into the objects.
func (s *shell) write(p Plan, written func(Key) bool) {
	for _, a := range p.Admit {
		if written(a.Workload) {
			s.admit(a)
		}
	}
	for _, v := range p.Evict {
		if written(v.Workload) {
			s.evict(v)
		}
	}
	for _, pending := range p.Pending {
		if written(pending.Workload) {
			s.report(pending)
		}
	}
	s.noteUsage()
}

func (s *shell) admit(a Admit) {
	w, ok := s.workloads[a.Workload]
	if !ok || w.Admission != nil {
		panic(fmt.Sprintf("admitted %v, which is not pending", a.Workload))
	}
	w.Admission = a.Admission
	w.StartedAt = s.now
	w.EvictedAt, w.EvictedBy, w.EvictedFor, w.PreemptedByOthers, w.Nominated, w.Moving, w.AwaitsPods = time.Time{}, "", "", false, false, false, false
	s.workload(w)
}

func (s *shell) evict(v Evict) {
	w, ok := s.workloads[v.Workload]
	if !ok || w.Admission == nil || w.Evicting {
		panic(fmt.Sprintf("evicted %v, which has no quota or is leaving already", v.Workload))
	}
	w.Evicting = true
	w.EvictedAt, w.EvictedBy, w.EvictedFor = s.now, string(v.Reason), v.PreemptorUID
	w.PreemptedByOthers = v.Reason == ReasonPreempted && v.Preempted != ReasonInClusterQueue
	w.Moving = v.Preempted == ReasonDefragmentation
	s.workload(w)
}

// report writes down why a workload waits; the engine gets no event, as it knows.
func (s *shell) report(p Pending) {
	w := s.workloads[p.Workload]
	w.Nominated, w.AwaitsPods = p.Reason == ReasonWaitingForPreemptedWorkloads, p.Reason == ReasonWaitingForPodsReady
	w.Moving = w.Moving && w.Nominated
	s.workloads[w.Key] = w
}

// noteUsage writes the local queues' status.
func (s *shell) noteUsage() {
	for k, l := range s.locals {
		if status, ok := s.e.LocalStatus(k); ok && !status.ConsumedAt.IsZero() {
			l.Consumed, l.ConsumedAt = status.Consumed, status.ConsumedAt
			s.local(l)
		}
	}
}

// release frees the quota of an evicted workload.
func (s *shell) release(k Key) {
	w := s.workloads[k]
	s.spend(w)
	if len(s.opts.Service) > 0 {
		w.RanBefore += s.now.Sub(w.StartedAt)
	}
	w.Admission, w.Evicting, w.StartedAt = nil, false, time.Time{}
	s.workload(w)
}

func (s *shell) leaving() []Key {
	var ks []Key
	for k, w := range s.workloads {
		if w.Evicting {
			ks = append(ks, k)
		}
	}
	slices.SortFunc(ks, compareKeys)
	return ks
}

func compareKeys(a, b Key) int {
	if a.Namespace != b.Namespace {
		if a.Namespace < b.Namespace {
			return -1
		}
		return 1
	}
	switch {
	case a.Name < b.Name:
		return -1
	case a.Name > b.Name:
		return 1
	}
	return 0
}

// settle decides and releases evicted workloads until nothing happens any more.
func (s *shell) settle(limit int) (plans []Plan, quiet bool) {
	for range limit {
		p := s.decide()
		p.Admit, p.Evict, p.Pending = slices.Clone(p.Admit), slices.Clone(p.Evict), slices.Clone(p.Pending)
		plans = append(plans, p)
		out := s.leaving()
		if len(p.Admit) == 0 && len(p.Evict) == 0 && len(out) == 0 {
			return plans, true
		}
		for _, k := range out {
			s.release(k)
		}
	}
	return plans, false
}

// rebuilt is an engine after a restart: it gets the same objects, in another order.
func (s *shell) rebuilt(o Options) *Engine {
	e := New(o)
	if p, ok := o.Placer.(*testPlacer); ok {
		for k := range p.held {
			p.Remove(k)
		}
	}
	for _, k := range sortedKeys(s.workloads) {
		e.Apply(WorkloadChanged{s.workloads[k]})
	}
	for _, k := range sortedKeys(s.locals) {
		e.Apply(LocalQueueChanged{s.locals[k]})
	}
	for _, n := range slices.Sorted(maps.Keys(s.queues)) {
		e.Apply(QueueChanged{s.queues[n]})
	}
	for _, n := range slices.Sorted(maps.Keys(s.cohorts)) {
		e.Apply(CohortChanged{s.cohorts[n]})
	}
	for _, n := range slices.Sorted(maps.Keys(s.prices)) {
		e.Apply(FlavorPriceChanged{s.prices[n]})
	}
	for _, n := range slices.Sorted(maps.Keys(s.budgets)) {
		e.Apply(BudgetChanged{s.budgets[n]})
	}
	e.Apply(AdvanceReservationsChanged{s.advance})
	for _, n := range slices.Sorted(maps.Keys(s.namespaces)) {
		e.Apply(NamespaceChanged{n, s.namespaces[n]})
	}
	for _, n := range slices.Sorted(maps.Keys(s.flavors)) {
		e.Apply(FlavorChanged{s.flavors[n]})
	}
	return e
}

func sortedKeys[V any](m map[Key]V) []Key {
	return slices.SortedFunc(maps.Keys(m), compareKeys)
}
