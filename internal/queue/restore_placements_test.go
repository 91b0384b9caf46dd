package queue

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/queue/placer"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// onNodes is a harness with one queue of four CPUs and one node that has as many.
func onNodes(t *testing.T) *harness {
	t.Helper()
	p := newHarness(t)
	nodes, err := placer.New(placer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	options := p.options
	options.Placer = nodes
	shell := New(nil, nil, options)
	shell.now = p.now
	p.Shell = shell
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelHostname: "n"}}}
	node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("4"), "pods": resource.MustParse("10")}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	p.see(node)
	return p
}

// A workload that another client admitted is placed too, before its pods exist.
func TestPlacementOfWorkloadsAdmittedByOthers(t *testing.T) {
	for _, known := range []bool{false, true} {
		p := onNodes(t)
		wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "theirs", UID: "theirs"}}
		wl.Spec.QueueName = "other"
		wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("3")}},
		}}}}}}
		if known {
			p.see(wl.DeepCopy())
		}
		workload.Admit(wl, &admission.Admission{Queue: "elsewhere", PodSets: []admission.PodSetAssignment{{
			Name: "main", Count: 1, Flavors: map[string]string{"cpu": "default"}, Usage: admission.Requests{"cpu": 3000},
		}}}, nil, p.time)
		p.oneQueue()
		p.see(queueObject("elsewhere", "", ""))
		p.see(wl)
		p.submit("big", "main", "batch", 1, "2")
		p.submit("small", "main", "batch", 1, "1")
		if workload.IsAdmitted(p.written["big"]) || !workload.IsAdmitted(p.written["small"]) {
			t.Errorf("known before: %t; one CPU of the node is left, quota for four: big is %v, small is %v", known,
				p.written["big"].Status.Conditions, p.written["small"].Status.Conditions)
		}
	}
}

// A pod that does not name its workload, as Kueue leaves them where it does not place them, is not
// counted in addition to the placement of its job's workload.
func TestPodsThatDoNotNameTheirWorkload(t *testing.T) {
	p := onNodes(t)
	two := corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}},
	}}}
	job := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "theirs", UID: "job", Controller: ptr.To(true)}
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "theirs", UID: "theirs", OwnerReferences: []metav1.OwnerReference{job}}}
	wl.Spec.QueueName = "other"
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: two}}}
	workload.Admit(wl, &admission.Admission{Queue: "elsewhere", PodSets: []admission.PodSetAssignment{{
		Name: "main", Count: 1, Flavors: map[string]string{"cpu": "default"}, Usage: admission.Requests{"cpu": 2000},
	}}}, nil, p.time)
	p.oneQueue()
	p.see(queueObject("elsewhere", "", ""))
	p.see(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "theirs-x", UID: "pod", OwnerReferences: []metav1.OwnerReference{job}}, Spec: two, Status: corev1.PodStatus{Phase: corev1.PodRunning}})
	p.see(wl)
	p.submit("fits", "main", "batch", 1, "2")
	p.submit("not", "main", "batch", 1, "1")
	if !workload.IsAdmitted(p.written["fits"]) || workload.IsAdmitted(p.written["not"]) {
		t.Errorf("two CPUs of the node are left: fits is %v, not is %v", p.written["fits"].Status.Conditions, p.written["not"].Status.Conditions)
	}
}

// Nodes of pods that ended and are not needed any more are free, whether this process saw the pods or
// started after they had ended.
func TestPlacementsShrinkWithReclaimablePods(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		p := onNodes(t)
		p.gates.reclaim = true
		p.oneQueue()
		job := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "job", Controller: ptr.To(true)}
		wl := p.workload("first", "main", "batch", 1, "1")
		wl.OwnerReferences, wl.Spec.PodSets[0].Count = []metav1.OwnerReference{job}, 3
		pod := func(name string, phase corev1.PodPhase) *corev1.Pod {
			spec := *wl.Spec.PodSets[0].Template.Spec.DeepCopy()
			spec.NodeName = "n"
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: name, UID: types.UID(name), OwnerReferences: []metav1.OwnerReference{job},
				Annotations: map[string]string{kueue.WorkloadAnnotation: "first"}, Labels: map[string]string{kueuelabels.PodSet: "main"},
			}, Spec: spec, Status: corev1.PodStatus{Phase: phase}}
		}
		if restarted {
			workload.Admit(wl, &admission.Admission{Queue: "cq", PodSets: []admission.PodSetAssignment{{
				Name: "main", Count: 3, Flavors: map[string]string{"cpu": "default"}, Usage: admission.Requests{"cpu": 3000},
			}}}, nil, p.time)
		}
		p.see(wl)
		for _, name := range []string{"a", "b", "c"} {
			if !restarted {
				p.see(pod(name, corev1.PodRunning))
			}
		}
		p.see(pod("a", corev1.PodSucceeded), pod("b", corev1.PodSucceeded))
		p.change("first", func(wl *kueue.Workload) { wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 2}} })
		p.submit("big", "main", "batch", 1, "3")
		p.submit("small", "main", "batch", 1, "100m")
		if !workload.IsAdmitted(p.written["big"]) || workload.IsAdmitted(p.written["small"]) {
			t.Errorf("restarted %t: one pod of one CPU is left on a node of four: big is %v, small is %v", restarted,
				p.written["big"].Status.Conditions, p.written["small"].Status.Conditions)
		}
	}
}

