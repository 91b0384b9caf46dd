package kueuelabels

const (
	// JobUID is the UID of the job a workload was made for; a label.
	JobUID = "kueue.x-k8s.io/job-uid"
	// ElasticJob marks jobs that may grow and shrink while admitted; an annotation.
	ElasticJob = "kueue.x-k8s.io/elastic-job"
	// Managed marks pods and requests that belong to the queue; a label, and the pods' finalizer.
	Managed = "kueue.x-k8s.io/managed"
	// PodSet names the pod set of its workload that a pod belongs to; a label.
	PodSet = "kueue.x-k8s.io/podset"
	// LocalQueue and ClusterQueue name the queues that a pod was admitted from; labels.
	LocalQueue   = "kueue.x-k8s.io/local-queue-name"
	ClusterQueue = "kueue.x-k8s.io/cluster-queue-name"
	// PodGroupName is the group of a pod, a label, and PodGroupTotal the size of the group, an
	// annotation.
	PodGroupName  = "kueue.x-k8s.io/pod-group-name"
	PodGroupTotal = "kueue.x-k8s.io/pod-group-total-count"
	// ProvisioningParameterPrefix begins annotations of a job that are parameters of its
	// ProvisioningRequests.
	ProvisioningParameterPrefix = "provreq.kueue.x-k8s.io/"
	// ConcurrentAdmissionParent marks a workload that has variants; a label.
	ConcurrentAdmissionParent = "kueue.x-k8s.io/concurrent-admission-parent"
	// AllowedFlavors names the only flavors that a workload may be assigned, with commas between them; an annotation.
	AllowedFlavors = "kueue.x-k8s.io/workload-allowed-resource-flavors"
	// ConcurrentAdmissionGate is the preemption gate of variants, MultiKueueGate that of copies in other clusters.
	ConcurrentAdmissionGate = "kueue.x-k8s.io/concurrent-admission"
	MultiKueueGate          = "kueue.x-k8s.io/multikueue"
)
