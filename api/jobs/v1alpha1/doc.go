// Package v1alpha1 is how a kind of job is described to Elastic: as a cluster
// object (JobKind), or as an entry of elastic-queue's configuration.
//
// Elastic's own table of kinds is written in the same words; see
// internal/jobs/kinds/kinds.yaml for two dozen examples.
//
// +kubebuilder:object:generate=true
// +groupName=elasticai.io
package v1alpha1
