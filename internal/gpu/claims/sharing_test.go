package claims

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
)

// A class says how its containers share a card, and the request of a claim says so to the engine.
func TestClassSaysHowCardsAreShared(t *testing.T) {
	for name, test := range map[string]struct {
		provisioner string
		parameters  map[string]string
		core        string
		space, bad  bool
	}{
		"not said":        {core: "30"},
		"time":            {core: "30", parameters: map[string]string{"sharing": "time"}},
		"space":           {core: "30", parameters: map[string]string{"sharing": "space"}, space: true},
		"MPS alone":       {core: "30", parameters: map[string]string{"backend": "mps"}, space: true},
		"a whole card":    {core: "100", parameters: map[string]string{"sharing": "space"}, bad: true},
		"whole cards":     {core: "200", provisioner: egpu.ProvisionerWhole, parameters: map[string]string{"sharing": "space"}, bad: true},
		"some other word": {core: "30", parameters: map[string]string{"sharing": "both"}, bad: true},
	} {
		class := &egpu.ElasticGPUClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}, Provisioner: egpu.ProvisionerShare, Parameters: test.parameters}
		if test.provisioner != "" {
			class.Provisioner = test.provisioner
		}
		claim := &egpu.ElasticGPUClaim{}
		claim.Spec.Resources.Requests = amounts(test.core, "4096")
		r, err := Cards(claim, class)
		if (err != nil) != test.bad || err == nil && r.Space != test.space {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}
