package queue

import (
	"context"
	"strconv"
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

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/features"
	"github.com/elastic-ai/elastic/internal/inbox"
	"github.com/elastic-ai/elastic/internal/queue/devices"
	"github.com/elastic-ai/elastic/internal/queue/placer"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Shell feeds the admission engine and carries its plans out. It runs on the
// leader only; make it with New and hand it to a manager.
type Shell struct {
	client   client.Client
	cache    cache.Cache
	options  Options
	engine   *admission.Engine
	inbox    *inbox.Box[message]
	statuses *statuses
	reasons  *reasons
	events   budget // of what the status says as well
	keeper   *keeper
	now      func() time.Time
	gates    struct{ partial, reclaim, topology, boost, gated, rejectDevices, replace, failFast, keepPods bool }

	alarms alarms
	// leading: the loop runs, and can be asked.
	leading atomic.Bool

	workloadWrites *pool[workloadWrite]
	statusWrites   *pool[client.Object]
	keepWrites     *pool[client.Object]
	deviceSearches *pool[*devices.Search]
	pace           pace

	workloads  map[admission.Key]*tracked
	successors map[admission.Key]admission.Key // the workload that is to take another's place
	claims     *claims
	// looked are those to look at when all that is known is taken in; lookAll adds
	// those whom the state of their queues concerns.
	looked  []*tracked
	lookAll bool
	// unplaced are holders whose room on nodes is not known yet.
	unplaced []*tracked
	late     map[admission.Key]late
	// shaken are workloads that may have lost a node.
	shaken map[admission.Key]bool
	// flat is what is known of queues that have flavors with topologies.
	flat           map[string]flat
	flavorsChanged bool
}

// tracked is a workload as the loop knows it.
type tracked struct {
	object *kueue.Workload // the newest seen
	booked *kueue.Workload // as the ledger has it
	// writing is the change being written; next is one decided meanwhile.
	writing, next *change
	// outdated: the last write met a newer object than ours, which the informer
	// has yet to deliver.
	outdated bool
	// stale: something it uses has changed since the engine was told of it.
	stale    bool
	failures int
	looked   bool
	flat     flat // what its queue meant for it when it was told of
}

// change is a decision about one workload on its way into its status.
type change struct {
	// apply changes the status and reports whether there is anything to write;
	// nil where write does something else.
	apply func(wl *kueue.Workload, now time.Time) bool
	// write brings it to the API server; nil applies the status.
	write writeFunc
	// done tells the world once that has happened; nil tells nobody.
	done func(wl *kueue.Workload)
	// parks: it only says why the workload waits, which the engine knows.
	parks bool
	// decided: the engine assumes it done.
	decided bool
	// ends: after it there is nothing to do but wait until the workload is gone.
	ends bool
}

// Options of New.
type Options struct {
	Engine admission.Options
	// Counting is what pods' requests count as; nil: as they are.
	Counting *workload.Counting
	// Devices is how ResourceClaims count; nil: they do not.
	Devices *devices.Book
	// Life rules workloads beside quota.
	Life workload.Settings
	// Features are Kueue's gates.
	Features features.Set
	// NoDecisions leaves admission and preemption to another scheduler.
	NoDecisions bool
	// Placer knows nodes and cards; nil admits on quota alone.
	Placer   *placer.Placer
	Writers  int
	Recorder events.EventRecorder
	Metrics  *Metrics // nil: nobody looks
	Log      logr.Logger
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
		engine:         admission.New(options.engine()),
		inbox:          inbox.New(about),
		reasons:        newReasons(),
		events:         eventBudget(),
		workloadWrites: newPool[workloadWrite](),
		statusWrites:   newPool[client.Object](),
		keepWrites:     newPool[client.Object](),
		deviceSearches: newPool[*devices.Search](),
		workloads:      map[admission.Key]*tracked{},
		successors:     map[admission.Key]admission.Key{},
		claims:         newClaims(),
		late:           map[admission.Key]late{},
		shaken:         map[admission.Key]bool{},
		pace:           pace{writers: options.Writers},
	}
	if s.options.Metrics == nil {
		s.options.Metrics = NewMetrics(prometheus.NewRegistry(), MetricsOptions{})
	}
	s.options.Metrics.source = s
	if options.Devices != nil {
		options.Devices.Elsewhere(s.searchLater)
	}
	s.statuses = newStatuses(s.statusWrites.submit, options.Engine)
	s.statuses.quantity = s.options.quantity
	s.keeper = newKeeper(s.inUse, s.keepWrites.submit)
	s.gates.partial = options.Features.Enabled(features.PartialAdmission)
	s.gates.reclaim = options.Features.Enabled(features.ReclaimablePods)
	s.gates.topology = options.Features.Enabled(features.TopologyAwareScheduling)
	s.gates.boost = options.Features.Enabled(features.PriorityBoost)
	s.gates.gated = options.Features.Enabled(features.AdmissionGatedBy)
	s.gates.replace = options.Placer != nil && !options.NoDecisions && options.Features.Enabled(features.TASFailedNodeReplacement)
	s.gates.failFast = options.Features.Enabled(features.TASFailedNodeReplacementFailFast)
	s.gates.keepPods = options.Features.Enabled(features.SkipReassignment)
	s.gates.rejectDevices = options.Features.Enabled(features.RejectDeviceClaims)
	return s
}

