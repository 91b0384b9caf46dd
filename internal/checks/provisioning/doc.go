// Package provisioning is the admission check kueue.x-k8s.io/provisioning-request: a workload with
// quota asks cluster-autoscaler for the nodes of its pods, with a ProvisioningRequest and a
// PodTemplate per pod set, and is admitted when they exist. Its AdmissionChecks name a
// ProvisioningRequestConfig.
//
//	provisioning_request.go  what to ask for
//	check_state.go           what the autoscaler's conditions mean for the check
//	request_names.go         how attempts are told apart
//	workload_controller.go   creates and deletes requests, and writes the checks' states
//	learn.go                 what CloudOffers remember of how requests ended
//	crd_availability.go      whether the checks are active: only if the cluster has the CRD
//
// Names, messages and events are Kueue's. Two things differ: where pod sets are merged into one
// template the pods of all of them say which request they use, and pod sets are merged only if they
// are equal including the labels of their flavors.
//
// Words: docs/design/glossary.md.
package provisioning
