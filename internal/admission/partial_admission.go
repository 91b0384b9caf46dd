package admission

import "sort"

// attemptPartial searches for the largest pod counts, between the minimum and
// the full ones, at which the workload can be admitted. All pod sets shrink in proportion.
func (e *Engine) attemptPartial(a *assignment) {
	s := a.shape
	total := 0
	for i := range s.podSets {
		total += int(s.slack(i))
	}
	b := e.newAssignment()
	b.reset(a.w, s, a.how)
	sort.Search(total+1, func(i int) bool {
		for j := range s.podSets {
			b.counts[j] = s.counts[j] - int32(int64(s.slack(j))*int64(i)/int64(total))
		}
		e.attempt(b)
		if b.admissible() {
			a.adopt(b, i > 0)
			return true
		}
		return false
	})
	a.refused.merge(b.refused)
	e.recycle(b)
}

// slack is how many pods a pod set can do without.
func (s *requestShape) slack(i int) int32 {
	if m := s.podSets[i].MinCount; m > 0 && m < s.counts[i] {
		return s.counts[i] - m
	}
	return 0
}

// adopt takes over the result of attempt b.
func (a *assignment) adopt(b *assignment, partial bool) {
	version := a.version
	a.mode, a.borrow, a.reason, a.placed, a.failed = b.mode, b.borrow, b.reason, b.placed, b.failed
	a.counts = append(a.counts[:0], b.counts...)
	a.usage = append(a.usage[:0], b.usage...)
	a.need = append(a.need[:0], b.need...)
	a.victims = append(a.victims[:0], b.victims...)
	a.misses = append(a.misses[:0], b.misses...)
	for i := range b.flavors {
		a.flavors[i] = append(a.flavors[i][:0], b.flavors[i]...)
	}
	a.partial, a.version = partial, version
}
