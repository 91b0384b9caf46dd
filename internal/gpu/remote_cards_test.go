package gpu_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/gpu/claims"
	"github.com/elastic-ai/elastic/internal/gpu/request"
	"github.com/elastic-ai/elastic/internal/placement"
)

const rack, zone = "example.com/rack", "topology.kubernetes.io/zone"

// apart is a world of nodes without cards and nodes with one, in racks of two zones.
func apart(t *testing.T, distance string) *world {
	w := newWorld(t, placement.Options{Policy: "binpack"})
	for name, at := range map[string]struct {
		cards      int
		rack, zone string
	}{"cpu1": {0, "r1", "z1"}, "cpu2": {0, "r2", "z1"}, "cpu3": {0, "r3", "z2"}, "gpu1": {1, "r1", "z1"}, "gpu2": {1, "r4", "z1"}} {
		n := node(name, at.cards)
		n.Labels[rack], n.Labels[zone] = at.rack, at.zone
		n.Annotations = map[string]string{egpu.RemoteAgentAnnotation: "{}"}
		w.add(n)
	}
	bare := node("bare", 1) // its agent does not connect nodes
	bare.Labels[rack], bare.Labels[zone] = "r1", "z1"
	w.add(bare)
	w.add(&egpu.ElasticGPUClass{
		ObjectMeta: metav1.ObjectMeta{Name: "far"}, Provisioner: egpu.ProvisionerShare, EGPUBindingMode: egpu.BindWaitForFirstConsumer,
		Parameters: map[string]string{"sharing": egpu.SharingRemote, "distance": distance},
	})
	return w
}

// farPod uses a claim of its own of 60 percent.
func (w *world) farPod(name string) *corev1.Pod {
	w.Helper()
	class := "far"
	claim := &egpu.ElasticGPUClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("claim-of-" + name)}}
	claim.Spec.ElasticGPUClassName = &class
	claim.Spec.Resources.Requests = corev1.ResourceList{egpu.ResourceCore: quantity(60)}
	w.add(claim)
	p := pod(name, "cpu", 1)
	p.Spec.Containers[0].Resources.Requests = p.Spec.Containers[0].Resources.Limits
	p.Annotations = map[string]string{egpu.ClaimPrefix + "main": name}
	w.add(p)
	return p
}

func fits(r filterResult) string {
	if r.NodeNames == nil {
		return r.Error
	}
	list := slices.Clone(*r.NodeNames)
	slices.Sort(list)
	return strings.Join(list, " ")
}

// A pod goes where a free card is near enough, and gets the nearest; the card is counted where it is until the claim goes.
func TestCardOfAnotherNode(t *testing.T) {
	w := apart(t, rack+","+zone)
	all := []string{"cpu1", "cpu2", "cpu3", "gpu1", "gpu2"}
	all = append(all, "bare")
	first := w.farPod("first")
	if got := fits(w.filter(first, all...)); got != "cpu1 cpu2 gpu1 gpu2" {
		t.Errorf("fits on %q", got)
	}
	if s := w.score(first, all...); s["gpu1"] <= s["cpu1"] || s["cpu1"] <= s["cpu2"] || s["cpu2"] <= s["cpu3"] {
		t.Errorf("scores %v", s)
	}
	w.mustBind(first, "cpu1")
	device := get(w, &egpu.ElasticGPU{ObjectMeta: metav1.ObjectMeta{Name: claims.DeviceName(&egpu.ElasticGPUClaim{ObjectMeta: metav1.ObjectMeta{UID: "claim-of-first"}})}})
	if r := device.Spec.RemoteGPU; r == nil || r.NodeName != "gpu1" || device.Annotations[egpu.CardsAnnotation] != "0" {
		t.Errorf("its card: %+v %v", device.Spec.ElasticGPUSource, device.Annotations)
	}
	if bound := get(w, first.DeepCopy()); bound.Spec.NodeName != "cpu1" || bound.Annotations[egpu.ContainerPrefix+"main"] != "" {
		t.Errorf("on %s with the cards %q of its own node", bound.Spec.NodeName, bound.Annotations[egpu.ContainerPrefix+"main"])
	}
	if c := w.card("gpu1", 0); c.FreeCore != 40 {
		t.Errorf("the card has %v free", c.FreeCore)
	}

	second := w.farPod("second")
	w.mustBind(second, "cpu1")
	if c := w.card("gpu2", 0); c.FreeCore != 40 {
		t.Errorf("the second card has %v free", c.FreeCore)
	}

	third := w.farPod("third")
	if r := w.filter(third, all...); fits(r) != "" || !strings.Contains(r.FailedNodes["cpu1"]+r.FailedAndUnresolvableNodes["cpu1"], "near enough") {
		t.Errorf("a card is given out beyond what it has: %+v", r)
	}
	if err := w.bindTo(third, "cpu1"); err == nil {
		t.Error("bound without a card")
	}

	if err := w.client.Delete(context.Background(), device); err != nil {
		t.Fatal(err)
	}
	w.Feed(true, device)
	if c := w.card("gpu1", 0); c.FreeCore != 100 {
		t.Errorf("after the claim, %v free", c.FreeCore)
	}
	if got := fits(w.filter(third, all...)); got != "cpu1 cpu2 gpu1 gpu2" {
		t.Errorf("fits on %q", got)
	}
}

