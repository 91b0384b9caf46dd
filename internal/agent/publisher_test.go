package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
)

// cards is a source that says what it holds.
type cards []discovery.Card

func (c cards) Cards(context.Context, *corev1.Node) ([]discovery.Card, error) {
	if c == nil {
		return nil, errors.New("the driver does not answer")
	}
	return c, nil
}
func (cards) Serves(*corev1.Node) bool { return true }

func (cards) Processes(context.Context, string) ([]discovery.Process, error) { return nil, nil }

// node with two cards, of which one is sick; slots is what the kubelet says it has of the device plugin.
func publish(t *testing.T, slots string, pods ...client.Object) (gpus []egpu.GPU, node *corev1.Node) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, egpu.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	node.Status.Allocatable = corev1.ResourceList{egpu.ResourceClaim: resource.MustParse(slots)}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&egpu.GPU{}, &corev1.Node{}).WithObjects(node).WithObjects(pods...).
		WithIndex(&egpu.GPU{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*egpu.GPU).Spec.NodeName} }).Build()
	p := &agent.Publisher{
		Client:   c,
		Source:   cards{{Index: 0, UUID: "a", MemoryMB: 40960}, {Index: 1, UUID: "b", MemoryMB: 40960, Problem: "fell off the bus"}},
		Capacity: func(all []discovery.Card) corev1.ResourceList { return agent.Capacity(all, true) },
	}
	for range 2 { // the second time there is nothing to do
		if _, err := p.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(node)}); err != nil {
			t.Fatal(err)
		}
	}
	list := &egpu.GPUList{}
	if err := errors.Join(c.List(t.Context(), list), c.Get(t.Context(), client.ObjectKeyFromObject(node), node)); err != nil {
		t.Fatal(err)
	}
	return list.Items, node
}

func TestNodeOffersTheCardsThatAreWell(t *testing.T) {
	gpus, node := publish(t, "1024")
	if len(gpus) != 2 || gpus[0].Status.State != egpu.GPUReady || gpus[1].Status.State != egpu.GPUUnhealthy || gpus[1].Status.Message != "fell off the bus" {
		t.Fatalf("GPUs %+v", gpus)
	}
	for name, want := range map[corev1.ResourceName]int64{
		egpu.ResourceCore: 100, egpu.ResourceMemory: 40960, egpu.ResourceWhole: 1, egpu.ResourceQGPUCore: 100, egpu.ResourceQGPUMemory: 40, egpu.ResourceClaim: 1024,
	} {
		if got := node.Status.Allocatable.Name(name, resource.DecimalSI).Value(); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

// outPod has some of a card of the node, and is swapped out.
func outPod(name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Annotations: map[string]string{egpu.SwapAnnotation: egpu.SwapOut}}}
	p.Spec.NodeName = "n"
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		egpu.ResourceCore: resource.MustParse("30"), egpu.ResourceMemory: resource.MustParse("1000"), corev1.ResourceCPU: resource.MustParse("1"),
	}}}}
	p.Status.Conditions = []corev1.PodCondition{{Type: egpu.SwappedOut, Status: corev1.ConditionTrue, Reason: egpu.ReasonMovedOut}}
	return p
}

// What a pod has that is swapped out is offered to others, until it is to come back.
func TestNodeOffersWhatIsSwappedOut(t *testing.T) {
	coming, elsewhere := outPod("coming"), outPod("elsewhere")
	coming.Annotations[egpu.SwapAnnotation] = egpu.SwapIn
	elsewhere.Spec.NodeName = "another"
	for slots, want := range map[string][2]int64{"1024": {130, 41960}, "0": {0, 0}} {
		_, node := publish(t, slots, outPod("out"), coming, elsewhere)
		core, memory := node.Status.Allocatable.Name(egpu.ResourceCore, resource.DecimalSI).Value(), node.Status.Allocatable.Name(egpu.ResourceMemory, resource.DecimalSI).Value()
		if core != want[0] || memory != want[1] {
			t.Errorf("with %s slots: %d percent, %d MiB, want %v", slots, core, memory, want)
		}
		if cpu := node.Status.Allocatable.Cpu(); !cpu.IsZero() {
			t.Errorf("%s of cpu is offered", cpu)
		}
	}
}

