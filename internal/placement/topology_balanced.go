package placement

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Balanced placement, as Kueue's gate of that name has it: pods that prefer a level go to as few domains below it as
// possible, and to each of them as evenly as possible. Pods are counted in slices. A leader, which shares the domain of a
// group's other pods, goes to one of the domains.

// balance is what is known of domains while one request is balanced.
type balance struct {
	w      resolvedTopology
	size   int // pods of a slice
	slices int // to be placed
	leads  bool
	// drop is how many pods fewer fit into a narrowest domain with the leader in it; none: the leader does not fit there.
	drop map[*domain]int
	// closed are domains that hold less than their part, and leaderless those that do with the leader in them.
	closed, leaderless map[*domain]bool
}

// holds is how many slices fit into a domain, and how many beside the leader; -1: the leader does not fit there.
func (b *balance) holds(d *domain) (alone, beside int) {
	switch {
	case b.closed[d]:
		return 0, -1
	case d.level >= b.w.sliced || len(d.children) == 0:
		alone, beside = d.fits/b.size, -1
		if least, fits := b.leastDrop(d); fits {
			beside = min(d.fits, d.pods-least) / b.size
		}
	default:
		beside = -1
		least := -1
		for _, c := range d.children {
			n, with := b.holds(c)
			alone += n
			if with >= 0 && (least < 0 || n-with < least) {
				least = n - with
			}
		}
		if least >= 0 {
			beside = alone - least
		}
	}
	if !b.leads || b.leaderless[d] {
		beside = -1
	}
	return alone, beside
}

func (b *balance) leastDrop(d *domain) (least int, fits bool) {
	if len(d.children) == 0 {
		least, fits = b.drop[d]
		return least, fits
	}
	for _, c := range d.children {
		if n, in := b.leastDrop(c); in && (!fits || n < least) {
			least, fits = n, true
		}
	}
	return least, fits
}

// portionOf is how many slices a domain holds.
type portionOf struct {
	at            *domain
	alone, beside int
}

func (b *balance) measured(among []*domain) []portionOf {
	out := make([]portionOf, len(among))
	for i, d := range among {
		out[i].at = d
		out[i].alone, out[i].beside = b.holds(d)
	}
	return out
}

func mostFirst(a, b portionOf) int {
	return cmp.Or(b.alone-a.alone, a.at.pods-b.at.pods, strings.Compare(a.at.path, b.at.path))
}

func mostBesideFirst(a, b portionOf) int {
	return cmp.Or(b.beside-a.beside, a.at.pods-b.at.pods, strings.Compare(a.at.path, b.at.path))
}

// greedy takes the domains that hold most until all slices have one. It returns them, the one of the leader first, if
// they suffice.
func (b *balance) greedy(among []*domain) []portionOf {
	rest, left := b.measured(among), b.slices
	var taken []portionOf
	if b.leads {
		slices.SortFunc(rest, mostBesideFirst)
		if len(rest) == 0 || rest[0].beside < 0 {
			return nil
		}
		taken, rest, left = rest[:1:1], rest[1:], left-rest[0].beside
	}
	slices.SortFunc(rest, mostFirst)
	for _, p := range rest {
		if left <= 0 || p.alone == 0 {
			break
		}
		taken, left = append(taken, p), left-p.alone
	}
	if left > 0 {
		return nil
	}
	return taken
}

// part is the largest number of slices that each of the domains can have at least.
func (b *balance) part(taken []portionOf) int {
	part := b.slices / len(taken)
	for i, p := range taken {
		if b.leads && i == 0 {
			part = min(part, p.beside)
		} else {
			part = min(part, p.alone)
		}
	}
	return part
}

// close leaves out what holds less than a part.
func (b *balance) close(among []*domain, part int) {
	b.closed, b.leaderless = map[*domain]bool{}, map[*domain]bool{}
	check := func(d *domain) {
		alone, beside := b.holds(d)
		b.closed[d], b.leaderless[d] = alone < part, beside < part
	}
	for _, d := range among {
		for _, c := range d.children {
			check(c)
		}
		check(d)
	}
}

// narrower are the domains that are given parts: one level below the wanted one, if slices may be there.
func (b *balance) narrower(among []*domain) []*domain {
	if b.w.level >= b.w.sliced {
		return among
	}
	var out []*domain
	for _, d := range among {
		out = append(out, d.children...)
	}
	return out
}

// choose finds the siblings whose parts are largest, and of equal ones those of which the fewest are needed. What
// is closed is so for them from then on.
func (b *balance) choose(t *tree) (siblings []*domain, part int) {
	needed := 0
	for _, parent := range t.all {
		if parent.level != b.w.level-1 {
			continue
		}
		b.closed, b.leaderless = nil, nil
		taken := b.greedy(b.narrower(parent.children))
		if taken == nil {
			continue
		}
		now := b.part(taken)
		b.close(parent.children, now)
		wide := b.greedy(parent.children)
		if wide == nil && b.leads { // with the leader in the last of them there may be enough
			now = min(now, taken[len(taken)-1].beside)
			if now > 0 {
				b.close(parent.children, now)
				wide = b.greedy(parent.children)
			}
		}
		if wide != nil && now > 0 && (now > part || now == part && len(wide) < needed) {
			siblings, part, needed = parent.children, now, len(wide)
		}
	}
	if part > 0 {
		b.close(siblings, part)
	}
	return siblings, part
}

// mostCombined bounds the search for the domains that leave the least free; beyond it those that hold most are taken.
const mostCombined = 200_000

