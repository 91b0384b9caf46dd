package queue

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/features"
	"github.com/elastic-ai/elastic/internal/inbox"
	"github.com/elastic-ai/elastic/internal/queue/dependencies"
	"github.com/elastic-ai/elastic/internal/queue/devices"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/metrics"
	"github.com/elastic-ai/elastic/internal/queue/placer"
	"github.com/elastic-ai/elastic/internal/queue/status"
	"github.com/elastic-ai/elastic/internal/queue/workload"
	"github.com/elastic-ai/elastic/internal/queue/writes"
)

// Shell feeds the admission engine and carries out its plans. It runs on the leader only; make it
// with New and hand it to a manager.
type Shell struct {
	client         client.Client
	cache          cache.Cache
	options        Options
	engine         *admission.Engine
	inbox          *inbox.Box[message]
	objects        *engineview.Objects
	statuses       *status.Publisher
	pendingReasons *pendingReasons
	events         writes.Budget // for events about what the status says as well
	finalizers     *inUseFinalizers
	now            func() time.Time
	retried        time.Time // when an attempt in vain was counted last
	gates          struct{ partial, reclaim, topology, preferences, boost, gated, rejectDevices, replaceNodes, failFast, skipReassignment, concurrent, orchestrated, elasticTopology bool }

	timers timers
	// leading says that the loop runs and answers questions.
	leading atomic.Bool

	workloadWrites  *pool[workloadWrite]
	statusWrites    *pool[client.Object]
	finalizerWrites *pool[client.Object]
	deviceSearches  *pool[*devices.Search]
	variantWrites   *pool[*kueue.Workload]
	pacing          pacing

	workloads    map[admission.Key]*tracked
	replacements map[admission.Key]admission.Key          // the workload slice that replaces another, by the one it replaces
	families     map[admission.Key]map[admission.Key]bool // the workloads that say they are variants, by parent
	creating     map[admission.Key]bool                   // variants that are being created
	gpuClaims    *gpuClaims
	podResources *workload.PodResources
	podsChanged  []func(*kueue.Workload) bool // which workloads LimitRanges and RuntimeClasses concern that changed
	// stepsDue are the workloads whose lifecycle is looked at when all messages are handled;
	// allStepsDue adds those that depend on the state of their queues.
	stepsDue    []*tracked
	allStepsDue bool
	// explainDue are pending workloads whose status lacks their checks, or that they are not admitted.
	explainDue []*tracked
	// unplaced are workloads with quota whose placement on nodes is not known yet.
	unplaced []*tracked
	// secondPass are workloads whose checks are ready and whose nodes have no capacity yet.
	secondPass map[admission.Key]secondPass
	// nodesToCheck are workloads that may have lost a node.
	nodesToCheck map[admission.Key]*nodeCheck
	// impliedTopologies are those of the ClusterQueues that have flavors with a topology.
	impliedTopologies map[string]engineview.ImpliedTopology
	flavorsChanged    bool
	familiesChanged   bool
	policies          policies
	budgets           budgets
	reservations      reservations
	runTimes          engineview.RunTimes
	dependencies      dependencies.Index
	waitersDue        []admission.Key // workloads for which something changed that they wait for
	// aside are workloads that a defect concerns.
	aside map[admission.Key]aside
	// turnBegan is when the turn under way began, in nanoseconds; 0: none is.
	turnBegan atomic.Int64
	faults    func(stage string, key admission.Key) // tests panic here
}

// Options of New.
type Options struct {
	Engine admission.Options
	// Transformations say what pods' requests count as; nil: as they are.
	Transformations *workload.ResourceTransformations
	// Devices counts ResourceClaims; nil: they do not count.
	Devices *devices.Counter
	// Lifecycle has the rules of workloads beside quota.
	Lifecycle workload.Settings
	// Features are Kueue's gates.
	Features features.Set
	// NoDecisions leaves admission and preemption to another scheduler.
	NoDecisions bool
	// Direct reads from the API server itself, not from a cache.
	Direct client.Reader
	// Placer knows nodes and cards; nil admits on quota alone.
	Placer *placer.Placer
	// NodeRules say when a node that a topology assignment names is lost.
	NodeRules workload.NodeRules
	Writers   int
	// LeaveOutEvents gives events about what the status says as well a budget; without it, each is recorded.
	LeaveOutEvents bool
	// KeepSlices has a workload that another one replaces count until that one is admitted; without it, until it has quota.
	KeepSlices bool
	Recorder   events.EventRecorder
	Metrics    *metrics.Metrics // nil: not registered
	Log        logr.Logger
}

