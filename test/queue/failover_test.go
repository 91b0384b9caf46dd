package queue

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue/workload"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// The leader is killed again and again while jobs come, run and go. Every job
// finishes, none runs twice, and no quota stays behind. ELASTIC_RESTART_JOBS
// says how many jobs, ELASTIC_RESTART_KILLS how often it is killed.
func TestKilledInALoop(t *testing.T) {
	jobs, kills := number(t, "ELASTIC_RESTART_JOBS", 60), number(t, "ELASTIC_RESTART_KILLS", 4)
	ns := cluster.Namespace(t)
	cq := sandbox.ClusterQueue(ns, ns, "0")
	cq.Spec.ResourceGroups[0].CoveredResources = []corev1.ResourceName{"cpu"}
	cq.Spec.ResourceGroups[0].Flavors[0].Resources = []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse("4")}}
	cluster.Make(t, sandbox.Flavor(ns, nil), cq, sandbox.LocalQueue(ns, "main", ns))
	finished := countFinished(t, ns)
	start := time.Now()
	var made sync.WaitGroup
	for worker := range 4 {
		made.Go(func() {
			for i := worker; i < jobs; i += 4 {
				submitUntilTaken(t, ns, fmt.Sprintf("job-%04d", i))
			}
		})
	}
	for kill := range kills {
		waitProgress(t, finished, (kill+1)*jobs/(kills+1)-1)
		if err := syscall.Kill(cluster.Queue(t).PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	made.Wait()
	waitProgress(t, finished, jobs)
	t.Logf("%d jobs finished in %s, the leader was killed %d times", jobs, time.Since(start).Round(time.Second), kills)

	list := &batchv1.JobList{}
	if err := cluster.List(t.Context(), list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	for _, job := range list.Items {
		if job.Status.Succeeded != 1 || job.Status.Failed != 0 {
			t.Errorf("job %s: %d pods succeeded, %d failed", job.Name, job.Status.Succeeded, job.Status.Failed)
		}
	}
	pods := &corev1.PodList{}
	if err := cluster.List(t.Context(), pods, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != jobs || len(pods.Items) != jobs {
		t.Errorf("%d jobs made %d pods, want %d of each: one was started twice or stopped without need", len(list.Items), len(pods.Items), jobs)
	}
	sandbox.Eventually(t, "every workload is finished, was never evicted, and nothing is used", func(ctx context.Context) error {
		return allOver(ctx, ns, jobs)
	})
}

// The leader is killed while evicted workloads are stopping. What they leave is still nominated to their preemptor:
// a workload before it in the queue, which could use the part that is free by then, does not get it from the next leader.
func TestKilledWhileVictimsStop(t *testing.T) {
	ns := preemptingQueueFor(t, "4")
	other := queueFor(t, "1")

	older := bare(ns, "older", 2, 5)
	older.Spec.Active = ptr.To(false)
	a, b := bare(ns, "a", 2, 0), bare(ns, "b", 2, 0)
	cluster.Make(t, older, a, b)
	waitCondition(t, a, kueue.WorkloadQuotaReserved, true)
	waitCondition(t, b, kueue.WorkloadQuotaReserved, true)
	high := bare(ns, "high", 4, 5)
	sandbox.Eventually(t, "a second passes, so that older is", func(context.Context) error {
		if time.Since(older.CreationTimestamp.Time) < time.Second {
			return fmt.Errorf("it was made at %s", older.CreationTimestamp)
		}
		return nil
	})
	cluster.Make(t, high)
	waitCondition(t, a, kueue.WorkloadEvicted, true)
	waitCondition(t, b, kueue.WorkloadEvicted, true)
	letGo(t, a)
	if err := change(t, older, cluster.Update, func(wl *kueue.Workload) { wl.Spec.Active = ptr.To(true) }); err != nil {
		t.Fatal(err)
	}

	if err := syscall.Kill(cluster.Queue(t).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	probe := bare(other, "probe", 1, 0)
	sandbox.Eventually(t, "the next leader takes workloads", func(ctx context.Context) error { return cluster.Create(ctx, probe) })
	waitCondition(t, probe, kueue.WorkloadQuotaReserved, true)
	letGo(t, b)
	waitCondition(t, high, kueue.WorkloadQuotaReserved, true)
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(older), older); err != nil {
		t.Fatal(err)
	}
	if workload.HasReservation(older) {
		t.Error("another workload got part of the quota that victims freed")
	}
}

// bare is a workload without a job: it stops when the test says so.
func bare(ns, name string, cards, priority int32) *kueue.Workload {
	wl := &kueue.Workload{}
	wl.Namespace, wl.Name = ns, name
	wl.Spec.QueueName, wl.Spec.Priority = "main", ptr.To(priority)
	wl.Spec.PodSets = []kueue.PodSet{{
		Name: "main", Count: cards, Template: corev1.PodTemplateSpec{Spec: sandbox.Job(ns, "", "", 1, "1").Spec.Template.Spec},
	}}
	return wl
}

// letGo does for a bare workload what a job's controller does when its pods are gone.
func letGo(t *testing.T, wl *kueue.Workload) {
	t.Helper()
	err := change(t, wl, func(ctx context.Context, wl client.Object, _ ...client.UpdateOption) error {
		return cluster.Status().Update(ctx, wl)
	}, func(wl *kueue.Workload) { workload.Release(wl, "its pods are gone", time.Now()) })
	if err != nil {
		t.Fatal(err)
	}
}

// allOver says what is left of the jobs in the queue's cache.
func allOver(ctx context.Context, ns string, jobs int) error {
	workloads := &kueue.WorkloadList{}
	if err := cluster.List(ctx, workloads, client.InNamespace(ns)); err != nil {
		return err
	}
	if len(workloads.Items) != jobs {
		return fmt.Errorf("%d jobs have %d workloads", jobs, len(workloads.Items))
	}
	for _, wl := range workloads.Items {
		if evicted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted); evicted != nil {
			return fmt.Errorf("workload %s was evicted: %s", wl.Name, evicted.Message)
		}
		if !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished) || len(wl.Finalizers) > 0 {
			return fmt.Errorf("workload %s is not over: %v, finalizers %v", wl.Name, wl.Status.Conditions, wl.Finalizers)
		}
	}
	cq := &kueue.ClusterQueue{}
	if err := cluster.Get(ctx, client.ObjectKey{Name: ns}, cq); err != nil {
		return err
	}
	if s := cq.Status; s.PendingWorkloads+s.ReservingWorkloads+s.AdmittedWorkloads > 0 || !s.FlavorsReservation[0].Resources[0].Total.IsZero() {
		return fmt.Errorf("the queue's status is %+v", s)
	}
	return nil
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// submitUntilTaken makes a job. While the queue is down its webhook refuses
// jobs, and their creator tries again.
func submitUntilTaken(t *testing.T, ns, name string) {
	job := sandbox.Job(ns, name, "main", 1, "0")
	job.Spec.Template.Annotations[sandbox.RunFor] = "100ms"
	job.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("100m")}
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, sandbox.Timeout, true, func(ctx context.Context) (bool, error) {
		err := cluster.Create(ctx, job)
		return err == nil || apierrors.IsAlreadyExists(err), nil
	})
	if err != nil {
		t.Errorf("making job %s: %v", name, err)
	}
}

// countFinished watches the jobs of a namespace and counts those that completed.
func countFinished(t *testing.T, ns string) func() int {
	t.Helper()
	clients, err := kubernetes.NewForConfig(cluster.REST)
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace(ns))
	lister := factory.Batch().V1().Jobs().Lister()
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSync(t.Context().Done())
	return func() (done int) {
		jobs, _ := lister.List(labels.Everything())
		for _, job := range jobs {
			if job.Status.Succeeded > 0 {
				done++
			}
		}
		return done
	}
}

// waitProgress waits until that many jobs have completed, for as long as some
// do.
func waitProgress(t *testing.T, finished func() int, want int) {
	t.Helper()
	for had := finished(); had < want; had = finished() {
		sandbox.Eventually(t, fmt.Sprintf("more than %d of %d jobs finish", had, want), func(context.Context) error {
			if finished() == had {
				return fmt.Errorf("none did")
			}
			return nil
		})
	}
}