// NeedLeaderElection keeps followers from deciding.
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
	if !complete {
		return nil // told to stop before the first look at the world was complete
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() { s.workloadWrites.run(ctx, s.options.Writers, s.writeWorkload) })
	writing.Go(func() { s.statusWrites.run(ctx, max(1, s.options.Writers/4), s.writeStatus) })
	writing.Go(func() { s.keepWrites.run(ctx, 1, s.writeFinalizer) })
	writing.Go(func() { s.deviceSearches.run(ctx, 1, s.search) })
	s.leading.Store(true)
	defer s.leading.Store(false)
	s.loop(ctx)
	return nil
}

// inUse says somebody needs the object: workloads a queue, queues the rest.
func (s *Shell) inUse(obj client.Object) bool {
	if cq, ok := obj.(*kueue.ClusterQueue); ok {
		status, exists := s.engine.Status(cq.Name)
		return exists && status.Reserving > 0
	}
	return s.statuses.uses(obj)
}

func (s *Shell) loop(ctx context.Context) {
	var next time.Time
	for {
		messages, err := s.inbox.Take(ctx, next)
		if err != nil {
			return
		}
		next = s.turn(messages)
	}
}

// turn takes in what came, decides, and hands over what is to be written. It
// returns when to take the next turn although nothing comes; zero: never.
func (s *Shell) turn(messages []message) time.Time {
	s.options.Devices.Renew(s.now())
	for _, m := range messages {
		s.handle(m)
	}
	s.recount()
	s.noteTopologies()
	s.restoreRooms()
	s.replaceNodes()
	s.ring()
	s.liveAll()
	now := s.now()
	plan := s.plan(now)
	for _, b := range s.budgets() {
		b.pass(now, s.pace.underWay)
		b.decided(len(plan.Evict)+len(plan.Admit), s.pace.underWay, now)
	}
	s.carryOut(plan)
	s.keeper.settle()
	if s.pace.again() {
		plan.NextAt = earlier(plan.NextAt, now.Add(lookInterval))
	}
	return earlier(earlier(plan.NextAt, s.alarms.next()), earlier(s.tellReasons(), s.statuses.publish(s.engine, now)))
}

// plan asks the engine, unless there is enough to write already.
func (s *Shell) plan(now time.Time) admission.Plan {
	if s.pace.ahead() {
		return admission.Plan{}
	}
	start := time.Now()
	plan := s.engine.Decide(now)
	took := time.Since(start)
	plan.Admit = s.inTurn(plan.Admit)
	s.decided(plan, took)
	return plan
}

func (s *Shell) budgets() []*budget {
	return []*budget{&s.reasons.budget, &s.statuses.budget, &s.events}
}

// decided notes what a decision took and gave. One that had nothing to decide
// is no attempt.
func (s *Shell) decided(plan admission.Plan, took time.Duration) {
	m := s.options.Metrics
	m.note("elastic_decision_duration_seconds", took.Seconds())
	result := "inadmissible"
	for item, n := range map[string]int{"admit": len(plan.Admit), "evict": len(plan.Evict), "wait": len(plan.Pending)} {
		if n > 0 {
			m.note("elastic_plan_size", float64(n), item)
		}
	}
	switch {
	case len(plan.Admit) > 0:
		result = "success"
	case len(plan.Evict)+len(plan.Pending) == 0:
		return
	}
	m.inc("kueue_admission_attempts_total", result)
	m.note("kueue_admission_attempt_duration_seconds", took.Seconds(), result)
}

// outcome of a write, in metrics.
func outcome(err error) string {
	switch {
	case err == nil:
		return "done"
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return "outdated"
	}
	return "failed"
}

// earlier of two times, where zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

