// Package simulate compares what elastic simulate says with what a cluster does. Its tests wait for seconds to pass, each job's
// beginning and end in one of its own, so they have a cluster of their own beside the others'.
package simulate

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/features"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/simulate/world"
	"github.com/elastic-ai/elastic/test/sandbox"
)

var cluster *sandbox.Cluster

func TestMain(m *testing.M) {
	os.Exit(sandbox.Run(m, &cluster, sandbox.Options{Nodes: nodes, Scheme: []func(*runtime.Scheme) error{queuepolicy.AddToScheme}}))
}

// nodes of the cluster and of the simulation.
const (
	nodes                     = "1x8:H100-80G,1x4:A100-40G"
	nodeNames                 = "h100-80g-0 a100-40g-0"
	largestNode, smallestNode = 8, 4 // cards
)

// simulatedJobs of two queues of four cards each, on one node of eight: they borrow, reclaim, preempt by priority, pass others
// that do not fit, and come back. Which are evicted differs with fair sharing.
const simulatedJobs = `job_id,queue,submit_s,duration_s,gpus,priority
b1,b,0,311,1,0
a2,a,10,72,1,0
b3,b,20,203,1,10
a4,a,30,294,1,10
a5,a,40,225,1,10
a6,a,50,176,1,10
a7,a,60,77,1,10
a8,a,70,108,2,10
b9,b,80,209,6,10
b10,b,90,211,2,10
b11,b,100,312,1,10
b12,b,110,133,1,10
`

// movedJobs leave four cards free on each of two nodes, of eight and of four: one that needs eight gets them once another has
// moved.
const movedJobs = `job_id,queue,submit_s,duration_s,gpus,priority
all,a,0,15,8,0
short,a,10,25,4,0
stays,a,20,400,4,0
large,a,40,300,8,0
`

// gangJobs have a gang that needs all cards of both nodes: it waits for the last of them, goes as a whole for a job of another queue that
// wants its own, and comes back as a whole.
const gangJobs = `job_id,queue,submit_s,duration_s,gpus,priority
one,a,0,60,8,0
gang,a,20,300,12,0
owner,b,90,50,4,0
small,a,100,25,2,0
`

// passingJobs have a head that takes all cards: jobs pass it that end before it can start, and the one that says it may run for
// ten hours does not. One that passed is evicted, and passes again.
const passingJobs = `job_id,queue,submit_s,duration_s,gpus,priority,limit_s
h1,a,0,90,4,0,7200
h2,a,10,70,2,0,7200
head,a,20,60,8,0,3600
passes,a,30,25,2,0,1800
never,a,40,30,2,0,36000
again,a,60,40,2,0,600
owner,b,86,35,4,0,3600
`

// usedJobs come when those that run have used most: who has used least takes their cards, and goes before one that came first.
const usedJobs = `job_id,queue,submit_s,duration_s,gpus,priority
used,a,0,118,8,0
fresh,a,98,12,5,0
next,a,103,10,5,0
last,a,124,5,5,0
`

// lostJobs run on both nodes when the smaller one is lost: the one that was there takes the place of one of lower priority,
// which waits for all of the larger node, and another waits until the smaller one is back.
const lostJobs = `job_id,queue,submit_s,duration_s,gpus,priority
low,a,0,300,8,0
high,a,10,140,4,10
small,a,60,110,3,0
waits,a,70,400,4,0
`

// losses of the smaller node: it is away for a minute, once while these jobs run.
var losses = world.Faults{Seed: 488, Spot: []world.Spot{{Nodes: "A100-40G", Every: 1000, Down: 60}}}

