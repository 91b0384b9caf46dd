package simulate

import "container/heap"

// Clock runs events in the order of their times, and of their scheduling where times are equal.
// Times are seconds from the start of the trace.
type Clock struct {
	now    int64
	queue  eventHeap
	serial int
}

type event struct {
	at     int64
	serial int
	run    func()
}

// Now is the time of the event that is running.
func (c *Clock) Now() int64 { return c.now }

// At schedules an event. One in the past runs next.
func (c *Clock) At(at int64, run func()) {
	c.serial++
	heap.Push(&c.queue, event{max(at, c.now), c.serial, run})
}

// Run until no event is left.
func (c *Clock) Run() {
	for len(c.queue) > 0 {
		e := heap.Pop(&c.queue).(event)
		c.now = e.at
		e.run()
	}
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].serial < h[j].serial
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	*h = (*h)[:last]
	return e
}
