package request

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
)

// GPUNames are the GPU objects that an ElasticGPU says it is of.
func GPUNames(e *egpu.ElasticGPU) []string {
	switch {
	case e.Spec.PhysicalGPU != nil:
		return e.Spec.PhysicalGPU.GPUNames
	case e.Spec.GPUShare != nil && e.Spec.GPUShare.GPUName != "":
		return []string{e.Spec.GPUShare.GPUName}
	case e.Spec.QGPU != nil && e.Spec.QGPU.GPUName != "":
		return []string{e.Spec.QGPU.GPUName}
	}
	return nil
}

// NodeOf an ElasticGPU: the one node that its affinity allows; empty where it is not that narrow.
func NodeOf(e *egpu.ElasticGPU) string {
	affinity := e.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil || len(affinity.Required.NodeSelectorTerms) != 1 {
		return ""
	}
	term := affinity.Required.NodeSelectorTerms[0]
	for _, r := range slices.Concat(term.MatchFields, term.MatchExpressions) {
		named := r.Key == "metadata.name" || r.Key == corev1.LabelHostname
		if named && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1 {
			return r.Values[0]
		}
	}
	return ""
}
