package faults

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/features"
	"github.com/elastic-ai/elastic/internal/gpu"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/managed"
	jobreconcile "github.com/elastic-ai/elastic/internal/jobs/reconcile"
	"github.com/elastic-ai/elastic/internal/placement"
	"github.com/elastic-ai/elastic/internal/program"
	"github.com/elastic-ai/elastic/internal/queue"
	"github.com/elastic-ai/elastic/internal/queue/placer"
	"github.com/elastic-ai/elastic/internal/queue/workload"
	"github.com/elastic-ai/elastic/test/faults/memapi"
)

// Roles of processes.
const (
	roleQueue = "queue"
	roleGPU   = "gpu"
)

// process is a program from its start to its end.
type process struct {
	world  *World
	name   string
	role   string
	cache  *memapi.Cache
	ctx    context.Context
	cancel context.CancelFunc
	dead   bool
	group  sync.WaitGroup
	// fence is what its writes pass; nil where nobody takes a lease from another.
	fence *program.Fence
	// cutOff from its lease
	cutOff bool
	moves  int // as of when its watches were last up to date

	jobs *jobQueue  // of the queue
	gpu  *gpu.Shell // of the GPU scheduler
}

// pending is a call that waits for the schedule.
type pending struct {
	from   *process
	call   *memapi.Call
	answer chan error
	late   bool // its client has given up
	moves  int  // that who sent it knew of
	// deadline after which the server does not carry it out; zero: none
	deadline time.Time
}

// do has the server carry it out, unless its time is over.
func (r *pending) do() error {
	if !r.deadline.IsZero() && time.Now().After(r.deadline) {
		return apierrors.NewTimeoutError("the request did not complete within its timeout", 0)
	}
	return r.arrive()
}

// arrive at the server, whatever the time.
func (r *pending) arrive() error {
	w := r.from.world
	w.checks.unaware = w.checks.unaware || r.moves != w.cluster.moves
	err := r.call.Do()
	if err == nil && strings.HasPrefix(r.call.Name, "bind ") {
		w.cluster.moves++
	}
	return err
}

// name by which a schedule knows it.
func (r *pending) name() string { return r.from.name + ":" + strings.ReplaceAll(r.call.Name, " ", ":") }

// apart is by how much later than at its deadline a client gives up: timers of one moment fire in no order that a seed would
// choose.
func (r *pending) apart() time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(r.name()))
	return time.Duration(hash.Sum32()%1000) * time.Microsecond
}

var errKilled = errors.New("the process was killed")

// gate has a call wait until the schedule answers it, or its client gives up.
func (p *process) gate(ctx context.Context, call *memapi.Call) error {
	w := p.world
	r := &pending{from: p, call: call, answer: make(chan error, 1), moves: p.moves}
	var over <-chan time.Time
	if p.fence != nil && !call.Read {
		var err error
		if r.deadline, err = p.fence.Deadline(); err != nil {
			return err
		}
		over = time.After(time.Until(r.deadline) + r.apart())
	}
	w.mu.Lock()
	if p.dead {
		w.mu.Unlock()
		return errKilled
	}
	w.requests = append(w.requests, r)
	w.mu.Unlock()
	err := context.DeadlineExceeded
	select {
	case err := <-r.answer:
		return err
	case <-over:
	case <-ctx.Done():
		err = ctx.Err()
	}
	w.mu.Lock()
	r.late = true
	w.mu.Unlock()
	return err
}

// noteMoves that its watches have delivered.
func (p *process) noteMoves() {
	if behind := p.cache.Behind(); !slices.Contains(behind, "Node") && !slices.Contains(behind, "Pod") {
		p.moves = p.world.cluster.moves
	}
}

// sortedRequests of all processes, by name. Those of one name are equal to the schedule.
func (w *World) sortedRequests() []*pending {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := slices.Clone(w.requests)
	slices.SortStableFunc(list, func(a, b *pending) int { return strings.Compare(a.name(), b.name()) })
	return list
}

func (w *World) take(name string, late bool) *pending {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.requests, func(r *pending) bool { return r.name() == name && r.late == late })
	if i < 0 {
		return nil
	}
	r := w.requests[i]
	w.requests = slices.Delete(w.requests, i, i+1)
	return r
}

// answer a request as the schedule says.
func (w *World) answer(name, end string) {
	r := w.take(name, false)
	if r == nil {
		return
	}
	switch end {
	case "ok":
		r.answer <- r.do()
	case fails:
		r.answer <- apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
	case timesOut:
		r.answer <- apierrors.NewTimeoutError("the server did not answer in time", 1)
	case answerLost:
		_ = r.do()
		r.answer <- apierrors.NewTimeoutError("the server did not answer in time", 1)
	case late:
		r.answer <- apierrors.NewTimeoutError("the server did not answer in time", 1)
		if r.late = true; !r.call.Read {
			w.mu.Lock()
			w.requests = append(w.requests, r)
			w.mu.Unlock()
		}
	}
}

