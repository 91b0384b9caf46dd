package placer

import (
	"strings"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/placement"
)

// Defragment plans which workloads to move so that the pods of another fit. One whose pods wait for capacity themselves,
// or of which nothing was reserved, stays.
func (p *Placer) Defragment(r admission.PlaceRequest, o admission.DefragmentPlan) []admission.Key {
	if p.quotaDecides(r) {
		return nil
	}
	gang, refusal := p.gangOf(r)
	if refusal != nil {
		return nil
	}
	p.countWaiting(gang.Key)
	moves, _, err := p.engine.Defragment(&gang, placement.DefragmentOptions{
		Most: o.Moves, MostCost: o.LostWork,
		Cost: func(key string) int64 {
			if held := p.reservations[key]; held == nil || len(held.gang.PodSets) == 0 || len(held.lacks) > 0 || p.waiting[key] {
				return -1
			}
			return o.Cost(workloadKey(key))
		},
		Whole: func(key string) *placement.Gang { return &p.reservations[key].gang },
	})
	if err != nil {
		return nil
	}
	var keys []admission.Key
	for _, m := range moves {
		keys = append(keys, workloadKey(m.Key))
	}
	return keys
}

// workloadKey is the reverse of gangKey.
func workloadKey(gang string) admission.Key {
	namespace, name, _ := strings.Cut(gang, "/")
	return admission.Key{Namespace: namespace, Name: name}
}
