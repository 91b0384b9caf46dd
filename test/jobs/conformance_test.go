package jobs

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// life is what an operator would write into a job's status in the course of its
// life, and the pod sets its workload must have.
type life struct {
	sample  string
	suspend string
	podSets string
	// running: all pods are up. stopped: suspended, nothing runs. done: it succeeded.
	running, stopped, done string
	// service: it never ends.
	service bool
	adjust  func(job *unstructured.Unstructured)
}

// kubeflow is the life of a training operator's job.
func kubeflow(sample, podSets, role string) life {
	return life{
		sample: sample, suspend: "spec.runPolicy.suspend", podSets: podSets,
		running: `{conditions: [{type: Running, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}], replicaStatuses: {` + role + `: {active: 1}}}`,
		stopped: `{conditions: [{type: Suspended, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}], replicaStatuses: {` + role + `: {}}}`,
		done:    `{conditions: [{type: Succeeded, status: "True", message: trained, lastTransitionTime: "2026-01-01T00:00:00Z"}], replicaStatuses: {` + role + `: {succeeded: 1}}}`,
	}
}

var lives = []life{
	{
		sample: "job", suspend: "spec.suspend", podSets: "main:3",
		running: `{active: 3, ready: 3, startTime: "2026-01-01T00:00:00Z", uncountedTerminatedPods: {}}`,
		stopped: `{conditions: [{type: Suspended, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`,
		done: `{startTime: "2026-01-01T00:00:00Z", completionTime: "2026-01-01T00:01:00Z", succeeded: 3, uncountedTerminatedPods: {}, conditions: [
			{type: SuccessCriteriaMet, status: "True", lastTransitionTime: "2026-01-01T00:01:00Z"},
			{type: Complete, status: "True", message: trained, lastTransitionTime: "2026-01-01T00:01:00Z"}]}`,
		// The sandbox runs the real Job controller; managedBy leaves this Job to the test.
		adjust: func(job *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(job.Object, "example.com/conformance", "spec", "managedBy")
		},
	},
	{
		sample: "jobset", suspend: "spec.suspend", podSets: "leader:1 workers:4",
		running: `{replicatedJobsStatus: [{name: leader, active: 1, ready: 1, failed: 0, succeeded: 0, suspended: 0}, {name: workers, active: 2, ready: 2, failed: 0, succeeded: 0, suspended: 0}]}`,
		stopped: `{replicatedJobsStatus: [{name: leader, active: 0, ready: 0, failed: 0, succeeded: 0, suspended: 1}]}`,
		done:    `{conditions: [{type: Completed, status: "True", reason: AllJobsCompleted, message: trained, lastTransitionTime: "2026-01-01T00:00:00Z"}]}`,
	},
	kubeflow("tfjob", "ps:1 worker:2", "Worker"),
	kubeflow("pytorchjob", "master:1 worker:3", "Worker"),
	kubeflow("xgboostjob", "master:1 worker:2", "Worker"),
	kubeflow("mxjob", "scheduler:1 server:1 worker:2", "Worker"),
	kubeflow("paddlejob", "worker:2", "Worker"),
	kubeflow("jaxjob", "worker:2", "Worker"),
	kubeflow("mpijob", "launcher:1 worker:2", "Launcher"),
	{
		sample: "trainjob", suspend: "spec.suspend", podSets: "node:4",
		running: `{jobsStatus: [{name: node, active: 1, ready: 1, failed: 0, succeeded: 0, suspended: 0}]}`,
		stopped: `{jobsStatus: [{name: node, active: 0, ready: 0, failed: 0, succeeded: 0, suspended: 1}]}`,
		done:    `{conditions: [{type: Complete, status: "True", reason: JobsCompleted, message: trained, lastTransitionTime: "2026-01-01T00:00:00Z"}]}`,
	},
	{
		sample: "rayjob", suspend: "spec.suspend", podSets: "head:1 gpu:2 submitter:1",
		running: `{jobDeploymentStatus: Running, rayClusterStatus: {state: ready}}`,
		stopped: `{jobDeploymentStatus: Suspended}`,
		done:    `{jobDeploymentStatus: Complete, jobStatus: SUCCEEDED, message: trained}`,
	},
	{
		sample: "raycluster", suspend: "spec.suspend", podSets: "head:1 gpu:2", service: true,
		running: `{state: ready}`, stopped: `{state: suspended}`,
	},
	{
		sample: "rayservice", suspend: "spec.rayClusterConfig.suspend", podSets: "head:1 gpu:2", service: true,
		running: `{conditions: [{type: Ready, status: "True", reason: Up, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`,
		stopped: `{conditions: [{type: Ready, status: "False", reason: Down, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`,
	},
	{
		sample: "sparkapplication", suspend: "spec.suspend", podSets: "driver:1 executor:2",
		running: `{driverInfo: {}, applicationState: {state: RUNNING}, executorState: {a: RUNNING, b: RUNNING}}`,
		stopped: `{driverInfo: {}, applicationState: {state: SUSPENDED}}`,
		done:    `{driverInfo: {}, applicationState: {state: COMPLETED, errorMessage: trained}}`,
	},
	{
		sample: "appwrapper", suspend: "spec.suspend", podSets: "sample-appwrapper-0:2",
		running: `{phase: Running, conditions: [
			{type: QuotaReserved, status: "True", reason: Up, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"},
			{type: PodsReady, status: "True", reason: Up, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`,
		stopped: `{phase: Suspended, conditions: [{type: QuotaReserved, status: "False", reason: Down, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`,
		done:    `{phase: Succeeded}`,
	},
}

