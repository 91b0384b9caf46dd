package queue

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// secondPassQueue is a harness with one full node of four CPUs, a queue whose flavor's nodes come with
// a check, and one without a check.
func secondPassQueue(t *testing.T, controller string, more ...client.Object) *harness {
	t.Helper()
	p := onNodes(t)
	p.gates.topology = true
	p.oneQueue()
	full := corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("4")}},
	}}}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other", UID: "other"}}
	lq.Spec.ClusterQueue = "other"
	p.see(append(more, queueObject("other", "", ""), lq,
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "full", UID: "full"}, Spec: full, Status: corev1.PodStatus{Phase: corev1.PodRunning}})...)
	p.submit("one", "main", "batch", 1, "2")
	if workload.HasReservation(p.written["one"]) {
		t.Fatalf("the node is full: %v", p.written["one"].Status.Conditions)
	}
	p.see(check("nodes", controller, true), queueObject("cq", "", "nodes"))
	if !workload.HasReservation(p.written["one"]) || workload.IsAdmitted(p.written["one"]) {
		t.Fatalf("with the check its nodes come later: %v", p.written["one"].Status.Conditions)
	}
	return p
}

func (p *harness) ready(name string, updates ...kueue.PodSetUpdate) {
	p.change(name, func(wl *kueue.Workload) {
		wl.Status.AdmissionChecks[0].State, wl.Status.AdmissionChecks[0].PodSetUpdates = kueue.CheckStateReady, updates
	})
}

// newNode comes, with four CPUs.
func (p *harness) newNode(name string) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("4"), "pods": resource.MustParse("10")}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	p.see(node)
}

// The capacity of new nodes is reserved for the workload before its pods exist.
func TestCapacityOfNewNodesIsReserved(t *testing.T) {
	p := secondPassQueue(t, kueue.ProvisioningRequestControllerName)
	p.newNode("new")
	p.ready("one")
	if !workload.IsAdmitted(p.written["one"]) {
		t.Fatalf("its check is ready: %v", p.written["one"].Status.Conditions)
	}
	p.submit("big", "other", "batch", 1, "3")
	p.submit("small", "other", "batch", 1, "2")
	if workload.HasReservation(p.written["big"]) || !workload.IsAdmitted(p.written["small"]) {
		t.Errorf("two CPUs of the new node are left: big is %v, small is %v", p.written["big"].Status.Conditions, p.written["small"].Status.Conditions)
	}
}

// A workload that runs in another cluster takes no capacity here.
func TestRemoteWorkloadTakesNoCapacity(t *testing.T) {
	p := secondPassQueue(t, kueue.MultiKueueControllerName)
	p.newNode("new")
	p.ready("one")
	p.submit("big", "other", "batch", 1, "4")
	if !workload.IsAdmitted(p.written["one"]) || !workload.IsAdmitted(p.written["big"]) {
		t.Errorf("all of the new node is left: one is %v, big is %v", p.written["one"].Status.Conditions, p.written["big"].Status.Conditions)
	}
}

