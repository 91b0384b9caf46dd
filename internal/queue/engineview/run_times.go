package engineview

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/elastic-ai/elastic/internal/admission"
)

// RunTimes are the run times of workloads that succeeded, by LocalQueue and shape: the pods and what each requests. They
// are those of the workloads that exist, so a restart learns the same.
type RunTimes struct {
	shapes map[string]*shapeTimes
	shape  map[admission.Key]string // of all workloads that are noted
}

type shapeTimes struct {
	ended map[admission.Key]time.Duration
	times []time.Duration            // in order
	live  map[admission.Key]struct{} // workloads of the shape that have not ended
}

// enoughRunTimes is how many workloads of a shape must have succeeded before their run times say something.
const enoughRunTimes = 5

// Learn notes a workload, with its run time if it succeeded, and returns the others whom it concerns that more is known now.
// With 0 percent nothing is learned of it.
func (r *RunTimes) Learn(w *admission.Workload, ran time.Duration, percent int) (others []admission.Key) {
	switch {
	case percent == 0 || w.Finished && ran <= 0:
		r.Gone(w.Key)
	case !w.Finished:
		r.Live(w)
	default:
		before := r.Quantile(w, percent)
		if r.Ended(w, ran); r.Quantile(w, percent) != before {
			others = r.Others(w)
		}
	}
	return others
}

// Ended notes the run time of a workload that succeeded.
func (r *RunTimes) Ended(w *admission.Workload, ran time.Duration) {
	r.Gone(w.Key)
	t := r.of(w)
	t.ended[w.Key] = ran
	i, _ := slices.BinarySearch(t.times, ran)
	t.times = slices.Insert(t.times, i, ran)
}

// Live notes a workload that has not ended: what is learned of its shape concerns it.
func (r *RunTimes) Live(w *admission.Workload) {
	if shape := shapeOf(w); r.shape[w.Key] != shape {
		r.Gone(w.Key)
	}
	r.of(w).live[w.Key] = struct{}{}
}

// Gone forgets a workload.
func (r *RunTimes) Gone(key admission.Key) {
	shape, known := r.shape[key]
	if !known {
		return
	}
	delete(r.shape, key)
	t := r.shapes[shape]
	if ran, ended := t.ended[key]; ended {
		i, _ := slices.BinarySearch(t.times, ran)
		t.times = slices.Delete(t.times, i, i+1)
	}
	delete(t.ended, key)
	if delete(t.live, key); len(t.ended)+len(t.live) == 0 {
		delete(r.shapes, shape)
	}
}

func (r *RunTimes) of(w *admission.Workload) *shapeTimes {
	if r.shapes == nil {
		r.shapes, r.shape = map[string]*shapeTimes{}, map[admission.Key]string{}
	}
	shape := shapeOf(w)
	r.shape[w.Key] = shape
	t := r.shapes[shape]
	if t == nil {
		t = &shapeTimes{ended: map[admission.Key]time.Duration{}, live: map[admission.Key]struct{}{}}
		r.shapes[shape] = t
	}
	return t
}

// Quantile is the run time that so many percent of the workloads like w did not exceed, rounded up so that it does not
// change with each of them; 0: too few are known.
func (r *RunTimes) Quantile(w *admission.Workload, percent int) time.Duration {
	t := r.shapes[shapeOf(w)]
	if t == nil || len(t.times) < enoughRunTimes || percent <= 0 {
		return 0
	}
	return roundUp(t.times[(len(t.times)*percent+99)/100-1])
}

// Others are the workloads like w that have not ended, in order.
func (r *RunTimes) Others(w *admission.Workload) []admission.Key {
	t := r.shapes[shapeOf(w)]
	if t == nil {
		return nil
	}
	return slices.SortedFunc(maps.Keys(t.live), func(a, b admission.Key) int { return strings.Compare(a.String(), b.String()) })
}

// roundUp to a quarter of a power of two seconds: 40 s, 48 s, 56 s, 64 s, 80 s, and so on.
func roundUp(d time.Duration) time.Duration {
	step := time.Second
	for 8*step <= d {
		step *= 2
	}
	return (max(d, time.Second) + step - 1) / step * step
}

func shapeOf(w *admission.Workload) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s", w.Namespace, w.LocalQueue)
	for i := range w.PodSets {
		ps := &w.PodSets[i]
		fmt.Fprintf(&b, " %s×%d", ps.Name, ps.Count)
		for _, name := range slices.Sorted(maps.Keys(ps.Requests)) {
			fmt.Fprintf(&b, " %s=%d", name, ps.Requests[name])
		}
	}
	return b.String()
}