// The simulator tells the truth: the same jobs, submitted and ended in the same order, are evicted and admitted in the same
// order in a real cluster, with elastic-queue set up as it is there.
func TestSimulationTellsTheTruth(t *testing.T) {
	for name, test := range map[string]truth{
		"FIFO": {}, "DRF": {capacity: queuepolicy.CapacityDRF}, "FIFO with a reservation": {reserved: "5"},
		"FIFO with a budget": {budget: "7.8"}, "jobs that move": {jobs: movedJobs, moves: true}, "a gang on two nodes": {jobs: gangJobs, twoNodes: true},
		"MaxMin": {capacity: queuepolicy.CapacityMaxMin}, "EASY backfill": {jobs: passingJobs, backfill: true},
		"LeastAttainedService": {jobs: usedJobs, alone: true, order: queuepolicy.OrderLeastAttainedService},
		"a node is lost":       {jobs: lostJobs, losses: losses},
	} {
		t.Run(name, func(t *testing.T) {
			ns := cluster.Namespace(t)
			objects := test.objects(ns)
			trace, err := world.ReadTrace(strings.NewReader(cmp.Or(test.jobs, simulatedJobs)), "jobs")
			if err != nil {
				t.Fatal(err)
			}
			for i := range trace.Jobs {
				if j := &trace.Jobs[i]; test.budget != "" && j.Queue == "b" {
					j.Limit = 3600 // each card is an hour of the budget; what is spent until the end is less than half an hour
				}
			}
			steps, compared := simulated(t, trace, objects, test.losses)
			if compared < 2 {
				t.Fatalf("%d jobs are evicted, wait for what is reserved or for a budget, move, or pass others: too few to compare: %v", compared, steps)
			}
			if test.capacity+queuepolicy.Capacity(test.order) != "" || test.backfill {
				plain := truth{jobs: test.jobs, alone: test.alone}
				if without, _ := simulated(t, trace, plain.objects(ns), test.losses); fmt.Sprint(without) == fmt.Sprint(steps) {
					t.Fatalf("it changes nothing: %v", steps)
				}
			}
			for _, priority := range []int32{0, 10} {
				class := &kueue.WorkloadPriorityClass{Value: priority}
				class.Name = fmt.Sprintf("%s-%d", ns, priority)
				objects = append(objects, class)
			}
			cluster.Make(t, objects...)
			for _, obj := range objects {
				if policy, ok := obj.(*queuepolicy.QueuePolicy); ok {
					cluster.WaitAccepted(t, policy.Name, queuepolicy.ReasonAccepted)
				}
			}
			replay(t, ns, trace, steps, &test)
		})
	}
}

// truth is what is compared: jobs, and what policies say of them.
type truth struct {
	jobs             string
	capacity         queuepolicy.Capacity
	reserved, budget string // for b, in a week: jobs of which nobody knows how long they run leave it alone; and GPU-hours a month
	moves            bool   // one job moves for another, on both nodes
	twoNodes         bool   // quotas are of both nodes
	backfill         bool
	order            queuepolicy.Order
	alone            bool // all quota is a's: who would borrow preempts nobody of its own queue
	// losses of nodes: all quota is a's, that of both nodes, and jobs have a topology, so that their nodes are known.
	losses world.Faults
}

func (test *truth) objects(ns string) []client.Object {
	policy := sandbox.QueuePolicy(ns, queuepolicy.TargetRef{Kind: queuepolicy.KindCohort, Name: ns})
	policy.Spec.Capacity = cmp.Or(test.capacity, queuepolicy.CapacityFIFO)
	policy.Spec.Preemption = &queuepolicy.Preemption{Delay: ptr.To(queuepolicy.Duration("0s")), Cooldown: ptr.To(queuepolicy.Duration("0s"))}
	labels, cards := map[string]string{egpu.ModelLabel: "H100-80G"}, "4"
	if test.moves {
		policy.Spec.Defragmentation = &queuepolicy.Defragmentation{Moves: ptr.To[int32](1), LostWork: ptr.To(queuepolicy.Duration("24h"))}
	}
	if test.moves || test.twoNodes {
		labels, cards = nil, "6"
	}
	if policy.Spec.Order = test.order; test.backfill {
		policy.Spec.Backfill = &queuepolicy.Backfill{Strategy: queuepolicy.BackfillEASY}
	}
	quotas := map[string]string{"a": cards, "b": cards}
	if test.alone {
		quotas = map[string]string{"a": "8", "b": "0"}
	}
	if len(test.losses.Spot) > 0 {
		quotas = map[string]string{"a": "12", "b": "0"}
	}
	flavor := sandbox.Flavor(ns, labels)
	objects := append(simulatedQueues(ns, quotas), flavor, policy)
	if len(test.losses.Spot) > 0 {
		flavor.Spec.NodeLabels, flavor.Spec.TopologyName = onLinux, ptr.To(kueue.TopologyReference(ns))
		objects = append(objects, &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: corev1.LabelHostname}}}})
	}
	if test.reserved != "" {
		objects = append(objects, reservedFor(ns+"-b", ns, test.reserved))
	}
	if test.budget != "" {
		policy := sandbox.QueuePolicy(ns+"-b", sandbox.ClusterQueueTarget(ns+"-b"))
		policy.Spec.Budgets = []queuepolicy.Budget{{Period: periodThatGoesOn(), Amount: resource.MustParse(test.budget)}}
		objects = append(objects, policy)
	}
	return objects
}