// TestConformance takes every kind that has a suspend flag through its life.
func TestConformance(t *testing.T) {
	if err := installed(); err != nil {
		t.Fatal(err)
	}
	for _, l := range lives {
		t.Run(l.sample, func(t *testing.T) {
			t.Parallel()
			l.live(t)
		})
	}
}

// TestEveryRowHasALife fails when a row is added that no test here takes
// through its life.
func TestEveryRowHasALife(t *testing.T) {
	tested := map[string]bool{}
	for _, sample := range append(sampleNames(), "mpijob-v1") {
		for _, object := range samples(t, sample) {
			tested[object.GroupVersionKind().String()] = true
		}
	}
	for _, kind := range kinds.Table() {
		if !tested[kind.GVK.String()] {
			t.Errorf("%s (%s) has no sample that is tested", kind.Name, kind.GVK)
		}
	}
}

// live is wait, start, preempt, requeue, finish.
func (l life) live(t *testing.T) {
	a := newArena(t)
	objects := samples(t, l.sample)
	job := objects[len(objects)-1]
	for _, object := range objects[:len(objects)-1] {
		cluster.Make(t, object)
	}
	job.SetNamespace(a.namespace)
	if l.adjust != nil {
		l.adjust(job)
	}
	cluster.Make(t, job)

	// It waits: suspended from its first moment, described by a workload.
	if !l.suspended(job) {
		t.Fatalf("it came back from its creation with %s not true: its operator would have started it", l.suspend)
	}
	asWritten := job.DeepCopy()
	wl := cluster.WorkloadOf(t, job)
	if got := podSetsOf(wl); got != l.podSets {
		t.Fatalf("the workload's pod sets are %q, want %q", got, l.podSets)
	}

	// It starts, with the flavor's node labels and tolerations on its pods.
	a.open(t)
	l.waitStarted(t, job, len(wl.Spec.PodSets))
	setStatus(t, job, l.running)
	waitCondition(t, wl, kueue.WorkloadPodsReady, metav1.ConditionTrue)

	// It is preempted, and releases its quota only when its pods are gone.
	intruder := a.intruder(t)
	waitCondition(t, wl, kueue.WorkloadEvicted, metav1.ConditionTrue)
	sandbox.Eventually(t, "it is suspended", func(ctx context.Context) error {
		now, err := fetch(ctx, job)
		if err == nil && !l.suspended(now) {
			err = fmt.Errorf("%s is not true", l.suspend)
		}
		return err
	})
	if now := waitCondition(t, wl, kueue.WorkloadQuotaReserved, metav1.ConditionTrue); now == nil {
		t.Fatal("its quota went before its pods")
	}
	setStatus(t, job, l.stopped)
	waitCondition(t, intruder, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	now, err := fetch(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if n := marks(now.Object["spec"]); n != 0 {
		t.Fatalf("%d places still carry what the admission added", n)
	}
	if l.sample != "rayjob" && l.sample != "sparkapplication" { // implicit fields of these become explicit
		if diff := difference(asWritten.Object["spec"], now.Object["spec"]); diff != "" {
			t.Fatalf("its spec is not as the user wrote it: %s", diff)
		}
	}

	// It is admitted again when the preemptor is gone.
	if err := cluster.Delete(t.Context(), intruder); err != nil {
		t.Fatal(err)
	}
	l.waitStarted(t, job, len(wl.Spec.PodSets))

	// It ends, and its quota is released.
	if l.service {
		if err := cluster.Delete(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		waitUsageZero(t, a)
		return
	}
	setStatus(t, job, l.running)
	setStatus(t, job, l.done)
	finished := waitCondition(t, wl, kueue.WorkloadFinished, metav1.ConditionTrue)
	if finished.Reason != kueue.WorkloadFinishedReasonSucceeded {
		t.Fatalf("it finished as %s: %s", finished.Reason, finished.Message)
	}
	waitUsageZero(t, a)
}

func (l life) suspended(job *unstructured.Unstructured) bool {
	value, _, _ := unstructured.NestedBool(job.Object, strings.Split(l.suspend, ".")...)
	return value
}

func (l life) waitStarted(t *testing.T, job *unstructured.Unstructured, podSets int) {
	t.Helper()
	sandbox.Eventually(t, "it is started", func(ctx context.Context) error {
		now, err := fetch(ctx, job)
		if err != nil {
			return err
		}
		if l.suspended(now) {
			return fmt.Errorf("%s is still true", l.suspend)
		}
		if n := marks(now.Object["spec"]); n != podSets {
			return fmt.Errorf("%d of %d pod sets carry what the admission adds", n, podSets)
		}
		return nil
	})
}

func waitUsageZero(t *testing.T, a *arena) {
	t.Helper()
	sandbox.Eventually(t, "its quota is free", func(ctx context.Context) error {
		queue := &kueue.ClusterQueue{}
		if err := cluster.Get(ctx, clientKey(a.queue), queue); err != nil {
			return err
		}
		for _, flavor := range queue.Status.FlavorsReservation {
			for _, r := range flavor.Resources {
				if !r.Total.IsZero() {
					return fmt.Errorf("%s of %s are still taken", r.Total.String(), r.Name)
				}
			}
		}
		return nil
	})
}

// sampleNames are the samples that tests here take through their lives.
func sampleNames() []string {
	var names []string
	for _, l := range lives {
		names = append(names, l.sample)
	}
	return append(names, "pod", "deployment", "statefulset", "leaderworkerset", "notebook", "inferenceservice", "volcano-job", "et-trainingjob", "argo-workflow")
}
