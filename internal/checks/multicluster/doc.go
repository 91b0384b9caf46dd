// Package multicluster is the admission check kueue.x-k8s.io/multikueue: a
// workload that has its quota here is run by another cluster.
//
//	AdmissionCheck → MultiKueueConfig (which clusters) → MultiKueueCluster (how to reach one)
//
// Copies of the workload wait in the queues of the clusters that are nominated.
// The first to be admitted wins: the others are removed, a copy of the job is
// made beside it, and the check is ready. While the job runs its status comes
// back, and when it has ended here or there, everything there is removed.
//
// Where a job has several workloads, as a LeaderWorkerSet has one for each group,
// the first is sent out alone and the others go where it runs; the job there is
// one, and goes with the last of them.
//
//	decide.go      what is to be done about a workload, from what is seen of it here and there; no client, no clock
//	dispatch.go    which clusters are nominated
//	workload.go    looks, decides, and has it done
//	act.go         how each thing is done
//	clusters.go    keeps a connection for every MultiKueueCluster, and tells how it stands
//	connection.go  a connection: client and informers while the cluster answers, nothing while it does not
//	kubeconfig.go  how a cluster is reached, and what is refused
//	activity.go    whether the AdmissionChecks work
//
// What is in other clusters bears the label kueue.x-k8s.io/multikueue-origin;
// nothing else there is looked at or touched. Nothing is remembered but what is
// in the objects: whoever leads next goes on where the last one stopped.
package multicluster
