package admission

import (
	"slices"
	"strings"
	"time"

	"github.com/elastic-ai/elastic/internal/admission/index"
	"github.com/elastic-ai/elastic/internal/admission/quota"
	"github.com/elastic-ai/elastic/internal/admission/usage"
)

// Options are fixed for the life of an Engine. The zero value is Kueue's default behaviour.
type Options struct {
	// Policy is how trees share what can be borrowed unless their root cohort says otherwise; default PolicyFIFO.
	Policy CapacityPolicy
	// FairStrategies are tried in order; empty means both of Kueue's.
	FairStrategies []FairStrategy
	// RequeueByCreation leaves a workload's place in its queue as it is after a PodsReady timeout; otherwise
	// its eviction time counts.
	RequeueByCreation bool
	// IgnoreUndeclared lets requests pass for resources that a queue does not list.
	IgnoreUndeclared bool
	// BlockUntilReady admits nobody while the pods of an admitted workload are not ready
	// (Workload.PodsReady), and so one workload at a time.
	BlockUntilReady bool
	// EvictOnly admits and preempts nobody: another scheduler does. Workloads that may not go on are still evicted.
	EvictOnly bool
	// PreemptionDelay is how long a workload waits before it preempts others: quota that comes free by
	// itself in that time costs nobody's work. Workloads that have only just started are safe as long (their
	// minimum runtime). 0 preempts at once.
	PreemptionDelay time.Duration
	// PreemptionCooldown is how long a workload that another queue preempted preempts nobody in other queues beyond its
	// own queue's nominal quota. 0: not at all.
	PreemptionCooldown time.Duration
	// NoRings preempts nobody who could come straight back, and lets no shares change places: Kueue's rules allow
	// workloads that preempt each other for ever.
	NoRings bool
	// AwaitSharedVictims lets a workload preempt nobody while others are being evicted that it could have preempted, too:
	// Kueue's way unless RecomputeAssignmentUponPreemptionTargetsOverlap is on.
	AwaitSharedVictims bool
	// NewerBy is by how much newer than a workload another one of its priority must be to be preempted for its age.
	NewerBy time.Duration
	// Placer answers whether pods fit on real nodes; nil decides on quota alone.
	Placer Placer
	// UsageHalfLife, UsageSampling and UsageWeights rule admission fair sharing. A half-life of 0
	// forgets at once; UsageSampling sets how much of a request counts at the moment of admission.
	UsageHalfLife time.Duration
	UsageSampling time.Duration
	UsageWeights  map[string]float64
	// Service says what counts as service where a queue orders by it; a workload that asks for none of it counts as one card.
	Service []CardsPerUnit
	// SayBypassed tells a workload that comes after equal ones that do not fit only that it is not evaluated, as Kueue does
	// where statuses are explicit.
	SayBypassed bool
	// Format prints an amount in messages; nil prints as Kubernetes would.
	Format func(resource string, amount int64) string

	onPhase  func(from, to phase) // tests hold changes of phase against transitions
	unpruned bool                 // tests hold searches for victims against those that leave nobody out beforehand
}

// FairStrategy is a rule for preemption under fair sharing.
type FairStrategy uint8

// Kueue's strategies.
const (
	LessThanOrEqualToFinalShare FairStrategy = iota
	LessThanInitialShare
)

