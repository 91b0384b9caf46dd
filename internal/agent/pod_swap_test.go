package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
	"github.com/elastic-ai/elastic/internal/panics"
)

// shares that move, or refuse to.
type shares struct {
	out     map[string]bool
	refused error
	silent  error               // of some that do not answer when they are brought back
	onCard  []discovery.Process // as the driver sees it
	rests   int64               // what is in use on the card of what is out, by nobody (MiB)
}

func (s *shares) processes(_ context.Context, uid types.UID, uuid string) ([]discovery.Process, error) {
	if uid != "uid-3" && uid != "uid" || uuid != conformance.Card(0).UUID {
		return nil, fmt.Errorf("asked for pod %s on card %s", uid, uuid)
	}
	return s.onCard, nil
}

func (s *shares) unexplained(context.Context, string) (int64, error) {
	if len(s.out) > 0 {
		return 300 + s.rests, nil
	}
	return 300, nil
}

func (s *shares) Out(_ context.Context, of *share.Share) (int64, error) {
	id := of.ID
	if s.refused != nil {
		return 0, s.refused
	}
	if s.out[id] {
		return 0, nil
	}
	s.out[id] = true
	return 512 << 20, nil
}

func (s *shares) In(_ context.Context, of *share.Share) (int64, error) {
	delete(s.out, of.ID)
	return 512 << 20, s.silent
}

func TestPodIsMovedWhenItIsSaid(t *testing.T) {
	grant := slots.Grant{Backend: "gpushare", Share: *conformance.Subject{}.Share("3", 0)}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: grant.Pod.Namespace, Name: grant.Pod.Name, UID: grant.UID}}
	c := fake.NewClientBuilder().WithObjects(pod).WithStatusSubresource(pod).Build()
	moves := &shares{out: map[string]bool{}}
	swapper := &agent.Swapper{Client: c, Shares: moves, OnCard: moves.processes, Unexplained: moves.unexplained, Grants: func() ([]slots.Grant, error) { return []slots.Grant{grant}, nil }}
	// say sets the annotation and returns what the pod's condition says then.
	say := func(word string) corev1.PodCondition {
		t.Helper()
		now := &corev1.Pod{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), now); err != nil {
			t.Fatal(err)
		}
		now.Annotations = map[string]string{egpu.SwapAnnotation: word}
		if err := c.Update(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		if _, err := swapper.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)}); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), now); err != nil {
			t.Fatal(err)
		}
		if len(now.Status.Conditions) != 1 || now.Status.Conditions[0].Type != egpu.SwappedOut {
			t.Fatalf("conditions %v", now.Status.Conditions)
		}
		return now.Status.Conditions[0]
	}
	if got := say("out"); got.Status != corev1.ConditionTrue || !moves.out["3"] || !strings.Contains(got.Message, "512 MiB") {
		t.Fatalf("out: %+v", got)
	}
	if got := say("out"); !strings.Contains(got.Message, "512 MiB") {
		t.Fatalf("out, and nothing new there: %+v", got)
	}
	if got := say("in"); got.Status != corev1.ConditionFalse || moves.out["3"] || got.Reason != "MovedIn" {
		t.Fatalf("in: %+v", got)
	}
	// What its processes say frees nothing while the driver sees them on the card.
	for _, forged := range []struct {
		onCard []discovery.Process
		words  string
	}{
		{[]discovery.Process{{PID: 7, MemoryMB: 524}, {PID: 8, MemoryMB: 30000}}, "30000 MiB of process 8"},
		{slices.Repeat([]discovery.Process{{PID: 7, MemoryMB: 524}}, 3), "1572 MiB of 3 processes"},
	} {
		moves.onCard = forged.onCard
		if got := say("out"); got.Status != corev1.ConditionFalse || got.Reason != egpu.ReasonCannotMoveOut || !strings.Contains(got.Message, forged.words) || moves.out["3"] {
			t.Fatalf("forged: %+v, out %v", got, moves.out)
		}
	}
	moves.onCard, moves.rests = nil, 20000 // a descriptor holds on to it
	if got := say("out"); got.Status != corev1.ConditionFalse || !strings.Contains(got.Message, "20000 MiB more are in use") || moves.out["3"] {
		t.Fatalf("held on to: %+v, out %v", got, moves.out)
	}
	moves.rests = 500
	moves.onCard = []discovery.Process{{PID: 7, MemoryMB: 524}} // its context stays
	if got := say("out"); got.Status != corev1.ConditionTrue {
		t.Fatalf("out: %+v", got)
	}
	moves.onCard[0].MemoryMB = 20000
	if got := say("out"); got.Status != corev1.ConditionFalse || got.Reason != egpu.ReasonCannotMoveOut {
		t.Fatalf("it was out and took the card again: %+v", got)
	}
	moves.onCard = nil
	if got := say("in"); got.Reason != egpu.ReasonMovedIn {
		t.Fatalf("in: %+v", got)
	}
	moves.refused = errors.New("it has a memory pool")
	if got := say("out"); got.Status != corev1.ConditionFalse || got.Reason != "CannotMoveOut" || !strings.Contains(got.Message, "memory pool") {
		t.Fatalf("refused: %+v", got)
	}
	if got := say("sideways"); got.Reason != "CannotMoveOut" || !strings.Contains(got.Message, "write out or in") {
		t.Fatalf("nonsense: %+v", got)
	}
	grant.Backend = "mig"
	if got := say("out"); got.Reason != "CannotMoveOut" || !strings.Contains(got.Message, "by mig") {
		t.Fatalf("another backend: %+v", got)
	}
}

