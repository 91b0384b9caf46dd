package placer

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// cluster is n nodes of four cards each.
func cluster(t *testing.T, nodes int) *Placer {
	t.Helper()
	p, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		p.Saw(node(fmt.Sprintf("n%d", i)), false)
	}
	return p
}

func node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"model": "H100"}}}
	n.Status.Allocatable = corev1.ResourceList{
		"cpu": resource.MustParse("32"), "memory": resource.MustParse("256Gi"), "pods": resource.MustParse("110"),
		"nvidia.com/gpu": resource.MustParse("4"),
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

func asking(name string, pods int32, cards int64) admission.PlaceRequest {
	return admission.PlaceRequest{
		Workload: admission.Key{Namespace: "ns", Name: name},
		PodSets: []admission.PlacePodSet{{
			Spec:    &admission.PodSet{Name: "main", Requests: admission.Requests{"nvidia.com/gpu": cards, "cpu": 1000}},
			Count:   pods,
			Flavors: []*admission.Flavor{{NodeLabels: map[string]string{"model": "H100"}}},
		}},
	}
}

func fits(t *testing.T, p *Placer, r admission.PlaceRequest) any {
	t.Helper()
	placed, refusal := p.Place(r)
	if refusal != nil {
		t.Fatalf("%s does not fit: %s", r.Workload.Name, refusal.Reason)
	}
	return placed
}

func refused(t *testing.T, p *Placer, r admission.PlaceRequest) *admission.Refusal {
	t.Helper()
	_, refusal := p.Place(r)
	if refusal == nil {
		t.Fatalf("%s fits, it must not", r.Workload.Name)
	}
	return refusal
}

func TestScatteredCardsFitNobody(t *testing.T) {
	p := cluster(t, 2)
	fits(t, p, asking("a", 1, 3))
	fits(t, p, asking("b", 1, 3))
	refusal := refused(t, p, asking("two", 1, 2)) // two cards are free, on two nodes
	if refusal.PodSet != "main" || refusal.NeverFits {
		t.Errorf("refusal %+v: it names the pod set, and evicting could help", refusal)
	}
	p.Remove(admission.Key{Namespace: "ns", Name: "a"})
	fits(t, p, asking("two", 1, 2))
}

// Nodes that are to be avoided are, also for pods that come in the place of others.
func TestAvoidNodes(t *testing.T) {
	p := cluster(t, 2)
	r := asking("a", 2, 4)
	r.AvoidNodes = []string{"n0"}
	refused(t, p, r)
	r.PodSets[0].Count = 1
	fits(t, p, r)
	if on := fmt.Sprint(p.On("n0"), p.On("n1")); on != "[] [ns/a]" {
		t.Error(on)
	}
	refused(t, p, admission.PlaceRequest{Workload: admission.Key{Namespace: "ns", Name: "b"}, PodSets: r.PodSets, AvoidNodes: []string{"n0", "n9"}})
	fits(t, p, asking("c", 1, 4))
	if !p.Has("n1") || p.Has("n9") {
		t.Error("which nodes there are")
	}
}

func TestHopelessWhereNoEvictionHelps(t *testing.T) {
	p := cluster(t, 1)
	r := asking("elsewhere", 1, 1)
	r.PodSets[0].Flavors[0].NodeLabels = map[string]string{"model": "B200"}
	if !refused(t, p, r).NeverFits {
		t.Error("no node carries the label: preemption does not help")
	}
}

func TestWhatIfLeavesNoTrace(t *testing.T) {
	p := cluster(t, 1)
	fits(t, p, asking("a", 4, 1))
	outer := p.Checkpoint()
	p.Remove(admission.Key{Namespace: "ns", Name: "a"})
	inner := p.Checkpoint()
	fits(t, p, asking("b", 4, 1))
	p.Rollback(inner)
	fits(t, p, asking("c", 4, 1))
	p.Rollback(outer)
	refused(t, p, asking("d", 1, 1))
}

// What pods that are being deleted have is free in a what-if, but not beyond what their workload needs for those that
// come for them.
func TestLeavingPodsAreRemovedInAWhatIf(t *testing.T) {
	p := cluster(t, 1)
	a := asking("a", 2, 1)
	fits(t, p, a)
	for i := range 2 {
		leaving := pod("a", i, corev1.PodRunning)
		p.Saw(leaving, false)
		leaving = leaving.DeepCopy()
		leaving.DeletionTimestamp = &metav1.Time{}
		p.Saw(leaving, false)
	}
	restoreAll(t, p, a)
	for _, released := range []bool{false, true} {
		if released {
			p.Remove(admission.Key{Namespace: "ns", Name: "a"})
		}
		mark := p.Checkpoint()
		_, before := p.Place(asking("b", 4, 1))
		removed := p.RemoveLeaving()
		_, after := p.Place(asking("b", 4, 1))
		if before == nil || !removed || (after == nil) != released {
			t.Errorf("quota released %t: before %v, removed %t, after %v", released, before, removed, after)
		}
		p.Rollback(mark)
		refused(t, p, asking("b", 4, 1))
	}
}

// A workload is admitted again while pods of its last run are still ending: these leave all the same, and who waits for
// what they have does not need the workload to go once more.
func TestPodsOfTheLastRunLeave(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		p := cluster(t, 1)
		old := pod("again", 0, corev1.PodRunning)
		old.DeletionTimestamp = &metav1.Time{}
		p.Saw(old, false)
		again := asking("again", 1, 1)
		if restarted {
			p.Hold(again.Workload, nil)
			p.Hold(again.Workload, p.Restore(again, p.Bound(), nil))
		} else {
			fits(t, p, again)
		}
		refused(t, p, asking("waits", 3, 1))
		mark := p.Checkpoint()
		p.RemoveLeaving()
		fits(t, p, asking("waits", 3, 1))
		p.Rollback(mark)
	}
}

