package main

import (
	"context"
	"fmt"
	_ "unsafe" // for go:linkname

	"github.com/go-logr/logr"
	kueuev1 "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	qcache "sigs.k8s.io/kueue/pkg/cache/queue"
	schdcache "sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/scheduler"
	preemptexpectations "sigs.k8s.io/kueue/pkg/scheduler/preemption/expectations"
	"sigs.k8s.io/kueue/pkg/util/routine"
	"sigs.k8s.io/kueue/pkg/util/wait"
	"sigs.k8s.io/kueue/pkg/workload"
	"sigs.k8s.io/kueue/pkg/workload/evict"
)

// One cycle at a time, its admission writes apart, and how many workloads it still
// has to look at: Kueue keeps these to itself.

//go:linkname scheduleOnce sigs.k8s.io/kueue/pkg/scheduler.(*Scheduler).schedule
func scheduleOnce(s *scheduler.Scheduler, ctx context.Context) wait.SpeedSignal

//go:linkname setAdmissionRoutineWrapper sigs.k8s.io/kueue/pkg/scheduler.(*Scheduler).setAdmissionRoutineWrapper
func setAdmissionRoutineWrapper(s *scheduler.Scheduler, w routine.Wrapper)

//go:linkname clusterQueue sigs.k8s.io/kueue/pkg/cache/queue.(*Manager).getClusterQueue
func clusterQueue(m *qcache.Manager, name kueuev1.ClusterQueueReference) *qcache.ClusterQueue

// requeuePeriod is how long Kueue gathers reasons to look at inadmissible
// workloads again before it does.
const requeuePeriod millis = 1000

// kueue is Kueue's scheduler with its cache and queues, fed as its workload controller feeds them.
type kueue struct {
	w         *work
	ctx       context.Context
	log       logr.Logger
	clock     *virtualClock
	api       *apiServer
	cache     *schdcache.Cache
	queues    *qcache.Manager
	requeuer  interface{ ProcessRequeues(context.Context) int }
	scheduler *scheduler.Scheduler

	keys    []workload.Reference
	lines   []*qcache.ClusterQueue
	objects []*kueuev1.ClusterQueue
	requeue millis // when inadmissible workloads are looked at again; 0: not asked for
	active  int    // active workloads before the last cycle
	idle    bool   // the last cycle changed nothing
	writes  writes
	plan    decision

	harness         cost // taken by the harness inside the side's calls
	admissionWrites cost // taken by the background writes of admissions
}

// writes holds back what Kueue's scheduler sends to the API server in the
// background, so that its cost can be told apart.
type writes []func()

func (w *writes) Run(f func()) { *w = append(*w, f) }

func newKueue(w *work) (*kueue, error) {
	k := &kueue{w: w, ctx: logr.NewContext(context.Background(), logr.Discard()), log: logr.Discard(), clock: &virtualClock{now: epoch}}
	k.api = newAPIServer(w)
	expectations := preemptexpectations.New()
	k.cache = schdcache.New(k.api, schdcache.WithFairSharing(w.fair))
	k.queues, k.requeuer = qcache.NewManagerForUnitTestsWithRequeuer(k.api, k.cache,
		qcache.WithClock(k.clock), qcache.WithPreemptionExpectations(expectations))
	options := []scheduler.Option{scheduler.WithClock(nil, k.clock), scheduler.WithPreemptionExpectations(expectations)}
	if w.fair {
		options = append(options, scheduler.WithFairSharing(bothStrategies))
	}
	k.scheduler = scheduler.New(k.queues, k.cache, k.api, noEvents{}, options...)
	setAdmissionRoutineWrapper(k.scheduler, &k.writes)

	k.cache.AddOrUpdateResourceFlavor(k.log, kueueFlavor())
	for _, c := range w.cohorts {
		object := kueueCohort(c)
		if err := k.cache.AddOrUpdateCohort(object); err != nil {
			return nil, err
		}
		k.queues.AddOrUpdateCohort(k.ctx, object)
	}
	for _, q := range w.queues {
		if err := k.addQueue(q); err != nil {
			return nil, err
		}
	}
	k.requeuer.ProcessRequeues(k.ctx)
	for i := range w.jobs {
		k.keys = append(k.keys, workload.Key(k.api.workloads[i]))
	}
	return k, nil
}

