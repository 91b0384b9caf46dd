package world

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// cards asked for by a pod.
func cards(n int64) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{egpu.ResourceWhole: *resource.NewQuantity(n, resource.DecimalSI)},
	}}}}
}

// liveCluster has two nodes of 8 cards, and a queue for all of them that preempts lower priorities. A workload of two pods
// of 4 cards runs on n1 for ten minutes, and a pod of no queue has 2 cards of n2.
func liveCluster(strategy kueue.QueueingStrategy) []client.Object {
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "f"}}
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
	cq.Spec = kueue.ClusterQueueSpec{
		NamespaceSelector: &metav1.LabelSelector{}, QueueingStrategy: strategy,
		Preemption: &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority},
		ResourceGroups: []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{egpu.ResourceWhole}, Flavors: []kueue.FlavorQuotas{{
			Name: "f", Resources: []kueue.ResourceQuota{{Name: egpu.ResourceWhole, NominalQuota: resource.MustParse("16")}},
		}}}},
	}
	objects := []client.Object{flavor, cq}
	for _, name := range []string{"n1", "n2"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		node.Status.Allocatable = corev1.ResourceList{egpu.ResourceWhole: resource.MustParse("8")}
		objects = append(objects, node)
	}
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "train", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
	wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "job", Controller: ptr.To(true)}}
	wl.Spec.QueueName, wl.Spec.Active = "lq", ptr.To(true)
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 2, Template: corev1.PodTemplateSpec{Spec: cards(4)}}}
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "q", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: ptr.To(int32(2)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{egpu.ResourceWhole: "f"},
		ResourceUsage: corev1.ResourceList{egpu.ResourceWhole: resource.MustParse("8")},
	}}}
	for _, condition := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-10 * time.Minute))})
	}
	objects = append(objects, wl)
	for i := range 2 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("train-", i)}, Spec: cards(4)}
		pod.OwnerReferences = wl.OwnerReferences
		pod.Spec.NodeName = "n1"
		objects = append(objects, pod)
	}
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other"}, Spec: cards(2)}
	other.Spec.NodeName = "n2"
	ended := other.DeepCopy()
	ended.Name, ended.Status.Phase = "ended", corev1.PodSucceeded
	return append(objects, other, ended)
}

func fromLive(t *testing.T, strategy kueue.QueueingStrategy) *Cluster {
	t.Helper()
	c, err := FromObjects(liveCluster(strategy), admission.Options{}, now)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Running) != 1 || len(c.Pods) != 1 || c.Running[0].Cards != 8 {
		t.Fatalf("running %+v, pods %d", c.Running, len(c.Pods))
	}
	return c
}

// What runs now has its quota and its nodes, goes on as long again as it has run, and is not counted among the jobs.
func TestWhatRunsNow(t *testing.T) {
	c := fromLive(t, kueue.BestEffortFIFO)
	jobs := trace(t, "a,,q,0,100,6,,,\nb,,q,0,100,8,,,\n")
	for left, want := range map[int64]string{0: "a 0-100, b 600-700", 40: "a 0-100, b 40-140"} {
		w, r := simulate(t, jobs.With(c, Lengths{Running: left}), c, Settings{})
		if got := starts(w); got != "ns/train -600-"+fmt.Sprint(max(left, 600*(1-min(left, 1))))+", "+want {
			t.Errorf("%d s left: got %s, want %s", left, got, want)
		}
		if r.Jobs != 2 || r.Ended != 2 || r.Found != 1 || r.JCT.Max != map[int64]float64{0: 700, 40: 140}[left] {
			t.Errorf("%d s left: %+v", left, r)
		}
	}
	if w, _ := simulate(t, jobs, &Cluster{Cards: c.Cards, Flavors: c.Flavors, Queues: c.Queues, Nodes: c.Nodes}, Settings{}); starts(w) != "a 0-100, b 0-100" {
		t.Errorf("empty: %s", starts(w))
	}
}

// What runs now is preempted as any other, and comes back.
func TestWhatRunsNowIsEvicted(t *testing.T) {
	c := fromLive(t, kueue.BestEffortFIFO)
	jobs := trace(t, "a,,q,5,100,8,,,\nz,,q,500,1,1,,,\n")
	jobs.Jobs[0].Priority = 1
	w, r := simulate(t, jobs.With(c, Lengths{Running: 300}), c, Settings{Restart: Restart{OneNode: 7}})
	if got, want := starts(w), "ns/train -595-412, a 5-105, z 500-501"; got != want || r.Preemptions != 1 {
		t.Errorf("got %s, want %s; %d preemptions", got, want, r.Preemptions)
	}
}

// waitingWorkload asks for cards of queue lq, of two pods, and was created so long ago.
func waitingWorkload(name string, cardsOfPod int64, age time.Duration) *kueue.Workload {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now.Add(-age))}}
	wl.Spec.QueueName = "lq"
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 2, Template: corev1.PodTemplateSpec{Spec: cards(cardsOfPod)}}}
	return wl
}

