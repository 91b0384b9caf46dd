// Package v1alpha is an older spelling of v1alpha1, with the same fields. It is here for the CRDs to
// be generated from; programs use v1alpha1.
//
// +groupName=elasticgpu.io
package v1alpha

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
)

// GPU is a physical card.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Index",type=integer,JSONPath=`.spec.index`
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.spec.model`
// +kubebuilder:printcolumn:name="Memory",type=integer,JSONPath=`.spec.memory`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GPU struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   v1alpha1.GPUSpec   `json:"spec,omitempty"`
	Status v1alpha1.GPUStatus `json:"status,omitempty"`
}

// ElasticGPU is something a container can be given: a share of a card, whole cards, or a remote one.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=egpu
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Claim",type=string,JSONPath=`.spec.claimRef.name`
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=`.spec.elasticGPUClassName`
// +kubebuilder:printcolumn:name="Reclaim",type=string,JSONPath=`.spec.reclaimPolicy`
// +kubebuilder:printcolumn:name="Cards",type=string,JSONPath=`.metadata.annotations.elasticgpu\.io/cards`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ElasticGPU struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   v1alpha1.ElasticGPUSpec   `json:"spec,omitempty"`
	Status v1alpha1.ElasticGPUStatus `json:"status,omitempty"`
}

// ElasticGPUClaim asks for an ElasticGPU.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=egpuc
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="ElasticGPU",type=string,JSONPath=`.spec.elasticGPUName`
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=`.spec.elasticGPUClassName`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ElasticGPUClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   v1alpha1.ElasticGPUClaimSpec   `json:"spec,omitempty"`
	Status v1alpha1.ElasticGPUClaimStatus `json:"status,omitempty"`
}

// ElasticGPUClass says which provisioner makes ElasticGPUs for claims, when, and what becomes of them.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=egpuclass,path=elasticgpuclasses
// +kubebuilder:printcolumn:name="Provisioner",type=string,JSONPath=`.provisioner`
// +kubebuilder:printcolumn:name="ReclaimPolicy",type=string,JSONPath=`.reclaimPolicy`
// +kubebuilder:printcolumn:name="BindingMode",type=string,JSONPath=`.egpuBindingMode`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ElasticGPUClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Provisioner makes ElasticGPUs for claims of this class.
	// +kubebuilder:validation:MinLength=1
	Provisioner string `json:"provisioner"`
	// Parameters for the provisioner. Those in tree read "policy" and "models".
	// +optional
	Parameters map[string]string `json:"parameters,omitempty"`
	// ReclaimPolicy of the ElasticGPUs made for claims of this class.
	// +kubebuilder:default=Delete
	// +optional
	ReclaimPolicy v1alpha1.ReclaimPolicy `json:"reclaimPolicy,omitempty"`
	// EGPUBindingMode says when a claim gets its ElasticGPU.
	// +kubebuilder:default=Immediate
	// +optional
	EGPUBindingMode v1alpha1.BindingMode `json:"egpuBindingMode,omitempty"`
}