// In a topology it is assigned when there is capacity, where its check's node selector says.
func TestPlaceOnNodesThatCame(t *testing.T) {
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "hosts"}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: corev1.LabelHostname}}}}
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: kueue.ResourceFlavorSpec{TopologyName: ptr.To(kueue.TopologyReference("hosts"))}}
	p := secondPassQueue(t, kueue.ProvisioningRequestControllerName, topology, flavor)
	state := func() (kueue.DelayedTopologyRequestState, *kueue.TopologyAssignment) {
		set := p.written["one"].Status.Admission.PodSetAssignments[0]
		return ptr.Deref(set.DelayedTopologyRequest, ""), set.TopologyAssignment
	}
	p.recordedEvents()
	p.ready("one", kueue.PodSetUpdate{Name: "main", NodeSelector: map[string]string{corev1.LabelHostname: "named"}})
	p.newNode("another")
	if delayed, _ := state(); delayed != kueue.DelayedTopologyRequestStatePending || workload.IsAdmitted(p.written["one"]) {
		t.Fatalf("the node its check names is not there: %+v", p.written["one"].Status.Admission)
	}
	// Why it waits is recorded after 1, 2, 4 … seconds, however often it is looked at meanwhile.
	for _, want := range []int{0, 1, 0, 1, 0, 0, 0, 1} {
		p.newNode("another")
		p.see()
		if events := p.recordedEvents(); len(events) != want {
			t.Errorf("%d events are wanted: %q", want, events)
		}
		p.advance(time.Second)
	}
	var standing v1alpha1.WorkloadStanding
	p.addStatus(&standing, p.written["one"])
	if standing.Reason != "PendingDelayedTopologyRequests" || !strings.Contains(standing.Message, "refused by 2 nodes") {
		t.Errorf("explained as %q: %q", standing.Reason, standing.Message)
	}
	p.newNode("named")
	delayed, assigned := state()
	if delayed != kueue.DelayedTopologyRequestStateReady || assigned == nil || workload.Domains(assigned)[0].Values[0] != "named" || !workload.IsAdmitted(p.written["one"]) {
		t.Fatalf("its place is %s %+v", delayed, assigned)
	}
	if len(p.secondPass) != 0 {
		t.Errorf("%d are still looked at with every change of nodes", len(p.secondPass))
	}
	p.submit("big", "other", "batch", 1, "3")
	if a := p.written["big"].Status.Admission; a == nil || workload.Domains(a.PodSetAssignments[0].TopologyAssignment)[0].Values[0] != "another" {
		t.Errorf("two CPUs of that node are taken: %+v", a)
	}
}

// When the workload is admitted, its pods on existing nodes and its pods on new nodes are placed, even
// if the existing node is full.
func TestAllPodsArePlaced(t *testing.T) {
	p := secondPassQueue(t, kueue.ProvisioningRequestControllerName)
	spot := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "spot"}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{corev1.LabelHostname: "spot"}}}
	own := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{corev1.LabelHostname: "own"}}}
	cq := queueObject("other", "", "nodes")
	second := cq.Spec.ResourceGroups[0].Flavors[0].DeepCopy()
	second.Name = "spot"
	cq.Spec.ResourceGroups[0].Flavors = append(cq.Spec.ResourceGroups[0].Flavors, *second)
	cq.Spec.AdmissionChecksStrategy.AdmissionChecks[0].OnFlavors = []kueue.ResourceFlavorReference{"spot"}
	third := cq.DeepCopy()
	third.Name, third.UID, third.Spec.AdmissionChecksStrategy = "third", "third", nil
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "third", UID: "third"}}
	lq.Spec.ClusterQueue = "third"
	p.see(spot, own, cq, third, lq)
	p.newNode("own")
	wl := p.workload("job", "other", "batch", 1, "4")
	workers := wl.Spec.PodSets[0].DeepCopy()
	workers.Name, workers.Template.Spec.NodeSelector = "workers", map[string]string{corev1.LabelHostname: "spot"}
	wl.Spec.PodSets = append(wl.Spec.PodSets, *workers)
	p.see(wl)
	p.newNode("spot")
	p.ready("job")
	if !workload.IsAdmitted(p.written["job"]) {
		t.Fatalf("its check is ready: %v", p.written["job"].Status.Conditions)
	}
	for _, host := range []string{"own", "spot"} {
		wl := p.workload("on-"+host, "third", "batch", 1, "1")
		wl.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: host}
		p.see(wl)
		if workload.HasReservation(p.written["on-"+host]) {
			t.Errorf("node %s is full, but another workload is placed there", host)
		}
	}
}

