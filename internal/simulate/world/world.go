package world

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/placer"
)

// Settings of a run beside the trace and the cluster.
type Settings struct {
	// Restart is what an eviction costs: seconds of run time that the job has to run again.
	Restart Restart
	Faults  Faults
	// Until ends the run early, in seconds; 0: when every job has ended.
	Until int64
	// Check holds the state against invariants after every step.
	Check bool
	// Watch is called with everything that happens to a job.
	Watch func(Moment)
	// Progress is called from time to time.
	Progress func(ended, jobs int, at int64)
}

// Restart is what it costs a job to be stopped and started again, in seconds of its run time.
type Restart struct {
	OneNode, ManyNodes int64
	// Checkpoint is how often work is saved: what a job did since is lost with it. 0: evicted jobs lose nothing.
	Checkpoint int64
}

// Moment is something that happened to a job.
type Moment struct {
	At   int64
	Job  int // in Trace.Jobs
	What What
	// Nodes on which it runs, for Started.
	Nodes []placer.NodePlacement
	// By is the job for which it was preempted, -1 for none.
	By int
	// Why it waits, for WaitsForBudget and WaitsForReservation.
	Why string
}

// What happens to jobs.
type What uint8

// The things that happen.
const (
	Submitted What = iota
	Started
	Preempted
	Evicted // by a fault or a rule
	Ended
	Moved               // to other nodes, for one that needs its own
	Drained             // a budget is spent
	WaitsForBudget      // from now on
	WaitsForReservation // what it would take is reserved for others
	EndedAtLimit        // it ran as long as it may
	Failed              // it ended, and did not succeed
	Cancelled           // somebody stopped it
)

var whatNames = [...]string{"submitted", "started", "preempted", "evicted", "ended", "moved", "drained", "waits for budget", "waits for reservation", "ended at its limit", "failed", "cancelled"}

func (w What) String() string { return whatNames[w] }

// MarshalText is for JSON.
func (w What) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// state of a job.
type state struct {
	left      int64 // run time still to do, restarts included
	ran       int64 // in earlier runs
	waited    int64 // in earlier waits
	since     int64 // when it began to wait or to run
	started   int64 // first
	ended     int64
	run       int32
	preempted int32
	evicted   int32
	phase     phase
	how       What // it ended
	byOthers  bool // the last eviction was for another queue's job
	byFault   bool // it was for none's
	byBudget  bool // it was for a budget
	nominated bool // the engine has said that it waits for others to leave
	moving    bool // it moves to other nodes, and the engine has said nothing else of it since
	// evictedFor is the UID of the job for which it was evicted last, while it waits.
	evictedFor string
}

type phase uint8

const (
	coming phase = iota
	waiting
	running
	over
)

// World is a cluster at a time. It is for one goroutine.
type World struct {
	trace    *Trace
	cluster  *Cluster
	settings Settings
	engine   *admission.Engine
	placer   *placer.Placer
	requests *requests

	epoch  time.Time // second 0
	now    int64
	next   int   // first job that was not submitted yet
	timer  int64 // when the engine wants to look again
	events eventHeap
	jobs   []state
	placed map[int][]placer.NodePlacement // of running jobs
	nodes  map[string]*nodeState
	order  []*nodeState
	ended  int
	found  int // jobs that were there when it began
	// foundWaiting of them waited, and over have ended.
	foundWaiting, over int
	lost               int // nodes that are away
	nominated, moving  int // jobs that wait for others to leave, and that move
	// partlyFree is how many cards are free on nodes on which others are used.
	partlyFree int64
	figures    figures
	learned    *learned     // nil: nobody says how long jobs are taken to run
	policies   *policies    // nil: none that need the calendar
	leaving    map[int]bool // jobs that a plan evicts, while its others start
	moves      moves
	still      standstill
	stopped    bool // before all was done that was to come
	err        error
}

// never is a time that does not come.
const never = math.MaxInt64

// epoch is second 0 of a trace of which nobody says when it begins: a Monday, on which a week and a month begin.
var epoch = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// clock is the engine's time of a second.
func (w *World) clock(at int64) time.Time { return w.epoch.Add(time.Duration(at) * time.Second) }

