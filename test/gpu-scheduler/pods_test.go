package gpuscheduler

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/test/sandbox"
)

const container = egpu.ContainerPrefix + "main"

func podGetsAShareOfACard(t *testing.T) {
	ns := cluster.Namespace(t)
	// The older spelling, on purpose.
	p := pod(ns, "share", "elasticgpu.com/gpu-core", 30, egpu.ResourceMemory, 256)
	cluster.Make(t, p)
	if limits := p.Spec.Containers[0].Resources.Limits; limits.Name(egpu.ResourceCore, "").Value() != 30 {
		t.Fatalf("limits %v: want the spelling that is served", limits)
	}
	running(t, p)
	if p.Labels[egpu.Assumed] != "true" || p.Annotations[egpu.Assumed] != "true" || p.Annotations[container] == "" {
		t.Fatalf("labels %v, annotations %v", p.Labels, p.Annotations)
	}
	second := pod(ns, "second", egpu.ResourceCore, 30)
	cluster.Make(t, second)
	running(t, second)
	if second.Spec.NodeName != p.Spec.NodeName || second.Annotations[container] != p.Annotations[container] {
		t.Errorf("two shares of 30 are on %s/%s and %s/%s: the default policy leaves cards whole",
			p.Spec.NodeName, p.Annotations[container], second.Spec.NodeName, second.Annotations[container])
	}
}

func podGetsWholeCards(t *testing.T) {
	ns := cluster.Namespace(t)
	p := pod(ns, "two", egpu.ResourceCore, 200)
	q := pod(ns, "one", egpu.ResourceWhole, 1)
	cluster.Make(t, p, q)
	running(t, p)
	running(t, q)
	if cards := strings.Split(p.Annotations[container], ","); len(cards) != 2 || cards[0] == cards[1] {
		t.Errorf("cards %q, want two", p.Annotations[container])
	}
	if q.Annotations[container] == "" {
		t.Error("the pod that asked for nvidia.com/gpu does not say which card it has")
	}
}

func nonsenseIsTurnedAway(t *testing.T) {
	ns := cluster.Namespace(t)
	for want, p := range map[string]*corev1.Pod{
		"write 100 or 200":                pod(ns, "odd", egpu.ResourceCore, 150),
		"the largest card here has 81559": pod(ns, "huge", egpu.ResourceMemory, 200_000),
		"more than one way":               pod(ns, "mixed", egpu.ResourceCore, 50, egpu.ResourceWhole, 1),
	} {
		err := cluster.Create(t.Context(), p)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("pod %s: %v, want an error that says %q", p.Name, err, want)
		}
	}
}

// Cards fill up; the last pod waits with a reason and starts when one goes.
func podWaitsForFreeCards(t *testing.T) {
	ns := cluster.Namespace(t)
	h100 := map[string]string{egpu.ModelLabel: "H100-80G"}
	var pods []*corev1.Pod
	for i := range 5 {
		p := pod(ns, fmt.Sprint("p", i), egpu.ResourceCore, 70)
		p.Spec.NodeSelector = h100
		pods = append(pods, p)
		cluster.Make(t, p)
		if i < 4 {
			running(t, p)
		}
	}
	// 5 times 70 is less than the node's 400, and there are four cards.
	if message := unschedulable(t, pods[4]); !strings.Contains(message, "not enough free capacity on cards") {
		t.Fatalf("the reason is %q", message)
	}
	used := map[string]bool{}
	for _, p := range pods[:4] {
		used[p.Annotations[container]] = true
	}
	if len(used) != 4 {
		t.Fatalf("cards %v: want four different ones", used)
	}
	remove(t, pods[0])
	running(t, pods[4])
}

// All cards are taken; a pod with a better right gets one, at the cost of exactly one other.
func importantPodGetsACardOfAnother(t *testing.T) {
	ns := cluster.Namespace(t)
	cluster.Make(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: ns}, Value: 1000})
	h100 := map[string]string{egpu.ModelLabel: "H100-80G"}
	for i := range 4 {
		p := pod(ns, fmt.Sprint("low", i), egpu.ResourceCore, 70)
		p.Spec.NodeSelector = h100
		cluster.Make(t, p)
		running(t, p)
	}
	high := pod(ns, "high", egpu.ResourceCore, 60)
	high.Spec.NodeSelector, high.Spec.PriorityClassName = h100, ns
	cluster.Make(t, high)
	running(t, high)
	pods := &corev1.PodList{}
	if err := cluster.List(t.Context(), pods, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	left := 0
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			left++
		}
	}
	if left != 4 {
		t.Fatalf("%d pods are left: want three of the four, and the important one", left)
	}
}

