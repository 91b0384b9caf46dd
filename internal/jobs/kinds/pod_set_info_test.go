package kinds

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
)

// A template without any labels gets those back that its user had written.
func TestRemovedInfoOfATemplateWithoutLabels(t *testing.T) {
	template, written := &corev1.PodTemplateSpec{}, &corev1.PodTemplateSpec{}
	written.Labels = map[string]string{PodSetLabel: "mine"}
	removePodSetInfo(template, written, checkUpdates{})
	if template.Labels[PodSetLabel] != "mine" {
		t.Errorf("its labels are %v", template.Labels)
	}
}

// What bought nodes cost goes from the template also when the check no longer says that it set it: after an eviction it has
// begun again, and the next nodes have another price, which would contradict the old one.
func TestRemovedInfoOfAForgottenPrice(t *testing.T) {
	template, written := &corev1.PodTemplateSpec{}, &corev1.PodTemplateSpec{}
	template.Annotations = map[string]string{cloudv1.PriceAnnotation: "40.00", "mine": "too"}
	removePodSetInfo(template, written, checkUpdates{})
	next := PodSetInfo{Annotations: map[string]string{cloudv1.PriceAnnotation: "44.00"}}
	if err := next.MergeInto(&template.ObjectMeta, &template.Spec); err != nil || template.Annotations["mine"] != "too" {
		t.Errorf("%v, %v", err, template.Annotations)
	}
}
