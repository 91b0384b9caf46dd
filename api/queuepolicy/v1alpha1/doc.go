// Package v1alpha1 is what operators ask of queues beyond Kueue's objects: the
// QueuePolicy. docs/design/queue-policy.md says how one takes effect.
//
// +kubebuilder:object:generate=true
// +groupName=elasticai.io
package v1alpha1
