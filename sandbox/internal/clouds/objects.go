package clouds

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	group = "sandbox.elasticai.io"
	kind  = "SimulatedCloud"

	// termination is Karpenter's finalizer: the machine ends before the NodeClaim goes.
	termination = "karpenter.sh/termination"
	// cloudLabel is on nodes of machines, with the cloud's name.
	cloudLabel = group + "/cloud"

	// Conditions of a NodeClaim, as Karpenter names them.
	launched    = "Launched"
	registered  = "Registered"
	initialized = "Initialized"
)

var (
	claims = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodeclaims"}
	sold   = schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "simulatedclouds"}
)

// nodeClaim asks for a machine.
type nodeClaim struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Taints       []corev1.Taint `json:"taints"`
		Requirements []requirement  `json:"requirements"`
		NodeClassRef struct {
			Group string `json:"group"`
			Kind  string `json:"kind"`
			Name  string `json:"name"`
		} `json:"nodeClassRef"`
		ExpireAfter string `json:"expireAfter"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

type requirement struct {
	Key      string                      `json:"key"`
	Operator corev1.NodeSelectorOperator `json:"operator"`
	Values   []string                    `json:"values"`
}

// ours says that a simulated cloud is asked.
func (c *nodeClaim) ours() bool {
	return c.Spec.NodeClassRef.Group == group && c.Spec.NodeClassRef.Kind == kind
}

// wants are the labels that the node must have: of each requirement that leaves one value, or the first of those it leaves.
func (c *nodeClaim) wants() map[string]string {
	labels := map[string]string{}
	for _, r := range c.Spec.Requirements {
		if r.Operator == corev1.NodeSelectorOpIn && len(r.Values) > 0 {
			labels[r.Key] = r.Values[0]
		}
	}
	return labels
}

// cloud is a SimulatedCloud.
type cloud struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		StartUp  string    `json:"startUp"`
		SoldOut  []string  `json:"soldOut"`
		Machines []machine `json:"machines"`
	} `json:"spec"`
}

// machine is an instance type.
type machine struct {
	Type  string `json:"type"`
	Cards int    `json:"cards"`
	Model string `json:"model"`
}
