// Package operators runs other projects' real operators beside Elastic: what
// the conformance suite plays, they do.
//
// They are big and are built from their own modules, so "make test-operators"
// builds them first and says where they are in ELASTIC_OPERATORS.
package operators

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/internal/queue/certs"
	"github.com/elastic-ai/elastic/test/crds"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// operator starts a built operator against the cluster and ends it after the
// test.
func operator(t *testing.T, cluster *sandbox.Cluster, program string, args ...string) {
	t.Helper()
	folder := os.Getenv("ELASTIC_OPERATORS")
	if folder == "" {
		t.Skip("needs operators that were built: run 'make test-operators'")
	}
	tmp := t.TempDir()
	serving := filepath.Join(tmp, "k8s-webhook-server", "serving-certs")
	if err := os.MkdirAll(serving, 0o700); err != nil {
		t.Fatal(err)
	}
	bundle, err := certs.Make([]string{"localhost"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"tls.crt": bundle.Certificate, "tls.key": bundle.Key} {
		if err := os.WriteFile(filepath.Join(serving, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.Create(filepath.Join(tmp, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(folder, program), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig, "TMPDIR="+tmp)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			data, _ := os.ReadFile(log.Name())
			t.Logf("%s said:\n%s", program, data[max(0, len(data)-6000):])
		}
	})
}

func configFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

var cluster *sandbox.Cluster

func TestMain(m *testing.M) {
	if os.Getenv("ELASTIC_OPERATORS") == "" {
		os.Exit(m.Run()) // every test skips
	}
	os.Exit(sandbox.Run(m, &cluster, sandbox.Options{Nodes: "2x8:H100-80G"}))
}

// TestJobSet: the real operator makes the jobs of an admitted JobSet, stops them
// when it is preempted, makes them again, and its end is the workload's.
func TestJobSet(t *testing.T) {
	if os.Getenv("ELASTIC_OPERATORS") == "" {
		t.Skip("needs operators that were built: run 'make test-operators'")
	}
	installCRDs(t)
	operator(t, cluster, "jobset-operator", "--config", configFile(t, `apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
internalCertManagement: {enable: false}
leaderElection: {leaderElect: false}
health: {healthProbeBindAddress: "127.0.0.1:0"}
metrics: {bindAddress: "127.0.0.1:0"}
webhook: {host: 127.0.0.1, port: 29443}
`))
	ns := queue(t)
	jobset := read(t, `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: train
  labels: {kueue.x-k8s.io/queue-name: main}
spec:
  network: {enableDNSHostnames: false}
  successPolicy: {operator: All}
  startupPolicy: {startupPolicyOrder: AnyOrder}
  replicatedJobs:
  - name: workers
    replicas: 2
    template:
      spec:
        completionMode: Indexed
        parallelism: 2
        completions: 2
        backoffLimit: 0
        template:
          metadata:
            annotations: {sandbox.elasticai.io/run-for: forever}
          spec:
            restartPolicy: Never
            containers:
            - {name: main, image: example.com/train:1, resources: {limits: {nvidia.com/gpu: "1"}}}
`)
	jobset.SetNamespace(ns)
	cluster.Make(t, jobset)
	lifeWithAnOperator(t, ns, jobset, 4)
}

// lifeWithAnOperator is wait, start, preempt, requeue, finish, with real pods.
func lifeWithAnOperator(t *testing.T, ns string, job *unstructured.Unstructured, pods int) {
	t.Helper()
	wl := cluster.WorkloadOf(t, job)
	wait(t, wl, kueue.WorkloadPodsReady)
	waitPods(t, ns, pods)
	intruder := wl.DeepCopy()
	intruder.ObjectMeta = metav1.ObjectMeta{Namespace: ns, Name: "intruder"}
	intruder.Spec.Priority, intruder.Spec.PriorityClassRef = ptr.To(int32(1000)), nil
	intruder.Status = kueue.WorkloadStatus{}
	cluster.Make(t, intruder)
	wait(t, intruder, kueue.WorkloadAdmitted) // not before the job's pods are gone
	waitPods(t, ns, 0)
	if err := cluster.Delete(t.Context(), intruder); err != nil {
		t.Fatal(err)
	}
	for _, pod := range waitPods(t, ns, pods) {
		sandbox.Eventually(t, "the pod can be told to end", func(ctx context.Context) error {
			if err := cluster.Get(ctx, client.ObjectKeyFromObject(&pod), &pod); err != nil {
				return err
			}
			pod.Annotations[sandbox.RunFor] = "0s"
			return cluster.Update(ctx, &pod)
		})
	}
	if finished := wait(t, wl, kueue.WorkloadFinished); finished.Reason != kueue.WorkloadFinishedReasonSucceeded {
		t.Fatalf("it finished as %s: %s", finished.Reason, finished.Message)
	}
}

func installCRDs(t *testing.T) {
	t.Helper()
	objects, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		unstructured.RemoveNestedField(object.Object, "spec", "conversion")
		unstructured.RemoveNestedField(object.Object, "status")
		if err := cluster.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("test"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
	}
}

// queue makes a namespace with a queue of 4 cards.
func queue(t *testing.T) string {
	t.Helper()
	ns := cluster.Namespace(t)
	clusterQueue := sandbox.ClusterQueue(ns, ns, "4")
	clusterQueue.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	cluster.Make(t, sandbox.Flavor(ns, map[string]string{"kubernetes.io/arch": "amd64"}), clusterQueue, sandbox.LocalQueue(ns, "main", ns))
	return ns
}

func read(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	objects, err := deploy.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects[0]
}

func wait(t *testing.T, wl *kueue.Workload, name string) *metav1.Condition {
	t.Helper()
	var found *metav1.Condition
	sandbox.Eventually(t, name+" of "+wl.Name, func(ctx context.Context) error {
		now := &kueue.Workload{}
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), now); err != nil {
			return err
		}
		if found = apimeta.FindStatusCondition(now.Status.Conditions, name); found == nil || found.Status != metav1.ConditionTrue {
			return fmt.Errorf("conditions are %v", now.Status.Conditions)
		}
		return nil
	})
	return found
}

// waitPods waits until so many pods run in a namespace, and no other.
func waitPods(t *testing.T, ns string, want int) []corev1.Pod {
	t.Helper()
	list := &corev1.PodList{}
	sandbox.Eventually(t, fmt.Sprintf("%d pods", want), func(ctx context.Context) error {
		if err := cluster.List(ctx, list, client.InNamespace(ns)); err != nil {
			return err
		}
		up := 0
		for _, pod := range list.Items {
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				up++
			}
		}
		if up != want || len(list.Items) != want {
			return fmt.Errorf("%d of %d pods run", up, len(list.Items))
		}
		return nil
	})
	return list.Items
}
