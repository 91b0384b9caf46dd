package kinds

// Stop says why a job is stopped. Reason and message are Kueue's; the reason is on pods that are deleted
// for it, the message also in an event.
type Stop struct{ Reason, Message string }

// The reasons. An eviction's own reason is added to that of evicted jobs.
const (
	StopWorkloadDeleted    = "WorkloadDeleted"
	StopWorkloadEvicted    = "WorkloadEvicted"
	StopNoMatchingWorkload = "NoMatchingWorkload"
	StopNotAdmitted        = "NotAdmitted"
	StopWorkloadFinished   = "WorkloadFinished"
)