// second is the first one that is not before a time.
func (w *World) second(at time.Time) int64 { return ceilSeconds(at.Sub(w.epoch)) }

// New world in which nothing happened yet.
func New(t *Trace, c *Cluster, s Settings) (*World, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if missing := c.Missing(t); len(missing) > 0 {
		return nil, &MissingQueuesError{Trace: t.Name, Queues: missing, Ambiguous: c.Ambiguous}
	}
	quotas, err := c.newNominalQuotas()
	if err != nil {
		return nil, err
	}
	if quotas != nil {
		c = c.clone() // they change
	}
	w := &World{
		trace: t, cluster: c, settings: s, timer: never, requests: newRequests(c),
		epoch: c.begins(), jobs: make([]state, len(t.Jobs)), placed: map[int][]placer.NodePlacement{}, nodes: map[string]*nodeState{}, leaving: map[int]bool{},
	}
	p, err := placer.New(placer.Options{Policy: c.Placement})
	if err != nil {
		return nil, err
	}
	w.placer, w.engine = p, c.newEngine(p)
	for i := range c.Nodes {
		s := &nodeState{node: &c.Nodes[i], at: i}
		w.nodes[s.node.Name] = s
		w.order = append(w.order, s)
	}
	w.figures.begin(w)
	w.learned = c.newLearned()
	w.policies = w.newPolicies(quotas)
	for _, change := range c.faults {
		change(&w.settings.Faults)
	}
	w.setPrices()
	w.settings.Faults.schedule(w)
	w.findJobs()
	return w, nil
}

// MissingQueuesError names queues that the trace has and the cluster has not.
type MissingQueuesError struct {
	Trace  string
	Queues []string
	// Ambiguous are LocalQueues of one name, by it.
	Ambiguous map[string][]string
}

func (e *MissingQueuesError) Error() string {
	for _, name := range e.Queues {
		if several := e.Ambiguous[name]; len(several) > 0 {
			return fmt.Sprintf("%s has jobs in queue %s, which may be any of %s: they belong to different ClusterQueues", e.Trace, name, join(several, 8))
		}
	}
	return fmt.Sprintf("%s has jobs in queues that the cluster does not have: %s", e.Trace, join(e.Queues, 8))
}

// newEngine that decides, beside a placer; both are told of the cluster, in which nothing runs yet.
func (c *Cluster) newEngine(p *placer.Placer) *admission.Engine {
	options := c.Options
	options.Placer = p
	options.Service = []admission.CardsPerUnit{{Resource: c.Cards, Cards: 1}}
	e := admission.New(options)
	e.Apply(admission.NamespaceChanged{Name: namespace})
	for i := range c.Nodes {
		p.Saw(c.Nodes[i].object(true), false)
	}
	for _, t := range c.Topologies {
		p.Saw(t, false)
	}
	for _, f := range c.Flavors {
		e.Apply(admission.FlavorChanged{Flavor: f})
	}
	for _, co := range c.Cohorts {
		e.Apply(admission.CohortChanged{Cohort: co})
	}
	for _, q := range c.Queues {
		q.NamespaceSelector = &admission.Term{}
		e.Apply(admission.QueueChanged{Queue: q})
		e.Apply(admission.LocalQueueChanged{LocalQueue: admission.LocalQueue{Key: admission.Key{Namespace: namespace, Name: q.Name}, Queue: q.Name}})
	}
	for _, l := range c.LocalQueues {
		e.Apply(admission.NamespaceChanged{Name: l.Namespace})
		e.Apply(admission.LocalQueueChanged{LocalQueue: l})
	}
	for _, pod := range c.Pods {
		p.Saw(pod, false)
	}
	return e
}

