// Package queue tests elastic-queue against a real API server.
package queue

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueuev1beta1 "sigs.k8s.io/kueue/apis/kueue/v1beta1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/checks/machines"
	"github.com/elastic-ai/elastic/internal/checks/provisioning"
	"github.com/elastic-ai/elastic/test/sandbox"
)

var cluster *sandbox.Cluster

func TestMain(m *testing.M) {
	os.Exit(sandbox.Run(m, &cluster, sandbox.Options{
		Nodes:  "1x8:H100-80G,1x4:A100-40G",
		Scheme: []func(*runtime.Scheme) error{egpu.AddToScheme, provisioning.AddToScheme, queuepolicy.AddToScheme, cloud.AddToScheme, machines.AddToScheme},
		Queue:  mapDevices,
	}))
}

// queueFor makes a namespace with a queue of n H100 cards, and returns the
// namespace.
func queueFor(t *testing.T, cards string) string {
	t.Helper()
	ns := cluster.Namespace(t)
	cluster.Make(t,
		sandbox.Flavor(ns, map[string]string{"elasticgpu.io/gpu-model": "H100-80G"}),
		sandbox.ClusterQueue(ns, ns, cards),
		sandbox.LocalQueue(ns, "main", ns),
	)
	return ns
}

// preemptingQueueFor is queueFor with a queue in which higher priorities preempt lower ones.
func preemptingQueueFor(t *testing.T, cards string) string {
	t.Helper()
	ns := queueFor(t, cards)
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	cluster.Change(t, cq, func() {
		cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	})
	return ns
}

func TestJobGoesThroughTheQueue(t *testing.T) {
	ns := queueFor(t, "4")
	job := sandbox.Job(ns, "first", "main", 3, "1")
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	cluster.Make(t, job)
	if !ptr.Deref(job.Spec.Suspend, false) {
		t.Fatal("the job must come back suspended from its creation: no operator may see it run")
	}
	wl := cluster.WorkloadOf(t, job)
	waitCondition(t, wl, kueue.WorkloadAdmitted, true)
	waitJob(t, job, func(j *batchv1.Job) error {
		if ptr.Deref(j.Status.Ready, 0) != 3 {
			return fmt.Errorf("%d of 3 pods are ready", ptr.Deref(j.Status.Ready, 0))
		}
		return nil
	})
	pods := podsOf(t, job)
	for _, pod := range pods {
		if pod.Spec.NodeName != "h100-80g-0" {
			t.Errorf("pod %s runs on %q; the flavor's node labels must steer it to the H100 node", pod.Name, pod.Spec.NodeName)
		}
	}
	waitCondition(t, wl, kueue.WorkloadPodsReady, true)
	waitUsage(t, ns, "3")

	// The pods end when the test says so: the job finishes and the quota is back.
	for i := range pods {
		cluster.Change(t, &pods[i], func() { pods[i].Annotations[sandbox.RunFor] = "0s" })
	}
	waitCondition(t, wl, kueue.WorkloadFinished, true)
	waitUsage(t, ns, "0")
}

func TestJobWaitsWithAReasonAndStartsWhenQuotaComes(t *testing.T) {
	ns := queueFor(t, "4")
	first := sandbox.Job(ns, "first", "main", 3, "1")
	first.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	cluster.Make(t, first)
	waitCondition(t, cluster.WorkloadOf(t, first), kueue.WorkloadAdmitted, true)

	second := sandbox.Job(ns, "second", "main", 2, "1")
	cluster.Make(t, second)
	wl := cluster.WorkloadOf(t, second)
	condition := waitCondition(t, wl, kueue.WorkloadQuotaReserved, false)
	if condition.Reason != "Pending" || !strings.Contains(condition.Message, "insufficient unused quota") {
		t.Errorf("reason %q, message %q", condition.Reason, condition.Message)
	}
	if err := cluster.Delete(t.Context(), first, client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}
	waitCondition(t, wl, kueue.WorkloadFinished, true)
}

func TestFailedJobGivesItsQuotaBack(t *testing.T) {
	ns := queueFor(t, "4")
	job := sandbox.Job(ns, "fails", "main", 1, "1")
	job.Spec.BackoffLimit = ptr.To(int32(0))
	job.Spec.Template.Annotations[sandbox.RunFor] = "0s"
	job.Spec.Template.Annotations[sandbox.ExitCode] = "3"
	cluster.Make(t, job)
	condition := waitCondition(t, cluster.WorkloadOf(t, job), kueue.WorkloadFinished, true)
	if condition.Reason != kueue.WorkloadFinishedReasonFailed {
		t.Errorf("reason %q, want %s", condition.Reason, kueue.WorkloadFinishedReasonFailed)
	}
	waitUsage(t, ns, "0")
}

