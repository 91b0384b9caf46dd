package kinds

import kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

// Stop says why a job is stopped. Reason and message are Kueue's; the reason is on pods that are deleted
// for it, the message also in an event. Where it is known with which Workload the job was started, its templates are
// restored in the same write.
type Stop struct {
	Reason, Message string
	Workload        *kueue.Workload
}

// The reasons. An eviction's own reason is added to that of evicted jobs.
const (
	StopWorkloadDeleted    = "WorkloadDeleted"
	StopWorkloadEvicted    = "WorkloadEvicted"
	StopNoMatchingWorkload = "NoMatchingWorkload"
	StopNotAdmitted        = "NotAdmitted"
	StopWorkloadFinished   = "WorkloadFinished"
)
