package faults

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
	"github.com/elastic-ai/elastic/test/faults/memapi"
)

// World is a cluster with its programs, from the first to the last step of a schedule.
type World struct {
	t       *testing.T
	setting Setting
	api     *memapi.Server
	skew    time.Duration // of the API server's and the reconciler's clock against the loops'

	mu        sync.Mutex
	requests  []*pending
	failed    []*process // that ended by themselves
	broken    string     // the first invariant that did not hold
	processes map[string]*process
	leases    map[string]time.Time // until when a role's is taken

	cluster cluster
	checks  checks

	trace  strings.Builder
	steps  int
	faults int
}

// Result of a world.
type Result struct {
	// Broken is the invariant that did not hold; "" if all did.
	Broken string
	// Schedule is what happened before it came to rest or broke.
	Schedule []Action
	// Trace has each step and the state it led to.
	Trace string
	// Faults among the steps.
	Faults int
}

// Run a world by its seed: steps by choice, then to rest, then to the end of all jobs.
func Run(t *testing.T, seed uint64, steps int) Result {
	c := newChooser(seed, steps)
	return run(t, seed, c.next)
}

// Replay a schedule in the world of a seed.
func Replay(t *testing.T, seed uint64, schedule []Action) Result {
	i := 0
	return run(t, seed, func(*World) (Action, bool) {
		if i == len(schedule) {
			return Action{}, false
		}
		i++
		return schedule[i-1], true
	})
}

var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme, egpu.AddToScheme, queuepolicy.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
})

func run(t *testing.T, seed uint64, next func(*World) (Action, bool)) (result Result) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, newSetting(seed))
		defer w.end()
		w.do(action("start", roleQueue, 0))
		w.do(action("start", roleGPU, 0))
		for w.broken == "" {
			a, more := next(w)
			if !more {
				break
			}
			result.Schedule = append(result.Schedule, a)
			if a.isFault() {
				w.faults++
			}
			w.do(a)
		}
		w.toTheEnd()
		result.Broken, result.Trace, result.Faults = w.broken, w.trace.String(), w.faults
	})
	return result
}

