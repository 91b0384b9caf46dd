package placer

import (
	"cmp"
	"slices"
)

// Seat is where pods of a set go.
type Seat struct {
	PodSet, Node string
	Pods         int
	Cards        []int // indexes
}

// Seats tells where a placement puts pods, by pod set and node.
func Seats(placement any) []Seat {
	r, ok := placement.(*room)
	if !ok {
		return nil
	}
	var seats []Seat
	for _, set := range r.answer.PodSets {
		for _, placed := range set.Placed {
			i := slices.IndexFunc(seats, func(s Seat) bool { return s.PodSet == set.Name && s.Node == placed.Node })
			if i < 0 {
				i = len(seats)
				seats = append(seats, Seat{PodSet: set.Name, Node: placed.Node})
			}
			seats[i].Pods += placed.Count
			for _, pod := range placed.Cards {
				for _, grant := range pod {
					for _, card := range grant.Cards {
						seats[i].Cards = append(seats[i].Cards, card.Index)
					}
				}
			}
		}
	}
	for i := range seats {
		slices.Sort(seats[i].Cards)
		seats[i].Cards = slices.Compact(seats[i].Cards)
	}
	slices.SortStableFunc(seats, func(a, b Seat) int { return cmp.Or(cmp.Compare(a.PodSet, b.PodSet), cmp.Compare(a.Node, b.Node)) })
	return seats
}
