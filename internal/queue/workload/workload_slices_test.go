package workload

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
)

// sized is a workload of a head and some workers of a card each.
func sized(name string, workers int32) *kueue.Workload {
	set := func(name string, count int32, cards string) kueue.PodSet {
		return kueue.PodSet{Name: kueue.PodSetReference(name), Count: count, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				"cpu": resource.MustParse("1"), "gpu": resource.MustParse(cards),
			}}}},
		}}}
	}
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       kueue.WorkloadSpec{PodSets: []kueue.PodSet{set("head", 1, "0"), set("workers", workers, "1")}},
	}
}

// holding gives a workload its quota.
func withQuota(wl *kueue.Workload) *kueue.Workload {
	a := &kueue.Admission{ClusterQueue: "cq"}
	for _, set := range wl.Spec.PodSets {
		a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{
			Name: set.Name, Count: ptr.To(set.Count), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "any", "gpu": "h100"},
			ResourceUsage: corev1.ResourceList{"cpu": *resource.NewQuantity(int64(set.Count), ""), "gpu": *resource.NewQuantity(int64(set.Count), "")},
		})
	}
	wl.Status.Admission = a
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}}
	return wl
}

func asks(w admission.Workload) string {
	var out []string
	for _, set := range w.PodSets {
		out = append(out, fmt.Sprintf("%s×%d on %s", set.Name, set.Count, strings.Join(set.Flavors, "+")))
	}
	return strings.Join(out, ", ")
}

// TestGrowth: a workload that takes another's place asks for what it needs
// beyond that one, and holds all of it once it is admitted.
func TestGrowth(t *testing.T) {
	old := withQuota(sized("old", 3))
	old.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "workers", Count: 1}}
	grown := sized("grown", 5)
	grown.Annotations = map[string]string{ReplacesAnnotation: "ns/old"}
	if Replaces(grown) != KeyOf(old) {
		t.Fatalf("it replaces %v", Replaces(grown))
	}
	w := ForEngine(grown, nil)
	SubtractReplaced(&w, old)
	if got, want := asks(w), "workers×3 on any+h100"; got != want {
		t.Fatalf("it asks for %s, want %s", got, want)
	}
	given := &admission.Admission{Queue: "cq", PodSets: []admission.PodSetAssignment{
		{Name: "workers", Count: 3, Flavors: map[string]string{"cpu": "any", "gpu": "h100"}, Usage: admission.Requests{"cpu": 3000, "gpu": 3}},
	}}
	whole := AddReplaced(given, ForEngine(grown, nil), old)
	var got []string
	for _, set := range whole.PodSets {
		for _, name := range slices.Sorted(maps.Keys(set.Flavors)) {
			got = append(got, fmt.Sprintf("%s×%d %s=%d of %s", set.Name, set.Count, name, set.Usage[name], set.Flavors[name]))
		}
	}
	if got, want := strings.Join(got, ", "), "head×1 cpu=1000 of any, head×1 gpu=0 of h100, workers×5 cpu=5000 of any, workers×5 gpu=5 of h100"; got != want {
		t.Fatalf("it holds\n  %s\nwant\n  %s", got, want)
	}

	// While both hold quota they hold no more than the bigger one needs.
	held := ForEngine(withQuota(grown), nil)
	SubtractReplaced(&held, old)
	if set := held.Admission.PodSets[1]; set.Count != 3 || set.Usage["gpu"] != 3 {
		t.Fatalf("beside the first it counts with %d pods, %d cards", set.Count, set.Usage["gpu"])
	}
}

func TestNobodyTakesAnotherTenantsQuota(t *testing.T) {
	wl := sized("a", 1)
	wl.Annotations = map[string]string{ReplacesAnnotation: "other/b"}
	if key := Replaces(wl); key != (admission.Key{}) {
		t.Fatalf("it replaces %v", key)
	}
}