// kill a process. Of its requests some still get to the server.
func (w *World) kill(name string, arrive int) {
	p := w.processes[name]
	if p == nil || p.dead {
		return
	}
	for _, r := range w.sortedRequests() {
		if r.from == p && arrive > 0 && !r.call.Read {
			arrive--
			_ = r.do()
		}
	}
	w.mu.Lock()
	p.dead = true
	for _, r := range w.requests {
		if r.from == p && !r.late {
			r.answer <- errKilled
		}
	}
	w.requests = slices.DeleteFunc(w.requests, func(r *pending) bool { return r.from == p })
	w.mu.Unlock()
	p.cancel()
	delete(w.processes, name)
}

// oldSuffix is in the name of a process that goes on although it lost its lease.
const oldSuffix = "-old"

// overlap cuts the leader off from its lease: it goes on as if nothing had happened, and when the lease has
// run out another process leads: at once, or when the schedule comes to it.
func (w *World) overlap(role string, atOnce bool) {
	p := w.processes[role]
	if p == nil || w.processes[role+oldSuffix] != nil {
		return
	}
	w.mu.Lock()
	p.cutOff = true
	w.mu.Unlock()
	delete(w.processes, role)
	p.name += oldSuffix
	w.processes[p.name] = p
	if atOnce {
		time.Sleep(leaseSeconds * time.Second)
		w.start(role, 0)
	}
}

// start a process with lists that miss some changes.
func (w *World) start(role string, behind int) {
	if role == roleGPU && !w.setting.Cards || w.processes[role] != nil || !w.leaseIsFree(role) {
		return
	}
	p := &process{world: w, name: role, role: role}
	var err error
	lag := behind
	p.cache, err = memapi.NewCache(w.api, func(kind string, _ int) int {
		switch kind { // what stands still is old enough for everyone
		case "Workload", "Job", "Pod":
			lag = (lag*7 + 3) % 31
			return min(lag, behind)
		}
		return 0
	}, w.watched(role)...)
	if err != nil {
		w.t.Fatal(err)
	}
	p.noteMoves()
	p.ctx, p.cancel = context.WithCancel(context.Background())
	w.processes[p.name] = p
	if w.setting.TwoLeaders {
		w.lead(p)
	}
	switch role {
	case roleQueue:
		w.startQueue(p)
	case roleGPU:
		w.startGPU(p)
	}
}

func (w *World) watched(role string) []client.Object {
	list := []client.Object{&kueue.Workload{}, &kueue.ResourceFlavor{}, &corev1.Node{}, &corev1.Pod{}}
	if w.setting.Cards {
		list = append(list, &egpu.GPU{}, &egpu.ElasticGPU{}, &egpu.ElasticGPUClaim{})
	}
	if role == roleGPU {
		return list
	}
	if w.setting.Policies {
		list = append(list, &queuepolicy.QueuePolicy{}, &queuepolicy.BudgetAccount{})
	}
	return append(list, &corev1.Namespace{}, &kueue.Cohort{}, &kueue.ClusterQueue{}, &kueue.LocalQueue{}, &kueue.AdmissionCheck{},
		&kueue.Topology{}, &kueue.WorkloadPriorityClass{}, &batchv1.Job{}, &corev1.LimitRange{}, &nodev1.RuntimeClass{}, &schedulingv1.PriorityClass{})
}

// log of a program: a defect that it contains is a broken invariant, whatever it does about it.
func (w *World) log(p *process) logr.Logger {
	return funcr.New(func(_, args string) {
		if strings.Contains(args, "panic") {
			w.breakInvariant("defect: " + p.name + " contained " + args)
		}
	}, funcr.Options{})
}

func (w *World) startQueue(p *process) {
	c := memapi.NewClient(w.api, p.cache, p.gate)
	direct := memapi.NewClient(w.api, nil, p.gate)
	gates, err := features.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	options := queue.Options{
		Engine: admission.Options{PreemptionDelay: time.Second},
		Direct: direct, Features: gates, Writers: 64, Recorder: recorder{}, Log: w.log(p),
	}
	if w.setting.Fair {
		options.Engine.Policy = admission.PolicyDRF
	}
	if w.setting.PodsReady {
		options.Lifecycle.PodsReady = &workload.PodsReadySettings{Timeout: 5 * time.Minute, BackoffBase: time.Minute, BackoffMax: time.Hour}
	}
	if options.Placer, err = placer.New(placer.Options{TopologyOnly: !w.setting.Cards}); err != nil {
		w.t.Fatal(err)
	}
	shell := queue.New(c, p.cache, options)
	p.jobs = newJobQueue(p, c, direct) // before the shell runs: handlers are added one after the other
	p.group.Go(func() {
		if err := shell.Start(p.ctx); err != nil {
			w.breakInvariant(fmt.Sprintf("%s ended: %v", p.name, err))
		}
	})
}