// onLinux is what all nodes are.
var onLinux = map[string]string{corev1.LabelOSStable: "linux"}

// periodThatGoesOn for the hours that jobs may run.
func periodThatGoesOn() queuepolicy.BudgetPeriod {
	if now := time.Now().UTC(); now.Add(2*time.Hour).Month() != now.Month() {
		return queuepolicy.PeriodWeek
	}
	return queuepolicy.PeriodMonth
}

// simulatedQueues are the queues of the trace. Time does not decide in them: a step takes another time here and there.
func simulatedQueues(ns string, quotas map[string]string) (objects []client.Object) {
	for _, name := range []string{"a", "b"} {
		cq := sandbox.ClusterQueue(ns+"-"+name, ns, quotas[name])
		cq.Spec.CohortName = kueue.CohortReference(ns)
		cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority, ReclaimWithinCohort: kueue.PreemptionPolicyAny}
		objects = append(objects, cq, sandbox.LocalQueue(ns, name, cq.Name))
	}
	return objects
}

// reservedFor sets cards aside for a ClusterQueue in a week.
func reservedFor(queue, flavor, cards string) client.Object {
	policy := sandbox.QueuePolicy(queue, sandbox.ClusterQueueTarget(queue))
	policy.Spec.Reservations = []queuepolicy.Reservation{{
		Name: "exam", Start: time.Now().UTC().AddDate(0, 0, 7).Format("2006-01-02T15:04"), Duration: "24h",
		Quotas: []queuepolicy.ReservedQuota{{Flavor: flavor, Resource: world.CardResource, Amount: resource.MustParse(cards)}},
	}}
	return policy
}

// A step is a job that is submitted or ends, or a node that is lost or comes back, and what comes of it: who is evicted, and
// who is admitted then.
type step struct {
	at      int64
	job     string
	node    string   // instead
	ends    bool     // or is lost
	evicted []string // sorted: they are told at once
	admits  []string
}

func (s step) String() string {
	cause := s.job + " submitted"
	switch {
	case s.node != "" && s.ends:
		cause = s.node + " lost"
	case s.node != "":
		cause = s.node + " back"
	case s.ends:
		cause = s.job + " ended"
	}
	return fmt.Sprintf("%s: evicted %v, admitted %v", cause, s.evicted, s.admits)
}