// Engine decides which workloads may run. It is not safe for concurrent use.
//
// What is computed from state notes the counters it depends on, and is void once they differ:
//
//	counter                counts                            makes void
//	decision               decisions                         marks, queueingHint, preemptible, nominalNeeds: time has passed
//	demandChanges          classes that came or went         queueingHint
//	nodeChanges            decisions, lasting changes of     placements that were tried, and refusals, immovable, vainSearches
//	                       what is on nodes
//	flavorChanges          flavors that were described anew  requests for nodes
//	phaseChanges           workloads that went to another    vainSearches, played, nominalNeeds
//	                       phase
//	tree.version           changes of usage, reservations    entries of the round, queueingHint, a search for backfill,
//	                                                         vainSearches, played, nominalNeeds
//	tree.usageChanges      changes of usage                  nominations, refusals of volatile classes
//	tree.improvements      changes that may help a class     refusals
//	queue.reservedChanges  changes of queue.quotaReserved    preemptible
type Engine struct {
	opts   Options
	timing Timing    // of queues that have none of their own
	at     time.Time // of the decision under way

	resources     []string
	byName        []int32 // resources in order of their names
	resourceIndex map[string]int32
	frs           []quota.FlavorResource
	frIndex       map[quota.FlavorResource]int32
	usageRules    usage.Rules

	flavors     []*flavor
	flavorIndex map[string]int32
	priced      int // flavors with a price
	cohorts     map[string]*treeNode
	cohortSpecs map[string]Cohort
	queues      map[string]*queue
	locals      map[Key]*localQueue
	namespaces  map[string]map[string]string
	workloads   map[Key]*workload
	shapes      map[string]*requestShape
	shapesIdle  int // of these, no class has

	trees     []*tree
	relink    bool          // cohorts or queues changed: link the trees before going on
	work      []*tree       // trees in which something may be decided
	unsorted  bool          // work grew
	again     []*tree       // with nominations or reservations that the next decision may improve
	retryNext []*equivClass // refused for what holds in this decision only
	review    []*workload
	timers    index.Heap[timer]
	// rankTimers are of workloads whose level changes with time.
	rankTimers index.Heap[rankTimer]
	byUsage    []*queue  // whose order follows usage
	sampled    []*queue  // whose LocalQueues' usage is noted
	notesAt    time.Time // when usage is noted next; zero: to be seen
	unready    int       // admitted workloads whose pods are awaited under BlockUntilReady

	budgets     map[string]*budget
	budgeted    budgeted
	budgetFreed bool // some of a budget may have come free since those refused for one were looked at

	advance        []*advance      // advance reservations, by when they begin
	advanceNodes   []*advance      // those of nodes, by when they end
	liftedNodes    []*advance      // of these, the nodes are not reserved in the what-if under way
	advanceFor     []beneficiaries // of them, each once
	advanceChanged bool            // since those refused for one were looked at

	apart []*equivClass // refused for a budget or an advance reservation

	extras            int // extras of elastic jobs that have quota
	evicting          map[*workload]struct{}
	nodesAside        []*workload // of those that move, who have nodes set aside
	nodesReleased     bool        // less is set aside since others were looked at
	immovable         immovable
	vain              vainSearches
	played            played
	preemptors        map[*workload]struct{} // those with victims that have quota
	unresolvedVictims []*workload            // victims whose preemptor is known by UID only
	toNominate        []*workload            // workloads that may have to be nominated

	tx            quota.Txn // tentative changes of usage and nodes; empty between evaluations
	shares        quota.Shares
	scratch       scratch
	plan          Plan
	decision      uint64
	treesMade     uint64
	demandChanges uint64
	nodeChanges   uint64
	flavorChanges uint64
	phaseChanges  uint64
	searches      uint64 // numbers searches for victims under fair sharing
	searchSteps   uint64 // counts those searches and the victims of all
	volatiles     int    // classes listed in queue.volatile
	evals         int64  // workloads evaluated, for tests of how little work is done
	revokes       int64  // admissions revoked in the decision that made them
}

// workload is a Workload with where it stands.
type workload struct {
	spec     Workload
	phase    phase
	in       marks
	local    *localQueue
	localPos int
	queue    *queue
	order    int64     // its age, for the queue's order
	rank     int64     // its priority and level, for the queue's order
	rankFrom time.Time // when its level changes; zero: never
	timer    time.Time
	reviewed bool // listed in Engine.review

	// Pending.
	class       *equivClass
	pos         int    // in class.members
	heldBackWhy string // message of why it is held back
	countedIn   *queue // held back, and counted in queue.heldBack
	reported    Reason // what it was told last in this decision
	published   Reason // what the last plan that said something told it

	// Nominated.
	nominatedUsage   []quota.Amount // counted in the future
	nomination       *assignment
	awaitsNomination bool        // listed in Engine.toNominate or tree.toNominate
	victims          []*workload // being evicted for it
	victimsGone      int         // how many were, and are pending again

	// With quota reserved.
	usage       []quota.Amount
	reservedAt  int64
	savedAt     int64 // what it did since would be lost: its last checkpoint, or reservedAt
	safe        bool  // Workload.NeverPreempt, as its place among victims has it
	assumed     bool  // admitted by us, not yet confirmed
	podsAwaited bool  // counted in Engine.unready

	// Evicted.
	preemptor    *workload // for whom
	preemptorUID string    // whose UID was looked for
	victimGone   bool      // it gave its quota back
	countedAgain bool      // evicting, and counted in the future while nominations are rebuilt
	moving       bool      // Workload.Moving, or we have it moved: its quota stays counted in the future
	nodesAside   bool      // nodes are set aside for its return
}

type localQueue struct {
	spec    LocalQueue
	exists  bool
	queue   *queue
	members []*workload
	usage   usage.History
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
		timing:        o.Timing(),
		resourceIndex: map[string]int32{},
		frIndex:       map[quota.FlavorResource]int32{},
		flavorIndex:   map[string]int32{},
		cohorts:       map[string]*treeNode{},
		cohortSpecs:   map[string]Cohort{},
		queues:        map[string]*queue{},
		locals:        map[Key]*localQueue{},
		namespaces:    map[string]map[string]string{},
		workloads:     map[Key]*workload{},
		shapes:        map[string]*requestShape{},
		evicting:      map[*workload]struct{}{},
		preemptors:    map[*workload]struct{}{},
	}
	e.tx.Nodes = o.Placer
	e.usageRules = usage.Rules{HalfLife: o.UsageHalfLife, Sampling: o.UsageSampling}
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
		e.usageRules.Scale = append(e.usageRules.Scale, usageScale(name))
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
	k := quota.FlavorResource{Flavor: e.flavor(flavor), Resource: e.resource(resource)}
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
		q = &queue{name: name, classes: map[string]*equivClass{}, reservedChanges: 1, newerBy: int64(e.opts.NewerBy)}
		q.at = newTreeNode(name, q)
		q.node, q.at.tree = q.at.Node, e.newTree(q.at)
		q.tree = q.at.tree
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
