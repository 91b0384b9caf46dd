package world

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Report is what came of a run. Times are seconds, parts are of 1.
type Report struct {
	Jobs  int `json:"jobs"`
	Ended int `json:"ended"`
	Never int `json:"neverStarted"`
	// Stopped says that the run ended at its time: more jobs might have started later.
	Stopped bool `json:"stopped,omitempty"`
	// NotStarted are those that never started, by queue and why.
	NotStarted []NotStarted `json:"neverStartedJobs,omitempty"`
	// OverLimit is how many of those that ended did so because they had run as long as they may.
	OverLimit int `json:"endedAtLimit,omitempty"`
	// Failed and Cancelled are how many of them did not succeed by what the trace says.
	Failed    int `json:"failed,omitempty"`
	Cancelled int `json:"cancelled,omitempty"`
	// DelayOfAll is the mean delay with what jobs that have not ended have waited so far: those that ended are not the same in two runs
	// of which one ended more. It is there if some have not.
	DelayOfAll float64 `json:"meanDelayOfAllSubmitted,omitempty"`
	// Skipped is how many lines of the trace are left out, by why.
	Skipped map[string]int `json:"linesLeftOut,omitempty"`
	// Notes are what is odd about the trace or the cluster.
	Notes []string `json:"notes,omitempty"`
	// Found ran at the start, and FoundWaiting waited; they are not among the jobs.
	Found        int   `json:"foundRunning,omitempty"`
	FoundWaiting int   `json:"foundWaiting,omitempty"`
	Makespan     int64 `json:"makespanSeconds"`

	JCT   Spread `json:"jobCompletionTime"`
	Delay Spread `json:"queueingDelay"`
	// Slowdown is completion time against run time, of jobs of a minute and more: what waiting made of it.
	Slowdown Spread `json:"slowdown"`

	BySize  []Group `json:"bySize"`
	ByQueue []Group `json:"byQueue"`

	Preemptions int     `json:"preemptions"`
	Evictions   int     `json:"evictions"` // for faults and rules
	Faults      int     `json:"nodesLost"`
	SpotTaken   int     `json:"spotNodesTaken,omitempty"`
	LostHours   float64 `json:"workLostCardHours"`
	// Moves are those of the preemptions that moved a job to other nodes for another, and what work they cost; Drained those
	// of the evictions for a budget that is spent.
	Moves      int     `json:"moves,omitempty"`
	MovedHours float64 `json:"workLostByMovesCardHours,omitempty"`
	Drained    int     `json:"drained,omitempty"`
	// ForBudget and ForReservation are jobs that waited for a budget, or because what they ask for is reserved for others.
	ForBudget      Waited           `json:"waitedForBudget,omitzero"`
	ForReservation Waited           `json:"waitedForReservation,omitzero"`
	Budgets        []BudgetUse      `json:"budgets,omitempty"`
	Reservations   []ReservationUse `json:"reservations,omitempty"`

	// CardsUsed is the part of the cards of nodes that were there; those of pods in no queue are used.
	CardsUsed  float64  `json:"cardsUsed"`
	Fragmented float64  `json:"fragmented"` // part of free cards on nodes in part used, while jobs wait
	CardHours  float64  `json:"cardHours"`
	Money      float64  `json:"money,omitempty"`
	Samples    []Sample `json:"samples,omitempty"`
	// Seeds is how figures differ with other seeds, if that was asked for and anything is drawn by chance.
	Seeds *OverSeeds `json:"overSeeds,omitempty"`
}