// What a queue's flavors mean for a workload that asks for no topology, before
// and after they change.
func TestWorkloadsWithoutTopologyRequest(t *testing.T) {
	p := onNodes(t)
	p.gates.topology = true
	p.oneQueue()
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "hosts"}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: corev1.LabelHostname}}}}
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: kueue.ResourceFlavorSpec{TopologyName: ptr.To(kueue.TopologyReference("hosts"))}}
	p.see(topology, flavor)
	p.submit("one", "main", "batch", 1, "1")
	if a := p.written["one"].Status.Admission; a == nil || a.PodSetAssignments[0].TopologyAssignment == nil {
		t.Errorf("in a queue of topologies alone it has a place: %+v", p.written["one"].Status)
	}

	// With a flavor beside it that has none, that is the one it gets.
	cq := queueObject("cq", "", "")
	cq.Generation = 2
	second := cq.Spec.ResourceGroups[0].Flavors[0].DeepCopy()
	second.Name = "flat"
	cq.Spec.ResourceGroups[0].Flavors = append(cq.Spec.ResourceGroups[0].Flavors, *second)
	p.see(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "flat"}}, cq)
	p.submit("two", "main", "batch", 1, "1")
	if a := p.written["two"].Status.Admission; a == nil || a.PodSetAssignments[0].Flavors["cpu"] != "flat" || a.PodSetAssignments[0].TopologyAssignment != nil {
		t.Errorf("where there is a flavor without a topology it gets that one: %+v", p.written["two"].Status)
	}
}

// With the gate ElasticJobsViaWorkloadSlicesWithTAS an elastic job may be anywhere in a topology, and ask for no place in it.
func TestElasticJobsInATopology(t *testing.T) {
	required, preferred := kueue.PodSetTopologyRequest{Required: ptr.To(corev1.LabelHostname)}, kueue.PodSetTopologyRequest{Preferred: ptr.To(corev1.LabelHostname)}
	for name, test := range map[string]struct {
		gate, elastic bool
		asks          kueue.PodSetTopologyRequest
		want          string
	}{
		"anywhere":                      {true, true, kueue.PodSetTopologyRequest{Unconstrained: ptr.To(true)}, "quota"},
		"required":                      {true, true, required, "Misconfigured: failed to assign flavors to pod set main: required topology is not supported with ElasticJobsViaWorkloadSlices"},
		"preferred":                     {true, true, preferred, "Misconfigured: failed to assign flavors to pod set main: preferred topology is not supported with ElasticJobsViaWorkloadSlices"},
		"required, and not elastic":     {true, false, required, "quota"},
		"required, and the gate is off": {false, true, required, "quota"},
	} {
		t.Run(name, func(t *testing.T) {
			p := onNodes(t)
			p.gates.topology, p.gates.elasticTopology = true, test.gate
			p.oneQueue()
			p.see(
				&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "hosts"}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: corev1.LabelHostname}}}},
				&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: kueue.ResourceFlavorSpec{TopologyName: ptr.To(kueue.TopologyReference("hosts"))}},
			)
			wl := p.workload("job", "main", "", 0, "1")
			wl.Spec.PodSets[0].TopologyRequest = &test.asks
			if test.elastic {
				wl.Annotations = map[string]string{kueuelabels.ElasticJob: "true"}
			}
			p.see(wl)
			p.expect("job", test.want)
		})
	}
}