// The pods of a workload that has lost its quota leave, although the controller of its job has not deleted them yet: for
// five minutes, and not if the workload is admitted again.
func TestPodsOfAReleasedWorkloadLeave(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	a := asking("a", 1, 1)
	for name, admitAgain := range map[string]func(*Placer, any){
		"never":     nil,
		"as it was": func(p *Placer, held any) { p.Hold(a.Workload, held) },
		"anew":      func(p *Placer, _ any) { fits(t, p, a) },
	} {
		p := cluster(t, 1)
		held := fits(t, p, a)
		p.Saw(pod("a", 0, corev1.PodRunning), false)
		removed := func() bool {
			defer p.Rollback(p.Checkpoint())
			return p.RemoveLeaving()
		}
		p.Remove(a.Workload)
		if !removed() {
			t.Errorf("admitted again %s: its pod does not leave", name)
		}
		if admitAgain != nil {
			if admitAgain(p, held); removed() {
				t.Errorf("admitted again %s: its pod leaves", name)
			}
			continue
		}
		if found, next := p.Overdue(now); found || !next.Equal(now.Add(overdueAfter)) {
			t.Errorf("overdue %t, the next at %s", found, next)
		}
		if found, _ := p.Overdue(now.Add(overdueAfter)); !found || removed() {
			t.Error("a pod that never ends leaves for ever")
		}
	}
}

// A pod is overdue five minutes after its grace period, of which at most an hour counts, whatever its author wrote.
func TestOverduePodsDoNotLeave(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for grace, after := range map[int64]time.Duration{
		0: 5 * time.Minute, 30: 5*time.Minute + 30*time.Second, 3600: 65 * time.Minute, 30 * 24 * 3600: 65 * time.Minute, math.MaxInt64: 65 * time.Minute,
	} {
		p := cluster(t, 1)
		leaving := pod("a", 0, corev1.PodRunning)
		leaving.DeletionGracePeriodSeconds = &grace
		leaving.DeletionTimestamp = &metav1.Time{Time: now.Add(time.Duration(min(grace, 365*24*3600)) * time.Second)}
		p.Saw(leaving, false)
		removed := func() bool {
			defer p.Rollback(p.Checkpoint())
			return p.RemoveLeaving()
		}
		if found, next := p.Overdue(now); found || !next.Equal(now.Add(after)) || !removed() {
			t.Errorf("grace %d s: overdue %t, at %s; want %s", grace, found, next, now.Add(after))
		}
		if found, next := p.Overdue(now.Add(after)); !found || !next.IsZero() || removed() {
			t.Errorf("grace %d s: overdue after %s: %t, next %s", grace, after, found, next)
		}
	}
}

