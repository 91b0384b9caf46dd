package machines

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The types of karpenter.sh/v1, as far as they are needed here. Karpenter's module wants other versions of Kubernetes'.

// GroupVersion of Karpenter's objects.
var GroupVersion = schema.GroupVersion{Group: "karpenter.sh", Version: "v1"}

const crdName = "nodeclaims.karpenter.sh"

// Conditions of a NodeClaim.
const (
	Launched   = "Launched"
	Registered = "Registered"
)

// Labels of nodes by which a place is asked for.
const (
	capacityTypeLabel = "karpenter.sh/capacity-type"
	onDemand          = "on-demand"
	spot              = "spot"
)

// NodeClaim asks Karpenter for a node.
type NodeClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NodeClaimSpec   `json:"spec"`
	Status NodeClaimStatus `json:"status,omitzero"`
}

// NodeClaimSpec is which node is asked for. It does not change.
type NodeClaimSpec struct {
	Taints                 []corev1.Taint       `json:"taints,omitempty"`
	Requirements           []Requirement        `json:"requirements"`
	Resources              ResourceRequirements `json:"resources,omitzero"`
	NodeClassRef           NodeClassRef         `json:"nodeClassRef"`
	TerminationGracePeriod string               `json:"terminationGracePeriod,omitempty"`
	ExpireAfter            string               `json:"expireAfter,omitempty"`
}

// Requirement is a label that the node must have.
type Requirement struct {
	Key      string                      `json:"key"`
	Operator corev1.NodeSelectorOperator `json:"operator"`
	Values   []string                    `json:"values,omitempty"`
}

// ResourceRequirements are what the node must have at least.
type ResourceRequirements struct {
	Requests corev1.ResourceList `json:"requests,omitempty"`
}

// NodeClassRef names the class of the node.
type NodeClassRef struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
}

// NodeClaimStatus is what Karpenter says of it.
type NodeClaimStatus struct {
	NodeName   string             `json:"nodeName,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeClaimList is a list of them.
type NodeClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []NodeClaim `json:"items"`
}

// AddToScheme makes the types known.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &NodeClaim{}, &NodeClaimList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// DeepCopy of a NodeClaim.
func (c *NodeClaim) DeepCopy() *NodeClaim {
	out := *c
	c.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Taints = slices.Clone(c.Spec.Taints)
	out.Spec.Requirements = slices.Clone(c.Spec.Requirements)
	for i := range out.Spec.Requirements {
		out.Spec.Requirements[i].Values = slices.Clone(c.Spec.Requirements[i].Values)
	}
	out.Spec.Resources.Requests = maps.Clone(c.Spec.Resources.Requests)
	out.Status.Conditions = slices.Clone(c.Status.Conditions)
	return &out
}

// DeepCopyObject makes it an object.
func (c *NodeClaim) DeepCopyObject() runtime.Object { return c.DeepCopy() }

// DeepCopyObject makes it an object.
func (l *NodeClaimList) DeepCopyObject() runtime.Object {
	out := *l
	l.DeepCopyInto(&out.ListMeta)
	out.Items = make([]NodeClaim, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopy()
	}
	return &out
}
