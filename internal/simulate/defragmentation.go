package simulate

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/elastic-ai/elastic/internal/placement"
	"github.com/elastic-ai/elastic/internal/placement/policy"
)

// Fragmented is how often a gang found its nodes, with so many moves at most, and what that cost.
type Fragmented struct {
	Moves int `json:"moves"`
	Looks int `json:"looks"`
	// Free is how often so many cards were free, wherever; Fits how often the gang fitted.
	Free int `json:"free"`
	Fits int `json:"fits"`
	// Moved is how many pods the plans moved, and Lost what those had done by then, in hours of cards.
	Moved int     `json:"moved"`
	Lost  float64 `json:"lostCardHours"`
}

// FragmentationOptions say what is asked of a trace.
type FragmentationOptions struct {
	Policy string
	Cards  int   // of one node, that the gang asks for
	Moves  []int // at most, one line each
	Every  int64 // seconds between two looks
	// Load is the demand for cards in percent of what there is. The trace's pods come as often as that takes, at even
	// intervals and in its order, each runs as long as it did, and the trace is run so many times, after a first one in
	// which nobody looks.
	Load, Rounds int
	// LostWork is how many seconds of work the moves may lose together.
	LostWork int64
}

// Fragmentation runs a trace with departures under a load, and asks from time to time whether a gang fits, as things are
// and with moves. Nobody really moves: each look is at the trace as it is.
func Fragmentation(nodes []placement.Node, pods []TracePod, o FragmentationOptions) ([]Fragmented, error) {
	pods, first, last := o.arrivals(pods, capacityOf(nodes))
	r, err := newReplay(nodes, pods, o.Policy)
	if err != nil {
		return nil, err
	}
	r.begun = map[string]int64{}
	demand := map[string]int64{}
	for i := range pods {
		demand[pods[i].Key] = pods[i].Demand
	}
	out := make([]Fragmented, len(o.Moves))
	for at := first; at < last; at += o.Every {
		r.clock.At(at, func() {
			for i, moves := range o.Moves {
				out[i].Moves = moves
				out[i].look(r, demand, o)
			}
		})
	}
	r.clock.Run()
	return out, r.err
}

// arrivals are the pods of a trace as often as the load takes, and when the second round begins and the last one ends.
func (o *FragmentationOptions) arrivals(pods []TracePod, capacity int64) (list []TracePod, first, last int64) {
	round := math.Inf(1)
	for range 100 { // a pod that runs for longer than a round counts for that long
		work := 0.0
		for i := range pods {
			work += float64(pods[i].Demand) * min(round, float64(max(0, pods[i].Deleted-pods[i].Created)))
		}
		round = work / (float64(capacity) * float64(o.Load) / 100)
	}
	for n := range o.Rounds + 1 {
		for i := range pods {
			p := pods[i]
			runs := max(0, p.Deleted-p.Created)
			p.Key = fmt.Sprintf("%s-%d", p.Key, n)
			p.Created = int64(round * (float64(n) + float64(i)/float64(len(pods))))
			p.Deleted = p.Created + runs
			list = append(list, p)
		}
	}
	return list, int64(round), int64(round * float64(o.Rounds+1))
}

// look asks whether the gang fits now.
func (f *Fragmented) look(r *replay, demand map[string]int64, o FragmentationOptions) {
	f.Looks++
	if free := r.capacity - r.held; free >= int64(o.Cards)*policy.Whole {
		f.Free++
	}
	gang := placement.Gang{Key: "asked", PodSets: []placement.PodSet{{Name: "main", Count: 1, Pod: placement.Pod{
		Containers: []placement.Container{{Name: "main", Cards: placement.CardRequest{Count: o.Cards, Core: policy.Whole, Exclusive: true}}},
	}}}}
	moves, _, err := r.engine.Defragment(&gang, placement.DefragmentOptions{
		Most: f.Moves, MostCost: o.LostWork, Cost: func(key string) int64 { return r.clock.Now() - r.begun[key] },
	})
	if err != nil {
		return
	}
	f.Fits++
	for _, m := range moves {
		f.Moved++
		f.Lost += float64(demand[m.Key]) / policy.Whole * float64(r.clock.Now()-r.begun[m.Key]) / 3600
	}
}

// WriteFragmentation prints one line for each number of moves.
func WriteFragmentation(w io.Writer, list []Fragmented) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "moves at most\tlooks\tcards free\tfits\tpods moved\tcard-hours lost\t")
	for _, f := range list {
		part := func(n int) float64 { return 100 * float64(n) / float64(max(f.Looks, 1)) }
		fmt.Fprintf(t, "%d\t%d\t%.1f %%\t%.1f %%\t%d\t%.1f\t\n", f.Moves, f.Looks, part(f.Free), part(f.Fits), f.Moved, f.Lost)
	}
	return t.Flush()
}