// The pods of a workload take what was reserved for it, not more.
func TestPodsTakeTheirWorkloadsReservation(t *testing.T) {
	p := cluster(t, 1)
	held := fits(t, p, asking("a", 3, 1))
	for i := range 3 {
		p.Saw(pod("a", i, corev1.PodRunning), false)
	}
	fits(t, p, asking("b", 1, 1))
	refused(t, p, asking("c", 1, 1))

	// Held again after a restart it is the same reservation.
	p.Hold(admission.Key{Namespace: "ns", Name: "a"}, held)
	refused(t, p, asking("c", 1, 1))

	// A pod that ends frees capacity for others.
	if !p.Saw(pod("a", 0, corev1.PodSucceeded), false) {
		t.Error("a pod that ends may help pending workloads")
	}
	fits(t, p, asking("c", 1, 1))
}

// What a workload gives back before its pods have ended is not free yet.
func TestPodsOutliveTheirWorkload(t *testing.T) {
	p := cluster(t, 1)
	fits(t, p, asking("a", 4, 1))
	for i := range 2 {
		p.Saw(pod("a", i, corev1.PodRunning), false)
	}
	p.Remove(admission.Key{Namespace: "ns", Name: "a"})
	refused(t, p, asking("b", 3, 1))
	fits(t, p, asking("b", 2, 1))
}

// A job that grew: its pods carry the name of the workload it was started
// under, and are those of the one that took its place.
func TestPodsFollowTheWorkloadThatTakesOver(t *testing.T) {
	p := cluster(t, 1)
	old, grown := admission.Key{Namespace: "ns", Name: "old"}, admission.Key{Namespace: "ns", Name: "grown"}
	fits(t, p, asking("old", 2, 1))
	for i := range 2 {
		p.Saw(pod("old", i, corev1.PodRunning), false)
	}
	held := fits(t, p, asking("grown", 1, 1)) // one more than it has
	p.Remove(old)
	p.Hold(grown, held)
	p.Follow(old, grown)
	refused(t, p, asking("other", 2, 1))
	p.Saw(pod("old", 2, corev1.PodRunning), false) // takes what was reserved
	fits(t, p, asking("other", 1, 1))

	// A workload that preempts it gets the capacity of all its pods.
	mark := p.Checkpoint()
	p.Remove(grown)
	fits(t, p, asking("next", 3, 1))
	p.Rollback(mark)
	refused(t, p, asking("next", 1, 1))
}

// kube-scheduler may choose another node than the one that was reserved.
func TestPodsThatGoElsewhereMoveTheReservation(t *testing.T) {
	p := cluster(t, 2)
	fits(t, p, asking("a", 4, 1)) // fills one node
	for i := range 4 {
		stray := pod("a", i, corev1.PodRunning)
		stray.Spec.NodeName = []string{"n0", "n1"}[i%2]
		p.Saw(stray, false)
	}
	fits(t, p, asking("b", 4, 1)) // two cards are free on each node
	refused(t, p, asking("c", 1, 1))
}

func TestBrokenCard(t *testing.T) {
	p := cluster(t, 1)
	gpu := func(index int, state string) *egpu.GPU {
		g := &egpu.GPU{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n0-%d", index)}}
		g.Spec = egpu.GPUSpec{Index: index, NodeName: "n0", Memory: 81559, Model: "H100-80G"}
		g.Status.State, g.Status.Message = state, "fell off the bus"
		return g
	}
	for i := range 4 {
		p.Saw(gpu(i, egpu.GPUReady), false)
	}
	p.Saw(gpu(2, egpu.GPUUnhealthy), false)
	refusal := refused(t, p, asking("four", 4, 1))
	for _, want := range []string{"3 of 4 pods fit", "n0/2 (fell off the bus)"} {
		if !strings.Contains(refusal.Reason.Error(), want) {
			t.Errorf("reason %q must say %q", refusal.Reason, want)
		}
	}
	if !p.Saw(gpu(2, egpu.GPUReady), false) {
		t.Error("a mended card may help pending workloads")
	}
	fits(t, p, asking("four", 4, 1))
}

func pod(workload string, i int, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: fmt.Sprintf("%s-%d", workload, i),
			Annotations: map[string]string{kueue.WorkloadAnnotation: workload},
			Labels:      map[string]string{kueuelabels.PodSet: "main"},
		},
		Spec: corev1.PodSpec{NodeName: "n0", Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				"nvidia.com/gpu": resource.MustParse("1"), "cpu": resource.MustParse("1"),
			}},
		}}},
		Status: corev1.PodStatus{Phase: phase},
	}
}

