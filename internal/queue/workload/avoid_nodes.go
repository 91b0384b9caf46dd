package workload

import (
	"fmt"
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

// ReadAvoidNodes are the nodes that an annotation of a pod names. A pod's author may have written it.
func ReadAvoidNodes(text string) ([]string, error) {
	switch {
	case text == "":
		return nil, nil
	case len(text) > longestAvoidNodes:
		return nil, fmt.Errorf("%d bytes are more than %d", len(text), longestAvoidNodes)
	}
	nodes := strings.Split(text, ",")
	slices.Sort(nodes)
	return slices.Compact(nodes), nil
}

// What a pod can get is bounded: its author says how many terms its node affinity has.
const (
	longestAvoidNodes = 32 << 10
	mostExclusions    = 32 << 10
)

// ExcludeNodes adds to a pod's node affinity that it is on none of some nodes.
func ExcludeNodes(spec *corev1.PodSpec, nodes []string) error {
	if len(nodes) == 0 {
		return nil
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
		return nil
	}
	terms := (*required).NodeSelectorTerms
	if n := len(terms) * len(nodes); n > mostExclusions {
		return fmt.Errorf("%d terms of node affinity are too many to exclude %d nodes from, which are reserved for others", len(terms), len(nodes))
	}
	for i := range terms {
		if t := &terms[i]; len(t.MatchExpressions)+len(t.MatchFields) > 0 { // an empty one matches no node
			excludeFrom(t, nodes)
		}
	}
	return nil
}

// excludeFrom names each node for itself: the API takes no more in a requirement on a field.
func excludeFrom(term *corev1.NodeSelectorTerm, nodes []string) {
	excluded := map[string]bool{}
	for _, r := range term.MatchFields {
		if r.Key == metav1.ObjectNameField && r.Operator == corev1.NodeSelectorOpNotIn && len(r.Values) == 1 {
			excluded[r.Values[0]] = true
		}
	}
	for _, name := range nodes {
		if !excluded[name] {
			term.MatchFields = append(term.MatchFields, corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{name}})
		}
	}
}
