package admission

import (
	"fmt"
	"math"
	"time"
)

// Least attained service: who has used least goes first, because nobody knows how long a workload will run, and one
// that has run for long will most likely run for long still. A workload begins at level 0 and goes down a level each
// time its service, cards times seconds of execution, has grown by a factor. Within its priority the better level goes
// first, and may preempt where the queue preempts lower priorities. Waiting leads back up: the first level takes a day, the
// second four, each further one twice as long as the one before. So who is stopped early in a long life soon goes on, nobody
// starves, and a queue that is overloaded for weeks does not fall back to first come, first served.
//
// A level is a function of the object and the time: creation, execution time used up, start. A restart changes nothing.

// Order is how a queue orders pending workloads of one priority.
type Order uint8

// The orders.
const (
	// OrderByAge: first come, first served.
	OrderByAge Order = iota
	// OrderLeastAttainedService: who has used least goes first.
	OrderLeastAttainedService
)

// CardsPerUnit says how many cards a unit of a resource stands for.
type CardsPerUnit struct {
	Resource string
	Cards    float64
}

const (
	firstLevelService = 30.0 // of level 0, in card-seconds
	levelFactor       = 5    // from one level to the next
	lowestLevel       = 10
	firstLift         = 24 * time.Hour     // of waiting: a level up
	secondLift        = 4 * 24 * time.Hour // more of it: another one, and twice as long for each further one
	highestLevel      = -20
	// levelsApart is how much better than its victim's a preemptor's level must be: each preemption costs a restart,
	// and of two that have used about as much none is worth it.
	levelsApart = 3
	// priorityScale leaves place for the levels between two priorities.
	priorityScale = 256
	levelZero     = 128
)

// setRank gives a workload its place among those of its queue: its priority and, where the queue orders by service, its
// level. It notes when time alone will change the level.
func (e *Engine) setRank(w *workload, q *queue) {
	rank, next := e.rankOf(&w.spec, q)
	if !next.IsZero() && !next.Equal(w.rankFrom) {
		e.rankTimers.Push(rankTimer{at: next, w: w})
	}
	w.rank, w.rankFrom = rank, next
}

// rankOf is the rank of a workload as of this decision, and when it changes without an event; zero: never.
func (e *Engine) rankOf(w *Workload, q *queue) (rank int64, next time.Time) {
	rank = w.Priority*priorityScale + levelZero
	if q == nil || q.spec.Order != OrderLeastAttainedService {
		return rank, time.Time{}
	}
	level, next := e.level(w)
	return rank - int64(level), next
}

// priorityOf is the priority of a rank.
func priorityOf(rank int64) int64 { return rank >> 8 }

// level of a workload, and when it changes.
func (e *Engine) level(w *Workload) (level int, next time.Time) {
	ran, waited := w.RanBefore, e.waited(w)
	runs := w.runs()
	if runs {
		ran += max(0, e.at.Sub(w.StartedAt))
	}
	cards := e.cardsOf(w)
	down, downAt := serviceLevel(ran.Seconds() * cards)
	up, upAt := lifts(waited)
	switch {
	case runs && down < lowestLevel:
		next = w.StartedAt.Add(seconds(downAt/cards) - w.RanBefore)
	case !runs && up < lowestLevel-highestLevel:
		next = w.Created.Add(upAt + w.RanBefore)
	}
	return max(highestLevel, down-up), next
}

// waited is how long a workload did not run. Before the first decision after a restart no time has passed.
func (e *Engine) waited(w *Workload) time.Duration {
	until := e.at
	if w.runs() {
		until = w.StartedAt
	}
	if until.Before(w.Created) {
		return 0
	}
	return max(0, until.Sub(w.Created)-w.RanBefore)
}

// runs says whether its execution time goes on.
func (w *Workload) runs() bool { return w.Admission != nil && !w.StartedAt.IsZero() }

// serviceLevel is the level of so much service, and at how much the next one begins.
func serviceLevel(service float64) (level int, next float64) {
	next = firstLevelService
	for level < lowestLevel && service >= next {
		level++
		next *= levelFactor
	}
	return level, next
}

