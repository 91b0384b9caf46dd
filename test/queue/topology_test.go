package queue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue/workload"
	"github.com/elastic-ai/elastic/test/sandbox"
)

const rackLabel = "example.com/rack"

// racks makes a queue of twelve cards over two racks, one node each: eight
// cards in rack one, four in rack two.
func racks(t *testing.T) string {
	t.Helper()
	for node, rack := range map[string]string{"h100-80g-0": "one", "a100-40g-0": "two"} {
		patch(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, rackLabel, rack))
	}
	ns := cluster.Namespace(t)
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{
		{NodeLabel: rackLabel}, {NodeLabel: corev1.LabelHostname},
	}}}
	flavor := sandbox.Flavor(ns, map[string]string{"kubernetes.io/os": "linux"})
	flavor.Spec.TopologyName = ptr.To(kueue.TopologyReference(ns))
	cluster.Make(t, topology, flavor, sandbox.ClusterQueue(ns, ns, "12"), sandbox.LocalQueue(ns, "main", ns))
	return ns
}

// Jobs that ask for a topology start where their admission says: in one rack,
// or by rank over both.
func TestTopology(t *testing.T) {
	ns := racks(t)
	for _, test := range []struct {
		name, annotation, value string
		pods                    int32
		hosts                   map[string]int // pods on each
	}{
		{"required", kueue.PodSetRequiredTopologyAnnotation, rackLabel, 6, map[string]int{"h100-80g-0": 6}},
		{"preferred", kueue.PodSetPreferredTopologyAnnotation, rackLabel, 10, nil},
		{"unconstrained", kueue.PodSetUnconstrainedTopologyAnnotation, "true", 12, map[string]int{"h100-80g-0": 8, "a100-40g-0": 4}},
		{"slices", kueue.PodSetSliceRequiredTopologyConstraintsAnnotation, layers(3, 3), 9, map[string]int{"h100-80g-0": 6, "a100-40g-0": 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			job := sandbox.Job(ns, test.name, "main", test.pods, "1")
			job.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
			job.Spec.Template.Annotations[test.annotation] = test.value
			job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
			cluster.Make(t, job)
			wl := cluster.WorkloadOf(t, job)
			waitReady(t, job)
			if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); err != nil {
				t.Fatal(err)
			}
			assigned := wl.Status.Admission.PodSetAssignments[0].TopologyAssignment
			if assigned == nil || len(assigned.Levels) != 1 || assigned.Levels[0] != corev1.LabelHostname {
				t.Fatalf("the assignment names hosts: %+v", assigned)
			}
			hosts := map[string]int{}
			for _, pod := range podsOf(t, job) {
				hosts[pod.Spec.NodeName]++
				if pod.Spec.NodeSelector[corev1.LabelHostname] != pod.Spec.NodeName {
					t.Errorf("pod %s runs on %s, its admission sends it to %s", pod.Name, pod.Spec.NodeName, pod.Spec.NodeSelector[corev1.LabelHostname])
				}
			}
			for host, want := range test.hosts {
				if hosts[host] != want {
					t.Errorf("pods are on %v, want %d on %s", hosts, want, host)
				}
			}
			// Racks sort by name, and ranks follow them.
			if test.hosts["a100-40g-0"] == 4 {
				for _, pod := range podsOf(t, job) {
					rank, err := strconv.Atoi(pod.Labels[batchv1.JobCompletionIndexAnnotation])
					if err != nil || (rank < 8) != (pod.Spec.NodeName == "h100-80g-0") {
						t.Errorf("pod of rank %d is on %s (%v)", rank, pod.Spec.NodeName, err)
					}
				}
			}
			if err := cluster.Delete(t.Context(), job, client.PropagationPolicy("Background")); err != nil {
				t.Fatal(err)
			}
			waitUsage(t, ns, "0")
		})
	}
	uneven := sandbox.Job(ns, "uneven", "main", 9, "1")
	uneven.Spec.Template.Annotations[kueue.PodSetSliceRequiredTopologyConstraintsAnnotation] = layers(3, 2)
	if err := cluster.Create(t.Context(), uneven); err == nil || !strings.Contains(err.Error(), "must evenly divide the parent layer size 3") {
		t.Errorf("slices that cannot be cut: %v", err)
	}
	job := sandbox.Job(ns, "too-large", "main", 9, "1")
	job.Spec.Template.Annotations[kueue.PodSetRequiredTopologyAnnotation] = rackLabel
	cluster.Make(t, job)
	waitRefusal(t, cluster.WorkloadOf(t, job), "pods fit")
}

