package queue

import (
	"container/heap"
	"time"

	"github.com/elastic-ai/elastic/internal/admission"
)

// ring looks at the workloads whose time has come.
func (s *Shell) fireTimers() {
	for now := s.now(); ; {
		key, due := s.timers.due(now)
		if !due {
			return
		}
		if t := s.workloads[key]; t != nil {
			s.scheduleStep(t)
		}
	}
}

// alarms are times at which to look at a workload again. Of several for one
// workload the last one set counts.
type timers struct {
	heap  timerHeap
	times map[admission.Key]time.Time
}

type timer struct {
	at  time.Time
	key admission.Key
}

func (a *timers) set(key admission.Key, at time.Time) {
	if at.IsZero() {
		delete(a.times, key)
		return
	}
	if a.times == nil {
		a.times = map[admission.Key]time.Time{}
	}
	if a.times[key].Equal(at) {
		return
	}
	a.times[key] = at
	heap.Push(&a.heap, timer{at, key})
}

// due takes one alarm whose time has come.
func (a *timers) due(now time.Time) (admission.Key, bool) {
	for len(a.heap) > 0 && !a.heap[0].at.After(now) {
		first := heap.Pop(&a.heap).(timer)
		if a.times[first.key].Equal(first.at) {
			delete(a.times, first.key)
			return first.key, true
		}
	}
	return admission.Key{}, false
}

// next is the earliest alarm; zero: none.
func (a *timers) next() time.Time {
	for len(a.heap) > 0 {
		if first := a.heap[0]; a.times[first.key].Equal(first.at) {
			return first.at
		}
		heap.Pop(&a.heap)
	}
	return time.Time{}
}

type timerHeap []timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timerHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *timerHeap) Push(x any)        { *h = append(*h, x.(timer)) }
func (h *timerHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
