package admission

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Options are fixed for the life of an Engine. The zero value is Kueue's default behaviour.
type Options struct {
	// Policy is how trees share what can be borrowed unless their root cohort says otherwise; default PolicyFIFO.
	Policy CapacityPolicy
	// FairStrategies are tried in order; empty means both of Kueue's.
	FairStrategies []FairStrategy
	// RequeueByCreation keeps a workload's place in line after a PodsReady timeout; otherwise
	// its eviction time counts.
	RequeueByCreation bool
	// IgnoreUndeclared lets requests pass for resources that a queue does not list.
	IgnoreUndeclared bool
	// BlockUntilReady admits nobody while the pods of someone admitted are not ready
	// (Workload.PodsReady), and so one workload at a time.
	BlockUntilReady bool
	// Backfill lets a workload with MaxRunTime pass the blocked head of a StrictFIFO queue if it cannot delay it.
	Backfill bool
	// EvictOnly admits and displaces nobody: another scheduler does. Those who may not go on are still evicted.
	EvictOnly bool
	// PreemptionDelay is how long a workload waits in line before it displaces others that run: room
	// that comes free by itself in that time costs nobody's work. Those who have only just started are spared
	// as long. 0 displaces at once.
	PreemptionDelay time.Duration
	// Placer answers whether pods fit on real nodes; nil decides on quota alone.
	Placer Placer
	// UsageHalfLife, UsageSampling and UsageWeights rule admission fair sharing. A half-life of 0
	// forgets at once; UsageSampling sets how much of a request counts at the moment of admission.
	UsageHalfLife time.Duration
	UsageSampling time.Duration
	UsageWeights  map[string]float64
	// Format prints an amount in messages; nil prints as Kubernetes would.
	Format func(resource string, amount int64) string
}

// FairStrategy is a rule for preemption under fair sharing.
type FairStrategy uint8

// Kueue's strategies.
const (
	LessThanOrEqualToFinalShare FairStrategy = iota
	LessThanInitialShare
)

// Engine decides who may run. It is not safe for concurrent use.
type Engine struct {
	opts Options
	at   time.Time // of the decision under way

	resources     []string
	byName        []int32 // resources in order of their names
	resourceIndex map[string]int32
	frs           []flavorResource
	frIndex       map[flavorResource]int32

	flavors     []*flavor
	flavorIndex map[string]int32
	cohorts     map[string]*node
	cohortSpecs map[string]Cohort
	queues      map[string]*queue
	locals      map[Key]*localQueue
	namespaces  map[string]map[string]string
	workloads   map[Key]*workload
	shapes      map[string]*requestShape

	trees             []*tree
	relink            bool          // cohorts or queues changed: link the trees before going on
	work              []*tree       // trees in which something may be decided
	unsorted          bool          // work grew
	again             []*tree       // in which somebody waits with a claim, or keeps room: the next decision may give it more or better
	retryNext         []*equivClass // refused for what holds in this decision only: they look again in the next
	review            []*workload
	timers            heap[timer]
	byUsage           []*queue               // whose order follows usage
	notesAt           time.Time              // when usage is noted next; zero: to be seen
	evicting          map[*workload]struct{} // holders on their way out
	unresolvedVictims []*workload            // of those, who has yet to be joined to the one it leaves for
	toNominate        []*workload            // who may have to be given its claim
	unready           int                    // holders whose pods are awaited under BlockUntilReady

	scratch       scratch
	plan          Plan
	decision      uint64
	treesMade     uint64 // trees made so far
	searches      uint64
	capacity      uint64 // counts changes of nodes and flavors
	demandChanges uint64 // counts changes of what lines ask for
	volatiles     int    // classes listed in queue.fickle
	evals         int64  // workloads evaluated, for tests of how little work is done
	revokes       int64  // admissions taken back in the decision that made them
}

type flavorResource struct {
	flavor, resource int32
}

// workload is a Workload with where it stands.
type workload struct {
	spec       Workload
	local      *localQueue
	localPos   int
	queue      *queue
	order      int64 // its time in line
	reservedAt int64 // when it got its quota

	class          *equivClass // while in line
	pos            int
	nominatedUsage []amount // room it waits for
	nomination     *assignment
	hasQuota       bool
	usage          []amount // quota held
	podsAwaited    bool     // counted in Engine.unready
	evicting       bool     // evicting: counted now, not in the future
	assumed        bool     // admitted by us, not yet confirmed
	admitted       uint64   // decision in which we admitted it
	reported       Reason
	published      Reason // what the last plan that said something told it
	heldBackWhy    string // message of why it is not even in line
	reviewed       bool   // listed in Engine.review
	timer          time.Time
	gone           bool
	preemptedIn    uint64 // decision in which someone who runs was displaced for it: it keeps what it got in it
	overriddenIn   uint64 // decision in which its claim was set aside; at most once in each
	cooldownIn     uint64 // decision in which another queue took its admission back

	preemptor        *workload   // the one it was preempted for
	victimGone       bool        // it has let go for it
	countedAgain     bool        // leaving, and taken to stay while claims are given
	preemptorUID     string      // the UID of that one, when it was looked for
	victims          []*workload // who is leaving for it
	victimsGone      int         // how many have let go for it, and are in line again
	awaitsNomination bool        // listed in Engine.heirs or tree.heirs
}