// layers asks for slices of pods in one rack, and slices of these on one host.
func layers(inRack, onHost int) string {
	return fmt.Sprintf(`[{"topology":%q,"size":%d},{"topology":%q,"size":%d}]`, rackLabel, inRack, corev1.LabelHostname, onHost)
}

// A plain pod can ask for a topology too.
func TestTopologyOfAPod(t *testing.T) {
	ns := racks(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns, Name: "one", Labels: map[string]string{"kueue.x-k8s.io/queue-name": "main"},
		Annotations: map[string]string{kueue.PodSetRequiredTopologyAnnotation: corev1.LabelHostname, sandbox.RunFor: "0s"},
	}, Spec: sandbox.Job(ns, "", "", 1, "1").Spec.Template.Spec}
	cluster.Make(t, pod)
	if len(pod.Spec.SchedulingGates) != 2 {
		t.Fatalf("the pod waits for quota and for its place: %v", pod.Spec.SchedulingGates)
	}
	waitCondition(t, cluster.WorkloadOf(t, pod), kueue.WorkloadFinished, true)
}

// Where every flavor has a topology, jobs that ask for none are placed in it too.
func TestTopologyOfAJobThatAsksForNone(t *testing.T) {
	ns := racks(t)
	job := sandbox.Job(ns, "plain", "main", 9, "1")
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	cluster.Make(t, job)
	waitReady(t, job)
	wl := cluster.WorkloadOf(t, job)
	if wl.Status.Admission.PodSetAssignments[0].TopologyAssignment == nil {
		t.Errorf("the admission says nothing of places: %+v", wl.Status.Admission)
	}
	for _, pod := range podsOf(t, job) {
		if pod.Spec.NodeSelector[corev1.LabelHostname] != pod.Spec.NodeName {
			t.Errorf("pod %s runs on %s, its admission sends it to %q", pod.Name, pod.Spec.NodeName, pod.Spec.NodeSelector[corev1.LabelHostname])
		}
	}
}

// The places of an admitted workload whose pods are still to come are reserved for it,
// whichever replica leads.
func TestTopologyAfterARestart(t *testing.T) {
	ns := racks(t)
	ask := func(name string, pods int32) *kueue.Workload {
		wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: kueue.WorkloadSpec{
			QueueName: "main",
			PodSets: []kueue.PodSet{{
				Name: "main", Count: pods, TopologyRequest: &kueue.PodSetTopologyRequest{Required: ptr.To(corev1.LabelHostname)},
				Template: corev1.PodTemplateSpec{Spec: sandbox.Job(ns, "", "", 1, "1").Spec.Template.Spec},
			}},
		}}
		sandbox.Eventually(t, "the webhooks are back", func(ctx context.Context) error { return cluster.Create(ctx, wl) })
		return wl // it goes with its namespace
	}
	host := func(wl *kueue.Workload) string {
		waitCondition(t, wl, kueue.WorkloadAdmitted, true)
		if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); err != nil {
			t.Fatal(err)
		}
		return workload.Domains(wl.Status.Admission.PodSetAssignments[0].TopologyAssignment)[0].Values[0]
	}
	if at := host(ask("first", 6)); at != "h100-80g-0" {
		t.Fatalf("six cards are on %s", at)
	}
	if err := syscall.Kill(cluster.Queue(t).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if at := host(ask("second", 4)); at != "a100-40g-0" {
		t.Errorf("the second is on %s, where the first has six of eight cards", at)
	}
	patch(t, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: ns}},
		fmt.Sprintf(`{"spec":{"resourceGroups":[{"coveredResources":[%q],"flavors":[{"name":%q,"resources":[{"name":%q,"nominalQuota":100}]}]}]}}`, sandbox.GPU, ns, sandbox.GPU))
	waitRefusal(t, ask("third", 3), "pods fit")
	if at := host(ask("fourth", 2)); at != "h100-80g-0" {
		t.Errorf("the last two cards are on %s", at)
	}
}

