package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ElasticGPU is something a container can be given: a share of a card, whole cards, or a remote one.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
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

	Spec   ElasticGPUSpec   `json:"spec,omitempty"`
	Status ElasticGPUStatus `json:"status,omitempty"`
}

// ElasticGPUSpec describes the device, where it is and which claim has it.
type ElasticGPUSpec struct {
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`

	ElasticGPUSource `json:",inline"`

	// ClaimRef is the claim that has it, or for which it was made.
	// +optional
	ClaimRef *corev1.ObjectReference `json:"claimRef,omitempty"`
	// NodeAffinity says from which nodes it can be used.
	// +optional
	NodeAffinity *GPUNodeAffinity `json:"nodeAffinity,omitempty"`
	// ElasticGPUClassName is the class it belongs to; a claim of another class does not get it.
	// +optional
	ElasticGPUClassName string `json:"elasticGPUClassName,omitempty"`
	// ReclaimPolicy is what becomes of it when its claim is gone; Retain when empty.
	// +optional
	ReclaimPolicy ReclaimPolicy `json:"reclaimPolicy,omitempty"`
}

// ElasticGPUSource is where the device comes from: one of these.
type ElasticGPUSource struct {
	// +optional
	QGPU *QGPUSource `json:"qGPU,omitempty"`
	// +optional
	PhysicalGPU *PhysicalGPUSource `json:"physicalGPU,omitempty"`
	// +optional
	GPUShare *GPUShareSource `json:"gpuShare,omitempty"`
	// +optional
	RemoteGPU *RemoteGPUSource `json:"remoteGPU,omitempty"`
}

// QGPUSource is a qGPU device on a card.
type QGPUSource struct {
	// +optional
	GPUName string `json:"gpuName,omitempty"`
	// +optional
	DeviceName string `json:"deviceName,omitempty"`
	// +optional
	Paths []string `json:"paths,omitempty"`
}

// PhysicalGPUSource is whole cards.
type PhysicalGPUSource struct {
	GPUNames []string `json:"gpuNames"`
}

// GPUShareSource is a share of a card.
type GPUShareSource struct {
	// +optional
	GPUName string `json:"gpuName,omitempty"`
}

// RemoteGPUSource is a card of another node, used over the network.
type RemoteGPUSource struct {
	// Address of a server that is not ours, as host:port.
	// +optional
	Address string `json:"address,omitempty"`
	// GPUName is the card, and NodeName the node that has it. The agents of that node and of the pod's connect the two.
	// +optional
	GPUName string `json:"gpuName,omitempty"`
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Parameters for the backend that connects to it.
	// +optional
	Parameters map[string]string `json:"parameters,omitempty"`
}

// GPUNodeAffinity says from which nodes a device can be used.
type GPUNodeAffinity struct {
	// +optional
	Required *corev1.NodeSelector `json:"required,omitempty"`
}

// ElasticGPUPhase is where an ElasticGPU is in its life.
type ElasticGPUPhase string

// Phases of an ElasticGPU.
const (
	GPUPending   ElasticGPUPhase = "Pending"   // not seen yet
	GPUAvailable ElasticGPUPhase = "Available" // free for a claim
	GPUBound     ElasticGPUPhase = "Bound"     // a claim has it
	GPUReleased  ElasticGPUPhase = "Released"  // its claim is gone, and it is retained
)

// ElasticGPUStatus is the observed state.
type ElasticGPUStatus struct {
	// +optional
	Phase ElasticGPUPhase `json:"phase,omitempty"`
	// Message says why, for people.
	// +optional
	Message string `json:"message,omitempty"`
	// Reason says why in one word, for programs.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// ElasticGPUList is a list of ElasticGPUs.
//
// +kubebuilder:object:root=true
type ElasticGPUList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ElasticGPU `json:"items"`
}
