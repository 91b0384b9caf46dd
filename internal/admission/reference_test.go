package admission

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// reference decides the slow, obvious way, for worlds without preemption: nothing is stored
// from one decision to the next, every pending workload is looked at each time, and quota is added up
// from the objects.
type reference struct {
	*model
	reserved map[string]map[[2]string]int64 // queue: reserved for blocked heads
	blocked  map[string]bool                // queues whose StrictFIFO head waits
	done     map[Key]bool
}

type refEntry struct {
	w       Workload
	queue   string
	fit     bool
	borrow  int
	flavors []string // by pod set
	counts  []int32
}

func (r *reference) usage(e *refEntry) map[[2]string]int64 {
	u := map[[2]string]int64{}
	for i, ps := range e.w.PodSets {
		u[[2]string{e.flavors[i], CPU}] += int64(e.counts[i]) * ps.Requests[CPU]
	}
	return u
}

// free is what a queue can still take; future counts reservations too.
func (r *reference) free(q, flavor string, future bool) int64 {
	if !future {
		return r.available("q:"+q, flavor, CPU)
	}
	saved := r.extra
	r.extra = map[string]map[[2]string]int64{}
	for k, v := range saved {
		r.extra[k] = maps.Clone(v)
	}
	for k, res := range r.reserved {
		if r.extra[k] == nil {
			r.extra[k] = map[[2]string]int64{}
		}
		for fr, v := range res {
			r.extra[k][fr] += v
		}
	}
	free := r.available("q:"+q, flavor, CPU)
	r.extra = saved
	return free
}

func (r *reference) potential(n, f string) int64 {
	p := r.parent(n)
	if p == "" {
		return r.subtree(n, f, CPU)
	}
	v := r.guaranteed(n, f, CPU) + r.potential(p, f)
	if b := r.quota(n, f, CPU).BorrowingLimit; b != nil {
		v = min(v, r.subtree(n, f, CPU)+*b)
	}
	return v
}

func (r *reference) height(n string) int {
	h := 0
	for _, ch := range r.children(n) {
		h = max(h, r.height(ch)+1)
	}
	return h
}

func (r *reference) level(q, f string, v int64) (int, bool) {
	n := "q:" + q
	for {
		p := r.parent(n)
		if p == "" {
			return r.height(n), false
		}
		if r.model.usage(n, f, CPU)+v <= r.subtree(n, f, CPU) {
			return r.height(n), true
		}
		v -= max(0, r.guaranteed(n, f, CPU)-r.model.usage(n, f, CPU))
		n = p
	}
}

// try lets each pod set in turn take what is best for it. If that does not do for all, the first combination
// of flavors counts that does, or else that could: 2 fits, 1 could fit if others left, 0 cannot.
func (r *reference) try(e *refEntry) int {
	worst := r.tryInTurn(e)
	for mode := 2; mode > worst; mode-- {
		if t := (&refEntry{w: e.w, queue: e.queue, counts: e.counts}); r.combine(t, mode, map[string]int64{}) {
			*e = *t
			return mode
		}
	}
	return worst
}

// combine gives the pod sets that have none yet the first flavors with which every one of them gets mode.
func (r *reference) combine(e *refEntry, mode int, taken map[string]int64) bool {
	i := len(e.flavors)
	if i == len(e.counts) {
		return true
	}
	v, before := int64(e.counts[i])*e.w.PodSets[i].Requests[CPU], e.borrow
	for _, f := range r.s.queues[e.queue].Groups[0].Flavors {
		if got, level := r.rate(e.queue, f, taken[f.Flavor]+v); got >= mode {
			taken[f.Flavor] += v
			e.flavors, e.borrow = append(e.flavors[:i:i], f.Flavor), max(before, level)
			if r.combine(e, mode, taken) {
				return true
			}
			taken[f.Flavor] -= v
		}
	}
	e.flavors, e.borrow = e.flavors[:i], before
	return false
}

// rate says whether a queue can have val of a flavor, and from how far up.
func (r *reference) rate(queue string, f FlavorQuotas, val int64) (mode, level int) {
	if val > r.potential("q:"+queue, f.Flavor) {
		return 0, 0
	}
	level, inside := r.level(queue, f.Flavor, val)
	switch {
	case val <= r.free(queue, f.Flavor, false) && val <= r.free(queue, f.Flavor, true):
		return 2, level
	case val <= f.Quotas[CPU].Nominal || inside:
		return 1, level
	}
	return 0, level
}

func (r *reference) tryInTurn(e *refEntry) (worst int) {
	q := r.s.queues[e.queue]
	taken := map[string]int64{}
	worst, e.borrow, e.flavors = 2, 0, nil
	for i, ps := range e.w.PodSets {
		v := int64(e.counts[i]) * ps.Requests[CPU]
		best, bestLevel, bestFlavor := 0, 1<<30, ""
		for _, f := range q.Groups[0].Flavors {
			mode, level := r.rate(e.queue, f, taken[f.Flavor]+v)
			stop := mode == 2 && (level == 0 || !q.Fungibility.BorrowTryNext)
			if stop || mode > best || mode == best && mode > 0 && level < bestLevel {
				best, bestLevel, bestFlavor = mode, level, f.Flavor
			}
			if stop {
				break
			}
		}
		if best == 0 {
			return 0
		}
		worst = min(worst, best)
		e.borrow = max(e.borrow, bestLevel)
		e.flavors = append(e.flavors, bestFlavor)
		taken[bestFlavor] += v
	}
	return worst
}