func (k *kueue) addQueue(q queue) error {
	object, local := kueueQueue(q), kueueLocalQueue(q)
	if err := k.cache.AddClusterQueue(k.ctx, object); err != nil {
		return err
	}
	if err := k.queues.AddClusterQueue(k.ctx, object); err != nil {
		return err
	}
	if err := k.cache.AddLocalQueue(local); err != nil {
		return err
	}
	if err := k.queues.AddLocalQueue(k.ctx, local); err != nil {
		return err
	}
	if !k.cache.ClusterQueueActive(kueuev1.ClusterQueueReference(q.name)) {
		return fmt.Errorf("kueue: queue %s is not active", q.name)
	}
	k.objects = append(k.objects, object)
	k.lines = append(k.lines, clusterQueue(k.queues, kueuev1.ClusterQueueReference(q.name)))
	return nil
}

// apart runs f and adds what it takes to an account of its own.
func apart(account *cost, f func()) {
	before := spent()
	f()
	*account = account.plus(spent().minus(before))
}

func (k *kueue) must(err error) {
	if err != nil {
		panic(fmt.Errorf("kueue: %w", err))
	}
}

func (k *kueue) arrive(job int32, _ millis) {
	k.idle = false
	k.must(k.queues.AddOrUpdateWorkload(k.log, k.api.workloads[job]))
}

func (k *kueue) finish(job int32, now millis) {
	key := k.keys[job]
	k.queues.DeleteWorkload(k.log, key)
	k.queues.QueueAssociatedInadmissibleWorkloadsAfter(k.ctx, key, func() {
		k.must(k.cache.DeleteWorkload(k.log, key))
	})
	k.freed(now)
}

func (k *kueue) release(job int32, now millis) {
	var object *kueuev1.Workload
	apart(&k.harness, func() {
		object = k.api.workloads[job].DeepCopy()
		workload.UnsetQuotaReservationWithCondition(object, "Pending", "Evicted", now.time())
		k.api.workloads[job] = object
	})
	key := k.keys[job]
	k.queues.QueueAssociatedInadmissibleWorkloadsAfter(k.ctx, key, func() {
		k.must(k.cache.DeleteWorkload(k.log, key))
		k.must(k.queues.AddOrUpdateWorkloadWithoutLock(k.log, object))
	})
	k.freed(now)
}

func (k *kueue) freed(now millis) {
	k.idle = false
	if k.requeue == 0 {
		k.requeue = now + requeuePeriod
	}
}

func (k *kueue) wakeAt() millis { return k.requeue }

// decide is one cycle. Cycles follow each other until no workload is active, or
// one of them changes nothing: workloads that wait for a preemption stay at the head.
func (k *kueue) decide(now millis) (decision, bool) {
	k.clock.now = now.time()
	k.plan.admit, k.plan.evict = k.plan.admit[:0], k.plan.evict[:0]
	if k.requeue > 0 && now >= k.requeue {
		k.requeue = 0
		k.idle = false
		k.requeuer.ProcessRequeues(k.ctx)
	}
	active := 0
	apart(&k.harness, func() { active = k.countActive() })
	if active == 0 || k.idle && active >= k.active {
		return k.plan, false
	}
	k.active = active
	scheduleOnce(k.scheduler, k.ctx)
	apart(&k.admissionWrites, func() {
		for _, write := range k.writes {
			write()
		}
	})
	k.writes = k.writes[:0]
	k.observe()
	k.idle = len(k.plan.admit)+len(k.plan.evict) == 0
	return k.plan, true
}

func (k *kueue) countActive() (active int) {
	for _, line := range k.lines {
		n, _ := line.Pending()
		active += n
	}
	return active
}

// observe hands what was written back to Kueue, as its workload controller does
// on the update event.
func (k *kueue) observe() {
	for _, job := range k.api.written {
		object := k.api.workloads[job]
		switch {
		case !workload.HasQuotaReservation(object):
			k.must(k.queues.AddOrUpdateWorkload(k.log, object))
		case evict.IsEvicted(object):
			k.cache.AddOrUpdateWorkload(k.log, object)
			k.plan.evict = append(k.plan.evict, job)
		default:
			k.queues.DeleteWorkload(k.log, k.keys[job])
			k.cache.AddOrUpdateWorkload(k.log, object)
			k.plan.admit = append(k.plan.admit, job)
		}
	}
	k.api.written = k.api.written[:0]
}

func (k *kueue) empty() error {
	for i, q := range k.w.queues {
		active, inadmissible := k.lines[i].Pending()
		usage, err := k.cache.Usage(k.objects[i])
		if err != nil {
			return err
		}
		if active+inadmissible+usage.ReservingWorkloads != 0 || !usage.ReservedResources[0].Resources[0].Total.IsZero() {
			return fmt.Errorf("%s: kueue: queue %s is not empty at the end: %d active, %d inadmissible, %+v", k.w.name, q.name, active, inadmissible, usage)
		}
	}
	return nil
}
