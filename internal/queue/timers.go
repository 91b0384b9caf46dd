package queue

import (
	"container/heap"
	"time"

	"github.com/elastic-ai/elastic/internal/admission"
)

// fireTimers schedules the workloads whose time has come.
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

// timers are times at which to look at a workload again. Of several for one workload the one set
// last counts.
type timers struct {
	heap  timerHeap
	times map[admission.Key]time.Time
}

type timer struct {
	at  time.Time
	key admission.Key
}

func (t *timers) set(key admission.Key, at time.Time) {
	if at.IsZero() {
		delete(t.times, key)
		return
	}
	if t.times == nil {
		t.times = map[admission.Key]time.Time{}
	}
	if t.times[key].Equal(at) {
		return
	}
	t.times[key] = at
	heap.Push(&t.heap, timer{at, key})
}

// due takes one timer whose time has come.
func (t *timers) due(now time.Time) (admission.Key, bool) {
	for len(t.heap) > 0 && !t.heap[0].at.After(now) {
		first := heap.Pop(&t.heap).(timer)
		if t.times[first.key].Equal(first.at) {
			delete(t.times, first.key)
			return first.key, true
		}
	}
	return admission.Key{}, false
}

// next is the earliest timer; zero: none.
func (t *timers) next() time.Time {
	for len(t.heap) > 0 {
		if first := t.heap[0]; t.times[first.key].Equal(first.at) {
			return first.at
		}
		heap.Pop(&t.heap)
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