func newWorld(t *testing.T, setting Setting) *World {
	w := &World{t: t, setting: setting, processes: map[string]*process{}, leases: map[string]time.Time{}, cluster: newCluster(), checks: newChecks()}
	kinds := []client.Object{
		&corev1.Namespace{}, &corev1.Node{}, &kueue.ResourceFlavor{}, &kueue.Cohort{}, &kueue.ClusterQueue{}, &kueue.AdmissionCheck{},
		&kueue.Topology{}, &kueue.WorkloadPriorityClass{},
		&nodev1.RuntimeClass{}, &schedulingv1.PriorityClass{}, inNamespace(&corev1.LimitRange{}),
		inNamespace(&corev1.Pod{}), inNamespace(&kueue.LocalQueue{}), inNamespace(&kueue.Workload{}), inNamespace(&batchv1.Job{}),
	}
	if setting.Cards {
		kinds = append(kinds, &egpu.GPU{}, &egpu.ElasticGPU{}, &egpu.ElasticGPUClaim{})
	}
	if setting.Policies {
		kinds = append(kinds, &queuepolicy.QueuePolicy{}, &queuepolicy.BudgetAccount{})
	}
	api, err := memapi.NewServer(scheme(), w.clock, kinds...)
	if err != nil {
		t.Fatal(err)
	}
	if w.api = api; setting.Policies {
		api.WriteWhole(&queuepolicy.BudgetAccount{})
	}
	for _, obj := range setting.objects() {
		if _, err := api.Create(obj); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func inNamespace[T client.Object](obj T) T {
	obj.SetNamespace(namespace)
	return obj
}

// clock of the API server.
func (w *World) clock() time.Time { return time.Now().Add(w.skew) }

func (w *World) breakInvariant(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken == "" {
		w.broken = what
	}
}

// do takes one step: an action, what follows from it in the programs, and the invariants.
func (w *World) do(a Action) {
	if w.broken != "" {
		return
	}
	w.steps++
	w.take1(a)
	synctest.Wait()
	for _, p := range w.failed {
		w.kill(p.name, 0)
		synctest.Wait()
	}
	w.failed = nil
	w.checkStep()
	fmt.Fprintf(&w.trace, "%s -> %d\n", a, w.api.Version())
}

func (w *World) take1(a Action) {
	number := func(i int) int {
		n, _ := strconv.Atoi(a.arg(i))
		return n
	}
	switch a.Op {
	case "start":
		w.start(a.arg(0), number(1))
	case "overlap":
		w.overlap(a.arg(0), a.arg(1) == "at-once")
	case "kill":
		w.kill(a.arg(0), number(1))
	case "deliver":
		if p := w.processes[a.arg(0)]; p != nil {
			p.cache.Deliver(a.arg(1))
			p.noteMoves()
		}
	case "relist":
		if p := w.processes[a.arg(0)]; p != nil {
			p.cache.Relist(a.arg(1))
			p.noteMoves()
		}
	case "answer":
		w.answer(a.arg(0), a.arg(1))
	case "arrive":
		if r := w.take(a.arg(0), true); r != nil {
			_ = r.arrive()
		}
	case "forget":
		w.take(a.arg(0), true)
	case "reconcile":
		if p := w.processes[a.arg(0)]; p != nil {
			p.jobs.reconcile(a.arg(1))
		}
	case "sleep":
		time.Sleep(time.Duration(number(0)) * time.Millisecond)
	case "skew":
		w.skew = time.Duration(number(0)) * time.Second
	default:
		w.takeAsUser(a, number)
	}
}

// takeAsUser does what people do.
func (w *World) takeAsUser(a Action, number func(int) int) {
	switch a.Op {
	case "submit":
		_, _ = w.api.Create(w.setting.job(a.arg(0), a.arg(1), number(2), number(3), number(4)))
	case "delete-job":
		_ = w.api.Delete(inNamespace(named(&batchv1.Job{}, a.arg(0))), nil)
	case "delete-workload":
		if wl := w.workloadOf(a.arg(0)); wl != nil {
			_ = w.api.Delete(wl, nil)
		}
	case "activate", "deactivate":
		if wl := w.workloadOf(a.arg(0)); wl != nil && !workload.IsFinished(wl) {
			now := wl.DeepCopy()
			now.Spec.Active = ptr.To(a.Op == "activate")
			_, _ = w.api.Update(now, false)
		}
	case "hold":
		if cq := memapi.Object[*kueue.ClusterQueue](w.api, client.ObjectKey{Name: a.arg(0)}); cq != nil {
			now := cq.DeepCopy()
			now.Spec.StopPolicy = ptr.To(kueue.StopPolicy(a.arg(1)))
			_, _ = w.api.Update(now, false)
		}
	case "forge": // what no program does: quota for a workload, beyond what there is
		if wl := w.workloadOf(a.arg(0)); wl != nil {
			now := wl.DeepCopy()
			workload.Admit(now, &admission.Admission{Queue: w.setting.Queues[0].Name, PodSets: []admission.PodSetAssignment{{
				Name: string(wl.Spec.PodSets[0].Name), Count: 1, Flavors: map[string]string{string(w.setting.resource()): "default"},
				Usage: map[string]int64{string(w.setting.resource()): 1 << 40},
			}}}, nil, time.Now())
			_, _ = w.api.Update(now, true)
		}
	default:
		w.takeInCluster(a)
	}
}

// running processes, by name.
func (w *World) running() []string { return slices.Sorted(maps.Keys(w.processes)) }

// missing are the roles that a process could take.
func (w *World) missing() []string {
	var list []string
	for _, role := range []string{roleQueue, roleGPU} {
		if w.processes[role] == nil && w.leaseIsFree(role) && (role != roleGPU || w.setting.Cards) {
			list = append(list, role)
		}
	}
	return list
}

// waitingCalls are the names of requests that can be answered.
func (w *World) waitingCalls() []string {
	var names []string
	for _, r := range w.sortedRequests() {
		if !r.late {
			names = append(names, r.name())
		}
	}
	return slices.Compact(names)
}

// progress is what can happen now without a fault.
func (w *World) progress() []Action {
	var list []Action
	for _, name := range w.running() {
		p := w.processes[name]
		for _, kind := range p.cache.Behind() {
			list = append(list, action("deliver", name, kind))
		}
		if p.jobs != nil {
			for _, job := range p.jobs.ready() {
				list = append(list, action("reconcile", name, job))
			}
		}
	}
	for _, r := range w.sortedRequests() {
		if r.late {
			list = append(list, action("arrive", r.name()), action("forget", r.name()))
		} else {
			list = append(list, action("answer", r.name(), "ok"))
		}
	}
	return append(list, w.clusterProgress()...)
}

// settle lets everything happen, without faults, until nothing happens for a while.
func (w *World) settle(why string) {
	const most, idle = 20000, 3 * time.Minute
	pause, idled := 100*time.Millisecond, time.Duration(0)
	for range most {
		for _, role := range w.missing() {
			w.do(action("start", role, 0))
		}
		if w.broken != "" {
			return
		}
		list := w.progress()
		if len(list) > 0 {
			w.do(list[0])
			pause, idled = 100*time.Millisecond, 0
			continue
		}
		if idled >= idle {
			return
		}
		w.do(action("sleep", pause.Milliseconds()))
		idled += pause
		pause = min(2*pause, time.Minute)
	}
	w.breakInvariant(fmt.Sprintf("%s: it does not come to rest; last steps:\n%s\n%s%s", why, lastLines(w.trace.String(), 30), w.decisions(), w.reasons()))
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// toTheEnd lets the world come to rest, restarts all programs, and then has all jobs run to their end.
func (w *World) toTheEnd() {
	w.skew = 0
	for _, role := range []string{roleQueue, roleGPU} {
		w.do(action("kill", role+oldSuffix, 0))
	}
	w.settle("after the schedule")
	w.checkRest("at rest")
	before, reasons, timed := w.decisions(), w.reasons(), w.awaitsPods()
	for _, name := range w.running() {
		w.do(action("kill", name, 0))
	}
	w.settle("after a restart")
	w.checkRest("at rest after a restart")
	if after := w.decisions(); w.broken == "" && before != after && !timed {
		w.breakInvariant("restart: a restart at rest changed what was decided; before:\n" + before + reasons + "after:\n" + after)
	}
	w.heal()
	for range 200 {
		w.settle("while jobs end")
		if w.broken != "" || !w.finishRunning() {
			break
		}
	}
	w.checkEnd()
}

// end all programs.
func (w *World) end() {
	for _, name := range w.running() {
		p := w.processes[name]
		w.kill(name, 0)
		p.group.Wait()
	}
}
