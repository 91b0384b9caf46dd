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

// refVictims finds the victims for a workload that needs v cpu of flavor f0,
// the way Kueue describes it, on lists and with all sums computed anew.
type refVictims struct {
	*model
	w     Workload
	queue string
	v     int64
	gone  map[Key]bool
}

const refFlavor = "f0"

type refCandidate struct {
	w         Workload
	lca       string // "" in the preemptor's own queue
	advantage bool
}

// model.used asks before() for each workload: the gone ones do not count.
func (r *refVictims) used(n string) int64 {
	if n[0] == 'q' {
		sum := int64(0)
		for _, w := range r.s.workloads {
			if w.Admission != nil && w.Admission.Queue == n[2:] && !r.gone[w.Key] {
				sum += usedBy(w, refFlavor, CPU)
			}
		}
		return sum
	}
	sum := int64(0)
	for _, ch := range r.children(n) {
		sum += max(0, r.used(ch)-r.guaranteed(ch, refFlavor, CPU))
	}
	return sum
}

func (r *refVictims) free(n string) int64 {
	sub, use, g := r.subtree(n, refFlavor, CPU), r.used(n), r.guaranteed(n, refFlavor, CPU)
	p := r.parent(n)
	if p == "" {
		return sub - use
	}
	above := r.free(p)
	if b := r.quota(n, refFlavor, CPU).BorrowingLimit; b != nil {
		above = min(above, (sub-g)-max(0, use-g)+*b)
	}
	return max(0, g-use) + above
}

func (r *refVictims) borrows(n string, more int64) bool {
	return r.used(n)+more > r.subtree(n, refFlavor, CPU)
}

func (r *refVictims) localFree(n string) int64 {
	return max(0, r.guaranteed(n, refFlavor, CPU)-r.used(n))
}

func (r *refVictims) allowed(p PreemptionPolicy, v Workload) bool {
	switch p {
	case PreemptLowerPriority:
		return v.Priority < r.w.Priority
	case PreemptLowerOrNewerEqualPriority:
		return v.Priority < r.w.Priority || v.Priority == r.w.Priority && r.w.Created.Before(v.Created)
	}
	return p == PreemptAny
}

// running lists the workloads of a queue that use the flavor.
func (r *refVictims) running(queue string) []Workload {
	var list []Workload
	for _, w := range r.s.workloads {
		if w.Admission != nil && w.Admission.Queue == queue && usedBy(w, refFlavor, CPU) > 0 {
			list = append(list, w)
		}
	}
	return list
}

func (r *refVictims) candidates() (byRight, byPriority, own []refCandidate) {
	pol := r.s.queues[r.queue].Preemption
	for _, v := range r.running(r.queue) {
		if r.allowed(pol.WithinQueue, v) {
			own = append(own, refCandidate{w: v})
		}
	}
	right := !r.borrows("q:"+r.queue, r.v)
	rest := max(0, r.v-r.localFree("q:"+r.queue))
	seen := map[string]bool{r.queue: true}
	for c := r.parent("q:" + r.queue); c != ""; c = r.parent(c) {
		for q := range r.s.queues {
			if seen[q] || !r.reclaimable("q:"+q, c) {
				continue
			}
			for _, v := range r.running(q) {
				if !r.allowed(pol.ReclaimWithinCohort, v) {
					continue
				}
				if right {
					byRight = append(byRight, refCandidate{v, c, true})
				} else {
					byPriority = append(byPriority, refCandidate{v, c, false})
				}
			}
		}
		for q := range r.s.queues {
			for n := "q:" + q; n != ""; n = r.parent(n) {
				seen[q] = seen[q] || n == c
			}
		}
		fits := !r.borrows(c, rest)
		rest = max(0, rest-r.localFree(c))
		right = right || fits
	}
	for _, list := range [][]refCandidate{byRight, byPriority, own} {
		slices.SortFunc(list, func(a, b refCandidate) int {
			return cmp.Or(cmp.Compare(a.w.Priority, b.w.Priority), b.w.Admission.ReservedAt.Compare(a.w.Admission.ReservedAt), strings.Compare(a.w.UID, b.w.UID))
		})
	}
	return byRight, byPriority, own
}

// reclaimable: the queue lies below the cohort, and every node up to it borrows.
func (r *refVictims) reclaimable(n, cohort string) bool {
	for ; n != cohort; n = r.parent(n) {
		if n == "" || !r.borrows(n, 0) {
			return false
		}
	}
	return true
}