// simulated runs the trace, and counts what there is to compare. Each second has one cause, and each cause one admission at most, beside those that move: times of
// the API are whole seconds, and who of two that were admitted in one of them is the younger is nobody's to know.
func simulated(t *testing.T, trace *world.Trace, objects []client.Object, losses world.Faults) (steps []step, compared int) {
	t.Helper()
	options, err := engineview.Options(cluster.QueueConfiguration(t), features.Set{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := world.FromObjects(objects, options, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.AddNodes(nodes); err != nil {
		t.Fatal(err)
	}
	for i := range c.Nodes {
		c.Nodes[i].Name, c.Nodes[i].Labels = strings.Fields(nodeNames)[i], onLinux
	}
	c.Start = time.Now()
	trace.Map(nil, c)
	at, evictions, waits, moves, passes := int64(-1), 0, 0, 0, 0
	pending, lost := map[int]bool{}, ""
	on := map[int]string{} // the node of each job that has one
	w, err := world.New(trace, c, world.Settings{Check: true, Faults: losses, Watch: func(m world.Moment) {
		name := trace.Jobs[m.Job].ID
		pending[m.Job] = m.What != world.Started && m.What != world.Ended
		if m.What == world.Submitted || m.What == world.Ended {
			if m.At == at {
				t.Fatalf("two things happen at %d s", m.At)
			}
			at = m.At
			steps = append(steps, step{at: m.At, job: name, ends: m.What == world.Ended})
			return
		}
		if m.At != at && len(losses.Spot) > 0 { // nothing but a node is the cause
			if at = m.At; m.What == world.Evicted {
				lost = on[m.Job]
			}
			steps = append(steps, step{at: at, node: lost, ends: m.What == world.Evicted})
		}
		s := &steps[len(steps)-1]
		switch m.What {
		case world.WaitsForReservation, world.WaitsForBudget:
			waits++
			return
		case world.Started:
			s.admits, on[m.Job] = append(s.admits, name), m.Nodes[0].Node
			for i := range m.Job {
				if pending[i] && trace.Jobs[i].Queue == trace.Jobs[m.Job].Queue {
					passes++
					break
				}
			}
		case world.Moved:
			moves++
			fallthrough
		default:
			evictions++
			s.evicted = append(s.evicted, name)
			slices.Sort(s.evicted)
		}
		if len(s.admits) > 1+moves {
			t.Fatalf("at %d s: %s: two are admitted", m.At, *s)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	report, err := w.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if report.Ended != len(trace.Jobs) || waits == 0 && len(c.Reservations)+len(c.Budgets) > 0 {
		t.Fatalf("%d jobs ended, %d wait for what is reserved or for a budget: %v", report.Ended, waits, steps)
	}
	if compared = evictions + waits + moves + passes; evictions == 0 {
		compared = 0
	}
	last := len(steps) // of those that anything comes of
	for last > 0 && len(steps[last-1].evicted)+len(steps[last-1].admits) == 0 {
		last--
	}
	return steps[:last], compared
}

// replay the steps in the cluster, and compare what comes of each. Where it counts how long jobs have run, none comes earlier
// than in the simulation.
func replay(t *testing.T, ns string, trace *world.Trace, steps []step, test *truth) {
	t.Helper()
	seen := watchWorkloads(t, ns)
	seen.strict = test.backfill
	jobs := map[string]*batchv1.Job{}
	var began time.Time
	for i, want := range steps {
		nextSecond(t)
		if test.order != "" && i > 0 {
			sandbox.Eventually(t, fmt.Sprintf("%d s have passed", want.at), func(context.Context) error {
				if passed := time.Since(began); passed < time.Duration(want.at-steps[0].at)*time.Second {
					return fmt.Errorf("it is %s", passed)
				}
				return nil
			})
		}
		seen.step = step{job: want.job, node: want.node, ends: want.ends}
		switch {
		case want.node != "" && want.ends:
			cluster.Drain(t, ns, want.node)
		case want.node != "":
			cluster.Uncordon(t, want.node)
		case want.ends:
			endPods(t, jobs[want.job])
		default:
			jobs[want.job] = submit(t, ns, trace, want.job)
		}
		if err := seen.until(t.Context(), want); err != nil {
			t.Fatalf("step %d: %v\nin the cluster:       %v\nin the simulation:    %v\nbefore, in both:      %v", i, err, seen.step, want, steps[:i])
		}
		if i == 0 {
			began = time.Now()
		}
	}
	sum, want := 0, 0
	for name := range jobs {
		sum += evictionsOf(t, ns, name)
	}
	for _, s := range steps {
		want += len(s.evicted)
	}
	if sum != want {
		t.Errorf("%d evictions are counted, in the simulation there are %d", sum, want)
	}
}

func submit(t *testing.T, ns string, trace *world.Trace, name string) *batchv1.Job {
	t.Helper()
	at, err := trace.Index(name)
	if err != nil {
		t.Fatal(err)
	}
	j := &trace.Jobs[at]
	pods, cards := 1, int(j.Cards)
	if cards > largestNode { // pods of which some are on each node
		pods, cards = cards/smallestNode, smallestNode
	}
	job := sandbox.Job(ns, j.ID, strings.TrimPrefix(j.Queue, ns+"-"), int32(pods), strconv.Itoa(cards))
	job.Labels["kueue.x-k8s.io/priority-class"] = fmt.Sprintf("%s-%d", ns, j.Priority)
	if j.Limit > 0 {
		job.Labels[kinds.MaxExecTimeLabel] = strconv.FormatInt(j.Limit, 10)
	}
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	cluster.Make(t, job)
	return job
}

// endPods ends the pods of a job that runs.
func endPods(t *testing.T, job *batchv1.Job) {
	t.Helper()
	var running []corev1.Pod
	sandbox.Eventually(t, job.Name+" has pods that run", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := cluster.List(ctx, pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
			return err
		}
		running = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
			return p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning
		})
		if want := int(ptr.Deref(job.Spec.Parallelism, 1)); len(running) != want {
			return fmt.Errorf("%d of %d pods run", len(running), want)
		}
		return nil
	})
	for i := range running {
		pod := &running[i]
		cluster.Change(t, pod, func() { pod.Annotations[sandbox.RunFor] = "0s" })
	}
}

// nextSecond waits for one: what happens then is later than what was, by the times of the API, too.
func nextSecond(t *testing.T) {
	t.Helper()
	second := time.Now().Unix()
	sandbox.Eventually(t, "another second begins", func(context.Context) error {
		if time.Now().Unix() == second {
			return fmt.Errorf("it is still %d", second)
		}
		return nil
	})
}

// workloadWatch notes what happens to workloads, in the order of the API server.
type workloadWatch struct {
	events   watch.Interface
	step     step // what came of the present one
	reserved map[string]bool
	evicted  map[string]bool
	known    map[string]bool // has been looked at
	finished map[string]bool
	strict   bool // who is behind the head of a queue is told nothing
}

func watchWorkloads(t *testing.T, ns string) *workloadWatch {
	t.Helper()
	c, err := client.NewWithWatch(cluster.REST, client.Options{Scheme: cluster.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	events, err := c.Watch(t.Context(), &kueue.WorkloadList{}, client.InNamespace(ns))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	return &workloadWatch{events: events, reserved: map[string]bool{}, evicted: map[string]bool{}, known: map[string]bool{}, finished: map[string]bool{}}
}

// until what came of a step is what should, or something else happens.
func (w *workloadWatch) until(ctx context.Context, want step) error {
	ctx, cancel := context.WithTimeout(ctx, sandbox.Timeout)
	defer cancel()
	for {
		if done := want.node != "" || w.known[want.job] && (!want.ends || w.finished[want.job]); done && slices.Equal(w.step.evicted, want.evicted) && slices.Equal(w.step.admits, want.admits) {
			return nil
		}
		if len(w.step.evicted) > len(want.evicted) || len(w.step.admits) > len(want.admits) {
			return fmt.Errorf("more happens")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain")
		case event, open := <-w.events.ResultChan():
			wl, ok := event.Object.(*kueue.Workload)
			if !open || !ok {
				return fmt.Errorf("the watch ended: %v", event)
			}
			w.note(wl)
		}
	}
}

func (w *workloadWatch) note(wl *kueue.Workload) {
	owner := metav1.GetControllerOf(wl)
	if owner == nil {
		return
	}
	name := owner.Name
	is := func(condition string) bool { return apimeta.IsStatusConditionTrue(wl.Status.Conditions, condition) }
	w.known[name] = apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved) != nil || w.strict
	w.finished[name] = is(kueue.WorkloadFinished)
	if evicted := is(kueue.WorkloadEvicted); evicted != w.evicted[name] {
		if w.evicted[name] = evicted; evicted {
			w.step.evicted = append(w.step.evicted, name)
			slices.Sort(w.step.evicted)
		}
	}
	if reserved := is(kueue.WorkloadQuotaReserved); reserved != w.reserved[name] {
		if w.reserved[name] = reserved; reserved {
			w.step.admits = append(w.step.admits, name)
		}
	}
}

// evictionsOf a job, as its workload counts them.
func evictionsOf(t *testing.T, ns, name string) int {
	t.Helper()
	var list kueue.WorkloadList
	if err := cluster.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	sum := 0
	for i := range list.Items {
		wl := &list.Items[i]
		if owner := metav1.GetControllerOf(wl); owner == nil || owner.Name != name || wl.Status.SchedulingStats == nil {
			continue
		}
		for _, e := range wl.Status.SchedulingStats.Evictions {
			sum += int(e.Count)
		}
	}
	return sum
}
