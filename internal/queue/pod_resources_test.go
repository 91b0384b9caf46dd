package queue

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// A workload whose pods could not be created waits, and says so; a LimitRange that changes is seen, and
// its defaults are charged.
func TestLimitRangesAreSeen(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	limits := &corev1.LimitRange{}
	limits.Namespace, limits.Name = "ns", "limits"
	limits.Spec.Limits = []corev1.LimitRangeItem{{
		Type:           corev1.LimitTypeContainer,
		DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")},
		Max:            corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
	}}
	wl := p.workload("small", "main", "batch", 1, "1")
	wl.Spec.PodSets[0].Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	p.see(limits, wl)
	waits := apimeta.FindStatusCondition(p.written["small"].Status.Conditions, kueue.WorkloadQuotaReserved)
	if waits == nil || !strings.HasPrefix(waits.Message, "resources didn't satisfy LimitRange constraints: ") {
		t.Fatalf("condition: %v", waits)
	}
	wider := limits.DeepCopy()
	wider.Spec.Limits[0].Max = nil
	p.see(wider)
	now := p.written["small"]
	if !workload.HasReservation(now) {
		t.Fatalf("it is not looked at again: %v", now.Status.Conditions)
	}
	if got := now.Status.Admission.PodSetAssignments[0].ResourceUsage[corev1.ResourceCPU]; got.String() != "3" {
		t.Errorf("it has %s CPUs, not the default", got.String())
	}
}
