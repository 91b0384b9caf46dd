package workload

// Kueue's annotations of workloads. Those that jobs and pods have too are in kueuelabels.
const (
	// GatedByAnnotation lists who must agree before the workload is considered.
	GatedByAnnotation = "kueue.x-k8s.io/admission-gated-by"
	// PriorityBoostAnnotation is added to the priority of the workload's class.
	PriorityBoostAnnotation = "kueue.x-k8s.io/priority-boost"
	// ReplacesAnnotation names the workload this one takes over from.
	ReplacesAnnotation = "kueue.x-k8s.io/workload-slice-replacement-for"
	// GroupAnnotation marks workloads of groups of pods.
	GroupAnnotation = "kueue.x-k8s.io/is-group-workload"
)