// Run until every job has ended, or the end of the settings.
func (w *World) Run(ctx context.Context) (*Report, error) {
	steps := 0
	for w.err == nil {
		at := w.nextTime()
		if w.stopped = at != never && w.settings.Until > 0 && at > w.settings.Until; at == never || w.stopped {
			break
		}
		if at > mostTime {
			w.fail(w.tooLong())
			break
		}
		w.step(at)
		if steps++; steps%4096 == 0 {
			if w.err == nil {
				w.err = ctx.Err()
			}
			if w.settings.Progress != nil {
				w.settings.Progress(w.ended, len(w.jobs), w.now)
			}
		}
	}
	if w.err != nil {
		return nil, w.err
	}
	w.endStill()
	if w.settings.Until > w.now {
		w.figures.pass(w, w.settings.Until)
		w.now = w.settings.Until
	}
	return w.report(), nil
}

// mostTime is how far a simulation may go, in seconds: some 285 years, which are nanoseconds that a number can hold.
const mostTime = 9_000_000_000

// tooLong is the error of a simulation that goes on for ever.
func (w *World) tooLong() error {
	longest := 0
	for i := range w.trace.Jobs {
		if w.trace.Jobs[i].Duration > w.trace.Jobs[longest].Duration {
			longest = i
		}
	}
	j := &w.trace.Jobs[longest]
	return fmt.Errorf("the jobs run for more than 285 years one after the other, %s alone for %d s: are durations in seconds?", j.ID, j.Duration)
}

// nextTime is when something happens next; never, once every job of the trace has ended or those that wait can never
// start: nothing runs, nothing comes, no node that is away would help, and no period of a budget or reservation ends that they
// wait for. Faults and timers alone do not make a world go on.
func (w *World) nextTime() int64 {
	runs, last := w.next-w.ended-w.figures.waiting, int64(never)
	if w.next == len(w.jobs) {
		if w.ended-w.over == len(w.jobs)-w.found {
			return never
		}
		if runs == 0 {
			last = w.stillUntil()
		}
	}
	at := w.timer
	if w.policies != nil {
		at = min(at, w.policies.at)
	}
	if w.next < len(w.jobs) {
		at = min(at, w.trace.Jobs[w.next].Submit)
	}
	if len(w.events) > 0 {
		at = min(at, w.events[0].at)
	}
	if at > last {
		return never
	}
	return at
}

// step to a second, and do all that happens in it.
func (w *World) step(at int64) {
	if !w.still.is {
		w.figures.pass(w, at)
	}
	w.now = at
	if w.policies != nil {
		w.policies.pass(w, at)
	}
	for len(w.events) > 0 && w.events[0].at <= at {
		w.happen(w.events.pop())
	}
	for ; w.next < len(w.jobs) && w.trace.Jobs[w.next].Submit <= at; w.next++ {
		w.submit(w.next)
	}
	w.policies.followNodes(w)
	w.decide()
	if w.policies != nil {
		w.policies.noteReservations(w)
	}
	if w.settings.Check && w.err == nil {
		w.err = w.invariants()
	}
}

func (w *World) happen(e event) {
	switch e.kind {
	case jobEnds:
		if s := &w.jobs[e.of]; s.phase == running && s.run == e.run {
			w.end(int(e.of), w.trace.Jobs[e.of].Outcome.ending())
		}
	case nodeFails:
		w.failNode(int(e.of))
	case nodeTaken:
		w.takeNode(int(e.of), e.run)
	case nodeReturns:
		w.returnNode(int(e.of))
	}
}

// decide until the engine has nothing more to do in this second: what it evicts is gone at once, and lets in others.
func (w *World) decide() {
	for rounds := 0; ; rounds++ {
		plan := w.nextPlan()
		if rounds > mostRounds+len(w.placed) {
			w.fail(fmt.Errorf("at %d s the engine does not come to rest: jobs are evicted and start again without end", w.now))
		}
		for i := range plan.Panics {
			w.err = fmt.Errorf("the engine failed over %v: %v", plan.Panics[i].Workload, plan.Panics[i].Value)
		}
		for i := range plan.Admit {
			w.start(&plan.Admit[i])
		}
		w.reportNominated(plan.Pending)
		evicted := len(plan.Evict)
		for i := range plan.Evict {
			w.evict(&plan.Evict[i])
		}
		w.timer = never
		if !plan.NextAt.IsZero() {
			w.timer = max(w.now+1, w.second(plan.NextAt))
		}
		again := evicted > 0 || w.policies != nil && len(plan.Admit) > 0 // what started may drain a budget at a time
		if !again || w.err != nil {
			return
		}
	}
}