// Pods on existing nodes stay placed while other pods of the workload wait for new nodes, also after a
// restart.
func TestPlacementWhileNodesAreMissing(t *testing.T) {
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "hosts"}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: corev1.LabelHostname}}}}
	spot := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "spot"}, Spec: kueue.ResourceFlavorSpec{
		NodeLabels: map[string]string{corev1.LabelHostname: "new"}, TopologyName: ptr.To(kueue.TopologyReference("hosts")),
	}}
	cq := queueObject("cq", "", "nodes")
	cq.Generation = 2
	second := cq.Spec.ResourceGroups[0].Flavors[0].DeepCopy()
	second.Name = "spot"
	cq.Spec.ResourceGroups[0].Flavors = append(cq.Spec.ResourceGroups[0].Flavors, *second)
	cq.Spec.AdmissionChecksStrategy.AdmissionChecks[0].OnFlavors = []kueue.ResourceFlavorReference{"spot"}
	begin := func() *harness {
		p := onNodes(t)
		p.gates.topology = true
		p.oneQueue()
		lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other", UID: "other"}}
		lq.Spec.ClusterQueue = "other"
		p.see(topology.DeepCopy(), spot.DeepCopy(), check("nodes", kueue.ProvisioningRequestControllerName, true), cq.DeepCopy(), queueObject("other", "", ""), lq)
		return p
	}
	p := begin()
	wl := p.workload("job", "main", "batch", 1, "2")
	workers := wl.Spec.PodSets[0].DeepCopy()
	workers.Name, workers.TopologyRequest = "workers", &kueue.PodSetTopologyRequest{Required: ptr.To(corev1.LabelHostname)}
	wl.Spec.PodSets = append(wl.Spec.PodSets, *workers)
	p.see(wl)
	p.ready("job")
	if !workload.HasReservation(p.written["job"]) || workload.IsAdmitted(p.written["job"]) {
		t.Fatalf("its workers wait for their node: %v", p.written["job"].Status.Conditions)
	}
	p.submit("big", "other", "batch", 1, "3")
	p.submit("small", "other", "batch", 1, "2")
	if workload.HasReservation(p.written["big"]) || !workload.IsAdmitted(p.written["small"]) {
		t.Errorf("two CPUs of the node are its first pod's: big is %v, small is %v", p.written["big"].Status.Conditions, p.written["small"].Status.Conditions)
	}

	next := begin()
	next.see(p.written["job"].DeepCopy(), p.written["small"].DeepCopy())
	for name, p := range map[string]*harness{"the same": p, "the next": next} {
		p.newNode("new")
		job := p.written["job"]
		if sets := job.Status.Admission.PodSetAssignments; !workload.IsAdmitted(job) || sets[1].TopologyAssignment == nil || sets[0].TopologyAssignment != nil {
			t.Errorf("%s: the node is there: %+v", name, job.Status)
		}
	}
}

// The topology of a workload that runs in another cluster is assigned there: as in Kueue it is pending here until that
// cluster has.
func TestTopologyIsAssignedElsewhere(t *testing.T) {
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "hosts"}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: corev1.LabelHostname}}}}
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: kueue.ResourceFlavorSpec{TopologyName: ptr.To(kueue.TopologyReference("hosts"))}}
	p := secondPassQueue(t, kueue.MultiKueueControllerName, topology, flavor)
	set := func() kueue.PodSetAssignment { return p.written["one"].Status.Admission.PodSetAssignments[0] }
	if ptr.Deref(set().DelayedTopologyRequest, "") != kueue.DelayedTopologyRequestStatePending {
		t.Fatalf("its place is found elsewhere: %+v", set())
	}
	p.change("one", func(wl *kueue.Workload) {
		wl.Status.AdmissionChecks[0].State, wl.Status.ClusterName = kueue.CheckStateReady, ptr.To("far")
	})
	if workload.IsAdmitted(p.written["one"]) {
		t.Fatal("no cluster has placed it")
	}
	p.change("one", workload.PlacedElsewhere)
	if !workload.IsAdmitted(p.written["one"]) || ptr.Deref(set().DelayedTopologyRequest, "") != kueue.DelayedTopologyRequestStateReady || set().TopologyAssignment != nil {
		t.Errorf("it is placed elsewhere: %+v %+v", set(), p.written["one"].Status.Conditions)
	}
}
