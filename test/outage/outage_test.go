// Package outage tests what is left when the cluster itself fails: its control
// plane, a node.
package outage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/test/sandbox"
)

var cluster *sandbox.Cluster

func TestMain(m *testing.M) {
	os.Exit(sandbox.Run(m, &cluster, sandbox.Options{Nodes: "2x8:H100-80G"}))
}

// The API server and etcd stand still until the queue's leader has given up.
// When they go on, what ran still does, and what is submitted runs too.
func TestAPIServerStandsStill(t *testing.T) {
	ns := makeQueue(t)
	_, before := runningJob(t, ns, "4")

	leader := cluster.Queue(t).PID
	plane := planePID(t)
	if err := syscall.Kill(plane, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn := func() { _ = syscall.Kill(plane, syscall.SIGCONT) }
	t.Cleanup(goOn)
	sandbox.Eventually(t, "the leader steps down", func(context.Context) error {
		if syscall.Kill(leader, 0) == nil {
			return errors.New("it goes on without a lease")
		}
		return nil
	})
	goOn()

	later := sandbox.Job(ns, "later", "main", 1, "4")
	later.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	sandbox.Eventually(t, "jobs can be made again", func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(cluster.Create(ctx, later))
	})
	runningPod(t, ns, "later")
	stillRuns(t, before)
}

// While no replica of the queue answers, what it would have to hold back cannot be created: jobs of every kind in
// managed namespaces, and pods that name a queue. All else can, and what runs goes on.
func TestWebhooksAreDown(t *testing.T) {
	ns := makeQueue(t)
	_, before := runningJob(t, ns, "1")

	pid := cluster.Queue(t).PID
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn := sync.OnceFunc(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	t.Cleanup(goOn)
	pod := func(name string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/train:1"}}},
		}
	}
	unqueued := func(namespace, name string) *batchv1.Job {
		job := sandbox.Job(namespace, name, "", 1, "1")
		job.Labels = nil
		return job
	}
	queued := map[string]string{"kueue.x-k8s.io/queue-name": "main"}
	t.Run("meanwhile", func(t *testing.T) {
		for what, tc := range map[string]struct {
			object  client.Object
			refused bool
		}{
			"a job of a queue":           {sandbox.Job(ns, "queued", "main", 1, "1"), true},
			"a job without a queue":      {unqueued(ns, "unqueued"), true},
			"a pod of a queue":           {pod("queued", queued), true},
			"a pod without a queue":      {pod("unqueued", nil), false},
			"a job of the control plane": {unqueued(metav1.NamespaceSystem, "system-job"), false},
			"a Deployment without a queue": {&appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "unqueued"},
				Spec: appsv1.DeploymentSpec{
					Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
					Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}}, Spec: pod("x", nil).Spec},
				},
			}, false},
			"a ClusterQueue": {sandbox.ClusterQueue(ns+"-other", ns, "1"), true},
		} {
			t.Run(what, func(t *testing.T) {
				t.Parallel() // a call that nobody answers takes ten seconds
				err := cluster.Create(t.Context(), tc.object)
				if err == nil {
					t.Cleanup(func() {
						_ = cluster.Delete(context.Background(), tc.object, client.PropagationPolicy(metav1.DeletePropagationBackground))
					})
				}
				if refused := err != nil && strings.Contains(err.Error(), "failed calling webhook"); refused != tc.refused || !refused && err != nil {
					t.Errorf("refused: %v, want %v: %v", refused, tc.refused, err)
				}
			})
		}
	})
	goOn()
	stillRuns(t, before)
}

