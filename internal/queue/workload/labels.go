package workload

// Kueue's labels and annotations of workloads, jobs and pods, as far as its API packages do not define them.
const (
	// GatedByAnnotation lists who must agree before the workload is considered.
	GatedByAnnotation = "kueue.x-k8s.io/admission-gated-by"
	// PriorityBoostAnnotation is added to the priority of the workload's class.
	PriorityBoostAnnotation = "kueue.x-k8s.io/priority-boost"
	// ElasticJobAnnotation marks jobs that may grow and shrink while admitted.
	ElasticJobAnnotation = "kueue.x-k8s.io/elastic-job"
	// ReplacesAnnotation names the workload this one takes over from.
	ReplacesAnnotation = "kueue.x-k8s.io/workload-slice-replacement-for"
	// GroupAnnotation marks workloads of groups of pods.
	GroupAnnotation = "kueue.x-k8s.io/is-group-workload"
	// JobUIDLabel is the UID of the job a workload was made for.
	JobUIDLabel = "kueue.x-k8s.io/job-uid"
)
