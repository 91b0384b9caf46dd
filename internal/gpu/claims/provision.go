package claims

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
)

// provisioner in tree: what it serves, and how an ElasticGPU of it says where it comes from.
type provisioner struct {
	mode   request.Mode
	source func(gpus []string) egpu.ElasticGPUSource
}

func provisioners() map[string]provisioner {
	whole := provisioner{request.Whole, func(gpus []string) egpu.ElasticGPUSource {
		return egpu.ElasticGPUSource{PhysicalGPU: &egpu.PhysicalGPUSource{GPUNames: gpus}}
	}}
	return map[string]provisioner{
		egpu.ProvisionerShare: {request.Share, func(gpus []string) egpu.ElasticGPUSource {
			return egpu.ElasticGPUSource{GPUShare: &egpu.GPUShareSource{GPUName: gpus[0]}}
		}},
		egpu.ProvisionerQGPU: {request.QGPU, func(gpus []string) egpu.ElasticGPUSource {
			return egpu.ElasticGPUSource{QGPU: &egpu.QGPUSource{GPUName: gpus[0]}}
		}},
		egpu.ProvisionerWhole:    whole,
		egpu.ProvisionerPhysical: whole,
	}
}

var inTree = provisioners()

// InTree says whether this program makes the ElasticGPUs of a provisioner.
func InTree(name string) bool { _, ok := inTree[name]; return ok }

// Cards that a claim asks for. The error says what to write instead.
func Cards(claim *egpu.ElasticGPUClaim, class *egpu.ElasticGPUClass) (placement.CardRequest, error) {
	by := inTree[class.Provisioner]
	r, err := request.Claim(claim, by.mode)
	switch {
	case err != nil:
		return r, err
	case r.Count == 0:
		return r, &placement.RequestError{Problem: "it asks for nothing: write gpu-core, gpu-memory, gpu or tflops in resources.requests"}
	case by.mode == request.Whole && !r.Exclusive:
		return r, &placement.RequestError{Problem: "class " + class.Name + " gives whole cards: write gpu, or gpu-core in hundreds"}
	case (by.mode == request.Share || by.mode == request.QGPU) && r.Count > 1:
		return r, &placement.RequestError{Problem: "class " + class.Name + " gives shares of one card: write gpu-core 100 at most, or use a class of " + egpu.ProvisionerWhole}
	}
	r.Models = request.Models(class.Parameters["models"])
	if _, err := Levels(class); err != nil {
		return r, err
	}
	if r.Space, err = inSpace(class); err == nil && r.Space && r.Exclusive {
		err = &placement.RequestError{Problem: "class " + class.Name + " shares cards in space: write a share of one, gpu-core 99 at most"}
	}
	return r, err
}

// inSpace says whether containers of a class run at once on a card rather than in turns. MPS alone does that, too.
func inSpace(class *egpu.ElasticGPUClass) (bool, error) {
	switch sharing := class.Parameters["sharing"]; sharing {
	case "", egpu.SharingTime, egpu.SharingRemote:
		return class.Parameters["backend"] == "mps", nil
	case egpu.SharingSpace:
		return true, nil
	default:
		return false, &placement.RequestError{Problem: fmt.Sprintf("class %s has the parameter sharing %q: its administrator writes %s, %s or %s", class.Name, sharing, egpu.SharingTime, egpu.SharingSpace, egpu.SharingRemote)}
	}
}

// Policy that the class asks for; empty means the cluster's.
func Policy(class *egpu.ElasticGPUClass) string { return class.Parameters["policy"] }

// DeviceName of the ElasticGPU that is made for a claim: always the same, so that it is made once.
func DeviceName(claim *egpu.ElasticGPUClaim) string { return "egpu-" + string(claim.UID) }

// Nodes says how the card of a node is called, and what a label of a node is.
type Nodes interface {
	GPUName(node string, index int) string
	NodeLabel(node, key string) string
}

// Provision makes the ElasticGPU of a claim from cards that are reserved for it, and binds the two.
func Provision(ctx context.Context, c client.Client, claim *egpu.ElasticGPUClaim, class *egpu.ElasticGPUClass, a placement.Assignment, nodes Nodes) (*egpu.ElasticGPU, error) {
	cards := a.Grants[0].Cards
	var gpus []string
	for _, card := range cards {
		gpus = append(gpus, nodes.GPUName(a.Node, card.Index))
	}
	device := &egpu.ElasticGPU{
		ObjectMeta: metav1.ObjectMeta{
			Name: DeviceName(claim),
			Annotations: map[string]string{
				egpu.CardsAnnotation:       request.FormatCards(cards),
				egpu.ProvisionerAnnotation: class.Provisioner,
			},
		},
		Spec: egpu.ElasticGPUSpec{
			ElasticGPUSource:    inTree[class.Provisioner].source(gpus),
			ClaimRef:            refTo(claim),
			NodeAffinity:        onNode(a.Node),
			ElasticGPUClassName: class.Name,
			ReclaimPolicy:       class.ReclaimPolicy,
		},
	}
	asked, err := Cards(claim, class)
	if err != nil {
		return nil, err
	}
	if levels, err := Levels(class); err != nil {
		return nil, err
	} else if levels != nil {
		device.Spec.ElasticGPUSource = egpu.ElasticGPUSource{RemoteGPU: &egpu.RemoteGPUSource{GPUName: gpus[0], NodeName: a.Node}}
		device.Spec.NodeAffinity = within(levels, a.Node, nodes)
	}
	device.Spec.Capacity = capacity(asked)
	if asked.Space {
		device.Annotations[egpu.SharingAnnotation] = egpu.SharingSpace
	}
	if err := c.Create(ctx, device); apierrors.IsAlreadyExists(err) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(device), device); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, fmt.Errorf("creating its ElasticGPU: %w", err)
	}
	return device, bind(ctx, c, claim, device)
}