func (w *World) startGPU(p *process) {
	c := memapi.NewClient(w.api, p.cache, p.gate)
	shell, err := gpu.New(gpu.Options{
		Client: c, Direct: memapi.NewClient(w.api, nil, p.gate), Cache: p.cache, Engine: placement.Options{},
		Hold: time.Minute, Queue: true, Log: w.log(p),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	p.gpu = shell
	for _, run := range []func(context.Context) error{shell.Start, shell.Lead, shell.PublishAllocations} {
		p.group.Go(func() {
			if err := run(p.ctx); err != nil && p.ctx.Err() == nil {
				// A manager whose part ends with an error ends the program.
				w.mu.Lock()
				w.failed = append(w.failed, p)
				w.mu.Unlock()
			}
		})
	}
}

// recorder drops events.
type recorder struct{}

func (recorder) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// jobQueue calls the reconciler of Jobs, as controller-runtime would: one call at a time for a job, again
// after a change, later after an error.
type jobQueue struct {
	process    *process
	reconciler reconcile.Reconciler
	due        map[string]time.Time
	running    map[string]bool
	failures   map[string]int
}

var batchJobs = func() *kinds.Kind {
	rows, err := kinds.BuiltIn([]string{"batch/job"})
	if err != nil {
		panic(err)
	}
	return rows[0]
}()

func newJobQueue(p *process, c, direct client.Client) *jobQueue {
	q := &jobQueue{process: p, due: map[string]time.Time{}, running: map[string]bool{}, failures: map[string]int{}}
	inUse := &kinds.InUse{}
	inUse.Set([]*kinds.Kind{batchJobs})
	q.reconciler = jobreconcile.NewReconciler(batchJobs, c, recorder{}, p.world.clock, jobreconcile.Options{
		Kinds: inUse, Filter: &managed.Filter{Cached: c, Direct: direct, Kinds: inUse, Namespaces: labels.Everything()},
	})
	if err := kinds.IndexWorkloads(p.ctx, p.cache); err != nil {
		p.world.t.Fatal(err)
	}
	for _, kind := range []client.Object{&batchv1.Job{}, &kueue.Workload{}} {
		informer, err := p.cache.GetInformer(p.ctx, kind)
		if err != nil {
			p.world.t.Fatal(err)
		}
		handler := toolscache.ResourceEventHandlerFuncs{
			AddFunc: q.saw, UpdateFunc: func(_, obj any) { q.saw(obj) },
			DeleteFunc: func(obj any) {
				if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
					obj = gone.Obj
				}
				q.saw(obj)
			},
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			p.world.t.Fatal(err)
		}
	}
	return q
}

func (q *jobQueue) saw(obj any) {
	name := obj.(client.Object).GetName()
	if wl, ok := obj.(*kueue.Workload); ok {
		owner := metav1.GetControllerOf(wl)
		if owner == nil {
			return
		}
		name = owner.Name
	}
	q.process.world.mu.Lock()
	defer q.process.world.mu.Unlock()
	q.due[name] = time.Now()
}

// ready are the jobs that may be reconciled now.
func (q *jobQueue) ready() []string {
	q.process.world.mu.Lock()
	defer q.process.world.mu.Unlock()
	var names []string
	for name, at := range q.due {
		if !q.running[name] && !at.After(time.Now()) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// reconcile one job, in a goroutine.
func (q *jobQueue) reconcile(name string) {
	w := q.process.world
	if !slices.Contains(q.ready(), name) {
		return
	}
	w.mu.Lock()
	delete(q.due, name)
	q.running[name] = true
	w.mu.Unlock()
	q.process.group.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				w.breakInvariant(fmt.Sprintf("defect: reconciling %s panics: %v\n%s", name, v, debug.Stack()))
			}
		}()
		result, err := q.reconciler.Reconcile(q.process.ctx, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
		w.mu.Lock()
		defer w.mu.Unlock()
		q.running[name] = false
		again := result.RequeueAfter
		if err != nil {
			again = min(5*time.Millisecond<<min(q.failures[name], 20), 16*time.Minute)
			q.failures[name]++
		} else {
			delete(q.failures, name)
		}
		if at, changed := q.due[name]; again > 0 && (!changed || at.After(time.Now().Add(again))) {
			q.due[name] = time.Now().Add(again)
		}
	})
}
