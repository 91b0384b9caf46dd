package reconcile

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// The workload of an indexed Job says of those indexes that others wait for how they ended, and of no others; those who wait
// are in any namespace, and their coming has the job looked at.
func TestEndedIndexesAreReported(t *testing.T) {
	const indexed = `
apiVersion: batch/v1
kind: Job
metadata: {namespace: ns, name: array, uid: array, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  suspend: true
  parallelism: 2
  completions: 10
  completionMode: Indexed
  template: {spec: {containers: [{name: main}]}}
`
	w := newWorld(t, parse(t, indexed))
	reported := func() string {
		t.Helper()
		return w.workloadOf(w.settle("array")).Annotations[v1alpha1.EndedIndexesAnnotation]
	}
	w.admit(w.workloadOf(w.settle("array")), oneOf("cq", 2))
	job := w.settle("array")
	job.Object["status"] = map[string]any{"completedIndexes": "0-2,5", "failedIndexes": "4"}
	if err := w.client.Status().Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if got := reported(); got != "" {
		t.Errorf("nobody waits, and it says %q", got)
	}
	waiting := func(namespace, after string) *kueue.Workload {
		return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "waiting", Annotations: map[string]string{v1alpha1.AfterAnnotation: after}}}
	}
	for _, wl := range []*kueue.Workload{waiting("ns", "ok job/array[1-3]"), waiting("other", "any job/ns/array[4], ok job/array[0]")} {
		if err := w.client.Create(t.Context(), wl); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, request := range awaitedJobs(w.kind, wl) {
			found = found || request.NamespacedName == client.ObjectKeyFromObject(job)
		}
		if !found {
			t.Error("the job is not looked at when somebody comes who waits for it")
		}
	}
	awaited, err := w.awaitedIndexes(t.Context(), client.ObjectKeyFromObject(job))
	if err != nil || len(awaited) != 4 {
		t.Errorf("waited for: %v, %v", awaited, err)
	}
	if got, want := reported(), "ok 1-2 notok 4"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}