type localQueue struct {
	spec    LocalQueue
	exists  bool
	queue   *queue
	members []*workload
	usage   usageHistory
	share   float64 // its weighted usage as of this decision
}

// New returns an empty engine.
func New(o Options) *Engine {
	if len(o.FairStrategies) == 0 {
		o.FairStrategies = []FairStrategy{LessThanOrEqualToFinalShare, LessThanInitialShare}
	}
	if o.Format == nil {
		o.Format = formatAmount
	}
	e := &Engine{
		opts:          o,
		resourceIndex: map[string]int32{},
		frIndex:       map[flavorResource]int32{},
		flavorIndex:   map[string]int32{},
		cohorts:       map[string]*node{},
		cohortSpecs:   map[string]Cohort{},
		queues:        map[string]*queue{},
		locals:        map[Key]*localQueue{},
		namespaces:    map[string]map[string]string{},
		workloads:     map[Key]*workload{},
		shapes:        map[string]*requestShape{},
		evicting:      map[*workload]struct{}{},
	}
	e.resource(Pods)
	return e
}

// Apply takes in one event.
func (e *Engine) Apply(ev Event) { ev.apply(e) }

func (e *Engine) resource(name string) int32 {
	i, ok := e.resourceIndex[name]
	if !ok {
		i = int32(len(e.resources))
		e.resources = append(e.resources, name)
		e.resourceIndex[name] = i
		at, _ := slices.BinarySearchFunc(e.byName, name, func(r int32, name string) int { return strings.Compare(e.resources[r], name) })
		e.byName = slices.Insert(e.byName, at, i)
		e.relink = true
	}
	return i
}

func (e *Engine) flavor(name string) int32 {
	i, ok := e.flavorIndex[name]
	if !ok {
		i = int32(len(e.flavors))
		e.flavors = append(e.flavors, &flavor{spec: Flavor{Name: name}})
		e.flavorIndex[name] = i
	}
	return i
}

func (e *Engine) intern(flavor, resource string) int32 {
	k := flavorResource{e.flavor(flavor), e.resource(resource)}
	i, ok := e.frIndex[k]
	if !ok {
		i = int32(len(e.frs))
		e.frs = append(e.frs, k)
		e.frIndex[k] = i
		e.relink = true
	}
	return i
}

func (e *Engine) queue(name string) *queue {
	q := e.queues[name]
	if q == nil {
		q = &queue{name: name, classes: map[string]*equivClass{}, reservedChanges: 1}
		q.node = &node{name: name, queue: q, weight: 1}
		q.node.root = q.node
		q.node.tree = e.newTree(q.node)
		e.queues[name] = q
		e.relink = true
	}
	return q
}

func (e *Engine) localQueue(k Key) *localQueue {
	l := e.locals[k]
	if l == nil {
		l = &localQueue{spec: LocalQueue{Key: k}}
		e.locals[k] = l
	}
	return l
}

// Queues, cohorts and flavors.

// Objects are reported again for changes that are none to us, their status above
// all; those must cost nothing.

func (ev CohortChanged) apply(e *Engine) {
	if was, ok := e.cohortSpecs[ev.Cohort.Name]; ok && reflect.DeepEqual(was, ev.Cohort) {
		return
	}
	n := e.cohort(ev.Cohort.Name)
	e.cohortSpecs[ev.Cohort.Name] = ev.Cohort
	if ev.Cohort.Parent != "" {
		e.cohort(ev.Cohort.Parent)
	}
	n.weight = weight(ev.Cohort.FairWeight)
	e.setQuotas(n, ev.Cohort.Groups)
	n.changed, e.relink = true, true
}

func (ev CohortGone) apply(e *Engine) {
	n := e.cohorts[ev.Name]
	if n == nil {
		return
	}
	delete(e.cohortSpecs, ev.Name)
	n.weight = 1
	e.setQuotas(n, nil)
	n.changed, e.relink = true, true
}

func (ev QueueChanged) apply(e *Engine) {
	q := e.queue(ev.Queue.Name)
	if q.exists && reflect.DeepEqual(q.spec, ev.Queue) {
		return
	}
	afs := q.spec.UsageFairSharing != ev.Queue.UsageFairSharing
	q.spec, q.exists = ev.Queue, true
	if ev.Queue.Cohort != "" {
		e.cohort(ev.Queue.Cohort)
	}
	q.node.weight = weight(ev.Queue.FairWeight)
	e.setQuotas(q.node, ev.Queue.Groups)
	q.compileGroups(e)
	q.node.changed, e.relink = true, true
	e.requeueMembers(q, afs)
}

