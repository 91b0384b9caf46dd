package kinds

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// startAnnotations are what a job says of its start: which jobs it comes after, and what its nodes may cost.
var startAnnotations = []string{v1alpha1.AfterAnnotation, cloudv1.DeadlineAnnotation, cloudv1.DelayPriceAnnotation, cloudv1.CheckpointAnnotation,
	cloudv1.InputSizeAnnotation, cloudv1.InputRegionAnnotation}

// SetStart gives the workload what its job says of its start, and reports whether that changes it. Once it has quota, what the
// job says changes nothing.
func SetStart(j Job, wl *kueue.Workload) (changed bool) {
	if IsPrebuilt(j.Meta()) || workload.HasReservation(wl) {
		return false
	}
	names := startAnnotations
	if RecordsSubmitters() {
		names = append(slices.Clone(names), v1alpha1.SubmittedByAnnotation)
	}
	for _, name := range names {
		text := j.Meta().GetAnnotations()[name]
		if name == v1alpha1.SubmittedByAnnotation && !saysSubmitter(j) {
			text = ""
		}
		switch {
		case wl.Annotations[name] == text:
			continue
		case text == "":
			delete(wl.Annotations, name)
		default:
			SetAnnotation(wl, name, text)
		}
		changed = true
	}
	return changed
}

// saysSubmitter says that the annotation of a job was written by our webhook. It sees every new object of kinds with a suspend flag,
// and of others only those that name a queue from the start.
func saysSubmitter(j Job) bool { return j.Row().Suspends() }
