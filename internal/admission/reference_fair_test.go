package admission

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"testing"
)

// refFair finds the victims of fair-sharing preemption the slow way: after every step all
// shares are computed anew from the objects, and the way down starts at the root again.
type refFair struct {
	refVictims
	pretending bool                  // the preemptor's request counts as used
	left       map[string][]Workload // by queue: the candidates left, in order
	refused    map[string][]Workload // by queue: refused by the first strategy
	second     bool                  // choose among the refused
}

func (r *refFair) use(n string) int64 {
	if n[0] == 'q' {
		used := r.used(n)
		if r.pretending && n[2:] == r.queue {
			used += r.v
		}
		return used
	}
	sum := int64(0)
	for _, ch := range r.children(n) {
		sum += max(0, r.use(ch)-r.guaranteed(ch, refFlavor, CPU))
	}
	return sum
}

func (r *refFair) borrowsNow(n string) bool {
	return r.parent(n) != "" && r.use(n) > r.subtree(n, refFlavor, CPU)
}

// most is what a node could use at most.
func (r *refFair) most(n string) int64 {
	p := r.parent(n)
	if p == "" {
		return r.subtree(n, refFlavor, CPU)
	}
	v := r.guaranteed(n, refFlavor, CPU) + r.most(p)
	if b := r.quota(n, refFlavor, CPU).BorrowingLimit; b != nil {
		v = min(v, r.subtree(n, refFlavor, CPU)+*b)
	}
	return v
}

// rank is a node's weighted share; the second number decides among those without weight.
func (r *refFair) rank(n string) [2]float64 {
	taken := r.use(n)
	if r.s.opts.Policy == PolicyDRF {
		taken -= r.subtree(n, refFlavor, CPU)
	}
	p := r.parent(n)
	if p == "" || taken <= 0 || r.most(p) <= 0 {
		return [2]float64{}
	}
	ratio := float64(taken) * 1000 / float64(r.most(p))
	if r.weight(n) == 0 {
		return [2]float64{math.Inf(1), ratio}
	}
	return [2]float64{ratio / r.weight(n), 0}
}

func (r *refFair) weight(n string) float64 {
	if n[0] == 'q' {
		return weight(r.s.queues[n[2:]].FairWeight)
	}
	return weight(r.s.cohorts[n[2:]].FairWeight)
}

func compareRanks(a, b [2]float64) int {
	return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
}

func (r *refFair) head(queue string) (Workload, bool) {
	list := r.left[queue]
	if r.second {
		list = r.refused[queue]
	}
	if len(list) == 0 {
		return Workload{}, false
	}
	return list[0], true
}

func (r *refFair) above(n string) bool { // on the preemptor's way up
	for m := "q:" + r.queue; m != ""; m = r.parent(m) {
		if m == n {
			return true
		}
	}
	return false
}

// open: there are candidates left at or below the node.
func (r *refFair) open(n string) bool {
	if n[0] == 'q' {
		_, any := r.head(n[2:])
		return any && (r.borrowsNow(n) || n[2:] == r.queue)
	}
	return (r.parent(n) == "" || r.borrowsNow(n) || r.above(n)) && slices.ContainsFunc(r.children(n), r.open)
}

// target goes down from a node to the queue to preempt in: each time to the highest share. On a tie
// cohorts come before queues, and queues come in the order of their first candidates, the preemptor's own last.
func (r *refFair) target(n string) string {
	for n[0] != 'q' {
		var best string
		kids := slices.DeleteFunc(r.children(n), func(ch string) bool { return !r.open(ch) })
		slices.Sort(kids)
		for _, ch := range kids {
			if best == "" || r.before(ch, best) {
				best = ch
			}
		}
		n = best
	}
	return n[2:]
}

func (r *refFair) before(a, b string) bool {
	if c := compareRanks(r.rank(a), r.rank(b)); c != 0 {
		return c > 0
	}
	if a[0] != b[0] {
		return a[0] == 'c'
	}
	if a[0] == 'c' {
		return a > b
	}
	x, _ := r.head(a[2:])
	y, _ := r.head(b[2:])
	if own := r.queue; (a[2:] == own) != (b[2:] == own) {
		return b[2:] == own
	}
	return refOrder(x, y) < 0
}

func refOrder(a, b Workload) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), b.Admission.ReservedAt.Compare(a.Admission.ReservedAt), strings.Compare(a.UID, b.UID))
}

