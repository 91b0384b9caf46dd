package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// millis is virtual time since the start of a run.
type millis int64

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (m millis) time() time.Time { return epoch.Add(time.Duration(m) * time.Millisecond) }

// cohort and queue quotas are whole CPUs of the one flavor there is.
type cohort struct {
	name, parent string
	nominal      int64
	weight       float64
}

type queue struct {
	name, cohort   string
	nominal        int64
	borrowingLimit int64 // 0: unlimited
	weight         float64
	root           int // index of the tree it belongs to
}

type job struct {
	queue    int
	arrives  millis
	runs     millis
	priority int32
	cpus     int64 // thousandths
}

// work is one generated case: the same bytes for both sides.
type work struct {
	name     string
	fair     bool
	cohorts  []cohort
	queues   []queue
	capacity []int64 // thousandths of CPU per tree
	jobs     []job   // by arrival
}

// class is one kind of workload that every queue receives at an even pace.
type class struct {
	count    int
	every    millis
	runs     millis
	priority int32
	cpus     int64
}

const (
	nominal        = 20
	borrowingLimit = 100
)

// The first two have the shape of the generator files in Kueue's own performance suite.
func baseline() *work {
	return flat("baseline", 5, 6, []class{
		{350, 100, 200, 50, 1},
		{100, 500, 500, 100, 5},
		{50, 1200, 1000, 200, 20},
	})
}

func largeScale() *work {
	return flat("largescale", 10, 100, []class{
		{35, 60, 150, 50, 1},
		{11, 300, 350, 100, 5},
		{4, 700, 700, 200, 20},
	})
}

// preemptionHeavy fills all quota with long low-priority work; everything more
// important has to preempt some of it, in its own queue or in one that borrows its quota.
func preemptionHeavy() *work {
	return flat("preemption", 5, 6, []class{
		{240, 100, 4000, 0, 1},
		{60, 700, 1000, 100, 5},
		{30, 1500, 500, 200, 20},
	})
}

// longer is the baseline with a third of the workloads and twenty times its times: Kueue looks at
// inadmissible workloads once a second, which the baseline's run times are too short for.
func longer() *work {
	return flat("longer", 5, 6, []class{
		{116, 2_000, 4_000, 50, 1},
		{33, 10_000, 10_000, 100, 5},
		{17, 24_000, 20_000, 200, 20},
	})
}

// flat: cohorts of equal queues, all quota with the queues.
func flat(name string, cohorts, queuesEach int, classes []class) *work {
	w := &work{name: name}
	for c := range cohorts {
		w.cohorts = append(w.cohorts, cohort{name: fmt.Sprintf("cohort-%d", c), weight: 1})
		w.capacity = append(w.capacity, int64(queuesEach)*nominal*1000)
		for q := range queuesEach {
			w.queues = append(w.queues, queue{
				name: fmt.Sprintf("queue-%d-%d", c, q), cohort: w.cohorts[c].name,
				nominal: nominal, borrowingLimit: borrowingLimit, weight: 1, root: c,
			})
		}
	}
	w.fill(classes)
	return w
}

// fairSharing: trees of three levels. The organisations and teams have unequal
// weights; half of the quota lies at the root and goes to the queues by their weights.
func fairSharing() *work {
	return fairTrees("fairsharing", []class{
		{220, 120, 400, 50, 1},
		{60, 500, 800, 100, 5},
		{20, 1500, 1000, 200, 10},
	})
}

// fairOverload is the same with twice the work that the quota can carry.
func fairOverload() *work {
	return fairTrees("fairoverload", []class{
		{220, 120, 600, 50, 1},
		{60, 500, 1600, 100, 5},
		{20, 1500, 2000, 200, 10},
	})
}

func fairTrees(name string, classes []class) *work {
	const trees, organisations, teams = 3, 3, 4
	w := &work{name: name, fair: true}
	for t := range trees {
		root := fmt.Sprintf("tree-%d", t)
		shared := int64(organisations * teams * nominal / 2)
		w.cohorts = append(w.cohorts, cohort{name: root, nominal: shared, weight: 1})
		w.capacity = append(w.capacity, (shared+organisations*teams*nominal/2)*1000)
		for o := range organisations {
			org := fmt.Sprintf("%s-org-%d", root, o)
			w.cohorts = append(w.cohorts, cohort{name: org, parent: root, weight: float64(1 + o)})
			for q := range teams {
				w.queues = append(w.queues, queue{
					name: fmt.Sprintf("%s-team-%d", org, q), cohort: org,
					nominal: nominal / 2, weight: float64(1 + q%2), root: t,
				})
			}
		}
	}
	w.fill(classes)
	return w
}

// beat is how often the sides hear of what happened: events come in batches,
// and both are asked to decide after each.
const beat millis = 50

// fill gives every queue its classes. Arrivals are even with some jitter, lest all
// queues move in step.
func (w *work) fill(classes []class) {
	r := rand.New(rand.NewPCG(1, 2))
	for q := range w.queues {
		for _, c := range classes {
			for i := range c.count {
				at := millis(i)*c.every + millis(r.Int64N(int64(c.every)))
				w.jobs = append(w.jobs, job{queue: q, arrives: at / beat * beat, runs: c.runs, priority: c.priority, cpus: c.cpus * 1000})
			}
		}
	}
	slices.SortStableFunc(w.jobs, func(a, b job) int { return int(a.arrives - b.arrives) })
}

// backlog is n workloads that are all there from the start, in the queues of the
// baseline: of its three classes, or of a thousand shapes (size and priority) at random.
func backlog(n int, shapes int) *work {
	w := flat(fmt.Sprintf("backlog of %d", n), 5, 6, nil)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	w.jobs = make([]job, n)
	for i := range w.jobs {
		j := job{queue: r.IntN(len(w.queues)), runs: millis(100 * (1 + r.IntN(10)))}
		if shapes == fewShapes {
			c := [...]class{{priority: 50, cpus: 1}, {priority: 100, cpus: 5}, {priority: 200, cpus: 20}}[[...]int{0, 0, 0, 0, 0, 0, 0, 1, 1, 2}[r.IntN(10)]]
			j.priority, j.cpus = c.priority, c.cpus*1000
		} else {
			j.priority, j.cpus = int32(10*r.IntN(10)), 200*int64(1+r.IntN(100))
		}
		w.jobs[i] = j
	}
	return w
}

const (
	fewShapes  = 3
	manyShapes = 1000
)

// created is distinct for every workload, so that both sides agree on which is older.
func (w *work) created(i int) time.Time {
	return w.jobs[i].arrives.time().Add(time.Duration(i) * time.Nanosecond)
}

func jobName(i int) string { return fmt.Sprintf("w%d", i) }

// jobIndex is jobName's inverse.
func jobIndex(name string) int32 {
	n := int32(0)
	for _, c := range []byte(name[1:]) {
		n = n*10 + int32(c-'0')
	}
	return n
}
