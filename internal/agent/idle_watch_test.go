package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
)

// idling is a notebook whose class gives it ten minutes.
type idling struct {
	client    client.Client
	watch     *agent.IdleWatch
	moves     *shares
	processes []gpushare.Process
	now       time.Time
	events    *events.FakeRecorder
	pod       *corev1.Pod
}

func newIdling(t *testing.T) *idling {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, egpu.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	grant := slots.Grant{Backend: "gpushare", Share: *conformance.Subject{}.Share("3", 0)}
	grant.Device, grant.Parameters = "d", map[string]string{"idle": "10m"}
	i := &idling{now: time.Unix(1e9, 0), moves: &shares{out: map[string]bool{}}, events: events.NewFakeRecorder(100)}
	i.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: grant.Pod.Namespace, Name: grant.Pod.Name, UID: grant.UID}}
	i.pod.Spec.NodeName, i.pod.Status.Phase = "n", corev1.PodRunning
	gpu := &egpu.GPU{ObjectMeta: metav1.ObjectMeta{Name: "n-0"}, Spec: egpu.GPUSpec{NodeName: "n", Memory: 40960}}
	i.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(i.pod, gpu).WithStatusSubresource(i.pod, gpu).Build()
	i.record(t, map[string]int64{egpu.DeviceNamespace + "/d": 60})
	i.watch = &agent.IdleWatch{
		Log: logr.Discard(), Now: func() time.Time { return i.now },
		Processes: func(context.Context, *share.Share) ([]gpushare.Process, error) {
			for j := range i.processes {
				i.processes[j].Out = i.moves.out["3"] && i.processes[j].PID != late
			}
			return i.processes, nil
		},
		Swapper: &agent.Swapper{
			Client: i.client, Shares: i.moves, OnCard: i.moves.processes, Events: i.events,
			Grants: func() ([]slots.Grant, error) { return []slots.Grant{grant}, nil },
		},
	}
	i.uses(0)
	return i
}

// record of the card, in percent.
func (i *idling) record(t *testing.T, percent map[string]int64) {
	t.Helper()
	gpu := &egpu.GPU{}
	if err := i.client.Get(t.Context(), client.ObjectKey{Name: "n-0"}, gpu); err != nil {
		t.Fatal(err)
	}
	gpu.Status.Allocated = map[string]*egpu.PodResource{}
	for who, much := range percent {
		gpu.Status.Allocated[who] = &egpu.PodResource{Containers: []egpu.ContainerResource{{Resource: corev1.ResourceList{
			egpu.ResourceCore: *resource.NewQuantity(much, resource.DecimalSI),
		}}}}
	}
	if err := i.client.Status().Update(t.Context(), gpu); err != nil {
		t.Fatal(err)
	}
}

// uses says that the notebook's process has been idle for so long.
func (i *idling) uses(idle time.Duration) {
	i.processes = []gpushare.Process{{PID: 7, Age: time.Hour, IdleNS: int64(idle), Devices: []gpushare.Device{{Held: 1 << 30}}}}
}

