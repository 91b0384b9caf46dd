package kinds

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A template without any labels gets those back that its user had written.
func TestRemovedInfoOfATemplateWithoutLabels(t *testing.T) {
	template, written := &corev1.PodTemplateSpec{}, &corev1.PodTemplateSpec{}
	written.Labels = map[string]string{PodSetLabel: "mine"}
	removePodSetInfo(template, written, &kueue.Workload{})
	if template.Labels[PodSetLabel] != "mine" {
		t.Errorf("its labels are %v", template.Labels)
	}
}
