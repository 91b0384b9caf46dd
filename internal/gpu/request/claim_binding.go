package request

import (
	"fmt"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/placement"
)

// Claim is what a claim asks of cards.
func Claim(claim *egpu.ElasticGPUClaim, mode Mode) (placement.CardRequest, error) {
	list := claim.Spec.Resources.Requests
	if len(list) == 0 {
		list = claim.Spec.Resources.Limits
	}
	return List(list, mode)
}

// CheckBinding says why a claim does not have the ElasticGPU it names, or nil. The author of a claim writes the
// claim; which claim has an ElasticGPU is written in the ElasticGPU, where no tenant may write.
func CheckBinding(claim *egpu.ElasticGPUClaim, device *egpu.ElasticGPU) error {
	ref := device.Spec.ClaimRef
	switch {
	case claim.Spec.ElasticGPUName != device.Name:
		return fmt.Errorf("claim %s names ElasticGPU %q", claim.Name, claim.Spec.ElasticGPUName)
	case ref == nil:
		return fmt.Errorf("ElasticGPU %s was given to no claim", device.Name)
	case ref.Namespace != claim.Namespace || ref.Name != claim.Name:
		return fmt.Errorf("ElasticGPU %s belongs to claim %s/%s", device.Name, ref.Namespace, ref.Name)
	case ref.UID != claim.UID:
		return fmt.Errorf("ElasticGPU %s belongs to another claim that had this name", device.Name)
	}
	return CheckClass(claim, device)
}

// CheckClass says that a claim and an ElasticGPU are of different classes, or nil. An ElasticGPU without a class
// was made for a claim by name.
func CheckClass(claim *egpu.ElasticGPUClaim, device *egpu.ElasticGPU) error {
	if class := device.Spec.ElasticGPUClassName; class != "" && class != claim.ClassName() {
		return fmt.Errorf("ElasticGPU %s is of class %s, and the claim of class %q", device.Name, class, claim.ClassName())
	}
	return nil
}