func (o Options) engine() admission.Options {
	engine := o.Engine
	engine.EvictOnly = o.NoDecisions
	if o.Devices.HasSources() {
		engine.Format = func(name string, amount int64) string {
			q := o.quantity(corev1.ResourceName(name), amount)
			return q.String()
		}
	}
	if o.Placer != nil {
		engine.Placer = o.Placer
	}
	return engine
}

// New makes a Shell that reads from the cache and writes through the client.
func New(c client.Client, reader cache.Cache, options Options) *Shell {
	s := &Shell{
		client: c, cache: reader, options: options, now: time.Now,
		engine:          admission.New(options.engine()),
		inbox:           inbox.New(about),
		objects:         engineview.NewObjects(),
		pendingReasons:  newPendingReasons(),
		events:          writes.EventBudget(),
		workloadWrites:  newPool[workloadWrite](),
		statusWrites:    newPool[client.Object](),
		finalizerWrites: newPool[client.Object](),
		deviceSearches:  newPool[*devices.Search](),
		variantWrites:   newPool[*kueue.Workload](),
		workloads:       map[admission.Key]*tracked{},
		replacements:    map[admission.Key]admission.Key{},
		families:        map[admission.Key]map[admission.Key]bool{},
		creating:        map[admission.Key]bool{},
		gpuClaims:       newGPUClaims(),
		podResources:    workload.NewPodResources(),
		secondPass:      map[admission.Key]secondPass{},
		nodesToCheck:    map[admission.Key]*nodeCheck{},
		aside:           map[admission.Key]aside{},
		pacing:          pacing{writers: options.Writers},
	}
	if s.options.Metrics == nil {
		s.options.Metrics = metrics.New(prometheus.NewRegistry(), metrics.Options{})
	}
	s.options.Metrics.CollectFrom(s)
	s.objects.Timing = options.Engine.Timing()
	if options.Devices != nil {
		options.Devices.SearchInBackground(s.searchInBackground)
	}
	s.statuses = status.New(s.objects, s.statusWrites.submit, s.options.quantity, options.Engine,
		options.Features.Enabled(features.ReclaimablePods))
	s.finalizers = newInUseFinalizers(s.inUse, s.finalizerWrites.submit)
	s.gates.partial = options.Features.Enabled(features.PartialAdmission)
	s.gates.reclaim = options.Features.Enabled(features.ReclaimablePods)
	s.gates.topology = options.Features.Enabled(features.TopologyAwareScheduling)
	s.gates.preferences = options.Features.Enabled(features.TASPreferredAffinity)
	s.gates.boost = options.Features.Enabled(features.PriorityBoost)
	s.gates.gated = options.Features.Enabled(features.AdmissionGatedBy)
	s.gates.replaceNodes = options.Placer != nil && !options.NoDecisions && options.Features.Enabled(features.TASFailedNodeReplacement)
	s.gates.failFast = options.Features.Enabled(features.TASFailedNodeReplacementFailFast)
	s.gates.skipReassignment = options.Features.Enabled(features.SkipReassignment)
	s.gates.concurrent = options.Features.Enabled(features.ConcurrentAdmission)
	s.gates.orchestrated = options.Features.Enabled(features.MultiKueueOrchestratedPreemption)
	s.gates.elasticTopology = options.Features.Enabled(features.ElasticJobsWithTAS)
	s.gates.rejectDevices = options.Features.Enabled(features.RejectDeviceClaims)
	return s
}

// NeedLeaderElection is true: only the leader decides.
func (s *Shell) NeedLeaderElection() bool { return true }

// Start runs until ctx ends.
func (s *Shell) Start(ctx context.Context) error {
	kinds, err := s.kinds()
	if err != nil {
		return err
	}
	complete, err := s.inbox.Watch(ctx, s.cache, changed, kinds...)
	if err != nil {
		return err
	}
	if !complete || !s.catchUp(ctx) {
		return nil // stopped before all was known
	}
	s.work(ctx)
	return nil
}

// work runs the loop and its writers until ctx ends.
func (s *Shell) work(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	var writing sync.WaitGroup
	defer writing.Wait()
	defer stop() // also when the loop panics: a process that decides nothing must not live on as the leader
	writing.Go(func() { s.workloadWrites.run(ctx, s.options.Writers, s.writeWorkload) })
	writing.Go(func() { s.statusWrites.run(ctx, max(1, s.options.Writers/4), s.writeStatus) })
	writing.Go(func() { s.finalizerWrites.run(ctx, 1, s.writeFinalizer) })
	writing.Go(func() { s.deviceSearches.run(ctx, 1, s.search) })
	writing.Go(func() { s.variantWrites.run(ctx, max(1, s.options.Writers/4), s.createVariant) })
	s.leading.Store(true)
	defer s.leading.Store(false)
	s.loop(ctx)
}