// What waits now comes before the jobs of the trace, by its age, and is not counted among them. What nobody lets start, what
// has ended and what is in no queue of the cluster is left out; what is being evicted waits, and its pods go with it.
func TestWhatWaitsNow(t *testing.T) {
	held, ended, elsewhere := waitingWorkload("held", 1, time.Hour), waitingWorkload("ended", 1, time.Hour), waitingWorkload("elsewhere", 1, time.Hour)
	held.Spec.Active = ptr.To(false)
	ended.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue}}
	elsewhere.Spec.QueueName = "nowhere"
	limited := waitingWorkload("limited", 3, 5*time.Minute)
	limited.Spec.MaximumExecutionTimeSeconds = ptr.To(int32(70))
	variant := workload.NewVariant(waitingWorkload("held", 1, time.Hour), "f") // whose parent is one of them
	objects := append(liveCluster(kueue.StrictFIFO), held, ended, elsewhere, variant, waitingWorkload("older", 3, 20*time.Minute), limited,
		&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "lq"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "q"}})
	c, err := FromObjects(objects, admission.Options{}, now)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Running) != 1 || len(c.Waiting) != 2 || c.Waiting[0].ID != "ns/older" || c.Waiting[1].Cards != 6 {
		t.Fatalf("waiting %+v", c.Waiting)
	}
	jobs := trace(t, "a,,q,0,100,6,,,\nb,,q,10,50,6,,,\n") // 75 s on average
	for left, want := range map[Lengths]string{
		{Running: 40}:              "ns/older 0-75, ns/limited 40-110, a 75-175, b 110-160",
		{Running: 40, Waiting: 30}: "ns/older 0-30, ns/limited 30-60, a 40-140, b 60-110",
	} {
		w, r := simulate(t, jobs.With(c, left), c, Settings{})
		if got := starts(w); got != "ns/train -600-40, "+want {
			t.Errorf("%+v: got %s, want %s", left, got, want)
		}
		if r.Jobs != 2 || r.Ended != 2 || r.Found != 1 || r.FoundWaiting != 2 {
			t.Errorf("%+v: %+v", left, r)
		}
	}
	for _, obj := range objects {
		if wl, ok := obj.(*kueue.Workload); ok && wl.Name == "train" {
			wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: kueue.WorkloadEvictedByPreemption, LastTransitionTime: metav1.NewTime(now)})
		}
	}
	if c, err = FromObjects(objects, admission.Options{}, now); err != nil || len(c.Running) != 0 || len(c.Waiting) != 3 || c.Waiting[0].ID != "ns/train" || len(c.Pods) != 1 {
		t.Errorf("waiting %+v, %d pods, %v", c.Waiting, len(c.Pods), err)
	}
}

// Cards that pods in no queue have are used, and nodes on which they are are used in part.
func TestCardsOfPodsInNoQueueAreUsed(t *testing.T) {
	c := fromLive(t, kueue.BestEffortFIFO)
	c.Running, c.Waiting = nil, nil
	w, r := simulate(t, trace(t, "a,,q,0,100,6,,,\nb,,q,0,100,8,,,\nc,,q,0,100,8,,,\n"), c, Settings{})
	if got := starts(w); got != "a 0-100, b 0-100, c 100-200" {
		t.Fatal(got)
	}
	// 2 of 16 cards for 200 s, 14 for 100 s and 8 for 100 s; 6 are free for 100 s beside the pod, while nobody waits.
	if want := (2*200 + 14*100 + 8*100.0) / (16 * 200); r.CardsUsed != want || r.Samples[0].Used != 16 || r.Fragmented != 0 {
		t.Errorf("used %v, want %v; %+v, fragmented %v", r.CardsUsed, want, r.Samples[0], r.Fragmented)
	}
}

// Nodes on which elastic-queue counts no cards are left out, and told.
func TestNodesThatAreNotUsable(t *testing.T) {
	for name, change := range map[string]func(*corev1.Node){
		"cordoned":  func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"not ready": func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown },
		"unknown":   func(n *corev1.Node) { n.Status.Conditions = nil },
		"leaving":   func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: now} },
	} {
		objects := liveCluster(kueue.BestEffortFIFO)
		for _, o := range objects {
			if n, is := o.(*corev1.Node); is && n.Name == "n2" {
				change(n)
			}
		}
		c, err := FromObjects(objects, admission.Options{}, now)
		if err != nil || c.TotalCards() != 8 || len(c.notes) != 1 || c.notes[0] != "1 node is left out, as no pod can start there now: n2" {
			t.Errorf("%s: %d cards, %q, %v", name, c.TotalCards(), c.notes, err)
		}
	}
}
