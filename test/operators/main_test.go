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
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/internal/certs"
	"github.com/elastic-ai/elastic/internal/checks/machines"
	"github.com/elastic-ai/elastic/test/crds"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// operator runs a built operator against the cluster, and starts it again where it ends by itself, as a node does. It ends with the test, if
// nobody has killed it before.
func operator(t *testing.T, program string, args ...string) (kill func()) {
	t.Helper()
	folder := os.Getenv(folderVariable)
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
	end := keep(t, func() *exec.Cmd {
		cmd := exec.Command(filepath.Join(folder, program), args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig, "TMPDIR="+tmp, "MY_POD_NAMESPACE=default")
		cmd.Stdout, cmd.Stderr = log, log
		return cmd
	})
	t.Cleanup(func() {
		end(syscall.SIGTERM)
		_ = log.Close()
		if t.Failed() {
			data, _ := os.ReadFile(log.Name())
			t.Logf("%s said:\n%s", program, data[max(0, len(data)-6000):])
		}
	})
	return func() { end(syscall.SIGKILL) }
}

// keep runs a program, and a second after it has ended again, until somebody ends it with a signal.
func keep(t *testing.T, program func() *exec.Cmd) (end func(syscall.Signal)) {
	t.Helper()
	cmd := program()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	ended, gone := make(chan struct{}), make(chan struct{})
	again := func() bool {
		mu.Lock()
		defer mu.Unlock()
		select {
		case <-ended:
			return false
		default:
		}
		cmd = program()
		if err := cmd.Start(); err != nil {
			t.Error(err)
			return false
		}
		return true
	}
	go func() {
		defer close(gone)
		for {
			_ = cmd.Wait()
			select {
			case <-ended:
			case <-time.After(time.Second):
			}
			if !again() {
				return
			}
		}
	}()
	var once sync.Once
	return func(signal syscall.Signal) {
		once.Do(func() {
			mu.Lock()
			close(ended)
			_ = cmd.Process.Signal(signal)
			mu.Unlock()
			<-gone
		})
	}
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

const folderVariable = "ELASTIC_OPERATORS"

func TestMain(m *testing.M) {
	if os.Getenv(folderVariable) == "" {
		os.Exit(m.Run()) // every test skips
	}
	os.Exit(sandbox.Run(m, &cluster, sandbox.Options{
		Nodes: "2x8:H100-80G", Scheme: []func(*runtime.Scheme) error{cloud.AddToScheme, machines.AddToScheme},
	}))
}

// lifeWithAnOperator is wait, start, preempt, requeue, finish, with real pods.
func lifeWithAnOperator(t *testing.T, ns string, job *unstructured.Unstructured, pods int) {
	t.Helper()
	wl := cluster.WorkloadOf(t, job)
	wait(t, wl, kueue.WorkloadPodsReady)
	for _, pod := range waitPods(t, ns, pods) {
		// By these the GPU scheduler knows which pods start together.
		if pod.Annotations[kueue.WorkloadAnnotation] != wl.Name || pod.Labels["kueue.x-k8s.io/podset"] == "" {
			t.Errorf("pod %s does not say which job it is of: labels %v, annotations %v", pod.Name, pod.Labels, pod.Annotations)
		}
	}
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
				return client.IgnoreNotFound(err) // its job is over already
			}
			pod.Annotations[sandbox.RunFor] = "0s"
			return client.IgnoreNotFound(cluster.Update(ctx, &pod))
		})
	}
	if finished := wait(t, wl, kueue.WorkloadFinished); finished.Reason != kueue.WorkloadFinishedReasonSucceeded {
		t.Fatalf("it finished as %s: %s", finished.Reason, finished.Message)
	}
}

// installCRDs brings the kinds' CRDs in.
func installCRDs(t *testing.T) {
	t.Helper()
	if os.Getenv(folderVariable) == "" {
		t.Fatal("it needs operators that were built: run 'make test-operators'")
	}
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

// queue makes a namespace with a queue of so many cards.
func queue(t *testing.T, cards string) string {
	t.Helper()
	ns := cluster.Namespace(t)
	clusterQueue := sandbox.ClusterQueue(ns, ns, cards)
	group := &clusterQueue.Spec.ResourceGroups[0]
	group.CoveredResources = append(group.CoveredResources, corev1.ResourceCPU, corev1.ResourceMemory)
	group.Flavors[0].Resources = append(group.Flavors[0].Resources,
		kueue.ResourceQuota{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse("100")},
		kueue.ResourceQuota{Name: corev1.ResourceMemory, NominalQuota: resource.MustParse("1Ti")})
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
