package kinds

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

func TestPreemptionWishes(t *testing.T) {
	const never, on, saved = v1alpha1.NeverPreemptAnnotation, egpu.OnPreemptionAnnotation, v1alpha1.CheckpointedAtAnnotation
	for name, test := range map[string]struct {
		job, had, want map[string]string
		reserved       bool
		immovable      bool
	}{
		"nothing":                      {},
		"all":                          {job: map[string]string{never: "true", on: "stop", saved: "2026-01-01T01:00:00+01:00"}, want: map[string]string{never: "true", on: "stop", saved: "2026-01-01T00:00:00Z"}},
		"words that mean nothing here": {job: map[string]string{never: "please", on: "wait", saved: "now"}},
		"swapped":                      {job: map[string]string{on: "swap"}, want: map[string]string{on: "swap"}},
		"cannot be swapped":            {job: map[string]string{on: "swap"}, had: map[string]string{on: "swap"}, reserved: true, immovable: true},
		"cannot be swapped, nor asks":  {job: map[string]string{on: "stop"}, immovable: true, want: map[string]string{on: "stop"}},
		"can be swapped again":         {job: map[string]string{on: "swap"}, reserved: true, want: map[string]string{on: "swap"}},
		"withdrawn":                    {job: map[string]string{}, had: map[string]string{never: "true", on: "stop", saved: "2026-01-01T00:00:00Z", "other": "x"}, want: map[string]string{"other": "x"}},
		"too late":                     {job: map[string]string{never: "true", on: "stop"}, reserved: true, want: map[string]string{on: "stop"}},
		"too late to withdraw":         {had: map[string]string{never: "true"}, reserved: true, want: map[string]string{never: "true"}},
		"a minute later":               {job: map[string]string{saved: "2026-01-01T00:01:00Z"}, had: map[string]string{saved: "2026-01-01T00:00:00Z"}, reserved: true, want: map[string]string{saved: "2026-01-01T00:01:00Z"}},
		"a second later":               {job: map[string]string{saved: "2026-01-01T00:00:01Z"}, had: map[string]string{saved: "2026-01-01T00:00:00Z"}, reserved: true, want: map[string]string{saved: "2026-01-01T00:00:00Z"}},
		"earlier":                      {job: map[string]string{saved: "2025-01-01T00:00:00Z"}, had: map[string]string{saved: "2026-01-01T00:00:00Z"}, want: map[string]string{saved: "2026-01-01T00:00:00Z"}},
		"a prebuilt workload":          {job: map[string]string{PrebuiltLabel: "wl", never: "true"}, had: map[string]string{on: "stop"}, want: map[string]string{on: "stop"}},
	} {
		t.Run(name, func(t *testing.T) {
			job := singlePod{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: test.job}}, nil}
			wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Annotations: maps.Clone(test.had)}}
			if test.reserved {
				wl.Status.Admission = &kueue.Admission{}
				wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}}
			}
			changed := SetPreemptionWishes(job, wl, !test.immovable)
			if !maps.Equal(wl.Annotations, test.want) || changed == maps.Equal(test.had, test.want) {
				t.Errorf("changed is %v: %v", changed, wl.Annotations)
			}
			if SetPreemptionWishes(job, wl, !test.immovable) {
				t.Error("and changed again")
			}
		})
	}
}