// One card of the two is sick; a pod that needs both starts when it recovers.
func unhealthyCardIsAvoided(t *testing.T) {
	ns := cluster.Namespace(t)
	const on = "a100-40g-1"
	ail(t, on, "0=fell off the bus")
	waitGPU(t, on+"-0", func(g *egpu.GPU) bool { return g.Status.State == egpu.GPUUnhealthy })
	p := pod(ns, "pinned", egpu.ResourceCore, 50)
	p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: on}
	cluster.Make(t, p)
	running(t, p)
	if p.Annotations[container] != "1" {
		t.Fatalf("it is on card %s, which is unhealthy", p.Annotations[container])
	}
	waitGPU(t, on+"-1", func(g *egpu.GPU) bool {
		allocated := g.Status.Allocated[ns+"/pinned"]
		return len(g.Status.Allocated) == 1 && allocated != nil && allocated.Pod == "pinned" && allocated.Containers[0].Container == "main" &&
			allocated.Containers[0].Resource.Name(egpu.ResourceCore, "").Value() == 50
	})
	remove(t, p)
	waitGPU(t, on+"-1", func(g *egpu.GPU) bool { return len(g.Status.Allocated) == 0 })
	both := pod(ns, "both", egpu.ResourceCore, 200)
	both.Spec.NodeSelector = p.Spec.NodeSelector
	cluster.Make(t, both)
	if message := unschedulable(t, both); !strings.Contains(message, "unhealthy") {
		t.Fatalf("the reason is %q", message)
	}
	// kube-scheduler must hear of the recovery, though it knows no GPU objects.
	ail(t, on, "")
	running(t, both)
}

// ail makes cards of a simulated node fail, or heals them.
func ail(t *testing.T, name, problem string) {
	t.Helper()
	node := &corev1.Node{}
	if err := cluster.Get(t.Context(), client.ObjectKey{Name: name}, node); err != nil {
		t.Fatal(err)
	}
	before := node.DeepCopy()
	node.Annotations["sandbox.elasticai.io/gpu-problem"] = problem
	if problem == "" {
		delete(node.Annotations, "sandbox.elasticai.io/gpu-problem")
	}
	if err := cluster.Patch(t.Context(), node, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

func waitGPU(t *testing.T, name string, is func(*egpu.GPU) bool) {
	t.Helper()
	sandbox.Eventually(t, "GPU "+name, func(ctx context.Context) error {
		g := &egpu.GPU{}
		if err := cluster.Get(ctx, client.ObjectKey{Name: name}, g); err != nil {
			return err
		}
		if !is(g) {
			return fmt.Errorf("status %+v", g.Status)
		}
		return nil
	})
}

// Three of three pods or none: while the third does not fit, the others wait too.
// admitWorkload has the queue admit a workload of so many pods.
func admitWorkload(t *testing.T, ns, name string, count int32, p *corev1.Pod) {
	t.Helper()
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: kueue.WorkloadSpec{
		QueueName: "main",
		PodSets:   []kueue.PodSet{{Name: "main", Count: count, Template: corev1.PodTemplateSpec{Spec: p.Spec}}},
	}}
	cluster.Make(t, sandbox.Flavor(ns, nil), sandbox.ClusterQueue(ns, ns, "10"), sandbox.LocalQueue(ns, "main", ns), wl)
	sandbox.Eventually(t, "workload "+name+" is admitted", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted) {
			return fmt.Errorf("conditions %v", wl.Status.Conditions)
		}
		return nil
	})
}

func podGroupStartsTogether(t *testing.T) {
	ns := cluster.Namespace(t)
	admitWorkload(t, ns, "g", 3, pod(ns, "g", egpu.ResourceWhole, 1))
	blocker := pod(ns, "blocker", egpu.ResourceWhole, 2)
	blocker.Spec.NodeSelector = map[string]string{egpu.ModelLabel: "H100-80G"}
	cluster.Make(t, blocker)
	running(t, blocker)
	var group []*corev1.Pod
	for i := range 3 {
		p := pod(ns, fmt.Sprint("g", i), egpu.ResourceWhole, 1)
		p.Spec.NodeSelector = blocker.Spec.NodeSelector
		p.Labels = map[string]string{"kueue.x-k8s.io/pod-group-name": "g"}
		p.Annotations["kueue.x-k8s.io/pod-group-total-count"] = "3"
		group = append(group, p)
		cluster.Make(t, p)
	}
	for _, p := range group {
		if message := unschedulable(t, p); !strings.Contains(message, "2 of 3 pods fit") {
			t.Fatalf("the reason is %q", message)
		}
	}
	remove(t, blocker)
	for _, p := range group {
		running(t, p)
	}
}