// What quota counts a pod as is no concern of nodes.
func TestPodsArePlacedByWhatTheyAskFor(t *testing.T) {
	p := cluster(t, 1)
	counted := func(cards int64) admission.PlaceRequest {
		r := asking("counted", 1, cards)
		r.PodSets[0].Spec.NodeRequests = r.PodSets[0].Spec.Requests
		r.PodSets[0].Spec.Requests = admission.Requests{"example.com/credits": 500}
		return r
	}
	refused(t, p, counted(5)) // no node has five cards, none has credits
	fits(t, p, counted(4))
}

// After a restart a workload has its reservation again: its pods are where they are,
// and the rest is reserved where its admission says.
func TestRestore(t *testing.T) {
	p := cluster(t, 3)
	p.Saw(pod("a", 0, corev1.PodRunning), false) // on n0
	named := map[string]*kueue.TopologyAssignment{"main": {
		Levels: []string{"host"},
		Slices: []kueue.TopologyAssignmentSlice{{
			DomainCount:    2,
			ValuesPerLevel: []kueue.TopologyAssignmentSliceLevelValues{{Individual: &kueue.TopologyAssignmentSliceLevelIndividualValues{Roots: []string{"n0", "n1"}}}},
			PodCounts:      kueue.TopologyAssignmentSlicePodCounts{Individual: []int32{3, 4}},
		}},
	}}
	for i := range 3 {
		n := node(fmt.Sprintf("n%d", i))
		n.Labels["host"] = n.Name
		p.Saw(n, false)
	}
	restored := p.Restore(asking("a", 7, 1), p.Bound(), named)
	if restored == nil {
		t.Fatal("there is nothing to restore")
	}
	p.Hold(admission.Key{Namespace: "ns", Name: "a"}, restored)
	// One card of n0 is left, none of n1, four of n2.
	refused(t, p, asking("six", 6, 1))
	fits(t, p, asking("five", 5, 1))

	// Its pods take what was reserved for them.
	for i := range 2 {
		p.Saw(pod("a", i+1, corev1.PodRunning), false)
	}
	refused(t, p, asking("one", 1, 1))
	p.Remove(admission.Key{Namespace: "ns", Name: "five"})
	refused(t, p, asking("six", 6, 1))
	fits(t, p, asking("five", 5, 1))
}

// Without a topology the rest is reserved wherever it fits.
func TestRestoreWithoutTopology(t *testing.T) {
	p := cluster(t, 2)
	p.Saw(pod("a", 0, corev1.PodRunning), false)
	p.Hold(admission.Key{Namespace: "ns", Name: "a"}, p.Restore(asking("a", 5, 1), p.Bound(), nil))
	fits(t, p, asking("b", 3, 1))
	refused(t, p, asking("c", 1, 1))
}

// Where others have taken some of its cards meanwhile, the rest is reserved.
func TestRestoreWhatIsLeft(t *testing.T) {
	named := map[string]*kueue.TopologyAssignment{"main": {
		Levels: []string{"host"},
		Slices: []kueue.TopologyAssignmentSlice{{
			DomainCount:    1,
			ValuesPerLevel: []kueue.TopologyAssignmentSliceLevelValues{{Individual: &kueue.TopologyAssignmentSliceLevelIndividualValues{Roots: []string{"n0"}}}},
			PodCounts:      kueue.TopologyAssignmentSlicePodCounts{Individual: []int32{4}},
		}},
	}}
	for name, named := range map[string]map[string]*kueue.TopologyAssignment{"in a topology": named, "anywhere": nil} {
		t.Run(name, func(t *testing.T) {
			p := cluster(t, 1)
			n := node("n0")
			n.Labels["host"] = n.Name
			p.Saw(n, false)
			p.Saw(pod("a", 0, corev1.PodRunning), false)
			p.Saw(pod("stranger", 0, corev1.PodRunning), false)
			p.Hold(admission.Key{Namespace: "ns", Name: "a"}, p.Restore(asking("a", 4, 1), p.Bound(), named))
			refused(t, p, asking("b", 1, 1))
			p.Saw(pod("stranger", 0, corev1.PodSucceeded), false)
			fits(t, p, asking("b", 1, 1))
		})
	}
}

