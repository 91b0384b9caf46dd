package kinds

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/elastic-ai/elastic/api/jobs/v1alpha1"
)

const trainKind = `
group: examplecorp.com
version: v1
kind: Train
resource: trains
suspend: spec.paused
podSets:
- each: spec.crews
  nameFrom: name
  template: pod
  count: item.?size.orValue(1)
ready: object.?status.?riding.orValue(0) >= pods
succeeded: object.status.cars.all(c, c.done)
`

const trainCRD = `
metadata: {name: trains.examplecorp.com}
spec:
  names: {kind: Train}
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              paused: {type: boolean}
              speed: {type: integer}
              crews: {type: array, items: {type: object, properties: {name: {type: string}, size: {type: integer}, pod: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
          status:
            type: object
            properties:
              riding: {type: integer}
              cars: {type: array, items: {type: object, properties: {done: {type: boolean}}}}
`

// The table's expressions are compiled when they are used; mistakes in them are
// found here.
func TestTableCompiles(t *testing.T) {
	for _, kind := range Table() {
		if _, err := Compile(kind.Name, kind.Spec); err != nil {
			t.Errorf("%s: %v", kind.Name, err)
		}
	}
}

// TestDeclaredMistakes: every mistake in a description is reported with the field it is in.
func TestDeclaredMistakes(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal([]byte(trainCRD), crd); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		old, new string
		want     string // part of the error; empty means it is right
	}{
		"nothing wrong":              {},
		"metadata is always there":   {"ready: ", "skip: object.metadata.?labels[?'a'].orValue('') == 'b'\nready: ", ""},
		"a path that is not there":   {"suspend: spec.paused", "suspend: spec.pasued", `suspend: trains.examplecorp.com/v1 has no field spec.pasued; did you mean "paused"?`},
		"a path of the wrong type":   {"suspend: spec.paused", "suspend: spec.speed", "suspend: spec.speed is of type integer in trains.examplecorp.com/v1, not boolean"},
		"a path that is none":        {"suspend: spec.paused", "suspend: spec..paused", `suspend: "spec..paused" is not a path`},
		"a path to many places":      {"suspend: spec.paused", `suspend: "spec.crews[*].name"`, "names many places"},
		"not a list":                 {"each: spec.crews", "each: spec.speed", "podSets[0].each: spec.speed is neither a list nor a map"},
		"a field of an element":      {"template: pod", "template: body", "podSets[0].template: trains.examplecorp.com/v1 has no field body"},
		"an expression's field":      {"?riding", "?ridden", "ready: trains.examplecorp.com/v1 has no field status.ridden"},
		"an expression's item":       {"item.?size", "item.?sise", `podSets[0].count: trains.examplecorp.com/v1 has no field item.sise; did you mean "size"?`},
		"an expression's loop":       {"c.done", "c.doen", `succeeded: trains.examplecorp.com/v1 has no field c.doen; did you mean "done"?`},
		"an expression that is none": {">= pods", ">= pods)", "ready: "},
		"an unknown variable":        {">= pods", ">= podz", "undeclared reference to 'podz'"},
		"an unknown version":         {"version: v1", "version: v2", "version: the CRD trains.examplecorp.com has no version v2"},
		"another kind":               {"kind: Train", "kind: Tram", "kind: the CRD trains.examplecorp.com is for Train"},
		"no way to hold it":          {"suspend: spec.paused\n", "", "suspend: is required, or else pods"},
		"two ways to hold it":        {"suspend: spec.paused", "suspend: spec.paused\npods: {}", "pods: is for kinds without suspend"},
		"no template":                {"template: pod", "", "podSets[0]: needs template"},
		"a minimum without a place":  {"count: item", "minCount: '1'\n  count: item", "podSets[0].minCount: needs setCount"},
	} {
		t.Run(name, func(t *testing.T) {
			var spec v1alpha1.JobKindSpec
			text := trainKind
			if tc.old != "" {
				if text = strings.Replace(trainKind, tc.old, tc.new, 1); text == trainKind {
					t.Fatalf("%q is not in the description", tc.old)
				}
			}
			if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
				t.Fatal(err)
			}
			kind, err := Compile("train", spec)
			if err == nil {
				err = kind.Check(crd)
			}
			switch {
			case tc.want == "" && err != nil:
				t.Fatalf("unexpected: %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Fatalf("got %v, want it to contain %q", err, tc.want)
			}
		})
	}
}

func TestSparkMemory(t *testing.T) {
	for _, tc := range []struct {
		heap, overhead, factor string
		want                   int64
	}{
		{"512m", "", "", 512<<20 + 384<<20},
		{"10g", "", "", 10<<30 + 1<<30},
		{"10g", "1g", "", 11 << 30},
		{"10g", "", "0.4", 14 << 30},
		{"2048", "", "0", 2<<30 + 384<<20},
		{"1Gi", "0", "", 1 << 30},
	} {
		got, err := sparkMemory(tc.heap, tc.overhead, tc.factor)
		if err != nil || got != tc.want {
			t.Errorf("sparkMemory(%q, %q, %q) = %d, %v; want %d", tc.heap, tc.overhead, tc.factor, got, err, tc.want)
		}
	}
	if _, err := sparkMemory("much", "", ""); err == nil {
		t.Error("nonsense was taken for an amount of memory")
	}
}

