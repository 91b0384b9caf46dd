package jobs

import (
	"context"
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// newJob is a Job that no controller of Kubernetes acts on: only the queue.
func newJob(a *arena, name string, pods int32) *batchv1.Job {
	job := sandbox.Job(a.namespace, name, "main", pods, "1")
	job.Spec.ManagedBy = ptr.To("example.com/conformance")
	job.Annotations = map[string]string{}
	return job
}

func waitJob(t *testing.T, job *batchv1.Job, what string, check func(*batchv1.Job) error) {
	t.Helper()
	sandbox.Eventually(t, what, func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return err
		}
		return check(job)
	})
}

func running(job *batchv1.Job) error {
	if *job.Spec.Suspend {
		return fmt.Errorf("it is suspended")
	}
	return nil
}

func TestQueueNames(t *testing.T) {
	t.Parallel()
	a := newArena(t)

	// The old annotation counts as the label does.
	old := newJob(a, "old", 1)
	old.Annotations[kinds.QueueNameLabel], old.Labels = "main", nil
	cluster.Make(t, old)
	if wl := cluster.WorkloadOf(t, old); wl.Spec.QueueName != "main" {
		t.Fatalf("its queue is %q", wl.Spec.QueueName)
	}

	// Without a name a job is left alone, unless the namespace has a default.
	free := newJob(a, "free", 1)
	free.Labels = nil
	cluster.Make(t, free)
	if ptr.Deref(free.Spec.Suspend, false) {
		t.Fatal("a job that names no queue was suspended")
	}
	cluster.Make(t, sandbox.LocalQueue(a.namespace, "default", a.namespace))
	sandbox.Eventually(t, "a job that names no queue goes to the default one", func(ctx context.Context) error {
		probe := newJob(a, "probe", 1)
		probe.Labels = nil
		if err := cluster.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if probe.Labels[kinds.QueueNameLabel] != "default" || !ptr.Deref(probe.Spec.Suspend, false) {
			return fmt.Errorf("labels are %v", probe.Labels)
		}
		return nil
	})

	// An object that a queued job creates is part of it, default queue or not.
	child := newJob(a, "child", 1)
	child.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(old, batchv1.SchemeGroupVersion.WithKind("Job"))}
	cluster.Make(t, child)
	if ptr.Deref(child.Spec.Suspend, false) {
		t.Fatal("the child of a queued job was suspended: it would wait twice")
	}

	wrong := newJob(a, "wrong", 1)
	wrong.Labels[kinds.QueueNameLabel] = "no_queue"
	if err := cluster.Create(t.Context(), wrong); err == nil {
		t.Fatal("a queue name that cannot be one was taken")
	}
}

func TestPriorityClass(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	low := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: a.namespace + "-low"}, Value: 10}
	high := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: a.namespace + "-high"}, Value: 20}
	cluster.Make(t, low, high)
	job := newJob(a, "job", 1)
	job.Labels[kinds.PriorityClassLabel] = low.Name
	cluster.Make(t, job)
	wl := cluster.WorkloadOf(t, job)
	if *wl.Spec.Priority != 10 {
		t.Fatalf("its priority is %d", *wl.Spec.Priority)
	}
	before := job.DeepCopy()
	job.Labels[kinds.PriorityClassLabel] = high.Name
	if err := cluster.Patch(t.Context(), job, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "the workload follows", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return err
		}
		if *wl.Spec.Priority != 20 {
			return fmt.Errorf("its priority is %d", *wl.Spec.Priority)
		}
		return nil
	})
}

// Without a class of its own a job has the priority of its pods.
func TestPriorityOfPods(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}, Value: 30}
	cluster.Make(t, class)
	job := newJob(a, "job", 1)
	job.Spec.Template.Spec.PriorityClassName = class.Name
	cluster.Make(t, job)
	if wl := cluster.WorkloadOf(t, job); *wl.Spec.Priority != 30 || wl.Spec.PriorityClassRef.Name != class.Name {
		t.Fatalf("its priority is %d, of %+v", *wl.Spec.Priority, wl.Spec.PriorityClassRef)
	}
}

func TestPartialAdmission(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.open(t)
	job := newJob(a, "job", 12) // the queue has 8 cards
	job.Annotations["kueue.x-k8s.io/job-min-parallelism"] = "2"
	job.Spec.Completions = ptr.To(int32(20))
	cluster.Make(t, job)
	waitJob(t, job, "it runs with the pods there are cards for", func(job *batchv1.Job) error {
		if *job.Spec.Parallelism != 8 {
			return fmt.Errorf("parallelism is %d", *job.Spec.Parallelism)
		}
		return running(job)
	})
	// When it is stopped its templates are restored.
	a.intruder(t)
	waitJob(t, job, "it asks for all its pods again", func(job *batchv1.Job) error {
		if *job.Spec.Parallelism != 12 || !*job.Spec.Suspend {
			return fmt.Errorf("parallelism is %d, suspended %v", *job.Spec.Parallelism, *job.Spec.Suspend)
		}
		return nil
	})
}