// A node that is lost, and said to be, takes its pods with it. Their job stays admitted and goes on
// elsewhere; nothing is placed on the node until it is back.
func TestNodeIsLost(t *testing.T) {
	ns := makeQueue(t)
	runs, before := runningJob(t, ns, "4")
	lost := before.Spec.NodeName
	outOfService(t, lost, true)
	t.Cleanup(func() { outOfService(t, lost, false) })
	sandbox.Eventually(t, "the job's pod is replaced on the other node", func(ctx context.Context) error {
		pods, err := podsOf(ctx, ns, "runs")
		if err != nil {
			return err
		}
		for _, pod := range pods {
			if pod.UID != before.UID && pod.Status.Phase == corev1.PodRunning && pod.Spec.NodeName != lost {
				return nil
			}
		}
		return fmt.Errorf("%d pods", len(pods))
	})
	wl := cluster.WorkloadOf(t, runs)
	if !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted) || apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadEvicted) {
		t.Errorf("the job must stay admitted: %v", wl.Status.Conditions)
	}

	whole := sandbox.Job(ns, "whole", "main", 1, "8")
	whole.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	cluster.Make(t, whole)
	waiting := cluster.WorkloadOf(t, whole)
	sandbox.Eventually(t, "who needs the lost node's cards waits", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(waiting), waiting); err != nil {
			return err
		}
		if c := apimeta.FindStatusCondition(waiting.Status.Conditions, kueue.WorkloadQuotaReserved); c == nil || !strings.Contains(c.Message, "fits nowhere") {
			return fmt.Errorf("its condition is %v", c)
		}
		return nil
	})
	outOfService(t, lost, false)
	if on := runningPod(t, ns, "whole").Spec.NodeName; on != lost {
		t.Errorf("it runs on %s, not on %s", on, lost)
	}
}

// runningJob is a job that does not end, called runs, and its pod.
func runningJob(t *testing.T, ns, cards string) (*batchv1.Job, corev1.Pod) {
	t.Helper()
	job := sandbox.Job(ns, "runs", "main", 1, cards)
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	cluster.Make(t, job)
	return job, runningPod(t, ns, "runs")
}

// stillRuns: the job was not started again.
func stillRuns(t *testing.T, pod corev1.Pod) {
	t.Helper()
	if after := runningPod(t, pod.Namespace, "runs"); after.UID != pod.UID {
		t.Error("the job that ran was started again")
	}
}

// makeQueue makes a namespace with a queue of both nodes' cards.
func makeQueue(t *testing.T) string {
	t.Helper()
	ns := cluster.Namespace(t)
	cluster.Make(t, sandbox.Flavor(ns, map[string]string{"elasticgpu.io/gpu-model": "H100-80G"}), sandbox.ClusterQueue(ns, ns, "16"), sandbox.LocalQueue(ns, "main", ns))
	return ns
}

func podsOf(ctx context.Context, ns, job string) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	err := cluster.List(ctx, pods, client.InNamespace(ns), client.MatchingLabels{"batch.kubernetes.io/job-name": job})
	return pods.Items, err
}

func runningPod(t *testing.T, ns, job string) corev1.Pod {
	t.Helper()
	var found corev1.Pod
	sandbox.Eventually(t, job+" runs", func(ctx context.Context) error {
		pods, err := podsOf(ctx, ns, job)
		if err != nil {
			return err
		}
		for _, pod := range pods {
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				found = pod
				return nil
			}
		}
		return fmt.Errorf("%d pods", len(pods))
	})
	return found
}

// outOfService puts the taint on a node, or takes it off, by which Kubernetes is
// told that it is lost.
func outOfService(t *testing.T, name string, lost bool) {
	t.Helper()
	patch := `{"spec":{"taints":[]}}`
	if lost {
		patch = fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"value":"nodeshutdown","effect":"NoExecute"}]}}`, corev1.TaintNodeOutOfService)
	}
	node := &corev1.Node{}
	node.Name = name
	if err := cluster.Patch(context.Background(), node, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// planePID is the control plane's: the process that has the cluster's folder.
func planePID(t *testing.T) int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		data, err := os.ReadFile(line)
		if err == nil && bytes.Contains(data, []byte("elastic-sandbox")) && bytes.Contains(data, []byte(cluster.Dir)) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(line)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatal("there is no process with the cluster's folder in /proc")
	return 0
}
