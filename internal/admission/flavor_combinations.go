package admission

import "slices"

// Groups of pod sets choose their flavors one after the other, as in Kueue. The first may then take what
// only the next can use. Where that does not do for all, combinations are tried in the order of the flavors.

// combinationLimit is how many combinations are tried; few workloads have as many.
const combinationLimit = 256

// pick is the place of the flavor to try, and out of how many.
type pick struct{ at, of int }

// picked says whether to try flavor i out of n at the choice under way.
func (a *assignment) picked(i, n int) bool {
	if !a.joint {
		return true
	}
	if len(a.picks) == a.point {
		a.picks = append(a.picks, pick{0, n})
	}
	return a.picks[a.point].at == i
}

// assignJointly replaces an assignment that is not enough for all groups of pod sets by a combination of
// flavors that is: first without preempting anyone, unless the queue prefers preemption.
func (e *Engine) assignJointly(a *assignment) {
	if slices.ContainsFunc(a.misses, func(m miss) bool { return m.flavor < 0 }) {
		return // there is no flavor for it at all
	}
	b := e.newAssignment()
	defer e.recycle(b)
	fung := &a.w.queue.spec.Fungibility
	tries := combinationLimit
	for _, floor := range [...]mode{deferred, preempt, noCandidates} {
		if a.mode >= floor || floor == deferred && a.mode > noCandidates && (fung.PreemptStay || fung.PreferPreemption) {
			continue
		}
		b.reset(a.w, a.shape, a.how)
		copy(b.counts, a.counts)
		b.avoid = append(b.avoid, a.avoid...)
		b.joint, b.floor = true, floor
		for more := true; more && tries > 0; tries-- {
			if e.assignGroups(b); b.mode != noFit {
				a.adopt(b, a.partial)
				a.refused.merge(b.refused)
				return
			}
			more = b.advance()
		}
		a.refused.merge(b.refused)
	}
}

// advance picks the next flavor where the last try failed, false if there is no other combination.
func (a *assignment) advance() bool {
	for at := min(a.point, len(a.picks)-1); at >= 0; at-- {
		if p := &a.picks[at]; p.at+1 < p.of {
			p.at++
			a.picks = a.picks[:at+1]
			return true
		}
	}
	return false
}