// TestNamesAreKueues: a job that is taken over from Kueue keeps its workload.
func TestNamesAreKueues(t *testing.T) {
	defer SetRules(Rules{})
	for short, want := range map[bool][2]int{false: {len("job-") + 80 + 6, 253}, true: {63, 63}} {
		SetRules(Rules{ShortNames: short})
		for i, n := range []int{80, 300} {
			long := strings.Repeat("x", n)
			name := WorkloadName(Table()[0].GVK, long, "uid")
			if len(name) != want[i] || !strings.HasPrefix(name, "job-xxx") {
				t.Errorf("short: %t: the name is %q", short, name)
			}
			if WorkloadName(Table()[0].GVK, long, "uid") != name || WorkloadName(Table()[0].GVK, long, "other") == name {
				t.Error("a name must be the same for the same job and another for another")
			}
		}
	}
}

// A Ray cluster's pod sets: groups without workers, which may grow later, and the autoscaler with what its
// user gave it.
func TestRayPodSets(t *testing.T) {
	at := slices.IndexFunc(Table(), func(k *Kind) bool { return k.Name == "ray.io/raycluster" })
	template := func(name string) map[string]any {
		return map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": name}}}}
	}
	spec := map[string]any{
		"headGroupSpec": map[string]any{"template": template("head")}, "enableInTreeAutoscaling": true,
		"workerGroupSpecs": []any{
			map[string]any{"groupName": "idle", "replicas": int64(0), "template": template("worker")},
			map[string]any{"groupName": "busy", "replicas": int64(2), "numOfHosts": int64(4), "template": template("worker")},
		},
	}
	job := Table()[at].Object(&unstructured.Unstructured{Object: map[string]any{"spec": spec}})
	for cpu, options := range map[string]any{
		"500m": map[string]any{},
		"2":    map[string]any{"resources": map[string]any{"requests": map[string]any{"cpu": "2"}}},
	} {
		spec["autoscalerOptions"] = options
		sets, err := job.PodSets(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, set := range sets {
			got = append(got, fmt.Sprintf("%s %d", set.Name, set.Count))
		}
		if want := []string{"head 1", "idle 0", "busy 8"}; !slices.Equal(got, want) {
			t.Errorf("pod sets %q, want %q", got, want)
		}
		containers := sets[0].Template.Spec.Containers
		if q := containers[len(containers)-1].Resources.Requests.Cpu(); len(containers) != 2 || q.String() != cpu {
			t.Errorf("the autoscaler has %s, want %s", q, cpu)
		}
	}
}

// A job that has ended says what its kind says of it, and be it nothing, as in Kueue.
func TestFinishedSaysWhatTheKindSays(t *testing.T) {
	for name, test := range map[string]struct {
		kind   string
		status map[string]any
		want   Outcome
	}{
		"nothing":    {"ray.io/rayjob", map[string]any{"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"}, Outcome{true, kueue.WorkloadFinishedReasonSucceeded, ""}},
		"why":        {"ray.io/rayjob", map[string]any{"jobStatus": "FAILED", "jobDeploymentStatus": "Failed", "message": "boom"}, Outcome{true, kueue.WorkloadFinishedReasonFailed, "boom"}},
		"its phase":  {"workload.codeflare.dev/appwrapper", map[string]any{"phase": "Succeeded"}, Outcome{true, kueue.WorkloadFinishedReasonSucceeded, "AppWrapper finished successfully"}},
		"not at all": {"ray.io/rayjob", map[string]any{}, Outcome{}},
	} {
		at := slices.IndexFunc(Table(), func(k *Kind) bool { return k.Name == test.kind })
		got, err := Table()[at].Object(&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}, "status": test.status}}).Finished()
		if err != nil || got != test.want {
			t.Errorf("%s: got %+v, %v; want %+v", name, got, err, test.want)
		}
	}
}

// The size of a copy is written where its kind says. A group of several hosts has its size in another unit.
func TestSetCounts(t *testing.T) {
	at := slices.IndexFunc(Table(), func(k *Kind) bool { return k.Name == "ray.io/raycluster" })
	for hosts, fails := range map[int64]bool{1: false, 4: true} {
		template := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c"}}}}
		group := map[string]any{"groupName": "workers", "replicas": int64(2), "numOfHosts": hosts, "template": template}
		job := Table()[at].Object(&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"headGroupSpec": map[string]any{"template": template}, "workerGroupSpecs": []any{group},
		}}})
		err := job.SetCounts([]kueue.PodSet{{Name: "head", Count: 1}, {Name: "workers", Count: 5}})
		if (err != nil) != fails {
			t.Errorf("%d hosts: %v", hosts, err)
		}
		if counts, _ := job.Counts(); !fails && counts["workers"] != 5 {
			t.Errorf("counts are %v", counts)
		}
	}
}