// capacity in our own names, as asked for: it says the same after a restart.
func capacity(r placement.CardRequest) corev1.ResourceList {
	list := corev1.ResourceList{}
	add := func(name corev1.ResourceName, value int64) {
		if value > 0 {
			list[name] = *resource.NewQuantity(value, resource.DecimalSI)
		}
	}
	if r.Exclusive {
		add("elasticgpu.io/gpu", int64(r.Count))
	} else {
		add(egpu.ResourceCore, r.Core/10)
		add("elasticgpu.io/tflops", int64(r.TFLOPS))
	}
	add(egpu.ResourceMemory, r.Memory)
	return list
}

func refTo(claim *egpu.ElasticGPUClaim) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: egpu.GroupVersion.String(), Kind: "ElasticGPUClaim",
		Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
	}
}

func onNode(name string) *egpu.GPUNodeAffinity {
	return &egpu.GPUNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}},
	}}}}
}

// bind a claim and an ElasticGPU to each other. Every step may be the last one; the next run goes on.
func bind(ctx context.Context, c client.Client, claim *egpu.ElasticGPUClaim, device *egpu.ElasticGPU) error {
	if device.Spec.ClaimRef == nil || device.Spec.ClaimRef.UID != claim.UID {
		before := device.DeepCopy()
		device.Spec.ClaimRef = refTo(claim)
		// Two claims may want it: the lock lets one of them win.
		if err := c.Patch(ctx, device, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("binding ElasticGPU %s: %w", device.Name, err)
		}
	}
	if device.Status.Phase != egpu.GPUBound { // what else its status says is for who said it
		if err := setPhase(ctx, c, device, egpu.GPUBound, "", ""); err != nil {
			return err
		}
	}
	if claim.Spec.ElasticGPUName != device.Name {
		before := claim.DeepCopy()
		claim.Spec.ElasticGPUName = device.Name
		if err := c.Patch(ctx, claim, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("binding claim %s: %w", claim.Name, err)
		}
	}
	return setClaim(ctx, c, claim, egpu.ElasticGPUClaimStatus{
		Phase: egpu.ClaimBound, Capacity: device.Spec.Capacity, Message: serverTrouble(device), Remote: device.Spec.RemoteGPU != nil,
	})
}

func setPhase(ctx context.Context, c client.Client, device *egpu.ElasticGPU, phase egpu.ElasticGPUPhase, reason, message string) error {
	status := egpu.ElasticGPUStatus{Phase: phase, Reason: reason, Message: message}
	if device.Status == status {
		return nil
	}
	before := device.DeepCopy()
	device.Status = status
	if err := c.Status().Patch(ctx, device, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("status of ElasticGPU %s: %w", device.Name, err)
	}
	return nil
}

func setClaim(ctx context.Context, c client.Client, claim *egpu.ElasticGPUClaim, status egpu.ElasticGPUClaimStatus) error {
	if claim.Status.Phase == status.Phase && claim.Status.Message == status.Message && claim.Status.Remote == status.Remote &&
		len(claim.Status.Capacity) == len(status.Capacity) {
		return nil
	}
	before := claim.DeepCopy()
	claim.Status = status
	if err := c.Status().Patch(ctx, claim, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("status of claim %s: %w", claim.Name, err)
	}
	return nil
}

// Select annotates a claim with the node that its first consumer goes to, for a provisioner out of tree.
// The error says that this takes time: the pod is requeued.
func Select(ctx context.Context, c client.Client, claim *egpu.ElasticGPUClaim, class *egpu.ElasticGPUClass, node string) error {
	before := claim.DeepCopy()
	claim = claim.DeepCopy()
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, egpu.ProvisionerAnnotation, class.Provisioner)
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, egpu.SelectedNodeAnnotation, node)
	if err := c.Patch(ctx, claim, client.MergeFrom(before)); err != nil {
		return err
	}
	return fmt.Errorf("claim %s waits for %s to make an ElasticGPU on node %s", claim.Name, class.Provisioner, node)
}