// reportNominated tells jobs what the engine says of them, as far as it goes by that: who waits for others to leave has what they leave.
func (w *World) reportNominated(pending []admission.Pending) {
	for k := range pending {
		waits := pending[k].Reason == admission.ReasonWaitingForPreemptedWorkloads
		if !waits && w.nominated+w.moving == 0 {
			continue
		}
		i := JobOf(pending[k].Workload)
		if s := &w.jobs[i]; s.phase == waiting && (s.nominated != waits || s.moving && !waits) {
			w.nominate(s, waits)
			w.move(s, s.moving && waits)
			w.engine.Apply(admission.WorkloadChanged{Workload: w.workload(i)})
		}
	}
}

// nominate notes whether a job waits for others to leave.
func (w *World) nominate(s *state, is bool) {
	switch {
	case is && !s.nominated:
		w.nominated++
	case !is && s.nominated:
		w.nominated--
	}
	s.nominated = is
}

// move notes whether a job moves to other nodes.
func (w *World) move(s *state, is bool) {
	switch {
	case is && !s.moving:
		w.moving++
	case !is && s.moving:
		w.moving--
	}
	s.moving = is
}

// nextPlan of the engine.
func (w *World) nextPlan() admission.Plan {
	if w.policies != nil {
		w.policies.tell(w)
	}
	plan := w.engine.Decide(w.clock(w.now))
	if w.policies != nil {
		w.policies.note(w, plan.Pending)
	}
	if w.settings.Check {
		clear(w.leaving)
		for i := range plan.Evict {
			w.leaving[JobOf(plan.Evict[i].Workload)] = true
		}
		w.fail(w.checkMoves(plan.Evict))
	}
	return plan
}

// fail ends the run for an error; the first one counts.
func (w *World) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// mostRounds is how often the engine decides in a second, beside once for each job that runs, before that is an error.
const mostRounds = 1000

func ceilSeconds(d time.Duration) int64 {
	if d < 0 {
		return int64(d / time.Second)
	}
	return int64((d + time.Second - 1) / time.Second)
}

// submit a job.
func (w *World) submit(i int) {
	s := &w.jobs[i]
	j := &w.trace.Jobs[i]
	s.left, s.since, s.phase, s.started = j.Duration, w.now, waiting, -1
	if j.Found != nil {
		s.ran = int64(j.Found.workload.RanBefore / time.Second)
	}
	w.figures.wait(w, i)
	w.learned.submitted(w, i)
	w.engine.Apply(admission.WorkloadChanged{Workload: w.workload(i)})
	w.watch(Moment{At: w.now, Job: i, What: Submitted, By: -1})
}

// start a job whose quota and nodes the engine reserved.
func (w *World) start(a *admission.Admit) {
	i := JobOf(a.Workload)
	s := &w.jobs[i]
	if s.phase != waiting {
		w.err = fmt.Errorf("%s was admitted at %d s while it did not wait", w.trace.Jobs[i].ID, w.now)
		return
	}
	w.goOn()
	s.evictedFor = ""
	w.nominate(s, false)
	w.move(s, false)
	wl := w.workload(i)
	written := *a.Admission
	written.Placement = nil // objects do not tell it; the engine knows
	wl.Admission, wl.StartedAt, wl.PodsReady = &written, w.clock(w.now), true
	w.engine.Apply(admission.WorkloadChanged{Workload: wl})
	w.learned.started(i, &wl)
	s.waited += w.now - s.since
	s.phase, s.since = running, w.now
	w.policies.started(w, i, a.Admission)
	if s.run++; s.run == 1 {
		s.started = w.now
	}
	nodes := placer.NodePlacements(a.Admission.Placement)
	w.occupy(i, nodes)
	w.figures.start(w, i)
	w.ends(i, w.now+s.left)
	w.watch(Moment{At: w.now, Job: i, What: Started, Nodes: nodes, By: -1})
}