// A topology that is made again with other levels is another one.
func TestTopologyMadeAgain(t *testing.T) {
	p := cluster(t, 1)
	n := node("n0")
	n.Labels["rack"], n.Labels["host"] = "r", "h"
	p.Saw(n, false)
	for _, level := range []string{"rack", "host"} {
		topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: level}}}}
		p.Saw(topology, false)
		r := asking("a", 1, 1)
		r.PodSets[0].Spec.Topology = &admission.TopologyRequest{Mode: admission.TopologyRequired, Level: level}
		r.PodSets[0].Flavors[0].Topology = "default"
		fits(t, p, r)
		p.Remove(r.Workload)
		p.Saw(topology, true)
	}
}

// A pod that is swapped out takes nothing; when its workload is admitted again and the pod is called back, it
// takes what is reserved.
func TestSwappedOutPodsTakeNothing(t *testing.T) {
	p := cluster(t, 1)
	fits(t, p, asking("a", 1, 4))
	there := pod("a", 0, corev1.PodRunning)
	there.Spec.NodeName = "n0"
	p.Saw(there, false)
	p.Remove(admission.Key{Namespace: "ns", Name: "a"})
	refused(t, p, asking("b", 1, 4))
	out := there.DeepCopy()
	out.Annotations[egpu.SwapAnnotation] = egpu.SwapOut
	out.Status.Conditions = []corev1.PodCondition{{Type: egpu.SwappedOut, Status: corev1.ConditionTrue}}
	if !p.Saw(out, false) {
		t.Error("freed capacity may help others")
	}
	fits(t, p, asking("b", 1, 4))
	p.Remove(admission.Key{Namespace: "ns", Name: "b"})
	fits(t, p, asking("a", 1, 4))
	back := out.DeepCopy()
	back.Annotations[egpu.SwapAnnotation] = egpu.SwapIn
	p.Saw(back, false)
	refused(t, p, asking("b", 1, 1))
	p.Remove(admission.Key{Namespace: "ns", Name: "a"})
	back.Status.Phase = corev1.PodSucceeded
	p.Saw(back, false)
	fits(t, p, asking("b", 1, 4))
}

// What is nominated to a node that goes needs another, before others take it.
func TestLostNodeChangesWherePodsFit(t *testing.T) {
	p := cluster(t, 2)
	gone := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}}
	if !p.Saw(gone, true) {
		t.Error("the queue is not told that a node is gone")
	}
	if p.Saw(gone, true) {
		t.Error("it was gone before")
	}
}

// What was said of jobs goes with their workload.
func TestOwnersAreForgotten(t *testing.T) {
	p := cluster(t, 1)
	a := admission.Key{Namespace: "ns", Name: "a"}
	p.Own("job-1", a, "main")
	p.Own("job-2", a, "main")
	p.Own("job-3", admission.Key{Namespace: "ns", Name: "b"}, "main")
	p.Remove(a)
	if _, kept := p.jobs["job-3"]; len(p.jobs) != 1 || !kept {
		t.Errorf("jobs %v are remembered, want that of b", p.jobs)
	}
}

// Pods that may go anywhere take what little is left first, or as few hosts as
// possible.
func TestPodsThatMayGoAnywhere(t *testing.T) {
	anywhere := admission.TopologyRequest{Mode: admission.TopologyUnconstrained}
	for few, want := range map[bool]string{false: "a1:1 a2:3 a3:1", true: "a1:1 a3:4"} {
		p := hall(t)
		p.options.FewHosts = few
		for host, cards := range map[string]int64{"a1": 3, "a2": 1} {
			other := asking(host, 1, cards)
			other.PodSets[0].Flavors[0].NodeLabels = map[string]string{corev1.LabelHostname: host}
			fits(t, p, other)
		}
		if got := said(p.Assignments(fits(t, p, wants(5, anywhere)))); got != want {
			t.Errorf("with few hosts %t the pods go to %s, want %s", few, got, want)
		}
	}
}

// Where every node of a topology takes a pod, but none takes all, another one's
// leaving may help; where no pod is there, it cannot.
func TestTopologyThatOthersFill(t *testing.T) {
	for _, mode := range []admission.TopologyMode{admission.TopologyUnconstrained, admission.TopologyPreferred, admission.TopologyRequired} {
		p := hall(t)
		r := wants(25, admission.TopologyRequest{Mode: mode, Level: "rack"})
		if !refused(t, p, r).NeverFits {
			t.Errorf("%v: more pods than there are cards can never fit", mode)
		}
		r.PodSets[0].Count = 24
		if mode == admission.TopologyRequired {
			r.PodSets[0].Count = 12
		}
		for _, host := range []string{"a1", "b1"} {
			other := asking(host, 1, 1)
			other.PodSets[0].Flavors[0].NodeLabels = map[string]string{corev1.LabelHostname: host}
			fits(t, p, other)
		}
		if refused(t, p, r).NeverFits {
			t.Errorf("%v: two pods are in the way", mode)
		}
	}
}

