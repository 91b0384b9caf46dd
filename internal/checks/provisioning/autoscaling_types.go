package provisioning

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The types of autoscaling.x-k8s.io/v1, as far as they are needed here. Those of cluster-autoscaler's
// module would link a test framework into the program.

// GroupVersion of cluster-autoscaler's requests.
var GroupVersion = schema.GroupVersion{Group: "autoscaling.x-k8s.io", Version: "v1"}

const crdName = "provisioningrequests.autoscaling.x-k8s.io"

// Conditions of a request.
const (
	Accepted        = "Accepted"
	Provisioned     = "Provisioned"
	Failed          = "Failed"
	BookingExpired  = "BookingExpired"
	CapacityRevoked = "CapacityRevoked"
)

// Annotations of pods that use the nodes of a request.
const (
	ConsumeAnnotation = "autoscaling.x-k8s.io/consume-provisioning-request"
	ClassAnnotation   = "autoscaling.x-k8s.io/provisioning-class-name"
)

// ProvisioningRequest asks cluster-autoscaler for nodes.
type ProvisioningRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RequestSpec   `json:"spec"`
	Status RequestStatus `json:"status,omitzero"`
}

// RequestSpec is what is asked for. It does not change.
type RequestSpec struct {
	PodSets               []PodSet          `json:"podSets"`
	ProvisioningClassName string            `json:"provisioningClassName"`
	Parameters            map[string]string `json:"parameters,omitempty"`
}

// PodSet is a number of equal pods.
type PodSet struct {
	PodTemplateRef TemplateRef `json:"podTemplateRef"`
	Count          int32       `json:"count"`
}

// TemplateRef names a PodTemplate of the namespace.
type TemplateRef struct {
	Name string `json:"name,omitempty"`
}

// RequestStatus is what the autoscaler says of it.
type RequestStatus struct {
	Conditions               []metav1.Condition `json:"conditions,omitempty"`
	ProvisioningClassDetails map[string]string  `json:"provisioningClassDetails,omitempty"`
}

// ProvisioningRequestList is a list of them.
type ProvisioningRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []ProvisioningRequest `json:"items"`
}

// AddToScheme makes the types known.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &ProvisioningRequest{}, &ProvisioningRequestList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// DeepCopy of a request.
func (r *ProvisioningRequest) DeepCopy() *ProvisioningRequest {
	out := *r
	r.DeepCopyInto(&out.ObjectMeta)
	out.Spec.PodSets = slices.Clone(r.Spec.PodSets)
	out.Spec.Parameters = maps.Clone(r.Spec.Parameters)
	out.Status.Conditions = slices.Clone(r.Status.Conditions)
	out.Status.ProvisioningClassDetails = maps.Clone(r.Status.ProvisioningClassDetails)
	return &out
}

// DeepCopyObject makes it an object.
func (r *ProvisioningRequest) DeepCopyObject() runtime.Object { return r.DeepCopy() }

// DeepCopyObject makes it an object.
func (l *ProvisioningRequestList) DeepCopyObject() runtime.Object {
	out := *l
	l.DeepCopyInto(&out.ListMeta)
	out.Items = make([]ProvisioningRequest, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopy()
	}
	return &out
}