func (s *Shell) handle(m message) {
	wl, isWorkload := m.object.(*kueue.Workload)
	switch {
	case m.ask != nil:
		m.ask()
	case m.result != nil:
		s.wrote(m.result)
	case m.status != nil:
		s.statuses.wrote(m.status)
	case m.found != nil:
		s.options.Devices.Found(m.found)
	case isWorkload && m.gone:
		s.lost(wl)
	case isWorkload:
		s.saw(wl)
	case isWorld(m.object):
		s.sawWorld(m.object, m.gone)
	case m.object != nil && devices.Is(m.object):
		s.options.Devices.Saw(m.object, m.gone)
	default:
		s.sawQueue(m.object, m.gone)
	}
}

// sawWorld takes in what the placer is to know: where pods can be.
func (s *Shell) sawWorld(obj client.Object, gone bool) {
	if s.options.Placer.Saw(obj, gone) {
		s.engine.Apply(admission.CapacityChanged{})
		for _, l := range s.late {
			s.look(l.tracked)
		}
	}
}

// sawQueue takes in a queue, or what queues refer to.
func (s *Shell) sawQueue(obj client.Object, gone bool) {
	if claim, ok := obj.(*egpu.ElasticGPUClaim); ok {
		s.sawClaim(claim, gone)
		return
	}
	s.lookAll = s.lookAll || s.statuses.reopens(obj, gone)
	s.flavorsChanged = s.flavorsChanged || gone || s.statuses.respecified(obj)
	s.statuses.saw(obj, gone)
	s.keeper.saw(obj, gone)
	switch o := obj.(type) {
	case *kueue.ClusterQueue:
		if gone {
			s.engine.Apply(admission.QueueGone{Name: o.Name})
			return
		}
		s.tellQueue(o)
	case *kueue.AdmissionCheck, *kueue.Topology:
		if _, topology := obj.(*kueue.Topology); topology && s.options.Placer != nil {
			s.sawWorld(obj, gone)
		}
		s.tellQueues()
	case *kueue.ResourceFlavor:
		s.apply(obj, gone)
		s.tellQueues()
	default:
		s.apply(obj, gone)
	}
}

func (s *Shell) apply(obj client.Object, gone bool) {
	if gone {
		s.engine.Apply(goneEventOf(obj))
	} else {
		s.engine.Apply(s.event(obj))
	}
}

// tellQueues tells the engine of all queues again: some may now be able to
// admit, or no longer. What it knows already costs it nothing.
func (s *Shell) tellQueues() {
	for _, cq := range s.statuses.clusterQueues {
		s.tellQueue(cq)
	}
}

func (s *Shell) tellQueue(cq *kueue.ClusterQueue) {
	queue := queueForEngine(cq)
	reason, _ := s.statuses.inactive(cq)
	queue.DelayedPlacement = s.statuses.nodesLater(cq)
	queue.Inactive = reason != "" && reason != kueue.ClusterQueueActiveReasonStopped
	s.engine.Apply(admission.QueueChanged{Queue: queue})
}

// event is the engine's for an object that is there, as the gates let it be
// seen.
func (s *Shell) event(obj client.Object) admission.Event {
	event := eventOf(obj)
	if flavor, ok := event.(admission.FlavorChanged); ok && !s.gates.topology {
		flavor.Flavor.Topology = ""
		return flavor
	}
	return event
}

// isWorld says the object is the placer's to know: where pods can be, not who
// may run them.
func isWorld(obj client.Object) bool {
	switch obj.(type) {
	case *corev1.Node, *corev1.Pod, *egpu.GPU:
		return true
	}
	return false
}

// lost takes in that a workload was deleted.
func (s *Shell) lost(wl *kueue.Workload) {
	key := workload.KeyOf(wl)
	if t := s.workloads[key]; t != nil {
		s.statuses.ledger.move(t.booked, nil)
		delete(s.workloads, key)
		delete(s.late, key)
		if old := workload.Replaces(wl); s.successors[old] == key {
			delete(s.successors, old)
		}
		s.claims.use(wl, false)
	}
	s.engine.Apply(admission.WorkloadGone{Key: key})
	s.passOn(key)
	for _, claim := range claimKeys(wl) {
		s.tellUsers(claim, key)
	}
}

