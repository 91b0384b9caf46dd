package world

import (
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/placer"
)

// standstill is when nothing runs and nothing comes, though jobs wait. Figures stop at its beginning, since nothing may come of it,
// and go on once somebody starts.
type standstill struct {
	is    bool
	since int64
	time  int64 // until when time alone may let somebody start; -1: it does not
	nodes int64 // until when nodes that come back may; -1: they do not; 0: not known yet
	// What had come of nodes by then.
	money         float64
	cards         cardSeconds
	faults, taken int
	ended         bool // nothing came of it
}

// mostStill is how long nodes may come and go, in seconds, without ever being there all together that somebody needs.
const mostStill = 30 * 86400

// stillUntil is how long it may help to wait while nothing runs and nothing comes; -1: not at all.
func (w *World) stillUntil() int64 {
	s := &w.still
	if !s.is {
		*s = standstill{is: true, since: w.now, time: w.policies.helpsUntil(w), money: w.money(), cards: w.cardSeconds(), faults: w.figures.faults, taken: w.figures.taken}
	}
	if w.lost == 0 {
		return s.time
	}
	if away := w.settings.Faults.longestAway(w.now); s.nodes == 0 && w.now-s.since > away {
		if s.nodes = -1; w.startsWithAllNodes() {
			s.nodes = w.now + away + mostStill
		}
	}
	if s.nodes == 0 {
		return never
	}
	return max(s.time, s.nodes)
}

// goOn ends a standstill, as somebody starts.
func (w *World) goOn() {
	if w.still.is {
		w.still = standstill{}
		w.figures.pass(w, w.now)
	}
}

// endStill ends the run with its last end, if nothing came of waiting since then.
func (w *World) endStill() {
	if !w.still.is {
		return
	}
	w.now = w.still.since
	if w.still.ended = w.settings.Until <= w.now; w.still.ended {
		w.figures.faults, w.figures.taken = w.still.faults, w.still.taken
	}
}

// longestAway is how long a node is away that is lost now.
func (f *Faults) longestAway(now int64) int64 {
	longest := f.Down
	for _, s := range f.Spot {
		longest = max(longest, s.Down)
	}
	for _, s := range f.StockOuts {
		longest = max(longest, s.To-now)
	}
	return longest
}

// startsWithAllNodes says whether somebody who waits would start if no node were away: engines are asked that are made anew
// from what objects say, as when a leader begins. Periods and reservations are none of it.
func (w *World) startsWithAllNodes() bool {
	if w.policies != nil && w.policies.quotas != nil {
		return true // quotas that follow nodes would be others, too
	}
	p, err := placer.New(placer.Options{Policy: w.cluster.Placement})
	if err != nil {
		w.fail(err)
		return false
	}
	engine := w.cluster.newEngine(p)
	for i := range w.jobs {
		if w.jobs[i].phase == waiting {
			engine.Apply(admission.WorkloadChanged{Workload: w.workload(i)})
		}
	}
	return len(engine.Decide(w.clock(w.now)).Admit) > 0
}