// lifts is how many levels a wait leads up, and after how much the next one comes.
func lifts(waited time.Duration) (count int, next time.Duration) {
	next = firstLift
	for step := secondLift; waited >= next && count < lowestLevel-highestLevel && next < math.MaxInt64/4; count++ {
		next += step
		step *= 2
	}
	return count, next
}

// seconds rounds up, so that the level has changed by then.
func seconds(s float64) time.Duration {
	return time.Duration(math.Ceil(min(s, 1e9) * float64(time.Second)))
}

// cardsOf is how many cards a workload asks for, or 1 for one without: then its time counts.
func (e *Engine) cardsOf(w *Workload) float64 {
	sum := 0.0
	for i := range w.PodSets {
		ps := &w.PodSets[i]
		for _, of := range e.opts.Service {
			sum += of.Cards * float64(max(0, ps.Requests[of.Resource])) * float64(ps.Count)
		}
	}
	if sum <= 0 {
		return 1
	}
	return sum
}

// mayPreemptByLevel: of two workloads of one queue and priority, whether w's level is so much better that it may
// preempt v.
func mayPreemptByLevel(w, v *workload) bool { return w.rank >= v.rank+levelsApart }

// rankTimer looks again at a workload whose level changes with time.
type rankTimer struct {
	at time.Time
	w  *workload
}

// Before orders timers by time.
func (t rankTimer) Before(o rankTimer) bool { return t.at.Before(o.at) }

// SetPos does nothing: timers that are void stay until their time.
func (t rankTimer) SetPos(int) {}

// void: the workload is gone, or its level changes at another time by now.
func (t rankTimer) void() bool { return t.w.phase == phaseGone || !t.w.rankFrom.Equal(t.at) }

// updateRanks moves workloads whose level changed in the meantime.
func (e *Engine) updateRanks() {
	for len(e.rankTimers) > 0 && (e.rankTimers[0].void() || !e.rankTimers[0].at.After(e.at)) {
		t := e.rankTimers[0]
		e.rankTimers.Remove(0)
		if t.void() {
			continue
		}
		switch w := t.w; {
		case w.hasQuota():
			e.rerankReserved(w)
		case w.local != nil:
			e.rerankPending(w)
		}
	}
}

// rerankPending is what an event with another priority would do.
func (e *Engine) rerankPending(w *workload) {
	rank, _ := e.rankOf(&w.spec, w.local.queue)
	if rank == w.rank {
		e.setRank(w, w.local.queue)
		return
	}
	spec := w.spec
	e.setPending(w, &spec)
}

// rerankReserved: a workload that goes down a level becomes easier to preempt.
func (e *Engine) rerankReserved(w *workload) {
	before := w.rank
	e.reorder(w, func() { e.setRank(w, w.queue) })
	if w.rank < before {
		e.hintPreemptible(w)
	}
}

// nextRankChange is when the next level changes; zero: never.
func (e *Engine) nextRankChange() time.Time {
	for len(e.rankTimers) > 0 && e.rankTimers[0].void() {
		e.rankTimers.Remove(0)
	}
	if len(e.rankTimers) == 0 {
		return time.Time{}
	}
	return e.rankTimers[0].at
}

// explainOrder says in words where a workload stands in a queue that orders by service; "" elsewhere.
func (e *Engine) explainOrder(w *workload) string {
	q := w.queue
	if q == nil || q.spec.Order != OrderLeastAttainedService {
		return ""
	}
	used := w.spec.RanBefore.Seconds() * e.cardsOf(&w.spec)
	waited := e.waited(&w.spec)
	down, _ := serviceLevel(used)
	up, next := lifts(waited)
	return fmt.Sprintf("who has used least goes first: it has used %.1f card-hours, which is level %d, and waited %s, which leads %d up; in %s it goes up one more",
		used/3600, down, waited.Round(time.Minute), up, (next - waited).Round(time.Minute))
}