// Spread of a quantity over jobs.
type Spread struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Group of jobs: those of a queue or of a size.
type Group struct {
	Name string `json:"name"`
	Jobs int    `json:"jobs"`
	// Failed is how many of them did.
	Failed int    `json:"failed,omitempty"`
	JCT    Spread `json:"jobCompletionTime"`
	Delay  Spread `json:"queueingDelay"`
	// Slowdown as in Report: where queues differ in it, waiting is not shared out evenly.
	Slowdown Spread `json:"slowdown"`
	// For queues: the part of their quota in use, of the use beyond it, and of all cards used against that of all quota.
	// Where quotas follow nodes or the hour, it is what they were on average.
	Quota    int64   `json:"quota,omitempty"`
	Used     float64 `json:"quotaUsed,omitempty"`
	Borrowed float64 `json:"borrowedCardHours,omitempty"`
	// QuotaChanges is how often its nominal quota became another.
	QuotaChanges int `json:"quotaChanges,omitempty"`
	// Below is how much of its own quota it did not have while its jobs asked for it.
	Below  float64 `json:"belowQuotaCardHours,omitempty"`
	Share  float64 `json:"shareOfUse,omitempty"`
	Weight float64 `json:"shareOfQuota,omitempty"`
	// Money is what the cards cost that its jobs had.
	Money float64 `json:"money,omitempty"`
	// Fair is the queue's share against its weight, for one in a cohort.
	Fair *FairShare `json:"fairShare,omitempty"`
	// ForBudget and ForReservation as in Report.
	ForBudget      Waited `json:"waitedForBudget,omitzero"`
	ForReservation Waited `json:"waitedForReservation,omitzero"`
	// Alone compares with the queue on its own quota, if that was asked for.
	Alone *Alone `json:"againstAlone,omitempty"`
}

