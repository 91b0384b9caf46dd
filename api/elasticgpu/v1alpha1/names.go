package v1alpha1

import corev1 "k8s.io/api/core/v1"

// Resources that containers ask for.
const (
	// ResourceCore is percent of a card: 1 to 99 is a share of one card, 100 times n is n whole cards.
	ResourceCore corev1.ResourceName = "elasticgpu.io/gpu-core"
	// ResourceMemory is MiB of one card's memory.
	ResourceMemory corev1.ResourceName = "elasticgpu.io/gpu-memory"
	// ResourceClaim marks a container that uses a claim, so that the kubelet asks the agent for its devices.
	ResourceClaim corev1.ResourceName = "elasticgpu.io/claim"

	// ResourceCoreOld and ResourceMemoryOld are older spellings of the first two.
	ResourceCoreOld   corev1.ResourceName = "elasticgpu.com/gpu-core"
	ResourceMemoryOld corev1.ResourceName = "elasticgpu.com/gpu-memory"

	ResourceQGPUCore       corev1.ResourceName = "tke.cloud.tencent.com/qgpu-core"
	ResourceQGPUCoreGreedy corev1.ResourceName = "tke.cloud.tencent.com/qgpu-core-greedy"
	ResourceQGPUMemory     corev1.ResourceName = "tke.cloud.tencent.com/qgpu-memory"

	// ResourceWhole is whole cards.
	ResourceWhole corev1.ResourceName = "nvidia.com/gpu"
)

// Labels and annotations.
const (
	// Assumed is a label and an annotation, "true" on a pod whose cards were chosen.
	Assumed = "elasticgpu.io/assumed"
	// ContainerPrefix and a container's name make the annotation with the indexes of its cards: "0,1".
	ContainerPrefix = "elasticgpu.io/container-"
	// ClaimPrefix and a container's name, or any other word, make the annotation of a pod that names
	// a claim. A word that is no container's name stands for the first container.
	ClaimPrefix = "egpuc.elasticgpu.io/"

	// PolicyAnnotation on a pod chooses a placement policy; ModelsAnnotation lists card models that will do;
	// ArrangeAnnotation is "together" or "apart", for a pod's containers on cards.
	PolicyAnnotation  = "elasticgpu.io/policy"
	ModelsAnnotation  = "elasticgpu.io/gpu-models"
	ArrangeAnnotation = "elasticgpu.io/arrange"

	// CardsAnnotation on an ElasticGPU has the indexes of its cards on the node.
	CardsAnnotation = "elasticgpu.io/cards"
	// SharingAnnotation on an ElasticGPU says how its container shares the card: in turns, which is meant where it is not
	// there, or at once with others (SharingSpace). It is what the class's parameter sharing said when it was made.
	SharingAnnotation = "elasticgpu.io/sharing"
	SharingTime       = "time"
	SharingSpace      = "space"
	// SharingRemote, as a class's parameter, has its cards used over the network, from other nodes; in turns.
	SharingRemote = "remote"
	// ServesAnnotation on a pod of the GPU scheduler's names the remote ElasticGPU whose programs it serves.
	ServesAnnotation = "elasticgpu.io/serves"
	// SharedAnnotation on such a pod says which jobs use it, where they are several: it leaves the card for all or for none.
	SharedAnnotation = "elasticgpu.io/shared"
	// RemoteAgentAnnotation on a node says how other agents reach and know its agent. That agent writes it.
	RemoteAgentAnnotation = "elasticgpu.io/remote-agent"
	// ProvisionerAnnotation on a claim names the provisioner that is asked to make an ElasticGPU for it,
	// SelectedNodeAnnotation the node its first consumer goes to. For provisioners out of tree.
	ProvisionerAnnotation  = "elasticgpu.io/provisioner"
	SelectedNodeAnnotation = "elasticgpu.io/selected-node"

	// SwapAnnotation on a pod, "out" or "in", has the agent move the card memory of its containers to the
	// host, or back; the condition SwappedOut of the pod says where it is, or why it could not be moved.
	SwapAnnotation                         = "elasticgpu.io/swap"
	SwapOut                                = "out"
	SwapIn                                 = "in"
	SwappedOut     corev1.PodConditionType = "elasticgpu.io/SwappedOut"
	// Swappable is a condition of pods that are swapped when they are preempted: false, with the reason, where what they
	// have on a card cannot be moved. The agent looks ahead of need.
	Swappable corev1.PodConditionType = "elasticgpu.io/Swappable"

	// OnPreemptionAnnotation on a job says what becomes of it when another takes its place in the queue. With
	// OnPreemptionSwap its pods stay, and what they have on cards is moved to the host until its turn comes again.
	// With OnPreemptionStop it does not wait for another turn: its workload is deactivated.
	OnPreemptionAnnotation = "elasticgpu.io/on-preemption"
	OnPreemptionSwap       = "swap"
	OnPreemptionStop       = "stop"

	// DRACardsAnnotation on a node says which of its cards are given out by ResourceClaims: "all", "none", or
	// indexes as "0,1".
	DRACardsAnnotation = "elasticgpu.io/dra-cards"

	// DeviceNamespace stands for the namespace in GPU.status.allocated where an ElasticGPU has the card and no pod
	// does. No namespace can be called so.
	DeviceNamespace = "elasticgpus.elasticgpu.io"

	// ClaimProtection delays the deletion of a claim while pods use it.
	ClaimProtection = "elasticgpu.io/claim-protection"
)