// inUse says that the object is needed: a ClusterQueue by workloads with quota, everything else by
// queues.
func (s *Shell) inUse(obj client.Object) bool {
	if cq, ok := obj.(*kueue.ClusterQueue); ok {
		status, exists := s.engine.Status(cq.Name)
		return exists && status.Reserving > 0
	}
	return s.objects.IsReferenced(obj)
}

func (s *Shell) loop(ctx context.Context) {
	var next time.Time
	for {
		messages, err := s.inbox.Take(ctx, next)
		if err != nil {
			return
		}
		s.turnBegan.Store(s.now().UnixNano())
		next = s.turn(messages)
		s.turnBegan.Store(0)
	}
}

// turn handles messages, decides, and hands over what is to be written. It returns when to take the
// next turn although no message comes; zero: never.
func (s *Shell) turn(messages []message) time.Time {
	s.options.Devices.RefillBudget(s.now())
	for _, m := range messages {
		s.handleSafely(m)
	}
	s.recountPods()
	s.recountDevices()
	s.updateFamilies()
	s.updateImpliedTopologies()
	s.applyPolicies()
	s.updateWaiters()
	s.restorePlacements()
	nodesAt := s.replaceNodes()
	s.fireTimers()
	s.takeSteps()
	now := s.now()
	budgetsAt := s.updateBudgets(now)
	reservationsAt := s.updateReservations(now)
	overdueAt := s.endOverdue(now)
	plan := s.plan(now)
	for _, b := range s.writeBudgets() {
		b.Advance(now, s.pacing.underWay)
		b.Decided(len(plan.Evict)+len(plan.Admit), s.pacing.underWay, now)
	}
	s.carryOut(plan)
	s.finalizers.sync()
	if s.pacing.retry() {
		plan.NextAt = inbox.Earlier(plan.NextAt, now.Add(status.RetryInterval))
	}
	reasonsAt := s.writePendingReasons()
	s.explainPending()
	return earliest(plan.NextAt, overdueAt, s.timers.next(), reasonsAt, nodesAt, budgetsAt, reservationsAt, s.publishPolicies(now), s.statuses.Publish(s.engine, now))
}

// earliest of times that are not zero.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		first = inbox.Earlier(first, t)
	}
	return first
}

// longestTurn is more than any turn takes that comes to an end.
const longestTurn = 2 * time.Minute

// Healthy fails when the loop has been busy with one turn for too long: nothing is decided then, and
// only a restart helps.
func (s *Shell) Healthy(*http.Request) error {
	began := s.turnBegan.Load()
	if began == 0 {
		return nil
	}
	if took := s.now().Sub(time.Unix(0, began)); took > longestTurn {
		return fmt.Errorf("the queue's loop has been busy with one turn for %s", took.Round(time.Second))
	}
	return nil
}

// plan asks the engine for a decision, unless there is enough to write already.
func (s *Shell) plan(now time.Time) admission.Plan {
	if s.pacing.full() {
		return admission.Plan{}
	}
	start := time.Now()
	plan := s.engine.Decide(now)
	took := time.Since(start)
	s.reportPanics(plan.Panics)
	s.pacing.dropped = false
	plan.Admit = s.limitAdmits(s.oneOfEachFamily(plan.Admit))
	s.observeDecision(plan, took)
	return plan
}

func (s *Shell) writeBudgets() []*writes.Budget {
	return []*writes.Budget{&s.pendingReasons.budget, s.statuses.Budget(), &s.events}
}

// retryPeriod is how long Kueue gathers changes before it tries workloads again that did not fit.
const retryPeriod = time.Second

// observeDecision updates the metrics of a decision. One that had nothing to decide is no attempt. Workloads that did not fit
// are tried again at once, and that counts as often as in Kueue.
func (s *Shell) observeDecision(plan admission.Plan, took time.Duration) {
	m := s.options.Metrics
	m.Observe("elastic_decision_duration_seconds", took.Seconds())
	result := "inadmissible"
	for item, n := range map[string]int{"admit": len(plan.Admit), "evict": len(plan.Evict), "wait": len(plan.Pending)} {
		if n > 0 {
			m.Observe("elastic_plan_size", float64(n), item)
		}
	}
	switch {
	case len(plan.Admit) > 0:
		result = "success"
	case len(plan.Evict) > 0 || slices.ContainsFunc(plan.Pending, func(p admission.Pending) bool { return !p.Again }):
	case plan.Evaluated == 0 || s.now().Sub(s.retried) < retryPeriod:
		return
	default:
		s.retried = s.now()
	}
	m.Inc("kueue_admission_attempts_total", result)
	m.Observe("kueue_admission_attempt_duration_seconds", took.Seconds(), result)
}

// outcome of a write, as a metric's label.
func outcome(err error) string {
	switch {
	case err == nil:
		return "done"
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return "outdated"
	}
	return "failed"
}
