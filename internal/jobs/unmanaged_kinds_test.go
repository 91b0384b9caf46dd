package jobs

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elastic-ai/elastic/api/jobs/v1alpha1"
)

// No controller looks after workloads of kinds that are left out of the configuration; one does
// after all others, whether they are built in, declared or external.
func TestUnmanaged(t *testing.T) {
	owner := func(apiVersion, kind string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind}
	}
	job, pod, ray, theirs := owner("batch/v1", "Job"), owner("v1", "Pod"), owner("ray.io/v1", "RayJob"), owner("example.com/v1", "Theirs")
	for name, tc := range map[string]struct {
		options Options
		want    []metav1.OwnerReference
	}{
		"all":                    {Options{}, nil},
		"jobs alone":             {Options{BuiltIn: []string{"batch/job"}}, []metav1.OwnerReference{pod, ray}},
		"pods of deployments":    {Options{BuiltIn: []string{"deployment"}}, []metav1.OwnerReference{job, ray}},
		"queued by someone else": {Options{BuiltIn: []string{"pod"}, External: []string{"RayJob.v1.ray.io"}}, []metav1.OwnerReference{job}},
		"declared another way":   {Options{BuiltIn: []string{"pod"}, Declared: map[string]v1alpha1.JobKindSpec{"x": {Group: "batch", Kind: "Job"}}}, []metav1.OwnerReference{ray}},
	} {
		unmanaged := tc.options.Unmanaged()
		want := map[metav1.OwnerReference]bool{}
		for _, o := range tc.want {
			want[o] = true
		}
		for _, o := range []metav1.OwnerReference{job, pod, ray, theirs} {
			if unmanaged(o) != want[o] {
				t.Errorf("%s: %s %s is unmanaged: %t", name, o.APIVersion, o.Kind, unmanaged(o))
			}
		}
	}
}
