package world

import "github.com/elastic-ai/elastic/internal/admission"

// figures are sums over time, taken as the world goes on.
type figures struct {
	at      int64
	cards   cardsThere
	queues  map[string]*queueFigures
	each    []*queueFigures // of these
	running int64           // cards
	waiting int             // jobs

	busy int64 // card-seconds
	// fragments are card-seconds free on nodes that are in part used, while jobs wait.
	fragments int64
	redone    int64 // card-seconds run twice: restarts and lost work
	faults    int
	taken     int // spot nodes
	// moves to other nodes, and card-seconds run twice for them; drained for a budget.
	moves, drained int
	movedCost      int64

	samples  []Sample
	sampleAt int64
	interval int64
}

type queueFigures struct {
	queue         *admission.Queue
	nominal       int64
	had           int64 // card-seconds of nominal quota
	changes       int   // of it
	running, busy int64
	over          int64 // card-seconds beyond nominal quota
	asked         int64 // cards that waiting jobs ask for
	below         int64 // card-seconds of nominal quota not in use while jobs asked for them
	money         float64
}

// Sample is the state at a time.
type Sample struct {
	At      int64            `json:"at"`
	Used    int64            `json:"used"` // cards, those of pods in no queue, too
	Waiting int              `json:"waiting"`
	Queues  map[string]int64 `json:"queues,omitempty"` // cards used
	// Shares are the weighted shares of queues in cohorts, as statuses of ClusterQueues have them: thousandths of what the
	// cohort can lend that the queue borrows, over its weight. One that borrows on a weight of 0 is not there.
	Shares map[string]float64 `json:"weightedShares,omitempty"`
	// Budgets is which part of each is spent in its period.
	Budgets map[string]float64 `json:"budgetsSpent,omitempty"`
}

func (f *figures) begin(w *World) {
	f.queues = map[string]*queueFigures{}
	for i := range w.cluster.Queues {
		q := &w.cluster.Queues[i]
		f.each = append(f.each, &queueFigures{queue: q, nominal: nominalOf(q.Groups, w.cluster.Cards)})
		f.queues[q.Name] = f.each[i]
	}
	if len(w.trace.Jobs) > 0 {
		f.at = w.trace.Jobs[0].Submit
		w.now, f.sampleAt = f.at, f.at
	}
	f.interval = 600
	f.cards.begin(w)
}

func nominalOf(groups []admission.ResourceGroup, resource string) int64 {
	var sum int64
	for _, g := range groups {
		for _, fl := range g.Flavors {
			sum += fl.Quotas[resource].Nominal
		}
	}
	return sum
}

// quotaChanged notes another nominal quota, from now on.
func (f *figures) quotaChanged(queue string, nominal int64) {
	q := f.queues[queue]
	if q.nominal != nominal {
		q.nominal = nominal
		q.changes++
	}
}

// pass the time from the last step to this one.
func (f *figures) pass(w *World, to int64) {
	d := to - f.at
	if d <= 0 {
		return
	}
	f.busy += d * f.running
	for _, q := range f.each {
		q.busy += d * q.running
		q.had += d * q.nominal
		q.over += d * max(0, q.running-q.nominal)
		q.below += d * max(0, min(q.nominal-q.running, q.asked))
	}
	if f.waiting > 0 {
		f.fragments += d * w.partlyFree
	}
	if f.sampleAt <= to {
		f.sample(w)
		f.sampleAt = to - to%f.interval + f.interval
	}
	f.at = to
}

// mostSamples bounds a curve: beyond it, every other point goes and the interval doubles.
const mostSamples = 1024

func (f *figures) sample(w *World) {
	s := Sample{At: f.at, Used: f.running + f.cards.others, Waiting: f.waiting, Queues: make(map[string]int64, len(f.queues))}
	for name, q := range f.queues {
		s.Queues[name] = q.running
	}
	s.Shares, s.Budgets = w.weightedShares(), w.spentParts()
	if f.samples = append(f.samples, s); len(f.samples) > mostSamples {
		for i := range mostSamples / 2 {
			f.samples[i] = f.samples[2*i]
		}
		f.samples, f.interval = f.samples[:mostSamples/2], 2*f.interval
	}
}

// wait notes that a job waits from now on.
func (f *figures) wait(w *World, i int) {
	j := &w.trace.Jobs[i]
	f.waiting++
	f.queues[j.Queue].asked += int64(j.Cards)
}

func (f *figures) start(w *World, i int) {
	j := &w.trace.Jobs[i]
	f.waiting--
	f.queues[j.Queue].asked -= int64(j.Cards)
	f.running += int64(j.Cards)
	f.queues[j.Queue].running += int64(j.Cards)
}

// evicted counts an eviction, and the card-seconds that have to be run again for it.
func (f *figures) evicted(what What, redone int64) {
	f.redone += redone
	switch what {
	case Moved:
		f.moves++
		f.movedCost += redone
	case Drained:
		f.drained++
	}
}

func (f *figures) stop(w *World, i int) {
	j := &w.trace.Jobs[i]
	f.running -= int64(j.Cards)
	f.queues[j.Queue].running -= int64(j.Cards)
}