// A card of another node is free while the pod that uses it has left it and its server has: what the agent of the pod's node
// says frees no card of another. One that calls itself a server is none.
func TestCardOfAnotherNodeIsFreeWhileItWasLeft(t *testing.T) {
	w := apart(t, rack)
	p := w.farPod("p")
	w.mustBind(p, "cpu1")
	get(w, p)
	device := get(w, &egpu.ElasticGPU{ObjectMeta: metav1.ObjectMeta{Name: claims.DeviceName(&egpu.ElasticGPUClaim{ObjectMeta: metav1.ObjectMeta{UID: "claim-of-p"}})}})
	server := func(namespace, name string) *corev1.Pod {
		s := pod(name, corev1.ResourceCPU, 1)
		s.Namespace, s.UID, s.Spec.NodeName = namespace, types.UID(namespace+name), "gpu1"
		s.Annotations = map[string]string{egpu.ServesAnnotation: device.Name}
		return s
	}
	real := server("system", request.ServerName(device.Name))
	w.Feed(false, device, real.DeepCopy(), p.DeepCopy())
	says := func(p *corev1.Pod, asked string, out corev1.ConditionStatus) {
		p.Annotations[egpu.SwapAnnotation] = asked
		p.Status.Conditions = []corev1.PodCondition{{Type: egpu.SwappedOut, Status: out, Reason: egpu.ReasonMovedOut}}
		w.Feed(false, p.DeepCopy())
	}
	free := func(what string, want int64) {
		t.Helper()
		if c := w.card("gpu1", 0); int64(c.FreeCore) != want {
			t.Errorf("%s: %v free, want %v", what, c.FreeCore, want)
		}
	}
	says(p, egpu.SwapOut, corev1.ConditionTrue)
	free("its pod says that it has left", 40)
	for _, forged := range []*corev1.Pod{server("ns", request.ServerName(device.Name)), server("system", "another")} {
		says(forged, egpu.SwapOut, corev1.ConditionTrue)
	}
	free("others say that they have", 40)
	says(real, egpu.SwapOut, corev1.ConditionFalse)
	free("its server is to leave", 40)
	says(real, egpu.SwapOut, corev1.ConditionTrue)
	free("its server has left", 100)
	says(p, egpu.SwapIn, corev1.ConditionTrue)
	free("its pod is to come back", 40)
	says(p, egpu.SwapOut, corev1.ConditionTrue)
	free("it has left again", 100)
	says(real, egpu.SwapIn, corev1.ConditionTrue)
	free("its server is to come back", 40)
}

