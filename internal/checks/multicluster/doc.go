// Package multicluster is the admission check kueue.x-k8s.io/multikueue: a workload that has its
// quota here is run by another cluster.
//
//	AdmissionCheck → MultiKueueConfig (which clusters) → MultiKueueCluster (how to connect to one)
//
// Copies of the workload wait in the queues of the nominated clusters. The first one that is admitted
// wins: the others are removed, a copy of the job is created beside it, and the check is ready. While
// the job runs its status is copied back, and when it has ended here or there, everything there is
// removed.
//
// If a job has several workloads, as a LeaderWorkerSet has one for each group, the first is dispatched
// alone and its siblings follow it; the job there is one, and is removed with the last of them.
//
//	reconcile_plan.go       what to do about a workload, from its state here and there; no client, no clock
//	dispatcher.go           which clusters are nominated
//	cheapest_dispatcher.go  the same by what they cost
//	worker_reports.go       what clusters have learned of the places where they buy
//	workload_controller.go  reads the states, decides, and carries the plan out
//	remote_actions.go       each action of a plan
//	cluster_controller.go   a connection for every MultiKueueCluster, and its Active condition
//	cluster_connection.go   a connection: client and informers while the cluster answers
//	kubeconfig.go           how to connect to a cluster, and what is rejected
//	check_active.go         whether the AdmissionChecks are active
//	quota_automation.go     nominal quota that follows the queues of other clusters, with a gate
//
// Objects in other clusters have the label kueue.x-k8s.io/multikueue-origin; nothing else there is
// read, queues for their quota and CloudOffers aside, or changed. All state is in the objects, so a new leader continues where the last one stopped.
//
// Words: docs/design/glossary.md.
package multicluster