// fewest are as few domains as possible that hold all slices, and of those the ones that leave the least free.
func (b *balance) fewest(among []*domain) []portionOf {
	greedy := b.greedy(among)
	if greedy == nil {
		return nil
	}
	type state struct {
		leads bool // the leader is still to be placed
		left  int  // slices
	}
	sorted := b.measured(among)
	slices.SortFunc(sorted, func(x, y portionOf) int { return strings.Compare(x.at.path, y.at.path) })
	found := make([]map[state][]portionOf, len(greedy)+1)
	for i := range found {
		found[i] = map[state][]portionOf{}
	}
	found[0][state{b.leads, b.slices}] = nil
	steps := 0
	for _, p := range sorted {
		for i := len(greedy); i > 0; i-- {
			for _, before := range slices.SortedFunc(maps.Keys(found[i-1]), func(x, y state) int { return cmp.Or(cmp.Compare(x.left, y.left), falseFirst(x.leads, y.leads)) }) {
				if steps++; steps > mostCombined {
					return greedy
				}
				if !before.leads && before.left <= 0 {
					continue
				}
				with := func(after state, first bool) {
					if _, there := found[i][after]; !there {
						found[i][after] = leaderFirst(found[i-1][before], p, first)
					}
				}
				if before.leads && p.beside >= 0 {
					with(state{false, before.left - p.beside}, true)
				}
				if p.alone > 0 {
					with(state{before.leads, before.left - p.alone}, false)
				}
			}
		}
	}
	best, chosen := state{left: -1 << 62}, []portionOf(nil)
	for end, domains := range found[len(greedy)] {
		if !end.leads && end.left <= 0 && end.left > best.left {
			best, chosen = end, domains
		}
	}
	return chosen
}

// falseFirst compares: of equal ways, the one comes first whose leader has its place already.
func falseFirst(x, y bool) int {
	switch {
	case x == y:
		return 0
	case y:
		return -1
	}
	return 1
}

// leaderFirst adds a domain; the leader's is the first.
func leaderFirst(to []portionOf, p portionOf, leads bool) []portionOf {
	if leads {
		return append([]portionOf{p}, to...)
	}
	return append(slices.Clone(to), p)
}

// spread gives each of the domains its part, and what is left over to those that hold most.
func (b *balance) spread(domains []portionOf, part int) []portion {
	if b.leads {
		slices.SortFunc(domains[1:], mostFirst)
	} else {
		slices.SortFunc(domains, mostFirst)
	}
	left := b.slices - part*len(domains)
	if left < 0 {
		return nil
	}
	var out []portion
	for i, p := range domains {
		most := p.alone
		if b.leads && i == 0 {
			most = p.beside
		}
		more := max(0, min(most-part, left))
		left -= more
		out = append(out, portion{p.at, (part + more) * b.size})
	}
	if left > 0 {
		return nil
	}
	return out
}

// placeBalanced reserves for a set, or for a group of one and its leader; nil if that cannot be balanced.
func (e *Engine) placeBalanced(g *Gang, sets []*PodSet, t *tree) [][]*holding {
	main := 0
	for i, set := range sets {
		if set.Count > sets[main].Count {
			main = i
		}
	}
	set := sets[main]
	if len(sets) > 2 || len(sets) == 2 && sets[1-main].Count != 1 || set.Count == 0 {
		return nil
	}
	s, w, ok := e.measureFor(set, t)
	if !ok {
		return nil
	}
	b := &balance{w: w, size: w.unit(w.sliced), leads: len(sets) == 2}
	b.slices = set.Count / b.size
	if b.leads {
		b.drop = e.leaderDrops(g, sets[1-main], s, t)
	}
	siblings, part := b.choose(t)
	if part == 0 {
		return nil
	}
	if w.level < w.sliced {
		var below []*domain
		for _, p := range b.fewest(siblings) {
			below = append(below, p.at.children...)
		}
		siblings = below
	}
	portions := b.spread(b.fewest(siblings), part)
	if len(portions) == 0 {
		return nil
	}
	return e.reserveBalanced(g, sets, main, t, portions)
}

// leaderDrops is, for each of the narrowest domains that the leader fits into, how many pods fewer fit there beside it.
func (e *Engine) leaderDrops(g *Gang, leader *PodSet, s *shape, t *tree) map[*domain]int {
	drops := map[*domain]int{}
	for _, d := range t.all {
		if len(d.children) > 0 || len(d.positions) == 0 {
			continue
		}
		mark := len(e.journal)
		if holds, refusal := e.placeFrom(g, leader, d.positions, 0, true); refusal == nil && len(holds) == 1 {
			beside := 0
			for _, pos := range d.positions {
				beside += e.capacity(s, pos)
			}
			drops[d] = d.pods - beside
		}
		e.undo(mark)
	}
	return drops
}

// reserveBalanced reserves for the leader in the first of the portions, and for the others where these say.
func (e *Engine) reserveBalanced(g *Gang, sets []*PodSet, main int, t *tree, portions []portion) [][]*holding {
	mark := len(e.journal)
	all := make([][]*holding, len(sets))
	if len(sets) == 2 {
		holds, refusal := e.placeFrom(g, sets[1-main], portions[0].at.hosts(nil), 0, true)
		if refusal != nil {
			e.undo(mark)
			return nil
		}
		all[1-main] = holds
	}
	set := sets[main]
	_, w, ok := e.measureFor(set, t) // beside the leader
	if !ok {
		e.undo(mark)
		return nil
	}
	var holds []*holding
	for _, p := range portions {
		if holds, ok = e.placeParts(g, set, holds, p.at.distribute(p.pods, w)); !ok {
			e.undo(mark)
			return nil
		}
	}
	if len(holds) < set.Count {
		e.undo(mark)
		return nil
	}
	all[main] = holds
	return all
}

// hosts are the nodes of a domain.
func (d *domain) hosts(to []int32) []int32 {
	to = append(to, d.positions...)
	for _, c := range d.children {
		to = c.hosts(to)
	}
	return to
}
