package kinds

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/elastic-ai/elastic/deploy"
)

// sample reads an example: the job, and a reader with what comes with it.
func sample(t *testing.T, name string) (Object, client.Reader) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "samples", "jobs", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := deploy.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	job := &unstructured.Unstructured{}
	if data, err = json.Marshal(objects[len(objects)-1]); err != nil {
		t.Fatal(err)
	}
	if err := job.UnmarshalJSON(data); err != nil { // numbers as the API server's clients read them
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder()
	for _, other := range objects[:len(objects)-1] {
		builder = builder.WithObjects(other)
	}
	for _, kind := range Table() {
		if kind.GVK == job.GroupVersionKind() {
			return kind.Object(job), builder.Build()
		}
	}
	t.Fatalf("no row for %s", job.GroupVersionKind())
	return Object{}, nil
}

// suspendable are the samples of kinds with a suspend flag, and the pods they
// request: name, count, and the requests of one of them.
var suspendable = map[string]string{
	"job":              "main 3 cpu=1 memory=1Gi nvidia.com/gpu=1",
	"jobset":           "leader 1 cpu=1 memory=1Gi; workers 4 cpu=1 memory=1Gi nvidia.com/gpu=1",
	"tfjob":            "ps 1 cpu=1 memory=1Gi; worker 2 cpu=1 memory=1Gi nvidia.com/gpu=1",
	"pytorchjob":       "master 1 cpu=1 memory=1Gi nvidia.com/gpu=1; worker 3 cpu=1 memory=1Gi nvidia.com/gpu=1",
	"xgboostjob":       "master 1 cpu=1 memory=1Gi; worker 2 cpu=1 memory=1Gi",
	"mxjob":            "scheduler 1 cpu=1 memory=1Gi; server 1 cpu=1 memory=1Gi; worker 2 cpu=1 memory=1Gi nvidia.com/gpu=1",
	"paddlejob":        "worker 2 cpu=1 memory=1Gi nvidia.com/gpu=1",
	"jaxjob":           "worker 2 cpu=1 memory=1Gi nvidia.com/gpu=1",
	"mpijob":           "launcher 1 cpu=1 memory=1Gi; worker 2 cpu=1 memory=1Gi nvidia.com/gpu=1",
	"mpijob-v1":        "launcher 1 cpu=1 memory=1Gi; worker 2 cpu=1 memory=1Gi nvidia.com/gpu=1",
	"trainjob":         "node 4 cpu=1 nvidia.com/gpu=1",
	"rayjob":           "head 1 cpu=1 memory=1Gi; gpu 2 cpu=1 memory=1Gi nvidia.com/gpu=1; submitter 1 cpu=500m memory=200Mi",
	"raycluster":       "head 1 cpu=1 memory=1Gi; gpu 2 cpu=1 memory=1Gi nvidia.com/gpu=1",
	"rayservice":       "head 1 cpu=1 memory=1Gi; gpu 2 cpu=1 memory=1Gi nvidia.com/gpu=1",
	"sparkapplication": "driver 1 cpu=1 memory=896Mi; executor 2 cpu=1 memory=1408Mi",
	"appwrapper":       "sample-appwrapper-0 2 cpu=1 memory=1Gi nvidia.com/gpu=1",
}

func TestPodSets(t *testing.T) {
	for name, want := range suspendable {
		t.Run(name, func(t *testing.T) {
			j, reader := sample(t, name)
			sets, err := j.PodSets(t.Context(), reader)
			if err != nil {
				t.Fatal(err)
			}
			if got := describeSets(sets); got != want {
				t.Errorf("it requests\n  %s\nwant\n  %s", got, want)
			}
		})
	}
}

func describeSets(sets []kueue.PodSet) string {
	var out []string
	for _, set := range sets {
		text := fmt.Sprintf("%s %d", set.Name, set.Count)
		for _, name := range []corev1.ResourceName{"cpu", "memory", "nvidia.com/gpu"} {
			resources := set.Template.Spec.Containers[0].Resources
			q, found := resources.Requests[name]
			if !found {
				q, found = resources.Limits[name]
			}
			if found {
				if name == "memory" && q.Value()%(1<<20) == 0 && q.Value()%(1<<30) != 0 {
					text += fmt.Sprintf(" memory=%dMi", q.Value()>>20)
					continue
				}
				text += fmt.Sprintf(" %s=%s", name, q.String())
			}
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// TestStartAndRestore: what an admission adds is on every pod set, and is removed completely.
func TestStartAndRestore(t *testing.T) {
	for name := range suspendable {
		t.Run(name, func(t *testing.T) {
			j, reader := sample(t, name)
			sets, err := j.PodSets(t.Context(), reader)
			if err != nil {
				t.Fatal(err)
			}
			wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: sets}}
			additions := make([]PodSetInfo, len(sets))
			for i := range additions {
				additions[i] = PodSetInfo{
					Count: sets[i].Count, Labels: map[string]string{PodSetLabel: "added-label"}, Annotations: map[string]string{kueue.WorkloadAnnotation: "added-annotation"},
					NodeSelector: map[string]string{"added-selector": "x"}, Tolerations: []corev1.Toleration{{Key: "added-toleration", Operator: "Exists"}},
				}
			}
			started := j.deepCopy()
			if err := started.setPodSetInfos(wl, additions); err != nil {
				t.Fatal(err)
			}
			for _, mark := range []string{"added-label", "added-annotation", "added-selector", "added-toleration"} {
				if n := strings.Count(fmt.Sprint(started.Object), mark); n != len(sets) {
					t.Errorf("%s is in %d places, want one in each of %d pod sets", mark, n, len(sets))
				}
			}
			restored := started.deepCopy()
			if err := restored.setPodSetInfos(wl, nil); err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(fmt.Sprint(restored.Object), "added-"); n != 0 {
				t.Errorf("%d added fields are left after restoring: %v", n, restored.Object)
			}
			again, err := restored.PodSets(t.Context(), reader)
			if err != nil {
				t.Fatal(err)
			}
			if !SamePodSets(sets, again) {
				t.Errorf("it requests other pods after restoring:\n%s\n%s", describeSets(sets), describeSets(again))
			}
		})
	}
}

func TestPodSetConflict(t *testing.T) {
	j, reader := sample(t, "job")
	if err := unstructured.SetNestedField(j.Object, "a", "spec", "template", "spec", "nodeSelector", "pool"); err != nil {
		t.Fatal(err)
	}
	sets, err := j.PodSets(t.Context(), reader)
	if err != nil {
		t.Fatal(err)
	}
	err = j.setPodSetInfos(&kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: sets}}, []PodSetInfo{{Count: 3, NodeSelector: map[string]string{"pool": "b"}}})
	if want := `the node selector pool is already "a" and cannot become "b"`; err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
}
