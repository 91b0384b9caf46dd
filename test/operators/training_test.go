package operators

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// TestTraining: a TFJob and a PyTorchJob go through the queue with the real
// training operator.
func TestTraining(t *testing.T) {
	installCRDs(t)
	// What its installation brings for the certificate it makes for itself; its
	// webhook only validates, and has no address here.
	cluster.Make(t,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "training-operator-webhook-cert"}},
		&admissionregv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "validator.training-operator.kubeflow.org"}})
	mountCertificate(t)
	operator(t, "training", "--enable-scheme=tfjob", "--enable-scheme=pytorchjob",
		"--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0", "--webhook-server-port=29444")
	for _, job := range []struct {
		sample, cards string
		pods          int
		replicas      []string
	}{
		{"tfjob", "2", 3, []string{"spec", "tfReplicaSpecs"}},
		{"pytorchjob", "4", 4, []string{"spec", "pytorchReplicaSpecs"}},
	} {
		t.Run(job.sample, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("..", "..", "deploy", "samples", "jobs", job.sample+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			ns := queue(t, job.cards)
			object := read(t, string(data))
			object.SetNamespace(ns)
			replicas, _, _ := unstructured.NestedMap(object.Object, job.replicas...)
			for role := range replicas {
				forever := append(append([]string{}, job.replicas...), role, "template", "metadata", "annotations")
				if err := unstructured.SetNestedField(object.Object, map[string]any{sandbox.RunFor: "forever"}, forever...); err != nil {
					t.Fatal(err)
				}
			}
			cluster.Make(t, object)
			lifeWithAnOperator(t, ns, object, job.pods)
		})
	}
	t.Run("elastic", growAndShrink)
}

// growAndShrink: a PyTorchJob of one master and one worker has the queue's four cards, until another job waits for one.
func growAndShrink(t *testing.T) {
	ns := queue(t, "4")
	cluster.Make(t, read(t, `
apiVersion: elasticai.io/v1alpha1
kind: QueuePolicy
metadata: {name: `+ns+`}
spec: {targetRefs: [{kind: ClusterQueue, name: `+ns+`}], elasticJobs: {growAfter: 1s}}`))
	data, err := os.ReadFile(filepath.Join("..", "..", "deploy", "samples", "jobs", "pytorchjob.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	job := read(t, string(data))
	job.SetNamespace(ns)
	job.SetAnnotations(map[string]string{v1alpha1.PodsAnnotation: "Worker=1-7"})
	for _, role := range []string{"Master", "Worker"} {
		if err := unstructured.SetNestedField(job.Object, map[string]any{sandbox.RunFor: "forever"}, "spec", "pytorchReplicaSpecs", role, "template", "metadata", "annotations"); err != nil {
			t.Fatal(err)
		}
	}
	cluster.Make(t, job)
	wl := cluster.WorkloadOf(t, job)
	before := waitPods(t, ns, 4)
	other := wl.DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{Namespace: ns, Name: "other"}
	other.Spec.PodSets = other.Spec.PodSets[:1] // one pod
	other.Status = kueue.WorkloadStatus{}
	cluster.Make(t, other)
	wait(t, other, kueue.WorkloadAdmitted)
	after := waitPods(t, ns, 3)
	for _, pod := range after {
		if !slices.ContainsFunc(before, func(was corev1.Pod) bool { return was.UID == pod.UID }) {
			t.Errorf("pod %s was started anew", pod.Name)
		}
	}
	if err := cluster.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	waitPods(t, ns, 4)
}

// mountCertificate puts a file where the operator looks for the one the kubelet
// would have mounted. That place is fixed; what it serves with is elsewhere.
func mountCertificate(t *testing.T) {
	t.Helper()
	const folder = "/tmp/k8s-webhook-server/serving-certs"
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "tls.crt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}