// saw takes in what an informer says of a workload.
func (s *Shell) saw(wl *kueue.Workload) {
	key := workload.KeyOf(wl)
	t := s.workloads[key]
	if t == nil || t.object.UID != wl.UID {
		if t != nil {
			s.lost(t.object) // deleted and made again while we looked elsewhere
		}
		t = &tracked{object: wl, flat: s.flat[s.queueOf(wl)]}
		s.workloads[key] = t
		if old := workload.Replaces(wl); old.Name != "" {
			s.successors[old] = key
		}
		s.claims.use(wl, true)
		s.book(t)
		s.tellWorkload(wl)
		s.look(t)
		s.settleIn(t, nil)
		return
	}
	if !newer(wl, t.object) {
		return
	}
	before := t.object
	s.update(t, wl)
	if t.writing != nil {
		return // wrote looks at it when the write has ended
	}
	if t.outdated {
		t.outdated = false
		s.engine.Apply(admission.DecisionDropped{Key: key})
	}
	s.tellWorkload(wl)
	s.look(t)
	s.settleIn(t, before)
}

func (s *Shell) update(t *tracked, wl *kueue.Workload) {
	s.happened(t.object, wl)
	if s.gates.gated && workload.IsGated(t.object) && !workload.IsGated(wl) {
		s.tell(wl, corev1.EventTypeNormal, "AdmissionGateCleared", "Admission gate cleared, workload is now admissible")
	}
	t.object = wl
	s.book(t)
}

// wrote takes in how a write ended.
func (s *Shell) wrote(r *writeResult) {
	if r.sent.paced {
		s.pace.underWay--
	}
	key := workload.KeyOf(r.sent.workload)
	t := s.workloads[key]
	if t == nil || t.object.UID != r.sent.workload.UID {
		return // gone meanwhile; the engine has heard
	}
	finished := t.writing
	if r.err != nil && !apierrors.IsConflict(r.err) && !apierrors.IsNotFound(r.err) {
		s.retryLater(t, r)
		return
	}
	t.writing, t.failures = nil, 0
	if r.err != nil {
		t.next = nil // decided on what is no longer true
		if !newer(t.object, r.sent.workload) {
			t.outdated = true
			return
		}
		s.engine.Apply(admission.DecisionDropped{Key: key})
		s.tellWorkload(t.object)
		s.look(t)
		return
	}
	if finished.ends {
		t.outdated = true
		if finished.done != nil {
			finished.done(r.written)
		}
		return
	}
	seen := newer(t.object, r.written)
	if !seen {
		s.update(t, r.written)
	}
	if finished.done != nil {
		finished.done(r.written)
	}
	if !finished.parks || seen || t.stale {
		t.stale = false
		s.tellWorkload(t.object)
	}
	if next := t.next; next != nil {
		t.next = nil
		s.start(t, next)
	}
	s.look(t)
}

// retryLater writes again after a pause that doubles with each failure: the
// API server is in trouble, and deciding anew would not help it.
func (s *Shell) retryLater(t *tracked, r *writeResult) {
	pause := min(100*time.Millisecond<<min(t.failures, 10), 15*time.Second)
	t.failures++
	s.options.Log.Error(r.err, "writing a workload's status failed, trying again", "workload", workload.KeyOf(r.sent.workload).String(), "pause", pause.String())
	again := r.sent
	again.paced = false // while it waits others can be written
	time.AfterFunc(pause, func() { s.workloadWrites.submit(again) })
}

// decide puts a decision of the engine into a workload's status.
func (s *Shell) decide(key admission.Key, uid string, c *change) {
	t := s.workloads[key]
	if t == nil || string(t.object.UID) != uid {
		return // gone meanwhile; the inbox will tell the engine
	}
	c.decided = !c.parks
	if t.writing != nil {
		t.next = c
		return
	}
	s.start(t, c)
}

func (s *Shell) start(t *tracked, c *change) {
	wl := *t.object
	wl.Status = *t.object.Status.DeepCopy()
	// The API keeps whole seconds; what we remember is what it keeps.
	if c.apply != nil && !c.apply(&wl, s.now().Truncate(time.Second)) {
		return
	}
	write := c.write
	if write == nil {
		write = writeWorkload
	}
	t.writing = c
	if c.decided {
		s.pace.underWay++
	}
	s.workloadWrites.submit(workloadWrite{workload: &wl, write: write, paced: c.decided})
}

// newer compares two versions of one object; the API server's resource
// versions are increasing numbers.
func newer(a, b *kueue.Workload) bool {
	x, errX := strconv.ParseUint(a.ResourceVersion, 10, 64)
	y, errY := strconv.ParseUint(b.ResourceVersion, 10, 64)
	if errX != nil || errY != nil {
		return a.ResourceVersion != b.ResourceVersion
	}
	return x > y
}