// ends notes when a running job will end, and when it will have run as long as it may, if that is before.
func (w *World) ends(i int, at int64) {
	s := &w.jobs[i]
	w.events.push(event{at: at, kind: jobEnds, of: int32(i), run: s.run})
	if limit := w.trace.Jobs[i].Limit; limit > 0 && s.since+limit-s.ran < at {
		w.events.push(event{at: max(w.now+1, s.since+limit-s.ran), kind: limitReached, of: int32(i), run: s.run})
	}
}

// stop a running job's clock.
func (w *World) stop(i int) {
	s := &w.jobs[i]
	w.policies.stopped(w, i)
	w.learned.stopped(i)
	w.figures.queues[w.trace.Jobs[i].Queue].money += w.costOf(i)
	w.vacate(i)
	w.figures.stop(w, i)
	ran := w.now - s.since
	s.left -= ran
	s.ran += ran
	s.since = w.now
}

// end a job. From how long those ran that did not succeed nothing is learned, as in a cluster.
func (w *World) end(i int, how What) {
	w.stop(i)
	s := &w.jobs[i]
	s.phase, s.ended, s.how = over, w.now, how
	if w.ended++; w.trace.Jobs[i].Found != nil {
		w.over++
	}
	w.engine.Apply(admission.WorkloadChanged{Workload: admission.Workload{Key: w.key(i), UID: w.requests.name(i), LocalQueue: w.localQueue(i).Name, Finished: true}})
	w.learned.ended(w, i, how == Ended)
	w.watch(Moment{At: w.now, Job: i, What: how, By: -1})
}

// evict a job as the engine asks. One that ran as long as it may is over.
func (w *World) evict(e *admission.Evict) {
	i := JobOf(e.Workload)
	if w.jobs[i].phase != running {
		w.err = fmt.Errorf("%s was evicted at %d s while it did not run", w.trace.Jobs[i].ID, w.now)
		return
	}
	if e.Reason == admission.ReasonMaxExecutionExceeded {
		w.end(i, EndedAtLimit)
		return
	}
	m := Moment{At: w.now, Job: i, What: Evicted, By: -1}
	switch {
	case e.Reason == admission.ReasonBudgetSpent:
		m.What = Drained
	case e.Reason == admission.ReasonPreempted && e.Preempted == admission.ReasonDefragmentation:
		m.What, m.By = Moved, JobOf(e.Preemptor)
	case e.Reason == admission.ReasonPreempted:
		m.What, m.By = Preempted, JobOf(e.Preemptor)
	}
	w.jobs[i].evictedFor = e.PreemptorUID
	w.move(&w.jobs[i], m.What == Moved)
	w.jobs[i].byOthers = e.Reason == admission.ReasonPreempted && e.Preempted != admission.ReasonInClusterQueue && e.Preempted != admission.ReasonDefragmentation
	w.requeue(i, m)
}

// requeue an evicted job: it goes on from its last checkpoint once it is admitted again.
func (w *World) requeue(i int, m Moment) {
	s := &w.jobs[i]
	started := s.since
	w.stop(i)
	r := w.settings.Restart
	cost := r.OneNode
	if j := &w.trace.Jobs[i]; int(j.Cards) > w.requests.sizes[j.Queue].cards {
		cost = r.ManyNodes
	}
	if r.Checkpoint > 0 {
		cost += (w.now - started) % r.Checkpoint
	}
	s.left += cost
	s.phase = waiting
	s.byBudget, s.byFault = m.What == Drained, m.What == Evicted
	if s.byFault || s.byBudget {
		s.evicted++
		s.byOthers = false
	} else {
		s.preempted++
	}
	w.figures.evicted(m.What, cost*int64(w.trace.Jobs[i].Cards))
	w.figures.wait(w, i)
	w.engine.Apply(admission.WorkloadChanged{Workload: w.workload(i)})
	w.watch(m)
}

func (w *World) watch(m Moment) {
	if w.settings.Watch != nil {
		w.settings.Watch(m)
	}
}

// Waiting is how many jobs wait now.
func (w *World) Waiting() int { return w.figures.waiting }
