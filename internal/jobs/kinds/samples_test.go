package kinds

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
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
	"sparkapplication": "driver 1 memory=512Mi; executor 2 memory=1Gi",
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

// variant is a sample with some fields changed, of which the paths have dots.
func variant(t *testing.T, name string, fields map[string]any) Object {
	t.Helper()
	j, _ := sample(t, name)
	for path, value := range fields {
		if value == nil {
			unstructured.RemoveNestedField(j.Object, strings.Split(path, ".")...)
		} else if err := unstructured.SetNestedField(j.Object, value, strings.Split(path, ".")...); err != nil {
			t.Fatal(err)
		}
	}
	return j
}

// The pod that cleans up Redis after a Ray cluster is not larger than what the head counts with.
func TestRayCountsThePodThatCleansUpRedis(t *testing.T) {
	small := map[string]any{"requests": map[string]any{"cpu": "100m"}}
	containers := []any{map[string]any{"name": "head", "image": "ray", "resources": small}}
	redis := map[string]any{"redisAddress": "redis:6379"}
	for kind, at := range map[string]string{"raycluster": "spec", "rayjob": "spec.rayClusterSpec", "rayservice": "spec.rayClusterConfig"} {
		for name, fields := range map[string]map[string]any{
			"head 1 cpu=100m;":             {},
			"head 1 cpu=200m memory=256Mi": {at + ".gcsFaultToleranceOptions": redis},
		} {
			fields[at+".headGroupSpec.template.spec.containers"] = containers
			j := variant(t, kind, fields)
			sets, err := j.PodSets(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := describeSets(sets); !strings.HasPrefix(got, name) {
				t.Errorf("%s requests %s, want %s", kind, got, name)
			}
		}
	}
	j := variant(t, "raycluster", map[string]any{"spec.headGroupSpec.template.spec.containers": containers})
	j.SetAnnotations(map[string]string{"ray.io/ft-enabled": "True"})
	if sets, err := j.PodSets(t.Context(), nil); err != nil || !strings.HasPrefix(describeSets(sets), "head 1 cpu=200m") {
		t.Errorf("by its annotation: %v, %v", sets, err)
	}
}

// Without a template of their own leaders are pods as the workers are, and all are one pod set.
func TestLeaderWorkerSetWithoutLeaderTemplate(t *testing.T) {
	for want, fields := range map[string]map[string]any{
		"leader 1 cpu=1 memory=1Gi; worker 2 cpu=1 memory=1Gi nvidia.com/gpu=1": {},
		"main 3 cpu=1 memory=1Gi nvidia.com/gpu=1":                              {"spec.leaderWorkerTemplate.leaderTemplate": nil},
	} {
		j := variant(t, "leaderworkerset", fields)
		sets, err := j.PodSets(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := describeSets(sets); got != want {
			t.Errorf("it requests %s, want %s", got, want)
		}
	}
}

// Labels that the API server gives a Job's pods for that one Job are none of its Workload's; the Job's name stays, as in Kueue.
func TestPodSetsLeaveOutLabelsOfTheAPIServer(t *testing.T) {
	j := variant(t, "job", map[string]any{"spec.template.metadata.labels": map[string]any{
		"own": "x", "job-name": "j", "controller-uid": "u", batchv1.JobNameLabel: "j", batchv1.ControllerUidLabel: "u",
	}})
	sets, err := j.PodSets(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := sets[0].Template.Labels; len(got) != 2 || got["own"] != "x" || got[batchv1.JobNameLabel] != "j" {
		t.Errorf("labels %v", got)
	}
}

// Where another pod set has number 0, the pods of a set are counted from 1.
func TestPodIndexOffset(t *testing.T) {
	const worker = "spec.mpiReplicaSpecs.Worker.template.metadata.annotations"
	const lws = "spec.leaderWorkerTemplate.workerTemplate.metadata.annotations"
	group := map[string]any{kueue.PodSetGroupName: "all"}
	for name, tc := range map[string]struct {
		kind   string
		fields map[string]any
		at     string
		want   string
	}{
		"a launcher that only launches":    {"mpijob", nil, worker, ""},
		"a launcher that works":            {"mpijob", map[string]any{"spec.runLauncherAsWorker": true}, worker, "1"},
		"a launcher in the workers' group": {"mpijob", map[string]any{"spec.runLauncherAsWorker": true, "spec.mpiReplicaSpecs.Launcher.template.metadata.annotations": group}, worker, ""},
		"workers beside a leader":          {"leaderworkerset", nil, lws, "1"},
		"workers in the leader's group":    {"leaderworkerset", map[string]any{lws: group}, lws, ""},
		"workers alone":                    {"leaderworkerset", map[string]any{"spec.leaderWorkerTemplate.leaderTemplate": nil}, lws, ""},
	} {
		j := variant(t, tc.kind, tc.fields)
		if err := j.SetPodIndexOffsets(); err != nil {
			t.Fatal(err)
		}
		if got, _, _ := unstructured.NestedString(j.Object, append(strings.Split(tc.at, "."), kueue.PodIndexOffsetAnnotation)...); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
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
				update := kueue.PodSetUpdate{
					Name: sets[i].Name, Labels: map[string]string{"check": "added-by-check-label"},
					Annotations: map[string]string{"autoscaling.x-k8s.io/consume-provisioning-request": "added-request-1"},
				}
				if err := additions[i].AddUpdates([]kueue.PodSetUpdate{update}, sets[i].Name); err != nil {
					t.Fatal(err)
				}
			}
			started := j.deepCopy()
			if err := started.setPodSetInfos(wl, additions); err != nil {
				t.Fatal(err)
			}
			for _, mark := range []string{"added-label", "added-annotation", "added-selector", "added-toleration", "added-by-check-label", "added-request-1"} {
				if n := strings.Count(fmt.Sprint(started.Object), mark); n != len(sets) {
					t.Errorf("%s is in %d places, want one in each of %d pod sets", mark, n, len(sets))
				}
			}
			restored := started.deepCopy()
			if err := restored.setPodSetInfos(wl, nil); err != nil {
				t.Fatal(err)
			}
			// The workload's checks tell of nothing here: they have begun anew.
			if text := fmt.Sprint(restored.Object); strings.Contains(text, "added-") || strings.Contains(text, checkUpdatesAnnotation) {
				t.Errorf("added fields are left after restoring: %v", restored.Object)
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