func TestHigherPriorityPreempts(t *testing.T) {
	ns := preemptingQueueFor(t, "4")
	urgent := &kueue.WorkloadPriorityClass{Value: 1000}
	urgent.Name = ns
	cluster.Make(t, urgent)

	low := sandbox.Job(ns, "low", "main", 4, "1")
	low.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	low.Spec.Template.Spec.NodeSelector = map[string]string{"kubernetes.io/os": "linux"}
	cluster.Make(t, low)
	lowWorkload := cluster.WorkloadOf(t, low)
	waitCondition(t, lowWorkload, kueue.WorkloadPodsReady, true)

	high := sandbox.Job(ns, "high", "main", 4, "1")
	high.Labels["kueue.x-k8s.io/priority-class"] = ns
	high.Spec.Template.Annotations[sandbox.RunFor] = "0s"
	cluster.Make(t, high)
	waitCondition(t, cluster.WorkloadOf(t, high), kueue.WorkloadFinished, true)
	evicted := waitCondition(t, lowWorkload, kueue.WorkloadRequeued, true)
	if evicted.Reason != kueue.WorkloadEvictedByPreemption {
		t.Errorf("requeued for %q, want %s", evicted.Reason, kueue.WorkloadEvictedByPreemption)
	}

	// The victim starts again where it can, as its user wrote it plus the flavor.
	waitCondition(t, lowWorkload, kueue.WorkloadAdmitted, true)
	waitJob(t, low, func(j *batchv1.Job) error {
		if ptr.Deref(j.Status.Ready, 0) != 4 {
			return fmt.Errorf("%d of 4 pods are ready again", ptr.Deref(j.Status.Ready, 0))
		}
		if selector := j.Spec.Template.Spec.NodeSelector; len(selector) != 2 {
			return fmt.Errorf("node selector %v, want the user's and the flavor's", selector)
		}
		return nil
	})
}

// Eight pods want a card each; quota allows it, but one of the eight cards is
// broken. None starts, the reason says so, and all start when it is mended.
func TestQuotaIsFreeButACardIsBroken(t *testing.T) {
	ns := queueFor(t, "8")
	breakCard(t, "h100-80g-0", "3=fell off the bus")
	job := sandbox.Job(ns, "eight", "main", 8, "1")
	job.Spec.Template.Annotations[sandbox.RunFor] = "0s"
	cluster.Make(t, job)
	wl := cluster.WorkloadOf(t, job)
	condition := waitCondition(t, wl, kueue.WorkloadQuotaReserved, false)
	if condition.Reason != "Pending" {
		t.Errorf("reason %q", condition.Reason)
	}
	for _, want := range []string{"7 of 8 pods fit", "h100-80g-0/3 (fell off the bus)"} {
		if !strings.Contains(condition.Message, want) {
			t.Errorf("message %q must say %q", condition.Message, want)
		}
	}
	breakCard(t, "h100-80g-0", "")
	waitCondition(t, wl, kueue.WorkloadFinished, true)
}

