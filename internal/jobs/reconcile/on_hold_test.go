package reconcile

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

const queuedRayJob = `
apiVersion: ray.io/v1
kind: RayJob
metadata: {namespace: ns, name: ray, uid: ray, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  suspend: true
  shutdownAfterJobFinishes: true
  submissionMode: HTTPMode
  rayClusterSpec:
    headGroupSpec: {template: {spec: {containers: [{name: head}]}}}
`

// rayWorld is one of jobs of one of Ray's kinds.
func rayWorld(t *testing.T, job *unstructured.Unstructured) *world {
	t.Helper()
	w := newWorld(t, job)
	table := kinds.Table()
	w.kind = table[slices.IndexFunc(table, func(k *kinds.Kind) bool { return k.GVK == job.GroupVersionKind() })]
	return w
}

func (w *world) setDeploymentStatus(job *unstructured.Unstructured, status string) {
	w.t.Helper()
	job.Object["status"] = map[string]any{"jobDeploymentStatus": status}
	if err := w.client.Update(w.t.Context(), job); err != nil {
		w.t.Fatal(err)
	}
}

// A RayJob that its operator cannot run gives its quota back and waits; corrected, it is queued again.
func TestRayJobThatIsNotValid(t *testing.T) {
	w := rayWorld(t, parse(t, queuedRayJob))
	w.admit(w.workloadOf(w.settle("ray")), &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: "head"}}})
	job := w.settle("ray")
	if suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend"); suspended {
		t.Fatal("it was not started")
	}
	w.setDeploymentStatus(job, "ValidationFailed")
	job = w.settle("ray")
	suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend")
	if wl := w.workloadOf(job); !workload.IsOnHold(wl) || workload.IsAdmitted(wl) || workload.IsFinished(wl) || !suspended {
		t.Fatalf("suspended %t, %v", suspended, wl.Status.Conditions)
	}
	w.setDeploymentStatus(job, "Suspended")
	job = w.settle("ray")
	if wl := w.workloadOf(job); workload.IsOnHold(wl) || workload.HasReservation(wl) {
		t.Errorf("corrected: %v", wl.Status.Conditions)
	}
}

// A RayJob that runs in a cluster of another is not queued.
func TestRayJobInAnExistingCluster(t *testing.T) {
	w := rayWorld(t, parse(t, strings.Replace(queuedRayJob, "suspend: true", "suspend: false\n  clusterSelector: {ray.io/cluster: a}", 1)))
	suspended, _, _ := unstructured.NestedBool(w.settle("ray").Object, "spec", "suspend")
	list := &kueue.WorkloadList{}
	if err := w.client.List(t.Context(), list, client.InNamespace("ns")); err != nil {
		t.Fatal(err)
	}
	if suspended || len(list.Items) > 0 {
		t.Errorf("suspended %t, %d workloads", suspended, len(list.Items))
	}
}
