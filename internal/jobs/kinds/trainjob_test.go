package kinds

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

const twoStepRuntime = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {namespace: ns, name: two-steps}
spec:
  template:
    spec:
      replicatedJobs:
      - {name: prepare, replicas: 2, template: {spec: {parallelism: 4, completions: 8, template: {metadata: {annotations: {kueue.x-k8s.io/podset-required-topology: rack}}, spec: {containers: [{name: main}]}}}}}
      - {name: train, replicas: 3, template: {spec: {parallelism: 4, completions: 4, template: {spec: {containers: [{name: main}]}}}}}
      - {name: report, replicas: 1, template: {spec: {parallelism: 0, completions: 0, template: {spec: {containers: [{name: main}]}}}}}
`

const twoStepTrainJob = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {namespace: ns, name: train}
spec: {suspend: true, runtimeRef: {kind: TrainingRuntime, name: two-steps}}
`

func parsed(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = obj.UnmarshalJSON(data) // whole numbers are whole, as the API server has them
	}
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

// jobIn is the job that a text describes.
func jobIn(t *testing.T, text string) Object {
	t.Helper()
	obj := parsed(t, text)
	at := slices.IndexFunc(Table(), func(k *Kind) bool { return k.GVK == obj.GroupVersionKind() })
	if at < 0 {
		t.Fatalf("no row for %s", obj.GroupVersionKind())
	}
	return Table()[at].Object(obj)
}

// What a TrainJob's status counts are jobs; how many there are, and how many pods each has, its runtime says.
func TestProgressOfATrainJob(t *testing.T) {
	reader := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(parsed(t, twoStepRuntime)).Build()
	count := func(name, field string, n int64) any { return map[string]any{"name": name, field: n} }
	for name, tc := range map[string]struct {
		status []any
		ready  bool
		done   map[kueue.PodSetReference]int32
	}{
		"nothing yet":      {},
		"some jobs ready":  {status: []any{count("prepare", "ready", 2), count("train", "ready", 1)}},
		"all jobs ready":   {status: []any{count("prepare", "ready", 2), count("train", "ready", 3), count("report", "ready", 1)}, ready: true},
		"some jobs ended":  {status: []any{count("prepare", "succeeded", 2), count("train", "succeeded", 1)}, done: map[kueue.PodSetReference]int32{"prepare": 8, "train": 4}},
		"all of one ended": {status: []any{count("prepare", "succeeded", 2), count("train", "ready", 3), count("report", "ready", 1)}, ready: true, done: map[kueue.PodSetReference]int32{"prepare": 8}},
		"more than it has": {status: []any{count("prepare", "succeeded", 3)}},
	} {
		job := jobIn(t, twoStepTrainJob)
		if tc.status != nil {
			job.Object["status"] = map[string]any{"jobsStatus": tc.status}
		}
		ready, errReady := job.PodsReady(t.Context(), reader, &kueue.Workload{})
		done, errDone := job.FinishedPods(t.Context(), reader)
		if err := errors.Join(errReady, errDone); err != nil || ready != tc.ready || !maps.Equal(done, tc.done) {
			t.Errorf("%s: ready %t, done %v, %v", name, ready, done, err)
		}
	}
}

// Pods of a replicated job are numbered within each of its jobs.
func TestTopologyOfATrainJob(t *testing.T) {
	reader := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(parsed(t, twoStepRuntime)).Build()
	sets, err := jobIn(t, twoStepTrainJob).PodSets(t.Context(), reader)
	if err != nil {
		t.Fatal(err)
	}
	request := sets[0].TopologyRequest
	if request == nil || request.SubGroupCount == nil || *request.SubGroupCount != 2 || *request.SubGroupIndexLabel != "jobset.sigs.k8s.io/job-index" ||
		*request.PodIndexLabel != "batch.kubernetes.io/job-completion-index" || *sets[1].TopologyRequest.SubGroupCount != 3 || sets[2].Count != 1 {
		t.Errorf("%+v, %+v", request, sets[1].TopologyRequest)
	}
}

// A runtime that does not exist may be created later, or the cache may be behind: that is no mistake in the job.
func TestTrainJobBeforeItsRuntime(t *testing.T) {
	_, err := jobIn(t, twoStepTrainJob).PodSets(t.Context(), fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build())
	missing, unretryable := &MissingError{}, &UnretryableError{}
	if !errors.As(err, &missing) || errors.As(err, &unretryable) {
		t.Errorf("%v", err)
	}
}
