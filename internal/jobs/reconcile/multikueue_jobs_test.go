package reconcile

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

// A job that is requeued shows no status of the cluster that ran it, which may not have been
// reachable to correct it; but its counters do not become smaller.
func TestRestoreForgetsRemoteStatus(t *testing.T) {
	job := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"namespace": "ns", "name": "train"},
		"spec":   map[string]any{"suspend": true, "managedBy": kueue.MultiKueueControllerName},
		"status": map[string]any{"active": int64(1), "ready": int64(1), "failed": int64(2)},
	}}
	c := fake.NewClientBuilder().WithObjects(job).WithStatusSubresource(job).Build()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil {
		t.Fatal(err)
	}
	if err := (&controller{client: c}).restore(t.Context(), kinds.Table()[0].Object(job), &kueue.Workload{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil {
		t.Fatal(err)
	}
	if want := map[string]any{"failed": int64(2)}; !equality.Semantic.DeepEqual(job.Object["status"], want) {
		t.Errorf("the status is %v, want %v", job.Object["status"], want)
	}
}
