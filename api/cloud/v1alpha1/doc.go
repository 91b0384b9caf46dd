// Package v1alpha1 says where the nodes of a flavor are bought: the CloudOffer. docs/design/clouds.md says what becomes
// of one.
//
// +kubebuilder:object:generate=true
// +groupName=elasticai.io
package v1alpha1