// A queue that sends its jobs to other clusters ignores the capacity of the nodes here.
func TestRemoteQueueIgnoresNodes(t *testing.T) {
	for controller, want := range map[string]bool{"example.com/here": false, kueue.MultiKueueControllerName: true} {
		p := onNodes(t)
		p.oneQueue()
		p.see(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "in-the-way", UID: "pod"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}, Spec: corev1.PodSpec{
			NodeName: "n", Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("3")}}}},
		}})
		cq := queueObject("cq", "", "")
		cq.Generation = 2
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "check"}}}
		p.see(check("check", controller, true), cq)
		p.submit("job", "main", "batch", 1, "2")
		if got := workload.HasReservation(p.written["job"]); got != want {
			t.Errorf("with a check of %s it has its quota: %t, %+v", controller, got, p.written["job"].Status.Conditions)
		}
	}
}

// A workload that lost a host is assigned another one, or evicted if there is none.
func TestReplaceNodes(t *testing.T) {
	const four = "4"
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "hosts"}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: corev1.LabelHostname}}}}
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: kueue.ResourceFlavorSpec{TopologyName: ptr.To(kueue.TopologyReference("hosts"))}}
	host := func(name string, ready corev1.ConditionStatus) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
		n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(four), "pods": resource.MustParse("10")}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		return n
	}
	start := func(t *testing.T, failFast bool, others ...string) (p *harness, at func() string) {
		p = onNodes(t)
		p.gates.topology, p.gates.replaceNodes, p.gates.failFast = true, true, failFast
		p.see(topology)
		p.oneQueue()
		p.see(flavor)
		p.submit("job", "main", "batch", 1, four)
		for _, name := range others {
			p.see(host(name, corev1.ConditionTrue))
		}
		at = func() string {
			wl := p.written["job"]
			if workload.IsEvicted(wl) {
				return apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted).Message
			}
			return hostsIn(assignedTopologies(wl))
		}
		if got := at(); got != "n (1)" {
			t.Fatalf("it starts at %s", got)
		}
		p.recordedEvents()
		return p, at
	}
	lose := func(p *harness, name string) {
		p.see(host(name, corev1.ConditionFalse))
		p.advance(replaceAfter)
		p.see()
	}
	t.Run("another host is free", func(t *testing.T) {
		p, at := start(t, true, "m")
		p.see(host("n", corev1.ConditionFalse))
		if got, noted := at(), p.written["job"].Status.UnhealthyNodes; got != "n (1)" || len(noted) != 1 || noted[0].Name != "n" {
			t.Errorf("at first it is at %s and says %v of its hosts", got, noted)
		}
		if next := p.turn(nil); next.IsZero() || next.After(p.time.Add(replaceAfter)) {
			t.Errorf("it is looked at again at %s", next)
		}
		p.advance(replaceAfter)
		p.see()
		if noted := p.written["job"].Status.UnhealthyNodes; len(noted) > 0 {
			t.Errorf("it still says %v of its hosts", noted)
		}
		if got := at(); got != "m (1)" {
			t.Errorf("it is at %s", got)
		}
		if events := p.recordedEvents(); len(events) != 1 || events[0] != "Normal NodeReplaced Node n is lost; its pods go to m (1)" {
			t.Errorf("events are %q", events)
		}
		p.see(host("n", corev1.ConditionTrue))
		if got := at(); got != "m (1)" {
			t.Errorf("it went back to %s", got)
		}
	})
	t.Run("no other host is free", func(t *testing.T) {
		p, at := start(t, true)
		lose(p, "n")
		if got := at(); got != "Workload was evicted as there was no replacement for unhealthy node(s): n" {
			t.Errorf("it is at %s", got)
		}
		if reason := apimeta.FindStatusCondition(p.written["job"].Status.Conditions, kueue.WorkloadEvicted).Reason; reason != kueue.WorkloadEvictedDueToNodeFailures {
			t.Errorf("evicted for %s", reason)
		}
	})
	// A write that is too late is decided again on the newer object: an eviction, and another host.
	for want, others := range map[string][]string{"Workload was evicted as there was no replacement for unhealthy node(s): n": nil, "m (1)": {"m"}} {
		t.Run("too late: "+want, func(t *testing.T) {
			p, at := start(t, true, others...)
			p.see(host("n", corev1.ConditionFalse))
			p.advance(replaceAfter)
			p.turn(nil)
			if len(p.workloadWrites.waiting) != 1 {
				t.Fatalf("%d writes are under way", len(p.workloadWrites.waiting))
			}
			sent := p.workloadWrites.waiting[0]
			p.workloadWrites.waiting = nil
			p.change("job", func(wl *kueue.Workload) { wl.Labels = map[string]string{"another": "write"} })
			p.turn([]message{{written: &writeResult{sent: sent, err: apierrors.NewConflict(schema.GroupResource{}, "job", nil)}}})
			p.see()
			if got := at(); got != want {
				t.Errorf("it is at %s", got)
			}
		})
	}
	t.Run("no other host is free yet", func(t *testing.T) {
		p, at := start(t, false)
		lose(p, "n")
		if got := p.written["job"].Status.UnhealthyNodes; len(got) != 1 || got[0].Name != "n" || workload.IsEvicted(p.written["job"]) {
			t.Errorf("it says %v of its hosts", got)
		}
		p.see(host("m", corev1.ConditionTrue))
		if got, marked := at(), p.written["job"].Status.UnhealthyNodes; got != "m (1)" || len(marked) > 0 {
			t.Errorf("it is at %s, and says %v of its hosts", got, marked)
		}
	})
	t.Run("the host comes back", func(t *testing.T) {
		p, at := start(t, false)
		p.see(host("n", corev1.ConditionFalse))
		p.see(host("n", corev1.ConditionTrue))
		if got, marked := at(), p.written["job"].Status.UnhealthyNodes; got != "n (1)" || len(marked) > 0 {
			t.Errorf("it is at %s, and says %v of its hosts", got, marked)
		}
	})
	for name, test := range map[string]struct {
		skip, group bool
		want        string
	}{
		"a pod of its own: no other will come": {skip: true, want: "n (1)"},
		"a pod of its own, to be moved":        {want: "m (1)"},
		"a pod of a group: another may come":   {skip: true, group: true, want: "m (1)"},
	} {
		t.Run(name, func(t *testing.T) {
			p, at := start(t, true, "m")
			p.gates.skipReassignment = test.skip
			p.change("job", func(wl *kueue.Workload) {
				wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "job", UID: "pod"}}
				if test.group {
					wl.Annotations = map[string]string{workload.GroupAnnotation: "true"}
				}
			})
			lose(p, "n")
			if got := at(); got != test.want {
				t.Errorf("it is at %s", got)
			}
		})
	}
	t.Run("switched off", func(t *testing.T) {
		p, at := start(t, true, "m")
		p.gates.replaceNodes = false
		lose(p, "n")
		if got := at(); got != "n (1)" {
			t.Errorf("it is at %s", got)
		}
	})
	t.Run("two hosts at once", func(t *testing.T) {
		p, at := start(t, true, "m", "o", "q")
		p.change("job", func(wl *kueue.Workload) { // as if it had two pods
			set := &wl.Status.Admission.PodSetAssignments[0]
			wl.Spec.PodSets[0].Count, set.Count = 2, ptr.To(int32(2))
			set.TopologyAssignment.Slices = []kueue.TopologyAssignmentSlice{{
				DomainCount: 2, PodCounts: kueue.TopologyAssignmentSlicePodCounts{Universal: ptr.To(int32(1))},
				ValuesPerLevel: []kueue.TopologyAssignmentSliceLevelValues{{Individual: &kueue.TopologyAssignmentSliceLevelIndividualValues{Roots: []string{"m", "n"}}}},
			}}
		})
		p.turn([]message{{object: host("n", corev1.ConditionFalse)}, {object: host("m", corev1.ConditionFalse)}})
		p.see()
		if got := at(); got != "Workload eviction triggered due to multiple TAS assigned node failures, including: m, n" {
			t.Errorf("it is at %s", got)
		}
	})
}

// A pod that is being deleted is about to leave its node, and nobody is preempted for what it has. One that does not
// end holds nobody up for ever.
func TestPodThatNeverEnds(t *testing.T) {
	p := onNodes(t)
	p.oneQueue()
	stuck := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "stuck", UID: "stuck", DeletionTimestamp: ptr.To(metav1.NewTime(p.time.Add(time.Minute))), DeletionGracePeriodSeconds: ptr.To(int64(60)),
	}, Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}},
	}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	p.see(stuck)
	p.submit("low", "main", "batch", 0, "2")
	p.submit("high", "main", "batch", 1, "2")
	if !workload.IsAdmitted(p.written["low"]) || workload.IsEvicted(p.written["low"]) {
		t.Fatalf("what high waits for is about to leave: low is %v", p.written["low"].Status.Conditions)
	}
	if next := p.turn(nil); next.IsZero() || next.After(p.time.Add(6*time.Minute)) {
		t.Errorf("it looks again at %s, when the pod is overdue", next)
	}
	p.advance(6 * time.Minute)
	p.see()
	if !workload.IsEvicted(p.written["low"]) {
		t.Errorf("the pod should have ended: low is %v, high is %v", p.written["low"].Status.Conditions, p.written["high"].Status.Conditions)
	}
}