func TestPodsThatAreDoneGiveTheirQuotaBack(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.open(t)
	job := newJob(a, "job", 3)
	cluster.Make(t, job)
	waitJob(t, job, "it runs", running)
	wl := cluster.WorkloadOf(t, job)
	job.Status = batchv1.JobStatus{StartTime: ptr.To(metav1.Now()), Active: 1, Succeeded: 2, UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{}}
	if err := cluster.Status().Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "two pods are reclaimed", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return err
		}
		if len(wl.Status.ReclaimablePods) != 1 || wl.Status.ReclaimablePods[0].Count != 2 {
			return fmt.Errorf("reclaimable pods are %v", wl.Status.ReclaimablePods)
		}
		return nil
	})
}

func TestPrebuiltWorkload(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.open(t)
	model := newJob(a, "model", 2)
	cluster.Make(t, model)
	sets := cluster.WorkloadOf(t, model).Spec.PodSets
	job := newJob(a, "job", 2)
	job.Labels[kinds.PrebuiltLabel] = "prebuilt"
	cluster.Make(t, job)
	prebuilt := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "prebuilt"},
		Spec:       kueue.WorkloadSpec{QueueName: "main", Priority: ptr.To(int32(0)), PodSets: sets},
	}
	cluster.Make(t, prebuilt)
	waitJob(t, job, "it runs once its workload is there", running)
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(prebuilt), prebuilt); err != nil {
		t.Fatal(err)
	}
	if !metav1.IsControlledBy(prebuilt, job) {
		t.Fatalf("the prebuilt workload's owners are %v", prebuilt.OwnerReferences)
	}

	// A prebuilt workload that does not match its job is finished as out of sync.
	other := newJob(a, "other", 5)
	other.Labels[kinds.PrebuiltLabel] = "unlike"
	cluster.Make(t, other)
	unlike := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "unlike"},
		Spec:       kueue.WorkloadSpec{QueueName: "main", Priority: ptr.To(int32(0)), PodSets: sets},
	}
	cluster.Make(t, unlike)
	if finished := waitCondition(t, unlike, kueue.WorkloadFinished, metav1.ConditionTrue); finished.Reason != kueue.WorkloadFinishedReasonOutOfSync {
		t.Fatalf("it finished as %s", finished.Reason)
	}
}

// TestChangedSize: a running job that gets more pods is requeued, unless it may grow
// while it runs.
func TestChangedSize(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.open(t)
	fixed, elastic := newJob(a, "fixed", 1), newJob(a, "elastic", 1)
	elastic.Annotations[kinds.ElasticAnnotation] = "true"
	for _, job := range []*batchv1.Job{fixed, elastic} {
		job.Spec.Completions = ptr.To(int32(10))
		cluster.Make(t, job)
		waitJob(t, job, "it runs", running)
	}
	first := cluster.WorkloadOf(t, elastic)
	old := cluster.WorkloadOf(t, fixed)
	for _, job := range []*batchv1.Job{fixed, elastic} {
		before := job.DeepCopy()
		job.Spec.Parallelism = ptr.To(int32(2))
		if err := cluster.Patch(t.Context(), job, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	replaced := waitCondition(t, first, kueue.WorkloadFinished, metav1.ConditionTrue)
	if replaced.Reason != kueue.WorkloadSliceReplaced {
		t.Fatalf("the first workload of the elastic job finished as %s", replaced.Reason)
	}
	waitJob(t, elastic, "it runs on", running)

	sandbox.Eventually(t, "the other has a new workload", func(ctx context.Context) error {
		now := cluster.WorkloadOf(t, fixed)
		if now.UID == old.UID || now.Spec.PodSets[0].Count != 2 {
			return fmt.Errorf("it is %s with %d pods", now.UID, now.Spec.PodSets[0].Count)
		}
		return nil
	})
	waitJob(t, fixed, "it runs again, in its new size", func(job *batchv1.Job) error {
		if n := marks(job.Spec); *job.Spec.Parallelism != 2 || n != 1 {
			return fmt.Errorf("parallelism is %d, %d marks", *job.Spec.Parallelism, n)
		}
		return running(job)
	})
}

// A running job cannot leave its queue, where nobody could stop it any more; a
// suspended one can, and its workload is deleted.
func TestLeavingAQueue(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	waiting := newJob(a, "waiting", 1)
	cluster.Make(t, waiting)
	wl := cluster.WorkloadOf(t, waiting)
	leave := func(job *batchv1.Job) error {
		before := job.DeepCopy()
		job.Labels = nil
		return cluster.Patch(t.Context(), job, client.MergeFrom(before))
	}
	if err := leave(waiting); err != nil {
		t.Fatal(err)
	}
	cluster.WaitGone(t, wl)

	a.open(t)
	started := newJob(a, "started", 1)
	cluster.Make(t, started)
	waitJob(t, started, "it runs", running)
	const refused = `metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: "": field is immutable`
	if err := leave(started); err == nil || !strings.Contains(err.Error(), refused) {
		t.Errorf("it left its queue: %v", err)
	}
	waitJob(t, started, "other labels change", func(job *batchv1.Job) error {
		before := job.DeepCopy()
		job.Labels["example.com/note"] = "seen"
		return cluster.Patch(t.Context(), job, client.MergeFrom(before))
	})
}