// Pods beyond the last whole slice get no place, as in Kueue; a set smaller than one slice does not fit.
func TestPodsBeyondTheLastSlice(t *testing.T) {
	p := hall(t)
	r := wants(3, admission.TopologyRequest{Mode: admission.TopologyPreferred, Level: "rack", Slices: []admission.TopologySlice{{Level: corev1.LabelHostname, Size: 2}}})
	placed := 0
	for _, d := range workload.Domains(p.Assignments(fits(t, p, r))["main"]) {
		placed += d.Count
	}
	if placed != 2 {
		t.Errorf("%d pods have a place, want one slice of two", placed)
	}
	r.PodSets[0].Count = 1
	if refusal := refused(t, p, r); !refusal.NeverFits {
		t.Errorf("refusal %+v", refusal)
	}
}

// A pod set without pods, or with none left, has no place in a topology; the others have theirs.
func TestPodSetWithoutPods(t *testing.T) {
	for _, mode := range []admission.TopologyMode{admission.TopologyUnconstrained, admission.TopologyPreferred, admission.TopologyRequired} {
		for _, first := range []bool{false, true} {
			p := hall(t)
			r := wants(2, admission.TopologyRequest{Mode: mode, Level: "rack"})
			spec := *r.PodSets[0].Spec
			spec.Name = "none"
			none := admission.PlacePodSet{Spec: &spec, Flavors: r.PodSets[0].Flavors}
			if r.PodSets = append(r.PodSets, none); first {
				r.PodSets[0], r.PodSets[1] = r.PodSets[1], r.PodSets[0]
			}
			got := p.Assignments(fits(t, p, r))
			if len(got) != 1 || got["main"] == nil {
				t.Errorf("%v, without pods first %t: assigned are %v", mode, first, got)
			}
		}
	}
}

// What a workload says of itself is not what it costs: two billion pods are refused as fast as there are nodes.
func TestHugeWorkloadIsRefusedAtOnce(t *testing.T) {
	p := cluster(t, 500)
	for name, r := range map[string]admission.PlaceRequest{
		"with cards":   asking("cards", math.MaxInt32, 1),
		"of nothing":   {Workload: admission.Key{Namespace: "ns", Name: "nothing"}, PodSets: []admission.PlacePodSet{{Spec: &admission.PodSet{Name: "main"}, Count: math.MaxInt32, Flavors: []*admission.Flavor{{}}}}},
		"one too many": {Workload: admission.Key{Namespace: "ns", Name: "more"}, PodSets: []admission.PlacePodSet{{Spec: &admission.PodSet{Name: "main"}, Count: 500*110 + 1, Flavors: []*admission.Flavor{{}}}}},
	} {
		allocations := testing.AllocsPerRun(1, func() { refused(t, p, r) })
		if allocations > 5000 {
			t.Errorf("%s: refusing it takes %.0f allocations", name, allocations)
		}
	}
	if refusal := refused(t, p, asking("cards", math.MaxInt32, 1)); !strings.Contains(refusal.Reason.Error(), "2000 of 2147483647 pods fit") || refusal.NeverFits {
		t.Errorf("refusal %+v", refusal)
	}
	exact := asking("exact", 2000, 1)
	fits(t, p, exact)
}

// A pod that is bound elsewhere than where its workload had a place leaves that place to others: they are
// to be looked at again.
func TestPodBoundElsewhereMayHelpOthers(t *testing.T) {
	p := cluster(t, 2)
	fits(t, p, asking("a", 1, 3))
	there := pod("a", 0, corev1.PodRunning)
	for _, name := range []string{"n0", "n1"} {
		if there.Spec.NodeName = name; p.reservations[gangKey(admission.Key{Namespace: "ns", Name: "a"})].places()[place{"main", name}] == 0 {
			break
		}
	}
	if !p.Saw(there, false) {
		t.Error("the node that was reserved is free, and nobody is looked at again")
	}
}

