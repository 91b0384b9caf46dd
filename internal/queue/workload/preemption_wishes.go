package workload

import (
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// What a job says of its own preemption. Its user writes it, so nobody else may lose by it: asking never to be preempted
// counts only where a QueuePolicy honours it, a checkpoint makes a job an earlier victim among equals, and one that
// stops when it is preempted gives up its own turn.

// AsksNeverPreempt says that the workload's job asks not to be preempted.
func AsksNeverPreempt(wl *kueue.Workload) bool {
	return wl.Annotations[v1alpha1.NeverPreemptAnnotation] == "true"
}

// stopsWhenPreempted says that the workload is not to be requeued once it is preempted.
func stopsWhenPreempted(wl *kueue.Workload) bool {
	return wl.Annotations[egpu.OnPreemptionAnnotation] == egpu.OnPreemptionStop
}

// WasStoppedByPreemption says that the workload was deactivated because it was preempted, as it asked.
func WasStoppedByPreemption(wl *kueue.Workload) bool {
	evicted := condition(wl, kueue.WorkloadEvicted)
	return !IsActive(wl) && stopsWhenPreempted(wl) && evicted != nil && evicted.Reason == kueue.WorkloadEvictedByPreemption
}

// CheckpointedAt is when a job or workload says that it last saved its work; zero if it does not, or not in the form of
// a time.
func CheckpointedAt(obj client.Object) time.Time {
	at, err := time.Parse(time.RFC3339, obj.GetAnnotations()[v1alpha1.CheckpointedAtAnnotation])
	if err != nil {
		return time.Time{}
	}
	return at
}
