package workload

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/gpu/request"
)

// cardsElsewhere are, by pod set, the resources that its pods use from other nodes.
func cardsElsewhere(wl *kueue.Workload) map[string][]string {
	return request.Elsewhere(wl.Status.Conditions)
}

func setCardsElsewhere(wl *kueue.Workload, of map[string][]string, now time.Time) {
	if len(of) == 0 {
		apimeta.RemoveStatusCondition(&wl.Status.Conditions, request.ElsewhereCondition)
		return
	}
	set(wl, request.ElsewhereCondition, true, "RemoteClaims", request.FormatElsewhere(of), now)
}

// elsewhereIn an admission, by pod set.
func elsewhereIn(a *admission.Admission) map[string][]string {
	of := map[string][]string{}
	for i := range a.PodSets {
		if set := &a.PodSets[i]; len(set.Elsewhere) > 0 {
			of[set.Name] = set.Elsewhere
		}
	}
	return of
}

// nodeFlavors are the flavors of what a pod set has on the nodes of its pods.
func nodeFlavors(wl *kueue.Workload, assigned *kueue.PodSetAssignment) map[corev1.ResourceName]kueue.ResourceFlavorReference {
	flavors := maps.Clone(assigned.Flavors)
	for _, name := range cardsElsewhere(wl)[string(assigned.Name)] {
		delete(flavors, corev1.ResourceName(name))
	}
	return flavors
}
