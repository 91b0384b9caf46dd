package kinds

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

func TestSetStart(t *testing.T) {
	const after, met = v1alpha1.AfterAnnotation, v1alpha1.AfterMetAnnotation
	for name, test := range map[string]struct {
		job, had, want map[string]string
		reserved       bool
	}{
		"nothing":    {},
		"said":       {job: map[string]string{after: "ok job/a"}, want: map[string]string{after: "ok job/a"}},
		"changed":    {job: map[string]string{after: "any job/a"}, had: map[string]string{after: "ok job/a", met: "ok job/b"}, want: map[string]string{after: "any job/a", met: "ok job/b"}},
		"withdrawn":  {had: map[string]string{after: "ok job/a"}, want: map[string]string{}},
		"too late":   {job: map[string]string{after: "ok job/a"}, reserved: true},
		"not forged": {job: map[string]string{met: "ok job/a"}},
		"a deadline": {
			job: map[string]string{cloudv1.DeadlineAnnotation: "2026-11-18T12:00:00Z", after: "ok job/a"}, had: map[string]string{cloudv1.DelayPriceAnnotation: "1"},
			want: map[string]string{cloudv1.DeadlineAnnotation: "2026-11-18T12:00:00Z", after: "ok job/a"},
		},
		"a prebuilt workload": {job: map[string]string{PrebuiltLabel: "wl"}, had: map[string]string{after: "ok job/a"}, want: map[string]string{after: "ok job/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			job := singlePod{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: test.job}}, nil}
			wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Annotations: maps.Clone(test.had)}}
			if test.reserved {
				wl.Status.Admission = &kueue.Admission{}
				wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}}
			}
			changed := SetStart(job, wl)
			if !maps.Equal(wl.Annotations, test.want) || changed == maps.Equal(test.had, test.want) {
				t.Errorf("changed is %v: %v", changed, wl.Annotations)
			}
			if SetStart(job, wl) {
				t.Error("and changed again")
			}
		})
	}
}

// A workload says who made its job where that is recorded, and only of kinds whose annotation the webhook writes.
func TestSubmitterGoesToTheWorkload(t *testing.T) {
	defer SetRules(Rules{})
	for _, test := range []struct {
		kind     string
		recorded bool
		want     string
	}{{"Job", true, "ann"}, {"Job", false, ""}, {"Pod", true, ""}} {
		SetRules(Rules{Submitters: test.recorded})
		row := Table()[slices.IndexFunc(Table(), func(k *Kind) bool { return k.GVK.Kind == test.kind })]
		obj := &unstructured.Unstructured{}
		obj.SetAnnotations(map[string]string{v1alpha1.SubmittedByAnnotation: "ann"})
		wl := &kueue.Workload{}
		SetStart(row.Object(obj), wl)
		if got := wl.Annotations[v1alpha1.SubmittedByAnnotation]; got != test.want {
			t.Errorf("%s, recorded %t: %q", test.kind, test.recorded, got)
		}
	}
}
