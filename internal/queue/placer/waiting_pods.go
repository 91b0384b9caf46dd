package placer

import (
	"maps"
	"slices"
	"strings"

	"github.com/elastic-ai/elastic/internal/admission"
)

// kube-scheduler puts pods where it likes. They may take what is reserved for other workloads, and then pods of an
// admitted workload wait until something fits them. What comes free is theirs: they exist already, and are bound
// before the next that is admitted has pods. So reservations that other pods took are made again, and in every
// what-if those who wait are put on nodes first.

// reserve notes what is held for a workload.
func (p *Placer) reserve(r *reservation) {
	p.reservations[r.gang.Key] = r
	delete(p.released, r.gang.Key)
	p.noteWaiting(r)
}

func (p *Placer) noteWaiting(r *reservation) {
	delete(p.waiting, r.gang.Key)
	for _, n := range r.lacks {
		if n > 0 {
			p.waiting[r.gang.Key] = true
		}
	}
}

// countLacking notes the pods that a restored reservation does not cover. Those whose topology assignment names
// their nodes wait for these, and are left out.
func (r *reservation) countLacking() {
	for i, set := range r.answer.PodSets {
		missing := set.Count
		for _, placed := range set.Placed {
			missing -= placed.Count
		}
		if missing > 0 && r.gang.PodSets[i].Topology == nil {
			if r.lacks == nil {
				r.lacks = map[string]int{}
			}
			r.lacks[set.Name] = missing
		}
	}
}

// Outdated are the workloads whose reservations are to be restored: other pods may have taken them, pods of theirs
// have gone, or there may be capacity now for pods for which nothing is reserved. It names each of them once.
func (p *Placer) Outdated() []admission.Key {
	if p.freed {
		p.freed = false
		maps.Copy(p.outdated, p.waiting)
	}
	if len(p.outdated) == 0 {
		return nil
	}
	var keys []admission.Key
	for _, gang := range slices.Sorted(maps.Keys(p.outdated)) {
		if r := p.reservations[gang]; r != nil && len(r.gang.PodSets) > 0 {
			namespace, name, _ := strings.Cut(gang, "/")
			keys = append(keys, admission.Key{Namespace: namespace, Name: name})
		}
	}
	clear(p.outdated)
	return keys
}

// countWaiting puts pods for which nothing is reserved on nodes, as many as fit, in the what-if under way. One
// gang is left out.
func (p *Placer) countWaiting(but string) {
	if len(p.open) == 0 || len(p.waiting) == 0 || p.counted > 0 {
		return
	}
	p.counted = len(p.open)
	for _, gang := range slices.Sorted(maps.Keys(p.waiting)) {
		r := p.reservations[gang]
		if gang == but || r == nil {
			continue
		}
		for i := range r.gang.PodSets {
			set := &r.gang.PodSets[i]
			p.tryPlaces(gang+"/waiting/"+set.Name, set, r.lacks[set.Name], nil)
		}
	}
}
