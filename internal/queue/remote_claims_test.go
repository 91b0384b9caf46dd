package queue

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// twoFlavors is a harness whose queue has CPUs of two kinds of nodes, one of which has cards.
func twoFlavors(t *testing.T) *harness {
	t.Helper()
	p := newHarness(t)
	p.oneQueue()
	cq := queueObject("cq", "", "")
	quota := func(name, cpu, core string) kueue.FlavorQuotas {
		flavor := &kueue.ResourceFlavor{}
		flavor.Name, flavor.Spec.NodeLabels = name, map[string]string{"kind": name}
		flavor.Spec.Tolerations = []corev1.Toleration{{Key: name, Operator: corev1.TolerationOpExists}}
		p.see(flavor)
		return kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(name), Resources: []kueue.ResourceQuota{
			{Name: "cpu", NominalQuota: resource.MustParse(cpu)}, {Name: egpu.ResourceCore, NominalQuota: resource.MustParse(core)},
		}}
	}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{"cpu", egpu.ResourceCore},
		Flavors:          []kueue.FlavorQuotas{quota("plain", "4", "0"), quota("cards", "4", "100")},
	}}
	p.see(cq)
	return p
}

func classOf(sharing string) *egpu.ElasticGPUClass {
	class := &egpu.ElasticGPUClass{Provisioner: egpu.ProvisionerShare, Parameters: map[string]string{"sharing": sharing}}
	class.Name = "far"
	return class
}

func claimOf(name, core string) *egpu.ElasticGPUClaim {
	class := "far"
	claim := &egpu.ElasticGPUClaim{}
	claim.Namespace, claim.Name, claim.Spec.ElasticGPUClassName = "ns", name, &class
	claim.Spec.Resources.Requests = corev1.ResourceList{egpu.ResourceCore: resource.MustParse(core)}
	return claim
}

func (p *harness) using(name, claim string) *kueue.Workload {
	wl := p.workload(name, "main", "batch", 1, "1")
	wl.Spec.PodSets[0].Template.Annotations = map[string]string{egpu.ClaimPrefix + "main": claim}
	return wl
}

// given says which flavors a workload has, and which labels and tolerations its pods get.
func (p *harness) given(name string) string {
	if p.written[name].Status.Admission == nil {
		return p.reserved(name)
	}
	// As the API server has it: what is not in the patch is not there.
	data, err := workload.AdmissionPatch(p.written[name])
	wl := &kueue.Workload{}
	if err := errors.Join(err, json.Unmarshal(data, wl)); err != nil {
		p.t.Fatal(err)
	}
	assigned := &wl.Status.Admission.PodSetAssignments[0]
	labels, tolerations, err := workload.Flavors(func(name kueue.ResourceFlavorReference) (*kueue.ResourceFlavor, error) {
		return p.objects.Flavors[string(name)], nil
	}).NodeSelection(wl, assigned)
	if err != nil {
		p.t.Fatal(err)
	}
	core := assigned.ResourceUsage[egpu.ResourceCore]
	return fmt.Sprintf("cpu=%s core=%s:%s labels %s, %d tolerations", assigned.Flavors["cpu"], assigned.Flavors[egpu.ResourceCore], core.String(), labels["kind"], len(tolerations))
}