// breakCard makes simulated cards of a node fail, and waits until the agent
// has told. Empty mends them.
func breakCard(t *testing.T, name, problem string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"sandbox.elasticai.io/gpu-problem":%q}}}`, problem)
	node := &corev1.Node{}
	node.Name = name
	if err := cluster.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	want := egpu.GPUReady
	if problem != "" {
		want = egpu.GPUUnhealthy
	}
	sandbox.Eventually(t, "card 3 of "+name+" is "+want, func(ctx context.Context) error {
		gpu := &egpu.GPU{}
		if err := cluster.Get(ctx, client.ObjectKey{Name: name + "-3"}, gpu); err != nil {
			return err
		}
		if gpu.Status.State != want {
			return fmt.Errorf("it is %s", gpu.Status.State)
		}
		return nil
	})
}

// A queue with an admission check: quota is reserved at once, the job starts
// when the check is ready, and a check that wants another try takes it back.
func TestAdmissionCheck(t *testing.T) {
	ns := queueFor(t, "4")
	activeCheck(t, ns)
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	cluster.Change(t, cq, func() {
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{
			AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: kueue.AdmissionCheckReference(ns)}},
		}
	})
	job := sandbox.Job(ns, "checked", "main", 1, "1")
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	cluster.Make(t, job)
	wl := cluster.WorkloadOf(t, job)
	waitCondition(t, wl, kueue.WorkloadQuotaReserved, true)
	waitUsage(t, ns, "1")
	setCheck(t, wl, kueue.CheckStateRetry)
	waitCondition(t, wl, kueue.WorkloadRequeued, true)
	waitCondition(t, wl, kueue.WorkloadQuotaReserved, true)
	current := &kueue.Workload{}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(wl), current); err != nil {
		t.Fatal(err)
	}
	if apimeta.IsStatusConditionTrue(current.Status.Conditions, kueue.WorkloadAdmitted) || current.Status.AdmissionChecks[0].State != kueue.CheckStatePending {
		t.Errorf("when it is pending again the check must be asked again: %+v", current.Status.AdmissionChecks)
	}
	setCheck(t, wl, kueue.CheckStateReady)
	waitCondition(t, wl, kueue.WorkloadPodsReady, true)
}

// setCheck answers the workload's check as its controller would.
func setCheck(t *testing.T, wl *kueue.Workload, state kueue.CheckState) {
	t.Helper()
	sandbox.Eventually(t, "the check can be answered", func(ctx context.Context) error {
		current := &kueue.Workload{}
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), current); err != nil {
			return err
		}
		if len(current.Status.AdmissionChecks) != 1 || current.Status.AdmissionChecks[0].State != kueue.CheckStatePending {
			return fmt.Errorf("checks are %v", current.Status.AdmissionChecks)
		}
		current.Status.AdmissionChecks[0].State = state
		current.Status.AdmissionChecks[0].LastTransitionTime = metav1.Now()
		return cluster.Status().Update(ctx, current)
	})
}

func TestBothVersionsAreServed(t *testing.T) {
	ns := cluster.Namespace(t)
	old := &kueuev1beta1.ClusterQueue{}
	old.Name = ns
	old.Spec.Cohort = "team"
	cluster.Make(t, old)
	current := &kueue.ClusterQueue{}
	if err := cluster.Get(t.Context(), client.ObjectKey{Name: ns}, current); err != nil {
		t.Fatal(err)
	}
	if current.Spec.CohortName != "team" {
		t.Errorf("written as v1beta1 with cohort team, read as v1beta2 with %q", current.Spec.CohortName)
	}
}

func podsOf(t *testing.T, job *batchv1.Job) []corev1.Pod {
	t.Helper()
	pods := &corev1.PodList{}
	if err := cluster.List(t.Context(), pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) == 0 {
		t.Fatalf("job %s has no pods", job.Name)
	}
	return pods.Items
}

func waitJob(t *testing.T, job *batchv1.Job, check func(*batchv1.Job) error) {
	t.Helper()
	sandbox.Eventually(t, "job "+job.Name, func(ctx context.Context) error {
		current := &batchv1.Job{}
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(job), current); err != nil {
			return err
		}
		return check(current)
	})
}

func waitUsage(t *testing.T, queue, cards string) {
	t.Helper()
	sandbox.Eventually(t, fmt.Sprintf("usage %s in %s", cards, queue), func(ctx context.Context) error {
		cq := &kueue.ClusterQueue{}
		if err := cluster.Get(ctx, client.ObjectKey{Name: queue}, cq); err != nil {
			return err
		}
		for _, flavor := range cq.Status.FlavorsReservation {
			for _, r := range flavor.Resources {
				if r.Name == sandbox.GPU && r.Total.String() == cards {
					return nil
				}
			}
		}
		return fmt.Errorf("reservation is %v", cq.Status.FlavorsReservation)
	})
}

// waitCondition waits for a condition of the workload and returns it.
func waitCondition(t *testing.T, wl *kueue.Workload, name string, value bool) (found *metav1.Condition) {
	t.Helper()
	sandbox.Eventually(t, fmt.Sprintf("%s=%t of workload %s", name, value, wl.Name), func(ctx context.Context) error {
		current := &kueue.Workload{}
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), current); err != nil {
			return err
		}
		found = apimeta.FindStatusCondition(current.Status.Conditions, name)
		if found == nil || (found.Status == "True") != value {
			return fmt.Errorf("conditions are %v", current.Status.Conditions)
		}
		return nil
	})
	return found
}
