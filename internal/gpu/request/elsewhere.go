package request

import (
	"maps"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ElsewhereCondition of a Workload says which resources of its pod sets are used from other nodes than its pods': the flavors of
// these say nothing of the pods' nodes. The queue writes it with the admission, of which status.admission has no such field, and so
// it stays what it was when the class of a claim changes.
const ElsewhereCondition = "elasticai.io/CardsElsewhere"

// FormatElsewhere is the condition's message: "main=elasticgpu.io/gpu-core,elasticgpu.io/gpu-memory workers=…".
func FormatElsewhere(byPodSet map[string][]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(byPodSet)) {
		parts = append(parts, name+"="+strings.Join(byPodSet[name], ","))
	}
	return strings.Join(parts, " ")
}

// Elsewhere are the resources that pods of a Workload use from other nodes, by pod set.
func Elsewhere(conditions []metav1.Condition) map[string][]string {
	c := apimeta.FindStatusCondition(conditions, ElsewhereCondition)
	if c == nil || c.Status != metav1.ConditionTrue {
		return nil
	}
	of := map[string][]string{}
	for part := range strings.FieldsSeq(c.Message) {
		if name, resources, ok := strings.Cut(part, "="); ok {
			of[name] = strings.Split(resources, ",")
		}
	}
	return of
}
