// Package provisioning is the admission check kueue.x-k8s.io/provisioning-request:
// a workload with quota asks cluster-autoscaler for the nodes of its pods, with a
// ProvisioningRequest and a PodTemplate per pod set, and is admitted when they
// are there. Its AdmissionChecks name a ProvisioningRequestConfig.
//
// request.go says what to ask for, verdict.go what the autoscaler's answer means
// for the check, names.go how attempts are told apart, workloads.go keeps the
// objects so, and served.go says whether the checks work at all: a cluster
// without the ProvisioningRequest CRD has none, and gets them with it.
//
// Names, messages and events are Kueue's. Two things differ: where pod sets are
// merged into one template the pods of all of them say which request they use,
// and pod sets are merged only if they are equal with their flavors' labels too.
package provisioning