// A pod set without pods has no place in the topology, and is in nobody's way: its workload is
// admitted, and so are others after it.
func TestTopologyOfAPodSetWithoutPods(t *testing.T) {
	ns := racks(t)
	pods := corev1.PodTemplateSpec{Spec: sandbox.Job(ns, "", "", 1, "1").Spec.Template.Spec}
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "empty"}, Spec: kueue.WorkloadSpec{
		QueueName: "main",
		PodSets: []kueue.PodSet{
			{Name: "main", Count: 1, Template: pods, TopologyRequest: &kueue.PodSetTopologyRequest{Required: ptr.To(rackLabel)}},
			{Name: "none", Count: 0, Template: pods, TopologyRequest: &kueue.PodSetTopologyRequest{Required: ptr.To(rackLabel)}},
		},
	}}
	sandbox.Eventually(t, "the webhooks answer", func(ctx context.Context) error { return cluster.Create(ctx, wl) })
	waitCondition(t, wl, kueue.WorkloadAdmitted, true)
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); err != nil {
		t.Fatal(err)
	}
	for _, set := range wl.Status.Admission.PodSetAssignments {
		if (set.TopologyAssignment != nil) != (set.Name == "main") {
			t.Errorf("pod set %s is assigned to %+v", set.Name, set.TopologyAssignment)
		}
	}
	job := sandbox.Job(ns, "after", "main", 1, "1")
	cluster.Make(t, job)
	waitCondition(t, cluster.WorkloadOf(t, job), kueue.WorkloadAdmitted, true)
}

// A node that an admission names is taken out of service: its pods' successors
// go to another one, and what was sent there and cannot start is ended.
func TestTopologyNodeIsLost(t *testing.T) {
	ns := racks(t)
	job := sandbox.Job(ns, "moves", "main", 2, "1")
	job.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	job.Spec.Template.Annotations[kueue.PodSetRequiredTopologyAnnotation] = corev1.LabelHostname
	job.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	cluster.Make(t, job)
	waitReady(t, job)
	wl := cluster.WorkloadOf(t, job)
	host := func() string {
		if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); err != nil {
			t.Fatal(err)
		}
		return workload.Domains(wl.Status.Admission.PodSetAssignments[0].TopologyAssignment)[0].Values[0]
	}
	old := host()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: old}}
	patch(t, node, `{"spec":{"unschedulable":true}}`)
	defer patch(t, node, `{"spec":{"unschedulable":false}}`)
	stray := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns, Name: "stray", Labels: map[string]string{"kueue.x-k8s.io/podset": "main"},
		Annotations: map[string]string{kueue.WorkloadAnnotation: wl.Name},
	}, Spec: sandbox.Job(ns, "", "", 1, "0").Spec.Template.Spec}
	stray.Spec.NodeSelector = map[string]string{corev1.LabelHostname: old}
	cluster.Make(t, stray)
	cluster.AwaitCordon(t, stray)
	for _, pod := range podsOf(t, job) {
		if err := cluster.Delete(t.Context(), &pod); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	sandbox.Eventually(t, "the pods run elsewhere", func(ctx context.Context) error {
		if at := host(); at == old {
			return fmt.Errorf("the admission still says %s", at)
		}
		pods, running := &corev1.PodList{}, 0
		if err := cluster.List(ctx, pods, client.InNamespace(ns), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if pod.Spec.NodeName == host() && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running != 2 {
			return fmt.Errorf("%d of 2 pods run there", running)
		}
		return nil
	})
	if workload.IsEvicted(wl) {
		t.Errorf("it was evicted: %v", wl.Status.Conditions)
	}
	sandbox.Eventually(t, "the stray pod is ended", func(ctx context.Context) error {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(stray), stray)
		if err == nil && stray.Status.Phase != corev1.PodFailed {
			err = fmt.Errorf("it is %s", stray.Status.Phase)
		}
		return err
	})

	// The other node goes too, and there is no third one.
	second := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: host()}}
	patch(t, second, `{"spec":{"unschedulable":true}}`)
	defer patch(t, second, `{"spec":{"unschedulable":false}}`)
	for _, pod := range podsOf(t, job) {
		if err := cluster.Delete(t.Context(), &pod); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	waitReason(t, wl, kueue.WorkloadEvicted, true, kueue.WorkloadEvictedDueToNodeFailures)
}
