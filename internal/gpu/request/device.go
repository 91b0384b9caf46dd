package request

import (
	"cmp"
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
	case e.Spec.RemoteGPU != nil && e.Spec.RemoteGPU.GPUName != "":
		return []string{e.Spec.RemoteGPU.GPUName}
	}
	return nil
}

// ServerName is how the pod is called that serves an ElasticGPU to programs of other nodes.
func ServerName(device string) string { return "remote-" + device }

// DefaultEngine carries calls to cards of other nodes where the class names no other one.
const DefaultEngine = "elastic"

// Engine that a class chooses for cards of other nodes.
func Engine(parameters map[string]string) string { return cmp.Or(parameters["engine"], DefaultEngine) }

// IsServed says that an ElasticGPU is used from other nodes, through a server of ours beside its card.
func IsServed(e *egpu.ElasticGPU) bool {
	return e.Spec.RemoteGPU != nil && e.Spec.RemoteGPU.NodeName != ""
}

// NodeOf an ElasticGPU: the one node that its affinity allows, or whose card it uses from others; empty where it is not
// that narrow.
func NodeOf(e *egpu.ElasticGPU) string {
	if e.Spec.RemoteGPU != nil {
		return e.Spec.RemoteGPU.NodeName
	}
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
