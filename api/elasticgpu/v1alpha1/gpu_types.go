package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// GPU is a physical card.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
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

	Spec   GPUSpec   `json:"spec,omitempty"`
	Status GPUStatus `json:"status,omitempty"`
}

// GPUSpec is what does not change while the card is in its place.
type GPUSpec struct {
	// Index that containers see.
	// +kubebuilder:validation:Minimum=0
	Index int `json:"index"`
	// +optional
	UUID string `json:"uuid,omitempty"`
	// +optional
	Model string `json:"model,omitempty"`
	// Path of the device file.
	// +optional
	Path string `json:"path,omitempty"`
	// Memory in MiB.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Memory int64 `json:"memory,omitempty"`
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// TFLOPS in half precision, from its maker's data sheet; 0 if its model is not known.
	// +kubebuilder:validation:Minimum=0
	// +optional
	TFLOPS int64 `json:"tflops,omitempty"`
	// NUMA node the card is attached to.
	// +optional
	NUMA int `json:"numa,omitempty"`
	// Links to other cards of the node.
	// +optional
	// +listType=map
	// +listMapKey=to
	Links []GPULink `json:"links,omitempty"`
}

// GPULink is a connection to another card of the same node.
type GPULink struct {
	// To is the other card's index.
	To int `json:"to"`
	// Bandwidth in GB/s, both ways.
	Bandwidth int64 `json:"bandwidth"`
	// Kind is NVLink or PCIe.
	// +optional
	Kind string `json:"kind,omitempty"`
}

// States of a card. One without a state is taken for ready.
const (
	GPUReady     = "Ready"
	GPUUnhealthy = "Unhealthy"
	// GPUByClaim is given out by ResourceClaims; the GPU scheduler leaves it alone.
	GPUByClaim = "ByClaim"
)

// GPUStatus is what the agent sees.
type GPUStatus struct {
	// State is Ready, Unhealthy, or ByClaim if ResourceClaims give it out.
	// +optional
	State string `json:"state,omitempty"`
	// Message says what is wrong with the card, or what gives it out.
	// +optional
	Message string `json:"message,omitempty"`
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// Allocated is what pods have of the card, by the pod's namespace and name with a slash between. The GPU
	// scheduler writes it, and no tenant may: it is what the node's agent believes.
	// +optional
	Allocated map[string]*PodResource `json:"allocated,omitempty"`
	// Load is measured, in percent.
	// +optional
	Load *GPULoad `json:"load,omitempty"`
	// Processes that have something on the card, as the driver says; at most 32, those with the most memory. Small changes of
	// memory are not written.
	// +optional
	// +listType=map
	// +listMapKey=pid
	// +kubebuilder:validation:MaxItems=32
	Processes []GPUProcess `json:"processes,omitempty"`
	// Instances are the parts that the card is divided into now (MIG).
	// +optional
	// +listType=map
	// +listMapKey=uuid
	Instances []GPUInstance `json:"instances,omitempty"`
}

// GPUProcess is a process that has something on a card.
type GPUProcess struct {
	// PID by which the node knows it.
	PID int `json:"pid"`
	// Pod it belongs to, as namespace/name; empty for one of no pod that was given the card.
	// +optional
	Pod string `json:"pod,omitempty"`
	// +optional
	Container string `json:"container,omitempty"`
	// Memory that it has on the card, in MiB.
	// +optional
	Memory int64 `json:"memory,omitempty"`
	// Swapped is what it has on the host instead, in MiB, as the library in it says.
	// +optional
	Swapped int64 `json:"swapped,omitempty"`
}

// GPUInstance is a part of a card with memory and compute of its own.
type GPUInstance struct {
	UUID string `json:"uuid"`
	// Profile as NVIDIA's tools call it: 1g.18gb.
	Profile string `json:"profile"`
	// Start is its first slice of the card's memory.
	Start int `json:"start"`
}

// GPULoad is how busy a card is, in percent of the whole.
type GPULoad struct {
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Core int `json:"core"`
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Memory int `json:"memory"`
	// Power drawn, in watts.
	// +optional
	Power int `json:"power,omitempty"`
}

// PodResource is what a pod holds of a card.
type PodResource struct {
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +optional
	Pod string `json:"pod,omitempty"`
	// UID of the pod: another one of its name has none of this.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Guessed says that another scheduler bound the pod: which card it has is not known, and it is counted on this
	// one. The agent gives it nothing.
	// +optional
	Guessed bool `json:"guessed,omitempty"`
	// +optional
	Containers []ContainerResource `json:"containers,omitempty"`
}

// ContainerResource is what a container holds of a card.
type ContainerResource struct {
	// +optional
	Container string `json:"container,omitempty"`
	// +optional
	Resource corev1.ResourceList `json:"resource,omitempty"`
}

// GPUList is a list of GPUs.
//
// +kubebuilder:object:root=true
type GPUList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []GPU `json:"items"`
}