// sides are the nodes just below the lowest common cohort.
func (r *refFair) sides(queue string) (mine, theirs string) {
	for mine = "q:" + r.queue; ; mine = r.parent(mine) {
		for theirs = "q:" + queue; theirs != ""; theirs = r.parent(theirs) {
			if r.parent(mine) == r.parent(theirs) {
				return mine, theirs
			}
		}
	}
}

// poorer: Kueue's rules and, unless rings are allowed, the preemptor's side ends up below what the other had, and the
// other not below what the preemptor's side had or, by the first rule, what it gets.
func (r *refFair) poorer(v Workload, rule FairStrategy) bool {
	mine, theirs := r.sides(v.Admission.Queue)
	mineThen, theirsNow := r.rank(mine), r.rank(theirs)
	rings := !r.s.opts.NoRings
	if rings && rule == LessThanInitialShare {
		return compareRanks(mineThen, theirsNow) < 0
	}
	if !rings && compareRanks(mineThen, theirsNow) >= 0 {
		return false
	}
	r.gone[v.Key] = true
	theirsThen := r.rank(theirs)
	delete(r.gone, v.Key)
	if rule == LessThanInitialShare {
		if r.weight(theirs) == 0 {
			return true // a node without weight is entitled to nothing
		}
		r.pretending = false
		mineThen = r.rank(mine)
		r.pretending = true
	}
	return compareRanks(mineThen, theirsThen) <= 0
}

func (r *refFair) enough() bool {
	r.pretending = false
	ok := r.fits(true)
	r.pretending = true
	return ok
}

func (r *refFair) find(strategies []FairStrategy) []string {
	r.gone, r.left, r.refused = map[Key]bool{}, map[string][]Workload{}, map[string][]Workload{}
	pol := r.s.queues[r.queue].Preemption
	root := "q:" + r.queue
	for r.parent(root) != "" {
		root = r.parent(root)
	}
	for q := range r.s.queues {
		policy := pol.ReclaimWithinCohort
		if q == r.queue {
			policy = pol.WithinQueue
		}
		for _, v := range r.running(q) {
			if r.allowed(policy, v) && r.under(q, root) {
				r.left[q] = append(r.left[q], v)
			}
		}
		slices.SortFunc(r.left[q], refOrder)
	}
	r.pretending = true
	entitled := !r.borrowsNow("q:" + r.queue)
	var taken []Workload
	take := func(v Workload) bool { // whether the preemptor fits then
		r.gone[v.Key] = true
		taken = append(taken, v)
		return r.enough()
	}
	for r.open(root) {
		q := r.target(root)
		for len(r.left[q]) > 0 {
			v := r.left[q][0]
			r.left[q] = r.left[q][1:]
			if q != r.queue && !entitled && !r.poorer(v, strategies[0]) {
				r.refused[q] = append(r.refused[q], v)
				continue
			}
			if take(v) {
				return r.trim(taken, true)
			}
			break
		}
	}
	r.second = true
	for len(strategies) > 1 && r.open(root) {
		q := r.target(root)
		v := r.refused[q][0]
		r.refused[q] = nil
		if r.poorer(v, LessThanInitialShare) && take(v) {
			return r.trim(taken, true)
		}
	}
	return nil
}

func (r *refFair) under(queue, root string) bool {
	for n := "q:" + queue; n != ""; n = r.parent(n) {
		if n == root {
			return true
		}
	}
	return false
}

// Under fair sharing, the victims agree with the slow search, one by one.
func TestFairVictimsAgainstReference(t *testing.T) {
	for name, cfg := range map[string]worldConfig{
		"drf":              {flavors: 1, policy: PolicyDRF, preemption: true, weights: true},
		"rings":            {flavors: 1, policy: PolicyDRF, preemption: true, weights: true, rings: true},
		"maxmin":           {flavors: 1, policy: PolicyMaxMin, preemption: true, weights: true},
		"final":            {flavors: 1, policy: PolicyDRF, preemption: true, weights: true, strategies: []FairStrategy{LessThanOrEqualToFinalShare}},
		"first":            {flavors: 1, policy: PolicyDRF, preemption: true, weights: true, strategies: []FairStrategy{LessThanInitialShare}},
		"first with rings": {flavors: 1, policy: PolicyDRF, preemption: true, weights: true, rings: true, strategies: []FairStrategy{LessThanInitialShare}},
	} {
		t.Run(name, func(t *testing.T) {
			compareVictims(t, cfg, func(r refVictims) []string {
				strategies := cfg.strategies
				if strategies == nil {
					strategies = []FairStrategy{LessThanOrEqualToFinalShare, LessThanInitialShare}
				}
				return (&refFair{refVictims: r}).find(strategies)
			})
		})
	}
}