func (r *refVictims) fits(borrow bool) bool {
	q := "q:" + r.queue
	if !borrow && r.parent(q) != "" && r.borrows(q, r.v) {
		return false
	}
	return r.v <= r.free(q)
}

func (r *refVictims) find() []string {
	byRight, byPriority, own := r.candidates()
	pol := r.s.queues[r.queue].Preemption
	others := len(byRight)+len(byPriority) > 0
	under := r.used("q:"+r.queue) < r.quota("q:"+r.queue, refFlavor, CPU).Nominal
	tries := []bool{true, false}
	switch {
	case !others || !pol.BorrowWithinCohort && !under:
		tries = []bool{true}
	case !pol.BorrowWithinCohort && len(byRight) == 0:
		tries = []bool{false, true}
	}
	for _, borrow := range tries {
		r.gone = map[Key]bool{}
		var taken []Workload
		for _, c := range slices.Concat(byRight, byPriority, own) {
			if !r.mayTake(c, pol, borrow) {
				continue
			}
			r.gone[c.w.Key] = true
			taken = append(taken, c.w)
			if r.fits(borrow) {
				return r.trim(taken, borrow)
			}
		}
	}
	return nil
}

func (r *refVictims) mayTake(c refCandidate, pol Preemption, borrow bool) bool {
	if c.lca == "" {
		return true
	}
	needsNoBorrowing := !c.advantage && (!pol.BorrowWithinCohort || c.w.Priority >= r.w.Priority ||
		pol.BorrowMaxPriority != nil && c.w.Priority > *pol.BorrowMaxPriority)
	return (!borrow || !needsNoBorrowing) && r.reclaimable("q:"+c.w.Admission.Queue, c.lca)
}

// trim drops the victims that turn out not to be needed, the last one first.
func (r *refVictims) trim(taken []Workload, borrow bool) []string {
	for i := len(taken) - 2; i >= 0; i-- {
		delete(r.gone, taken[i].Key)
		if !r.fits(borrow) {
			r.gone[taken[i].Key] = true
		}
	}
	var names []string
	for _, w := range taken {
		if r.gone[w.Key] {
			names = append(names, w.Name)
		}
	}
	return names
}

// The victims agree with the slow search, one by one.
func TestVictimsAgainstReference(t *testing.T) {
	for name, rings := range map[string]bool{"no rings": false, "rings": true} {
		t.Run(name, func(t *testing.T) {
			compareVictims(t, worldConfig{flavors: 1, policy: PolicyFIFO, preemption: true, rings: rings}, func(r refVictims) []string {
				r.gone = map[Key]bool{}
				return r.find()
			})
		})
	}
}

// compareVictims looks for decisions in which one workload preempts others, and nothing else happens.
func compareVictims(t *testing.T, cfg worldConfig, find func(refVictims) []string) {
	compared := 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, cfg)
		for range rapid.IntRange(5, 30).Draw(t, "steps") {
			w.step()
			before := *w.shell
			before.workloads = maps.Clone(w.workloads)
			revokes := w.e.revokes
			p := w.decide()
			if key, victims, ok := onePreemptor(p); ok && revokes == w.e.revokes {
				in := w.e.workloads[key]
				if len(in.nominatedUsage) == 1 && !w.e.inCooldown(in, false) && in.in.overridden != w.e.decision && len(in.queue.nominated) == 1 {
					r := refVictims{model: newModel(&before), w: in.spec, queue: in.queue.name, v: in.nominatedUsage[0].V}
					if want := find(r); fmt.Sprint(victims) != fmt.Sprint(want) {
						t.Fatalf("%s preempts %v, the reference %v", key.Name, victims, want)
					}
					compared++
				}
			}
			for _, k := range w.leaving() {
				w.release(k)
			}
		}
	})
	if compared < 10 && !testing.Short() {
		t.Errorf("only %d preemptions were compared", compared)
	}
}

// onePreemptor picks plans in which nothing else happened.
func onePreemptor(p Plan) (Key, []string, bool) {
	var victims []string
	for _, v := range p.Evict {
		if v.Reason != ReasonPreempted || v.Preemptor != p.Evict[0].Preemptor {
			return Key{}, nil, false
		}
		victims = append(victims, v.Workload.Name)
	}
	if len(victims) == 0 || len(p.Admit) > 0 {
		return Key{}, nil, false
	}
	return p.Evict[0].Preemptor, victims, true
}