func (ev QueueGone) apply(e *Engine) {
	q := e.queues[ev.Name]
	if q == nil {
		return
	}
	q.node.root.tree.dropNominations(e)
	q.node.root.changed = true // those left behind may use what it lends no more, or what it used
	q.spec, q.exists = Queue{Name: ev.Name}, false
	e.setQuotas(q.node, nil)
	q.compileGroups(e)
	q.node.parent, q.node.root = nil, q.node
	q.node.tree = e.newTree(q.node)
	e.relink = true
	e.requeueMembers(q, true)
	e.dropUnused(q)
}

// dropUnused forgets a queue that nobody describes, names or uses.
func (e *Engine) dropUnused(q *queue) {
	if !q.exists && len(q.locals) == 0 && len(q.quotaReserved) == 0 {
		delete(e.queues, q.name)
	}
}

func weight(w *float64) float64 {
	if w == nil {
		return 1
	}
	return *w
}

// requeueMembers looks again at everything in a queue whose settings changed.
func (e *Engine) requeueMembers(q *queue, reclass bool) {
	for _, l := range q.locals {
		for _, w := range l.members {
			if !w.hasQuota {
				if reclass && w.class != nil {
					e.dequeue(w)
				}
				e.enqueueOrHoldBack(w)
			}
		}
	}
	for _, w := range q.quotaReserved {
		e.reviewLater(w)
	}
}

func (ev LocalQueueChanged) apply(e *Engine) {
	l := e.localQueue(ev.LocalQueue.Key)
	spec := ev.LocalQueue
	spec.Consumed, spec.ConsumedAt = l.spec.Consumed, l.spec.ConsumedAt
	if l.exists && reflect.DeepEqual(l.spec, spec) {
		return
	}
	l.exists = true
	l.setQueue(e.queue(ev.LocalQueue.Queue))
	l.spec = ev.LocalQueue
	l.usage.seed(e, ev.LocalQueue)
	e.notesAt = time.Time{}
	e.requeueLocal(l)
}

func (ev LocalQueueGone) apply(e *Engine) {
	l := e.locals[ev.Key]
	if l == nil {
		return
	}
	l.exists = false
	l.spec = LocalQueue{Key: ev.Key}
	l.usage.forget()
	e.requeueLocal(l)
	q := l.queue
	l.setQueue(nil)
	if q != nil {
		e.dropUnused(q)
	}
	if len(l.members) == 0 {
		delete(e.locals, ev.Key)
	}
}

func (l *localQueue) setQueue(q *queue) {
	if l.queue == q {
		return
	}
	if l.queue != nil {
		i := slices.Index(l.queue.locals, l)
		l.queue.locals = slices.Delete(l.queue.locals, i, i+1)
	}
	l.queue = q
	if q != nil {
		q.locals = append(q.locals, l)
	}
}

func (e *Engine) requeueLocal(l *localQueue) {
	for _, w := range l.members {
		if w.hasQuota {
			e.reviewLater(w)
		} else {
			e.enqueueOrHoldBack(w)
		}
	}
}

func (ev FlavorChanged) apply(e *Engine) { e.changeFlavor(ev.Flavor, true) }

func (ev FlavorGone) apply(e *Engine) { e.changeFlavor(Flavor{Name: ev.Name}, false) }

func (e *Engine) changeFlavor(spec Flavor, exists bool) {
	i := e.flavor(spec.Name)
	f := e.flavors[i]
	if f.exists == exists && reflect.DeepEqual(f.spec, spec) {
		return
	}
	f.spec, f.exists = spec, exists
	f.version++
	e.capacity++
	for _, q := range e.queues { // waking is per queue; the order does not matter
		if q.usesFlavor(i) {
			q.requeueAll(e)
		}
	}
}

func (ev NamespaceChanged) apply(e *Engine) {
	if was, ok := e.namespaces[ev.Name]; ok && maps.Equal(was, ev.Labels) {
		return
	}
	e.namespaces[ev.Name] = ev.Labels
	e.requeueNamespace(ev.Name)
}

func (ev NamespaceGone) apply(e *Engine) {
	delete(e.namespaces, ev.Name)
	e.requeueNamespace(ev.Name)
}

func (e *Engine) requeueNamespace(name string) {
	for k, l := range e.locals { // placing pending workloads is per workload; the order does not matter
		if k.Namespace == name {
			e.requeueLocal(l)
		}
	}
}

func (ev CapacityChanged) apply(e *Engine) {
	e.capacity++
	if len(ev.Flavors) == 0 {
		for _, f := range e.flavors {
			e.requeueForNodes(f)
		}
	}
	for _, name := range ev.Flavors {
		e.requeueForNodes(e.flavors[e.flavor(name)])
	}
}