// Node labels that describe cards where no GPU objects do.
const (
	ModelLabel  = "elasticgpu.io/gpu-model"
	TFLOPSLabel = "elasticgpu.io/gpu-fp16-tflops"
)

// Provisioners in tree.
const (
	ProvisionerShare = "gpushare.provisioner.elasticgpu.io"
	ProvisionerQGPU  = "qgpu.provisioner.elasticgpu.io"
	// ProvisionerWhole has a second name.
	ProvisionerWhole    = "whole.provisioner.elasticgpu.io"
	ProvisionerPhysical = "pgpu.provisioner.elasticgpu.io"
)

// Reasons in the status of an ElasticGPU that is used from other nodes: its server runs, or runs and has left the card.
const (
	ReasonServed     = "Served"
	ReasonSwappedOut = "SwappedOut"
)

// Reasons of the condition SwappedOut.
const (
	ReasonMovedOut      = "MovedOut"
	ReasonMovedIn       = "MovedIn"
	ReasonCannotMoveOut = "CannotMoveOut"
	ReasonCannotMoveIn  = "CannotMoveIn"
	// ReasonIdle: it did not use its cards for as long as its class allows, and has left them. ReasonReturning: it wants to
	// use them again, and counts on them from then on.
	ReasonIdle      = "Idle"
	ReasonReturning = "Returning"
)

// Reasons of the condition Swappable.
const (
	ReasonMovable   = "Movable"
	ReasonImmovable = "Immovable"
)

// IsSwappedOut says a pod has left its cards, and was not called back.
func IsSwappedOut(pod *corev1.Pod) bool {
	c := SwapCondition(pod)
	return c != nil && c.Status == corev1.ConditionTrue && pod.Annotations[SwapAnnotation] == SwapOut
}

// IsIdle says a pod has left its cards because it does not use them.
func IsIdle(pod *corev1.Pod) bool {
	c := SwapCondition(pod)
	return c != nil && c.Status == corev1.ConditionTrue && c.Reason == ReasonIdle && pod.Annotations[SwapAnnotation] == ""
}

// HasLeftCards says a pod has left its cards, as it was told to or because it does not use them.
func HasLeftCards(pod *corev1.Pod) bool { return IsIdle(pod) || IsSwappedOut(pod) }

// SwapCondition of a pod: where what it has on cards is; nil if that was never moved.
func SwapCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == SwappedOut {
			return c
		}
	}
	return nil
}