// A card fails; the pod that has it gets an event, and another when the card is well.
func TestPodsGetEventsOfTheirCard(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, egpu.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&egpu.GPU{}).WithObjects(node, pod).
		WithIndex(&egpu.GPU{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*egpu.GPU).Spec.NodeName} }).Build()
	recorder := events.NewFakeRecorder(10)
	publisher := &agent.Publisher{Client: c, Events: recorder}
	for _, problem := range []string{"", "fell off the bus", "fell off the bus", ""} {
		publisher.Source = cards{{Index: 0, UUID: "a", Problem: problem}}
		if _, err := publisher.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(node)}); err != nil {
			t.Fatal(err)
		}
		gpu := &egpu.GPU{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "n-0"}, gpu); err != nil {
			t.Fatal(err)
		}
		gpu.Status.Allocated = map[string]*egpu.PodResource{"team/train": {Namespace: "team", Pod: "train"}}
		if err := c.Status().Update(t.Context(), gpu); err != nil {
			t.Fatal(err)
		}
	}
	close(recorder.Events)
	var reported []string
	for e := range recorder.Events {
		reported = append(reported, e)
	}
	// Each once for the card and once for its pod.
	if len(reported) != 4 || !strings.Contains(reported[1], "fell off the bus") || !strings.Contains(reported[3], "well again") {
		t.Fatalf("events %q", reported)
	}
}

// Before the kubelet knows the device plugin, it would start containers without their cards.
func TestNothingIsOfferedBeforeTheKubeletAsksUs(t *testing.T) {
	gpus, node := publish(t, "0")
	for _, g := range gpus {
		if g.Status.State != egpu.GPUUnhealthy || g.Status.Message == "" {
			t.Errorf("GPU %s: %+v", g.Name, g.Status)
		}
	}
	if core := node.Status.Allocatable.Name(egpu.ResourceCore, resource.DecimalSI); !core.IsZero() {
		t.Errorf("the node offers %s", core)
	}
}

// What runs on a card is written when it changes, and not for every megabyte.
func TestProcessesAreWrittenWhenTheyChange(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, egpu.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&egpu.GPU{}).WithObjects(node).
		WithIndex(&egpu.GPU{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*egpu.GPU).Spec.NodeName} }).Build()
	var runs []egpu.GPUProcess
	p := &agent.Publisher{Client: c, Source: cards{{Index: 0, UUID: "a", MemoryMB: 1000}}, Processes: func(string) []egpu.GPUProcess { return runs }}
	gpu := &egpu.GPU{}
	written := ""
	for _, step := range []struct {
		runs   []egpu.GPUProcess
		writes bool
	}{
		{nil, true}, {nil, false},
		{[]egpu.GPUProcess{{PID: 1, Memory: 500}}, true},
		{[]egpu.GPUProcess{{PID: 1, Memory: 560}}, false},
		{[]egpu.GPUProcess{{PID: 1, Memory: 700}}, true},
		{[]egpu.GPUProcess{{PID: 1, Memory: 699, Swapped: 1}}, true},
		{[]egpu.GPUProcess{{PID: 1, Swapped: 1 << 40}}, true},
		{[]egpu.GPUProcess{{PID: 2, Swapped: 1 << 40}}, true},
		{nil, true},
	} {
		runs = step.runs
		if _, err := p.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(node)}); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "n-0"}, gpu); err != nil {
			t.Fatal(err)
		}
		if wrote := gpu.ResourceVersion != written; wrote != step.writes || len(gpu.Status.Processes) != len(step.runs) {
			t.Errorf("%+v: written %v, and there is %+v", step.runs, wrote, gpu.Status.Processes)
		}
		for _, process := range gpu.Status.Processes {
			if process.Swapped > 1000 {
				t.Errorf("a process says that it has %d MiB of a card of 1000", process.Swapped)
			}
		}
		written = gpu.ResourceVersion
	}
}