// A process that does not answer when its pod is brought back waits for its memory: it is asked again until it has it.
func TestWhoDoesNotAnswerIsAskedAgain(t *testing.T) {
	grant := slots.Grant{Backend: "gpushare", Share: *conformance.Subject{}.Share("3", 0)}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: grant.Pod.Namespace, Name: grant.Pod.Name, UID: grant.UID, Annotations: map[string]string{egpu.SwapAnnotation: egpu.SwapIn},
	}}
	c := fake.NewClientBuilder().WithObjects(pod).WithStatusSubresource(pod).Build()
	moves := &shares{out: map[string]bool{"3": true}, silent: fmt.Errorf("1 of 2 processes: %w", gpushare.ErrUnanswered)}
	swapper := &agent.Swapper{Client: c, Shares: moves, OnCard: moves.processes, Grants: func() ([]slots.Grant, error) { return []slots.Grant{grant}, nil }}
	for _, silent := range []bool{true, false} {
		result, err := swapper.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		said := egpu.SwapCondition(pod)
		if said == nil || said.Reason != egpu.ReasonMovedIn || strings.Contains(said.Message, "1 of 2 processes") != silent || (result.RequeueAfter > 0) != silent {
			t.Errorf("silent %t: %+v, looked at again after %s", silent, said, result.RequeueAfter)
		}
		moves.silent = nil
	}
}

// A defect concerns the one pod: it stays where it is and says why, the others move.
func TestDefectConcernsOnePod(t *testing.T) {
	grants := []slots.Grant{{Backend: "gpushare", Share: *conformance.Subject{}.Share("3", 0)}, {Backend: "gpushare", Share: *conformance.Subject{}.Share("4", 0)}}
	var pods []client.Object
	for _, g := range grants {
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: g.Pod.Namespace, Name: g.Pod.Name, UID: g.UID, Annotations: map[string]string{egpu.SwapAnnotation: egpu.SwapOut},
		}})
	}
	c := fake.NewClientBuilder().WithObjects(pods...).WithStatusSubresource(pods...).Build()
	recorder := events.NewFakeRecorder(10)
	moves := &shares{out: map[string]bool{}}
	swapper := &agent.Swapper{
		Client: c, Shares: moves, Events: recorder, Grants: func() ([]slots.Grant, error) { return slices.Clone(grants), nil },
		OnCard: func(_ context.Context, uid types.UID, _ string) ([]discovery.Process, error) {
			if uid == "uid-3" {
				panic("no such thing")
			}
			return nil, nil
		},
	}
	before := testutil.ToFloat64(panics.Total.WithLabelValues("swap"))
	for i, want := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue} {
		key := client.ObjectKeyFromObject(pods[i])
		if _, err := swapper.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
		now := &corev1.Pod{}
		if err := c.Get(t.Context(), key, now); err != nil {
			t.Fatal(err)
		}
		if got := now.Status.Conditions; len(got) != 1 || got[0].Status != want || strings.Contains(got[0].Message, "no such thing") != (i == 0) {
			t.Errorf("pod %s: %+v", key, got)
		}
	}
	if n := testutil.ToFloat64(panics.Total.WithLabelValues("swap")) - before; n != 1 {
		t.Errorf("%g defects counted", n)
	}
	if said := <-recorder.Events; !strings.Contains(said, "SetAside") || !strings.Contains(said, "no such thing") {
		t.Errorf("the event says %q", said)
	}
}