// evaluate tries the full counts, then smaller ones.
func (r *reference) evaluate(w Workload) (*refEntry, int) {
	e := &refEntry{w: w, queue: r.s.locals[Key{w.Namespace, w.LocalQueue}].Queue}
	full := make([]int32, len(w.PodSets))
	slack := make([]int32, len(w.PodSets))
	total := int32(0)
	for i, ps := range w.PodSets {
		full[i] = ps.Count - ps.Reclaimable
		if ps.MinCount > 0 && ps.MinCount < full[i] {
			slack[i] = full[i] - ps.MinCount
		}
		total += slack[i]
	}
	e.counts = slices.Clone(full)
	mode := r.try(e)
	if mode == 2 || total == 0 {
		e.fit = mode == 2
		return e, mode
	}
	lo, hi := int32(0), total+1 // the smallest reduction that fits, by bisection
	var found *refEntry
	for lo < hi {
		mid := (lo + hi) / 2
		if mid > total {
			break
		}
		t := &refEntry{w: w, queue: e.queue, counts: slices.Clone(full)}
		for i := range full {
			t.counts[i] -= slack[i] * mid / total
		}
		if r.try(t) == 2 {
			t.fit = true
			found, hi = t, mid
		} else {
			lo = mid + 1
		}
	}
	if found != nil {
		return found, 2
	}
	return e, mode
}

// pending lists a queue's pending workloads in order.
func (r *reference) pending(q string) []Workload {
	var pending []Workload
	for _, w := range r.s.workloads {
		if w.Admission == nil && !w.Inactive && !r.done[w.Key] && r.s.locals[Key{w.Namespace, w.LocalQueue}].Queue == q {
			pending = append(pending, w)
		}
	}
	slices.SortFunc(pending, func(a, b Workload) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Created.Compare(b.Created), strings.Compare(a.UID, b.UID))
	})
	return pending
}

// decide returns the admissions in order, as text.
func (r *reference) decide() string {
	var out strings.Builder
	for {
		var best *refEntry
		for _, q := range slices.Sorted(maps.Keys(r.s.queues)) {
			if e := r.first(q); e != nil && (best == nil || r.before(e, best)) {
				best = e
			}
		}
		if best == nil {
			return out.String()
		}
		if !best.fit {
			r.reserve(best)
			continue
		}
		r.done[best.w.Key] = true
		if r.extra[best.queue] == nil {
			r.extra[best.queue] = map[[2]string]int64{}
		}
		for fr, v := range r.usage(best) {
			r.extra[best.queue][fr] += v
		}
		fmt.Fprintf(&out, "%s %v %v\n", best.w.Name, best.counts, best.flavors)
	}
}

// first is the queue's first workload that fits, or a StrictFIFO head that reserves.
func (r *reference) first(q string) *refEntry {
	if r.blocked[q] {
		return nil
	}
	for _, w := range r.pending(q) {
		e, mode := r.evaluate(w)
		if e.fit {
			return e
		}
		if r.s.queues[q].StrictFIFO {
			if mode == 1 && r.s.queues[q].Cohort != "" {
				return e
			}
			return nil
		}
	}
	return nil
}

func (r *reference) before(a, b *refEntry) bool {
	return cmp.Or(cmp.Compare(a.borrow, b.borrow), cmp.Compare(b.w.Priority, a.w.Priority),
		a.w.Created.Compare(b.w.Created), strings.Compare(a.w.UID, b.w.UID)) < 0
}

func (r *reference) reserve(e *refEntry) {
	r.blocked[e.queue] = true
	r.reserved[e.queue] = map[[2]string]int64{}
	for fr, v := range r.usage(e) {
		q := r.quota("q:"+e.queue, fr[0], CPU)
		used := r.used(e.queue, fr[0], CPU)
		reserved := min(v, q.Nominal-used)
		if e.borrow > 0 {
			reserved = v
			if q.BorrowingLimit != nil {
				reserved = min(v, q.Nominal+*q.BorrowingLimit-used)
			}
		}
		r.reserved[e.queue][fr] = max(0, reserved)
	}
}

// The engine, fed by a stream of events, decides as the reference does from scratch.
func TestAgainstReference(t *testing.T) {
	for name, cfg := range map[string]worldConfig{
		"quota":   {flavors: 1, policy: PolicyFIFO},
		"strict":  {flavors: 1, policy: PolicyFIFO, strict: true, simple: true},
		"flavors": {flavors: 2, policy: PolicyFIFO, partial: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				w := drawWorld(t, cfg)
				for range rapid.IntRange(1, 8).Draw(t, "times") {
					for range rapid.IntRange(1, 5).Draw(t, "steps") {
						w.step()
					}
					for range 2 { // once with workloads that are to be evicted, then without them
						ref := &reference{model: newModel(w.shell), reserved: map[string]map[[2]string]int64{}, blocked: map[string]bool{}, done: map[Key]bool{}}
						want := ref.decide()
						leaving := len(w.leaving())
						p := w.decide()
						if len(p.Evict) > 0 || leaving > 0 {
							break
						}
						var got strings.Builder
						for _, a := range p.Admit {
							var counts []int32
							var flavors []string
							for _, ps := range a.Admission.PodSets {
								counts = append(counts, ps.Count)
								flavors = append(flavors, ps.Flavors[CPU])
							}
							fmt.Fprintf(&got, "%s %v %v\n", a.Workload.Name, counts, flavors)
						}
						if sortLines(got.String()) != sortLines(want) {
							t.Fatalf("the engine says\n%s\nthe reference\n%s", got.String(), want)
						}
					}
					w.settle(50)
				}
			})
		})
	}
}

// Trees are independent, so only the order within a tree is comparable; sets are enough here.
func sortLines(s string) string {
	lines := strings.Split(s, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
