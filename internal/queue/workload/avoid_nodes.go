package workload

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// avoidNodesCondition names the nodes that are reserved ahead of time for others, and that the pods of an admitted workload
// must not be on, as it could still run then. It is written with the admission, of which status.admission has no such field.
const avoidNodesCondition = "elasticai.io/AvoidsNodes"

// AvoidNodes are the nodes that the pods of an admitted workload must not be on.
func AvoidNodes(wl *kueue.Workload) []string {
	c := condition(wl, avoidNodesCondition)
	if c == nil || c.Status != metav1.ConditionTrue || c.Message == "" {
		return nil
	}
	return strings.Split(c.Message, ",")
}

func setAvoidNodes(wl *kueue.Workload, nodes []string, now time.Time) {
	if len(nodes) == 0 {
		apimeta.RemoveStatusCondition(&wl.Status.Conditions, avoidNodesCondition)
		return
	}
	set(wl, avoidNodesCondition, true, "ReservedForOthers", strings.Join(nodes, ","), now)
}

// ExcludeNodes adds to a pod's node affinity that it is on none of some nodes.
func ExcludeNodes(spec *corev1.PodSpec, nodes []string) {
	if len(nodes) == 0 {
		return
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := &spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *required == nil || len((*required).NodeSelectorTerms) == 0 {
		*required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
		excludeFrom(&(*required).NodeSelectorTerms[0], nodes)
		return
	}
	for i := range (*required).NodeSelectorTerms {
		if t := &(*required).NodeSelectorTerms[i]; len(t.MatchExpressions)+len(t.MatchFields) > 0 { // an empty one matches no node
			excludeFrom(t, nodes)
		}
	}
}

// excludeFrom names each node for itself: the API takes no more in a requirement on a field.
func excludeFrom(term *corev1.NodeSelectorTerm, nodes []string) {
	for _, name := range nodes {
		other := corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{name}}
		if !slices.ContainsFunc(term.MatchFields, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == other.Key && r.Operator == other.Operator && slices.Equal(r.Values, other.Values)
		}) {
			term.MatchFields = append(term.MatchFields, other)
		}
	}
}
