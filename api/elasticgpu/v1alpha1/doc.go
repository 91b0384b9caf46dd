// Package v1alpha1 holds the objects of elasticgpu.io: cards, pieces of cards, and claims to them.
//
//   - A GPU is a physical card. The agent of its node publishes it.
//   - An ElasticGPU is something a container can be given: a share of a card, whole cards, or a remote one.
//   - An ElasticGPUClaim asks for an ElasticGPU; pods use a claim by annotation.
//   - An ElasticGPUClass says which provisioner makes ElasticGPUs for claims, and what becomes of them.
//
// The first examples of these objects were written with the version v1alpha, which is served too
// and has the same fields.
//
// +kubebuilder:object:generate=true
// +groupName=elasticgpu.io
package v1alpha1