// A bind that fails leaves nothing on the other node either.
func TestFailedBindLeavesNothingOnTheOtherNode(t *testing.T) {
	w := apart(t, "any")
	p := w.farPod("p")
	n := node("tiny", 0)
	n.Status.Allocatable["cpu"] = quantity(0)
	n.Annotations = map[string]string{egpu.RemoteAgentAnnotation: "{}"}
	w.add(n)
	if err := w.bindTo(p, "tiny"); err == nil {
		t.Fatal("bound to a node without free capacity")
	}
	for _, name := range []string{"gpu1", "gpu2"} {
		if c := w.card(name, 0); c.FreeCore != 100 {
			t.Errorf("%s: %v free", name, c.FreeCore)
		}
	}
}

// What restarts reads from the object where its card is.
func TestRestartKnowsRemoteCards(t *testing.T) {
	w := apart(t, "any")
	device := &egpu.ElasticGPU{ObjectMeta: metav1.ObjectMeta{Name: "e", Annotations: map[string]string{egpu.CardsAnnotation: "0"}}}
	device.Spec.RemoteGPU = &egpu.RemoteGPUSource{NodeName: "gpu2", GPUName: "gpu2-gpu0"}
	device.Spec.Capacity = corev1.ResourceList{egpu.ResourceCore: quantity(30)}
	w.add(device)
	if c := w.card("gpu2", 0); c.FreeCore != 70 {
		t.Errorf("%v free", c.FreeCore)
	}
}

// A gang whose pods use a card together over the network starts if the card is free as well, and nobody takes it meanwhile.
func TestGangWithACardOfAnotherNode(t *testing.T) {
	w := apart(t, rack+","+zone)
	all := []string{"cpu1", "cpu2", "cpu3", "gpu1", "gpu2"}
	w.farPod("a")
	w.farPod("b")
	wl := workload(2)
	wl.Spec.PodSets[0].Template.Spec = pod("x", "cpu", 1).Spec
	if err := w.client.Create(t.Context(), wl); err != nil {
		t.Fatal(err)
	}
	part := func(name string) *corev1.Pod {
		p := pod(name, "cpu", 1)
		p.Labels = member(name).Labels
		p.Annotations = member(name).Annotations
		p.Annotations[egpu.ClaimPrefix+"main"] = "g"
		return p
	}
	w.farPod("g") // for its claim
	m := part("m0")
	w.add(m)
	r := w.filter(m, all...)
	if r.NodeNames == nil || len(*r.NodeNames) == 0 {
		t.Fatalf("%+v", r)
	}
	on := (*r.NodeNames)[0]
	// The card is reserved with the pods: one is left for the others.
	one := get(w, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}})
	w.mustBind(one, "cpu1")
	if got := fits(w.filter(get(w, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}}), all...)); got != "" {
		t.Errorf("a stranger took the gang's card, on %q", got)
	}
	w.mustBind(m, on)
	for _, name := range []string{"gpu1", "gpu2"} {
		if c := w.card(name, 0); c.FreeCore != 40 {
			t.Errorf("%s: %v free", name, c.FreeCore)
		}
	}
}

// The flavor of a card that pods use from other nodes says nothing of where the pods of a gang fit.
func TestGangWithCardsElsewhere(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		w := newWorld(t, placement.Options{})
		w.add(node("n", 8))
		flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "cards"}}
		flavor.Spec.NodeLabels = map[string]string{"kind": "cards"} // which no node has
		w.add(flavor)
		wl := workload(2)
		other := wl.Spec.PodSets[0]
		other.Name, other.Count = "other", 1
		wl.Spec.PodSets = append(wl.Spec.PodSets, other)
		wl.Status.Admission.PodSetAssignments = append(wl.Status.Admission.PodSetAssignments, kueue.PodSetAssignment{
			Name: "other", Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{egpu.ResourceCore: "cards"},
		})
		if elsewhere {
			wl.Status.Conditions = []metav1.Condition{{
				Type: request.ElsewhereCondition, Status: metav1.ConditionTrue, Message: request.FormatElsewhere(map[string][]string{"other": {string(egpu.ResourceCore)}}),
			}}
		}
		w.add(wl)
		p := member("p")
		w.add(p)
		if got := fits(w.filter(p, "n")); (got == "n") != elsewhere {
			t.Errorf("with its cards elsewhere: %t, it fits on %q", elsewhere, got)
		}
	}
}