// look, and what the pod's condition says then: status and reason.
func (i *idling) look(t *testing.T) string {
	t.Helper()
	done, err := i.watch.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done()
	if err := i.client.Get(t.Context(), client.ObjectKeyFromObject(i.pod), i.pod); err != nil {
		t.Fatal(err)
	}
	c := egpu.SwapCondition(i.pod)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

func (i *idling) want(t *testing.T, what, condition string, out bool) {
	t.Helper()
	if got := i.look(t); got != condition || i.moves.out["3"] != out {
		t.Fatalf("%s: condition %q, out %v; want %q, %v", what, got, i.moves.out["3"], condition, out)
	}
}

func TestIdleNotebookLeavesItsCardAndComesBack(t *testing.T) {
	i := newIdling(t)
	i.want(t, "busy", "", false)
	i.uses(9 * time.Minute)
	i.want(t, "not for long enough", "", false)
	i.uses(11 * time.Minute)
	i.processes = append(i.processes, gpushare.Process{PID: 8, Age: time.Hour})
	i.want(t, "one of its processes works", "", false)
	i.processes[1] = gpushare.Process{Silent: true}
	i.want(t, "one of its processes does not answer", "", false)
	i.uses(11 * time.Minute)
	i.processes[0].Age = time.Minute
	i.want(t, "it says that it was idle before it was there", "", false)
	i.uses(11 * time.Minute)
	i.want(t, "idle", "True Idle", true)
	if !egpu.HasLeftCards(i.pod) {
		t.Error("its cards are not free for others")
	}
	if said := <-i.events.Events; !strings.Contains(said, "SwappedOut") || !strings.Contains(said, "512 MiB") || !strings.Contains(said, "10m") {
		t.Errorf("the event says %q", said)
	}
	i.want(t, "still idle", "True Idle", true)
	i.processes[0].Wanted = true
	i.record(t, map[string]int64{egpu.DeviceNamespace + "/d": 60, "team/other": 70})
	i.want(t, "it wants to work, and another has its place", "True Returning", true)
	if egpu.HasLeftCards(i.pod) {
		t.Error("its cards are given to yet others")
	}
	i.want(t, "and still", "True Returning", true)
	i.record(t, map[string]int64{egpu.DeviceNamespace + "/d": 60})
	i.want(t, "there is capacity", "False MovedIn", false)
	if said := <-i.events.Events; !strings.Contains(said, "SwappedIn") {
		t.Errorf("the event says %q", said)
	}
}

// One that says at once that it is idle and that it wants to work is moved no more often than its class says.
func TestLiarIsNotMovedAllTheTime(t *testing.T) {
	i := newIdling(t)
	i.uses(11 * time.Minute)
	i.processes[0].Wanted = true
	i.want(t, "out", "True Idle", true)
	i.want(t, "and in", "False MovedIn", false)
	i.want(t, "it stays", "False MovedIn", false)
	i.now = i.now.Add(11 * time.Minute)
	i.want(t, "until its time is over", "True Idle", true)
}

// late is a process that comes when the others have left the card.
const late = 9

// A pod that has left its cards and uses them again has them: the driver sees it whatever its processes say, and a process
// that comes later is brought together with the others.
func TestAwayAndThereAllTheSame(t *testing.T) {
	for what, processes := range map[string][]gpushare.Process{
		"it says nothing of it": {{PID: 7, Age: time.Hour, IdleNS: int64(time.Hour)}}, "it does not answer": {{PID: 7, Silent: true}}, "it is gone": nil,
	} {
		i := newIdling(t)
		i.uses(11 * time.Minute)
		i.want(t, "idle", "True Idle", true)
		i.processes, i.moves.onCard = processes, []discovery.Process{{PID: 7, MemoryMB: 20000}}
		i.want(t, what, "False CannotMoveOut", false)
		if c := egpu.SwapCondition(i.pod); egpu.HasLeftCards(i.pod) || !strings.Contains(c.Message, "20000 MiB") {
			t.Errorf("%s: it says %q", what, c.Message)
		}
		i.moves.onCard = nil
		i.uses(11 * time.Minute)
		i.want(t, what+", and is idle again at once", "False CannotMoveOut", false)
	}
	i := newIdling(t)
	i.uses(11 * time.Minute)
	i.want(t, "idle", "True Idle", true)
	i.processes = append(i.processes, gpushare.Process{PID: late, Age: time.Second, Devices: []gpushare.Device{{Held: 1 << 20}}})
	i.want(t, "another process comes", "False MovedIn", false)
}

// What is told where to be is left alone; what cannot be moved says so, and is not tried all the time; what an agent
// before this one moved without a word is brought back.
func TestIdleAndOtherwise(t *testing.T) {
	i := newIdling(t)
	i.uses(11 * time.Minute)
	i.pod.Annotations = map[string]string{egpu.SwapAnnotation: egpu.SwapIn}
	if err := i.client.Update(t.Context(), i.pod); err != nil {
		t.Fatal(err)
	}
	i.want(t, "told to be in", "", false)
	i.pod.Annotations = nil
	if err := i.client.Update(t.Context(), i.pod); err != nil {
		t.Fatal(err)
	}
	i.moves.refused = errors.New("arrays")
	i.want(t, "it cannot move", "False CannotMoveOut", false)
	if c := egpu.SwapCondition(i.pod); !strings.Contains(c.Message, "arrays") {
		t.Errorf("it says %q", c.Message)
	}
	i.moves.refused = nil
	i.want(t, "not tried again at once", "False CannotMoveOut", false)
	i.moves.out["3"] = true
	i.want(t, "out, and nobody said so", "False MovedIn", false)
	i.now = i.now.Add(time.Hour)
	i.moves.onCard = nil
	i.want(t, "idle", "True Idle", true)
}
