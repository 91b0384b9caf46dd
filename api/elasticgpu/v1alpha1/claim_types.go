package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ElasticGPUClaim asks for an ElasticGPU.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
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

	Spec   ElasticGPUClaimSpec   `json:"spec,omitempty"`
	Status ElasticGPUClaimStatus `json:"status,omitempty"`
}

// ElasticGPUClaimSpec is what is asked for.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.elasticGPUName) || size(oldSelf.elasticGPUName) == 0 || (has(self.elasticGPUName) && self.elasticGPUName == oldSelf.elasticGPUName)",message="a claim stays with the ElasticGPU it has: delete it and make another"
type ElasticGPUClaimSpec struct {
	// Resources wanted: gpu-core and gpu-memory of one card, gpu for a number of whole cards, or tflops,
	// each behind elasticgpu.io or the provisioner's name and a slash.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`
	// ElasticGPUName is the ElasticGPU the claim has; a user may name one that is free, of the claim's class and of
	// the size that is asked for.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ElasticGPUName string `json:"elasticGPUName,omitempty"`
	// ElasticGPUClassName is the class of the claim.
	// +optional
	ElasticGPUClassName *string `json:"elasticGPUClassName,omitempty"`
	// EGPUClassName is another spelling of elasticGPUClassName.
	// +optional
	EGPUClassName *string `json:"egpuClassName,omitempty"`
}

// ClassName of the claim, however it is spelled; empty means none.
func (c *ElasticGPUClaim) ClassName() string {
	for _, name := range []*string{c.Spec.ElasticGPUClassName, c.Spec.EGPUClassName} {
		if name != nil && *name != "" {
			return *name
		}
	}
	return ""
}

// ElasticGPUClaimPhase is where a claim is in its life.
type ElasticGPUClaimPhase string

// Phases of a claim.
const (
	ClaimPending ElasticGPUClaimPhase = "Pending"
	ClaimBound   ElasticGPUClaimPhase = "Bound"
	ClaimLost    ElasticGPUClaimPhase = "Lost" // its ElasticGPU is gone
)

// ElasticGPUClaimStatus is the observed state.
type ElasticGPUClaimStatus struct {
	// +optional
	Phase ElasticGPUClaimPhase `json:"phase,omitempty"`
	// Message says what a claim waits for, or why its card is not reached.
	// +optional
	Message string `json:"message,omitempty"`
	// Capacity of the ElasticGPU it has.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// Remote: the ElasticGPU it has is used over the network, so that its pods may be on nodes without cards.
	// +optional
	Remote bool `json:"remote,omitempty"`
}

// ElasticGPUClaimList is a list of claims.
//
// +kubebuilder:object:root=true
type ElasticGPUClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ElasticGPUClaim `json:"items"`
}

// ReclaimPolicy is what becomes of an ElasticGPU when its claim is gone.
//
// +kubebuilder:validation:Enum=Retain;Delete
type ReclaimPolicy string

// Reclaim policies.
const (
	ReclaimRetain ReclaimPolicy = "Retain"
	ReclaimDelete ReclaimPolicy = "Delete"
)

// BindingMode is when a claim gets its ElasticGPU.
//
// +kubebuilder:validation:Enum=Immediate;WaitForFirstConsumer
type BindingMode string

// Binding modes.
const (
	BindImmediate            BindingMode = "Immediate"
	BindWaitForFirstConsumer BindingMode = "WaitForFirstConsumer"
)

// ElasticGPUClass says which provisioner makes ElasticGPUs for claims, when, and what becomes of them.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
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
	ReclaimPolicy ReclaimPolicy `json:"reclaimPolicy,omitempty"`
	// EGPUBindingMode says when a claim gets its ElasticGPU.
	// +kubebuilder:default=Immediate
	// +optional
	EGPUBindingMode BindingMode `json:"egpuBindingMode,omitempty"`
}

// ElasticGPUClassList is a list of classes.
//
// +kubebuilder:object:root=true
type ElasticGPUClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ElasticGPUClass `json:"items"`
}