// A pod with a topology annotation that names no workload counts on its node, unless Kueue's rule is asked for. One that
// names its workload, and one without the annotation, count in any case.
func TestPodsWithATopologyAnnotation(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		ignored     bool
		counts      bool
	}{
		"as it is":              {map[string]string{kueue.PodSetUnconstrainedTopologyAnnotation: "true"}, false, true},
		"as in Kueue":           {map[string]string{kueue.PodSetUnconstrainedTopologyAnnotation: "true"}, true, false},
		"in slices":             {map[string]string{kueue.PodSetSliceRequiredTopologyAnnotation: "rack"}, true, false},
		"one with its workload": {map[string]string{kueue.PodSetRequiredTopologyAnnotation: "rack", kueue.WorkloadAnnotation: "other"}, true, true},
		"one without":           {nil, true, true},
	} {
		p, err := New(Options{IgnoreAnnotated: test.ignored})
		if err != nil {
			t.Fatal(err)
		}
		p.Saw(node("n0"), false)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "stray", Annotations: test.annotations}}
		pod.Spec.NodeName = "n0"
		pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("32")}}}}
		p.Saw(pod, false)
		if _, refusal := p.Place(asking("job", 1, 1)); (refusal != nil) != test.counts {
			t.Errorf("%s: %v", name, refusal)
		}
		p.Saw(pod, true)
		fits(t, p, asking("job", 1, 1))
	}
}

// inRacks is a request for pods in a topology of racks.
func inRacks(name string, pods int32) admission.PlaceRequest {
	r := asking(name, pods, 1)
	r.PodSets[0].Spec.Topology = &admission.TopologyRequest{Mode: admission.TopologyUnconstrained}
	r.PodSets[0].Flavors[0].Topology = "racks"
	return r
}

func racked(t *testing.T, options Options, taints ...corev1.Taint) *Placer {
	t.Helper()
	p, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	p.Saw(&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: "rack"}}}}, false)
	n := node("n0")
	n.Labels["rack"], n.Spec.Taints = "r1", taints
	p.Saw(n, false)
	return p
}

// In a topology of racks Kueue does not look at nodes: a taint does not count there, nor does what the pod says of nodes.
func TestDomainsOnly(t *testing.T) {
	taint := corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}
	r := inRacks("job", 1)
	r.PodSets[0].Spec.NodeSelector = map[string]string{"disk": "fast"}
	refused(t, racked(t, Options{}, taint), r)
	p := racked(t, Options{DomainsOnly: true}, taint)
	fits(t, p, r)
	other := inRacks("other", 1)
	other.PodSets[0].Flavors[0].NodeLabels = map[string]string{"model": "A100"}
	refused(t, p, other)
	cordoned := node("n0")
	cordoned.Labels["rack"], cordoned.Spec.Unschedulable = "r1", true
	p.Saw(cordoned, false)
	refused(t, p, inRacks("late", 1))
}

// Kueue counts what a workload was given for its pods, also where they ask for less, and whichever is known first.
func TestPodsCountAsAdmitted(t *testing.T) {
	for name, test := range map[string]struct {
		options       Options
		podFirst, fit bool
	}{
		"as it asks":            {Options{}, false, true},
		"as admitted":           {Options{AsAdmitted: true}, false, false},
		"as admitted, restored": {Options{AsAdmitted: true}, true, false},
	} {
		p := racked(t, test.options)
		large := inRacks("large", 1)
		large.PodSets[0].Spec.Requests = admission.Requests{"cpu": 30000}
		there := pod("large", 0, corev1.PodRunning)
		there.Spec.NodeName, there.Spec.Containers = "n0", []corev1.Container{{Name: "main"}}
		if test.podFirst {
			p.Saw(there, false)
			p.Hold(large.Workload, p.Restore(large, p.Bound(), nil))
		} else {
			fits(t, p, large)
			p.Saw(there, false)
		}
		more := inRacks("more", 1)
		more.PodSets[0].Spec.Requests = admission.Requests{"cpu": 10000}
		if _, refusal := p.Place(more); (refusal == nil) != test.fit {
			t.Errorf("%s: %v", name, refusal)
		}
		p.Remove(large.Workload) // its pod still runs, and counts with what it asks for
		fits(t, p, more)
		p.Saw(there, true)
		if len(p.asked) > 0 {
			t.Errorf("%s: %v is remembered of pods that have ended", name, p.asked)
		}
	}
}