// A pod that asked for its share itself comes back when the scheduler has allocated its card again, and no other
// pod has taken what it had.
func TestPodComesBackWhereThereIsCapacity(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, egpu.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	pod := outPod("back")
	pod.UID, pod.Annotations[egpu.SwapAnnotation] = "uid", egpu.SwapIn
	grant := slots.Grant{Backend: "gpushare", Share: *conformance.Subject{}.Share("3", 0)}
	grant.UID = pod.UID
	gpu := &egpu.GPU{ObjectMeta: metav1.ObjectMeta{Name: "n-0"}, Spec: egpu.GPUSpec{NodeName: "n", Memory: 40960}}
	goes := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "goes", UID: "goes", Finalizers: []string{"a.test/stays"}}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pod, gpu, goes).WithStatusSubresource(pod, gpu).Build()
	if err := c.Delete(t.Context(), goes); err != nil {
		t.Fatal(err)
	}
	moves := &shares{out: map[string]bool{"3": true}}
	swapper := &agent.Swapper{Client: c, Shares: moves, OnCard: moves.processes, Grants: func() ([]slots.Grant, error) { return []slots.Grant{grant}, nil }}
	holds := func(percent int64) *egpu.PodResource {
		return &egpu.PodResource{UID: "uid", Containers: []egpu.ContainerResource{{Container: "main", Resource: corev1.ResourceList{
			egpu.ResourceCore: *resource.NewQuantity(percent, resource.DecimalSI), egpu.ResourceMemory: resource.MustParse("1000"),
		}}}}
	}
	of := func(name string, percent int64) *egpu.PodResource {
		r := holds(percent)
		r.Namespace, r.Pod, r.UID = "team", name, types.UID(name)
		return r
	}
	for _, step := range []struct {
		what      string
		allocated map[string]*egpu.PodResource
		out       bool
		reason    string
	}{
		{"one that goes is recorded, and one that is gone", map[string]*egpu.PodResource{"team/goes": of("goes", 80), "team/gone": of("gone", 20), "team/back": holds(30)}, true, egpu.ReasonMovedOut},
		{"the scheduler does not know", map[string]*egpu.PodResource{"team/other": holds(70)}, true, egpu.ReasonMovedOut},
		{"others have taken its place", map[string]*egpu.PodResource{"team/other": holds(80), "team/back": holds(30)}, true, egpu.ReasonCannotMoveIn},
		{"there is capacity", map[string]*egpu.PodResource{"team/other": holds(70), "team/back": holds(30)}, false, egpu.ReasonMovedIn},
	} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(gpu), gpu); err != nil {
			t.Fatal(err)
		}
		gpu.Status.Allocated = step.allocated
		if err := c.Status().Update(t.Context(), gpu); err != nil {
			t.Fatal(err)
		}
		if _, err := swapper.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)}); err != nil {
			t.Fatal(err)
		}
		now := &corev1.Pod{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), now); err != nil {
			t.Fatal(err)
		}
		condition := now.Status.Conditions[0]
		if moves.out["3"] != step.out || condition.Reason != step.reason || (condition.Status == corev1.ConditionTrue) != step.out {
			t.Errorf("%s: out %v, %+v", step.what, moves.out["3"], condition)
		}
	}
}
