package kinds

import (
	"slices"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// checkpointStep is how much later a job's checkpoint must be before its workload is updated: a job that saves its work
// every second is no reason for a write every second.
const checkpointStep = time.Minute

// SetPreemptionWishes gives the workload what its job says of its own preemption, and reports whether that changes it.
// Whether it may be preempted at all is settled when its quota is reserved. movable: it can be swapped out, as far as is
// known; who chooses victims is not to count on it otherwise.
func SetPreemptionWishes(j Job, wl *kueue.Workload, movable bool) bool {
	if IsPrebuilt(j.Meta()) { // whose workload says so itself
		return false
	}
	wants := j.Meta().GetAnnotations()
	changed := false
	follow := func(key, value string) {
		if wl.Annotations[key] == value {
			return
		}
		changed = true
		if value == "" {
			delete(wl.Annotations, key)
			return
		}
		SetAnnotation(wl, key, value)
	}
	if !workload.HasReservation(wl) {
		follow(v1alpha1.NeverPreemptAnnotation, only(wants[v1alpha1.NeverPreemptAnnotation], "true"))
	}
	means := []string{egpu.OnPreemptionStop}
	if movable {
		means = append(means, egpu.OnPreemptionSwap)
	}
	follow(egpu.OnPreemptionAnnotation, only(wants[egpu.OnPreemptionAnnotation], means...))
	switch at, had := workload.CheckpointedAt(j.Meta()), workload.CheckpointedAt(wl); {
	case at.IsZero():
		follow(v1alpha1.CheckpointedAtAnnotation, "")
	case !at.Before(had.Add(checkpointStep)):
		follow(v1alpha1.CheckpointedAtAnnotation, at.UTC().Format(time.RFC3339))
	}
	return changed
}

// only is a value if it is one that means something; "" for any other.
func only(value string, means ...string) string {
	if slices.Contains(means, value) {
		return value
	}
	return ""
}
