package kinds

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A pod that was reported as finished is not taken back by a cache that shows the job as it was before:
// others may use its quota.
func TestReclaimablePodsAreNotTakenBack(t *testing.T) {
	wl := &kueue.Workload{}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 3}}
	for _, step := range []struct {
		succeeded int64
		want      int32
	}{{0, 0}, {2, 2}, {1, 2}, {3, 3}} {
		job, _ := sample(t, "job")
		if err := unstructured.SetNestedField(job.Object, step.succeeded, "status", "succeeded"); err != nil {
			t.Fatal(err)
		}
		got, err := job.ReclaimablePods(t.Context(), nil, wl)
		if err != nil {
			t.Fatal(err)
		}
		var want []kueue.ReclaimablePod
		if step.want > 0 {
			want = []kueue.ReclaimablePod{{Name: "main", Count: step.want}}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("with %d pods finished, reclaimable are %v, want %v", step.succeeded, got, want)
		}
		wl.Status.ReclaimablePods = got
	}
}

// A job that is admitted again for the pods that are left has as many finished ones as before.
func TestReclaimablePodsOfAJobAdmittedForTheRest(t *testing.T) {
	wl := &kueue.Workload{}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "a", Count: 1}, {Name: "b", Count: 5}}
	none, one := int32(0), int32(1)
	wl.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{Name: "a", Count: &none}, {Name: "b", Count: &one}}}
	want := []kueue.ReclaimablePod{{Name: "a", Count: 1}, {Name: "b", Count: 4}}
	if got := ReclaimablePods(wl, map[kueue.PodSetReference]int32{"a": 1, "b": 4}); !slices.Equal(got, want) {
		t.Errorf("reclaimable are %v, want %v", got, want)
	}
}