// JobEnd is what became of one job.
type JobEnd struct {
	ID        string `json:"id"`
	Queue     string `json:"queue"`
	Cards     int32  `json:"cards"`
	Submit    int64  `json:"submit"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	Delay     int64  `json:"delay"`
	Preempted int32  `json:"preempted,omitempty"`
	Evicted   int32  `json:"evicted,omitempty"`
	// How it ended, if it has.
	How What `json:"how,omitempty"`
	// ForBudget and ForReservation are parts of the delay.
	ForBudget      int64 `json:"waitedForBudget,omitempty"`
	ForReservation int64 `json:"waitedForReservation,omitempty"`
}

// JobEnds lists every job of the trace, in its order.
func (w *World) JobEnds() []JobEnd {
	out := make([]JobEnd, len(w.jobs))
	for i := range w.jobs {
		j, s := &w.trace.Jobs[i], &w.jobs[i]
		out[i] = JobEnd{ID: j.ID, Queue: j.Queue, Cards: j.Cards, Submit: j.Submit, Start: s.started, End: s.ended, Delay: w.delayOf(i), Preempted: s.preempted, Evicted: s.evicted}
		if s.phase != over {
			out[i].End = -1
		} else {
			out[i].How = s.how
		}
	}
	if w.policies != nil {
		for i, s := range w.policies.waited {
			out[i].ForBudget, out[i].ForReservation = s.until(w.now)
		}
	}
	return out
}

// delayOf is how long a job waited so far, before its first start and after evictions.
func (w *World) delayOf(i int) int64 {
	s := &w.jobs[i]
	if s.phase == waiting {
		return s.waited + w.now - s.since
	}
	return s.waited
}

func (w *World) report() *Report {
	f := &w.figures
	r := &Report{Jobs: len(w.jobs) - w.found, Ended: w.ended - w.over, Stopped: w.stopped, Skipped: w.trace.Skipped, Notes: w.notes(), Found: w.found - w.foundWaiting, FoundWaiting: w.foundWaiting, Faults: f.faults, SpotTaken: f.taken, LostHours: hours(f.redone), CardHours: hours(f.busy), Samples: f.samples}
	if len(w.jobs) > 0 {
		r.Makespan = w.now - w.trace.Jobs[0].Submit
	}
	there := w.cardSeconds()
	if there.all > 0 {
		r.CardsUsed = float64(f.busy+there.others) / float64(there.all)
	}
	if free := there.all - there.others - f.busy; free > 0 {
		r.Fragmented = float64(f.fragments) / float64(free)
	}
	r.Money = w.money()
	var submitted, waited int64
	all, queues, sizes := &times{}, map[string]*times{}, map[string]*times{}
	for i := range w.jobs {
		s := &w.jobs[i]
		r.Preemptions += int(s.preempted)
		r.Evictions += int(s.evicted)
		if w.trace.Jobs[i].Found != nil {
			continue
		}
		if s.phase != coming {
			submitted, waited = submitted+1, waited+w.delayOf(i)
		}
		if s.phase != over {
			if s.run == 0 {
				r.Never++
			}
			continue
		}
		switch s.how {
		case EndedAtLimit:
			r.OverLimit++
		case Failed:
			r.Failed++
		case Cancelled:
			r.Cancelled++
		}
		jct, delay := s.ended-w.trace.Jobs[i].Submit, s.waited
		for _, t := range []*times{all, of(queues, w.trace.Jobs[i].Queue), of(sizes, sizeOf(w.trace.Jobs[i].Cards))} {
			t.jct, t.delay = append(t.jct, float64(jct)), append(t.delay, float64(delay))
			if s.how == Failed {
				t.failed++
			}
			if d := w.trace.Jobs[i].Duration; d >= 60 {
				t.slowdown = append(t.slowdown, float64(jct)/float64(d))
			}
		}
	}
	if r.Ended < r.Jobs && submitted > 0 {
		r.DelayOfAll = float64(waited) / float64(submitted)
	}
	r.JCT, r.Delay, r.Slowdown = spreadOf(all.jct), spreadOf(all.delay), spreadOf(all.slowdown)
	for _, size := range slices.Sorted(maps.Keys(sizes)) {
		r.BySize = append(r.BySize, sizes[size].group(size))
	}
	r.ByQueue = w.byQueue(queues)
	w.reportPolicies(r)
	r.NotStarted = w.notStarted()
	return r
}

// times of some jobs.
type times struct {
	jct, delay, slowdown []float64
	failed               int
}

func of(groups map[string]*times, name string) *times {
	if groups[name] == nil {
		groups[name] = &times{}
	}
	return groups[name]
}

func (t *times) group(name string) Group {
	return Group{Name: name, Jobs: len(t.jct), Failed: t.failed, JCT: spreadOf(t.jct), Delay: spreadOf(t.delay), Slowdown: spreadOf(t.slowdown)}
}

func (w *World) byQueue(queues map[string]*times) []Group {
	f := &w.figures
	var had int64
	for _, q := range f.queues {
		had += q.had
	}
	span := w.now - w.firstSubmit()
	var out []Group
	for _, name := range slices.Sorted(maps.Keys(f.queues)) {
		t, q := queues[name], f.queues[name]
		if t == nil {
			t = &times{}
		}
		g := t.group(name)
		g.Quota, g.Borrowed, g.Below, g.QuotaChanges = q.nominal, hours(q.over), hours(q.below), q.changes
		if q.changes > 0 && span > 0 {
			g.Quota = (q.had + span/2) / span
		}
		if q.had > 0 {
			g.Used = float64(q.busy) / float64(q.had)
		}
		if f.busy > 0 {
			g.Share = float64(q.busy) / float64(f.busy)
		}
		if had > 0 {
			g.Weight = float64(q.had) / float64(had)
		}
		g.Fair, g.Money = w.fairShare(q.queue), w.moneyOf(name)
		out = append(out, g)
	}
	return out
}

// start of the trace.
func (w *World) firstSubmit() int64 {
	if len(w.trace.Jobs) == 0 {
		return 0
	}
	return w.trace.Jobs[0].Submit
}

func hours(seconds int64) float64 { return float64(seconds) / 3600 }

// sizeOf names a class of sizes, so that names sort as sizes do.
func sizeOf(cards int32) string {
	switch {
	case cards == 0:
		return "    no card"
	case cards <= 1:
		return "   1 card"
	case cards <= 4:
		return " 2-4 cards"
	case cards <= 8:
		return " 5-8 cards"
	case cards <= 32:
		return "9-32 cards"
	}
	return "> 32 cards"
}

// spreadOf sorts what it is given. A percentile is the value that this part of the jobs stays at or below.
func spreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	slices.SortFunc(values, cmp.Compare)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	at := func(part float64) float64 { return values[min(int(part*float64(len(values))), len(values)-1)] }
	return Spread{Mean: sum / float64(len(values)), P50: at(0.5), P99: at(0.99), P999: at(0.999), Max: values[len(values)-1]}
}

// Index finds a job by its name.
func (t *Trace) Index(id string) (int, error) {
	if i := slices.IndexFunc(t.Jobs, func(j Job) bool { return j.ID == id }); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("%s has no job %q", t.Name, id)
}
