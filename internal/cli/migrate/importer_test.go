package migrate

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// What cannot be counted is not imported: it would use more than it holds.
func TestDevicesByClaimsAreNotImported(t *testing.T) {
	wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 1}}}}
	f := &candidate{workload: wl}
	if err := (&importer{}).assign(f, &kueue.ClusterQueue{}); err != nil {
		t.Fatal(err)
	}
	wl.Spec.PodSets[0].Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "card"}}
	if err := (&importer{}).assign(f, &kueue.ClusterQueue{}); err == nil || !strings.Contains(err.Error(), "ResourceClaims") {
		t.Errorf("error %v", err)
	}
}