// The card of a remote claim is counted on a flavor of its own, whose labels do not go on the pods.
func TestLabelsOfRemoteClaims(t *testing.T) {
	p := twoFlavors(t)
	p.see(classOf(egpu.SharingRemote), claimOf("a", "60"), claimOf("b", "60"))
	p.see(p.using("a", "a"))
	const far = "cpu=plain core=cards:60 labels plain, 1 tolerations"
	if got := p.given("a"); got != far {
		t.Errorf("it has %s", got)
	}
	p.see(p.using("b", "b"))
	if got := p.given("b"); got != "False WaitingForQuota" {
		t.Errorf("beside it: %s", got)
	}

	// What was given stays what it was, whatever becomes of the class, and after a restart.
	p.see(classOf(egpu.SharingTime))
	if got := p.given("a"); got != far {
		t.Errorf("with another class it has %s", got)
	}
	w := p.forEngine(p.written["a"])
	if at := w.Admission.PodSets; len(at) != 2 || at[1].Name != "main/remote-claims" || at[1].Usage[string(egpu.ResourceCore)] != 60 ||
		!maps.Equal(at[0].NodeFlavors(), map[string]string{"cpu": "plain"}) {
		t.Errorf("the engine sees %+v", at)
	}

	// When it is over the next is given what its class says now: a card of its own node.
	p.change("a", func(wl *kueue.Workload) { workload.Finish(wl, "Test", "", p.time) })
	if got, want := p.given("b"), "cpu=cards core=cards:60 labels cards, 1 tolerations"; got != want {
		t.Errorf("a local claim has %s, want %s", got, want)
	}
	if got := p.written["b"].Status.Conditions; len(got) != 2 {
		t.Errorf("its conditions are %+v", got)
	}
}

// A claim may name an ElasticGPU that is not of its class's making, as one of a server of somebody else's: whether its card is used
// from other nodes is known once it has it. Until then no quota is taken for what may never start.
func TestLabelsOfClaimsByName(t *testing.T) {
	p := twoFlavors(t)
	named := func(name string, phase egpu.ElasticGPUClaimPhase, remote bool) *egpu.ElasticGPUClaim {
		claim := claimOf(name, "10")
		claim.Spec.ElasticGPUClassName, claim.Spec.ElasticGPUName = nil, "device-"+name
		claim.Status.Phase, claim.Status.Remote = phase, remote
		return claim
	}
	p.see(named("far", "", false), named("near", egpu.ClaimPending, false))
	for _, name := range []string{"far", "near"} {
		p.see(p.using(name, name))
		if wl := p.written[name]; wl != nil && wl.Status.Admission != nil {
			t.Errorf("%s is admitted before its claim has its ElasticGPU", name)
		}
	}
	p.see(named("far", egpu.ClaimBound, true), named("near", egpu.ClaimBound, false))
	const far, near = "cpu=plain core=cards:10 labels plain, 1 tolerations", "cpu=cards core=cards:10 labels cards, 1 tolerations"
	if got := p.given("far"); got != far {
		t.Errorf("with somebody's server it has %s, want %s", got, far)
	}
	if got := p.given("near"); got != near {
		t.Errorf("with a card of its node it has %s, want %s", got, near)
	}

	// What was given stays, whatever becomes of the claim.
	p.see(named("far", egpu.ClaimLost, false))
	if got := p.given("far"); got != far {
		t.Errorf("when its claim is lost it has %s, want %s", got, far)
	}
}

// Pods that ask for cards of their own node, too, have one flavor for both: the status cannot say two.
func TestLabelsOfBothKindsOfClaims(t *testing.T) {
	p := twoFlavors(t)
	near := claimOf("near", "10")
	near.Spec.ElasticGPUClassName = nil
	p.see(classOf(egpu.SharingRemote), claimOf("far", "20"), near)
	both := p.using("both", "far")
	both.Spec.PodSets[0].Template.Annotations[egpu.ClaimPrefix+"other"] = "near"
	own := p.using("own", "far")
	own.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests[egpu.ResourceCore] = resource.MustParse("20")
	for _, test := range []struct {
		wl   *kueue.Workload
		want string
	}{
		{both, "cpu=cards core=cards:30 labels cards, 1 tolerations"},
		{own, "cpu=cards core=cards:40 labels cards, 1 tolerations"},
	} {
		p.see(test.wl)
		if got := p.given(test.wl.Name); got != test.want {
			t.Errorf("%s has %s, want %s", test.wl.Name, got, test.want)
		}
		p.change(test.wl.Name, func(wl *kueue.Workload) { workload.Finish(wl, "Test", "", p.time) })
	}
}
