package placer

import (
	"cmp"
	"slices"
)

// NodePlacement is how many pods of a set go to a node.
type NodePlacement struct {
	PodSet, Node string
	Pods         int
	Cards        []int // indexes
}

// NodePlacements says where a placement puts pods, by pod set and node.
func NodePlacements(placement any) []NodePlacement {
	r, ok := placement.(*reservation)
	if !ok {
		return nil
	}
	var out []NodePlacement
	for _, set := range r.answer.PodSets {
		for _, placed := range set.Placed {
			i := slices.IndexFunc(out, func(s NodePlacement) bool { return s.PodSet == set.Name && s.Node == placed.Node })
			if i < 0 {
				i = len(out)
				out = append(out, NodePlacement{PodSet: set.Name, Node: placed.Node})
			}
			out[i].Pods += placed.Count
			for _, pod := range placed.Cards {
				for _, grant := range pod {
					out[i].Cards = slices.Grow(out[i].Cards, len(grant.Cards))
					for _, card := range grant.Cards {
						out[i].Cards = append(out[i].Cards, card.Index)
					}
				}
			}
		}
	}
	for i := range out {
		slices.Sort(out[i].Cards)
		out[i].Cards = slices.Compact(out[i].Cards)
	}
	slices.SortStableFunc(out, func(a, b NodePlacement) int {
		return cmp.Or(cmp.Compare(a.PodSet, b.PodSet), cmp.Compare(a.Node, b.Node))
	})
	return out
}
