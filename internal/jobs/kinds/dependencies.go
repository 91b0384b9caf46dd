package kinds

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// SetAfter gives the workload what its job says it comes after, and reports whether that changes it. It is about its
// start: once it has quota, what the job says changes nothing.
func SetAfter(j Job, wl *kueue.Workload) bool {
	after := j.Meta().GetAnnotations()[v1alpha1.AfterAnnotation]
	if IsPrebuilt(j.Meta()) || workload.HasReservation(wl) || wl.Annotations[v1alpha1.AfterAnnotation] == after {
		return false
	}
	if after == "" {
		delete(wl.Annotations, v1alpha1.AfterAnnotation)
		return true
	}
	SetAnnotation(wl, v1alpha1.AfterAnnotation, after)
	return true
}
