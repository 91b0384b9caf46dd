package agent

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
)

// afar is a pod of node pods whose card is on node card, with a share of a card here, too, where that is asked for.
type afar struct {
	*testing.T
	client  client.Client
	pod     *corev1.Pod
	server  *corev1.Pod
	swapper *Swapper
	here    map[string]bool // shares here that are out
	refused error
}

func (a *afar) Out(_ context.Context, s *share.Share) (int64, error) {
	if a.refused == nil {
		a.here[s.ID] = true
	}
	return 64 << 20, a.refused
}

func (a *afar) In(_ context.Context, s *share.Share) (int64, error) {
	delete(a.here, s.ID)
	return 64 << 20, nil
}

func newAfar(t *testing.T, hereToo bool) *afar {
	a := &afar{T: t, client: farCluster(t), here: map[string]bool{}, pod: &corev1.Pod{}}
	if err := a.client.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "p"}, a.pod); err != nil {
		t.Fatal(err)
	}
	a.server = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "remote-e", UID: "server", Annotations: map[string]string{egpu.ServesAnnotation: "e"}}}
	if err := a.client.Create(t.Context(), a.server); err != nil {
		t.Fatal(err)
	}
	far := slots.Grant{Backend: "remote", Share: share.Share{
		ID: "1", Pod: client.ObjectKeyFromObject(a.pod), UID: a.pod.UID, Container: "main", Device: "e", Remote: &share.Remote{Claim: farClaim, Device: "e", Engine: "elastic"},
	}}
	grants := []slots.Grant{far}
	if hereToo {
		here := slots.Grant{Backend: "gpushare", Share: *conformance.Subject{}.Share("2", 0)}
		here.UID, here.Pod = a.pod.UID, far.Pod
		grants = append(grants, here)
	}
	n := &Node{Name: "pods", API: a.client, Log: testr.New(t), Config: v1alpha1.DevicePlugin{Remote: v1alpha1.RemoteCards{ServerNamespace: "system"}}}
	a.swapper = &Swapper{
		Client: a.client, Shares: a, Grants: func() ([]slots.Grant, error) { return grants, nil }, Server: (&remoteCards{node: n}).serverPod,
		OnCard: func(context.Context, types.UID, string) ([]discovery.Process, error) { return nil, nil },
	}
	return a
}

// asked is what is written on the pod, and on its server.
func (a *afar) asked(pod, server string) {
	a.Helper()
	for _, to := range []struct {
		pod  *corev1.Pod
		word string
	}{{a.pod, pod}, {a.server, server}} {
		if err := a.client.Get(a.Context(), client.ObjectKeyFromObject(to.pod), to.pod); err != nil {
			a.Fatal(err)
		}
		metav1.SetMetaDataAnnotation(&to.pod.ObjectMeta, egpu.SwapAnnotation, to.word)
		if err := a.client.Update(a.Context(), to.pod); err != nil {
			a.Fatal(err)
		}
	}
}

func (a *afar) serverSays(conditions ...corev1.PodCondition) {
	a.Helper()
	if err := a.client.Get(a.Context(), client.ObjectKeyFromObject(a.server), a.server); err != nil {
		a.Fatal(err)
	}
	a.server.Status.Conditions = conditions
	if err := a.client.Status().Update(a.Context(), a.server); err != nil {
		a.Fatal(err)
	}
}

// says is what the pod's condition says once the agent has looked; no reason: nothing.
func (a *afar) says(what string, status corev1.ConditionStatus, reason, message string) {
	a.Helper()
	result, err := a.swapper.Reconcile(a.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(a.pod)})
	if err != nil {
		a.Fatal(err)
	}
	if err := a.client.Get(a.Context(), client.ObjectKeyFromObject(a.pod), a.pod); err != nil {
		a.Fatal(err)
	}
	is := egpu.SwapCondition(a.pod)
	switch {
	case reason == "" && is != nil || reason != "" && (is == nil || is.Status != status || is.Reason != reason || !strings.Contains(is.Message, message)):
		a.Fatalf("%s: %+v, want %s %s %q", what, is, status, reason, message)
	case (reason == "" || status == corev1.ConditionTrue || reason == egpu.ReasonCannotMoveOut) && result.RequeueAfter == 0:
		a.Fatalf("%s: nobody looks again", what)
	}
}

func condition(kind corev1.PodConditionType, status corev1.ConditionStatus, reason, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: kind, Status: status, Reason: reason, Message: message}
}

// A pod whose card is on another node is out once its server is, and in once that is.
func TestPodLeavesWithItsServer(t *testing.T) {
	a := newAfar(t, false)
	a.asked(egpu.SwapOut, "")
	a.says("its server is not told yet", "", "", "")
	a.asked(egpu.SwapOut, egpu.SwapOut)
	a.says("its server is being moved", "", "", "")
	a.serverSays(condition(egpu.SwappedOut, corev1.ConditionTrue, egpu.ReasonMovedOut, "200 MiB of 1 containers"))
	a.says("its server is out", corev1.ConditionTrue, egpu.ReasonMovedOut, "pod system/remote-e, 200 MiB of 1 containers")
	if !egpu.HasLeftCards(a.pod) {
		t.Error("its share is not free")
	}
	version := a.pod.ResourceVersion
	a.says("still", corev1.ConditionTrue, egpu.ReasonMovedOut, "200 MiB")
	if a.pod.ResourceVersion != version {
		t.Error("what is known was written again")
	}
	a.asked(egpu.SwapIn, egpu.SwapOut)
	a.says("called back, and its server is not yet", corev1.ConditionTrue, egpu.ReasonMovedOut, "")
	a.asked(egpu.SwapIn, egpu.SwapIn)
	a.says("its server is being moved back", corev1.ConditionTrue, egpu.ReasonMovedOut, "")
	a.serverSays(condition(egpu.SwappedOut, corev1.ConditionTrue, egpu.ReasonCannotMoveIn, "card 0 was given to others"))
	a.says("its card is full", corev1.ConditionTrue, egpu.ReasonCannotMoveIn, "container main: its server, pod system/remote-e: card 0 was given to others")
	a.serverSays(condition(egpu.SwappedOut, corev1.ConditionFalse, egpu.ReasonMovedIn, "200 MiB of 1 containers"))
	a.says("its server is in", corev1.ConditionFalse, egpu.ReasonMovedIn, "200 MiB of 1 containers")
}

// A server that cannot move, or that others use, says so for the pod; one that comes back by itself takes the pod's word back.
func TestPodThatItsServerKeeps(t *testing.T) {
	a := newAfar(t, false)
	a.asked(egpu.SwapOut, egpu.SwapOut)
	a.serverSays(condition(egpu.SwappedOut, corev1.ConditionFalse, egpu.ReasonCannotMoveOut, "it shares memory"))
	a.says("its server cannot", corev1.ConditionFalse, egpu.ReasonCannotMoveOut, "its server, pod system/remote-e: it shares memory")
	a.serverSays(condition(egpu.SwappedOut, corev1.ConditionTrue, egpu.ReasonMovedOut, "all of it"))
	a.says("its server is out", corev1.ConditionTrue, egpu.ReasonMovedOut, "all of it")
	a.asked(egpu.SwapOut, egpu.SwapIn)
	a.server.Annotations[egpu.SharedAnnotation] = "pods of 2 jobs use its claim: p, q"
	if err := a.client.Update(t.Context(), a.server); err != nil {
		t.Fatal(err)
	}
	a.says("another job came", corev1.ConditionFalse, egpu.ReasonCannotMoveOut, "pods of 2 jobs use its claim: p, q")
}

// Of a pod with a card here and one on another node all is out, or nothing.
func TestPodLeavesCardsHereAndAfar(t *testing.T) {
	a := newAfar(t, true)
	a.asked(egpu.SwapOut, egpu.SwapOut)
	a.says("its server is on its way", "", "", "")
	if len(a.here) > 0 {
		t.Error("what is here has left, and what is afar may not")
	}
	a.serverSays(condition(egpu.SwappedOut, corev1.ConditionTrue, egpu.ReasonMovedOut, "200 MiB of 1 containers"))
	a.refused = errors.New("it has a memory pool")
	a.says("what is here cannot", corev1.ConditionFalse, egpu.ReasonCannotMoveOut, "memory pool")
	a.refused = nil
	a.says("both are out", corev1.ConditionTrue, egpu.ReasonMovedOut, "64 MiB of 1 containers; pod system/remote-e, 200 MiB of 1 containers")
}

// A claim's card is moved for that claim: not by who had its ElasticGPU before, nor a pod that only has the name.
func TestServerOfAClaim(t *testing.T) {
	a := newAfar(t, false)
	r := &remoteCards{node: &Node{API: a.client, Config: v1alpha1.DevicePlugin{Remote: v1alpha1.RemoteCards{ServerNamespace: "system"}}}}
	if pod, err := r.serverPod(t.Context(), &share.Remote{Claim: farClaim, Device: "e"}); err != nil || pod.Name != "remote-e" {
		t.Fatalf("%v %v", pod, err)
	}
	if _, err := r.serverPod(t.Context(), &share.Remote{Claim: "another", Device: "e"}); err == nil || !strings.Contains(err.Error(), "another claim's") {
		t.Errorf("for another claim: %v", err)
	}
	a.server.Annotations[egpu.ServesAnnotation] = "f"
	if err := a.client.Update(t.Context(), a.server); err != nil {
		t.Fatal(err)
	}
	if _, err := r.serverPod(t.Context(), &share.Remote{Claim: farClaim, Device: "e"}); err == nil || !strings.Contains(err.Error(), "does not serve") {
		t.Errorf("one that serves another: %v", err)
	}
	if _, err := (*remoteCards)(nil).serverPod(t.Context(), &share.Remote{Device: "e"}); err == nil {
		t.Error("without cards of other nodes")
	}
}

// Whether a pod could be swapped whose card is on another node, its server says ahead, as its processes do.
func TestServersSayWhetherTheyCouldBeSwapped(t *testing.T) {
	a := newAfar(t, false)
	a.pod.Annotations[egpu.OnPreemptionAnnotation] = egpu.OnPreemptionSwap
	if err := a.client.Update(t.Context(), a.pod); err != nil {
		t.Fatal(err)
	}
	r := &SwapReporter{Client: a.client, Grants: a.swapper.Grants, Server: a.swapper.Server, Log: testr.New(t)}
	says := func(what string, pod *corev1.Pod, want corev1.ConditionStatus, message string) {
		t.Helper()
		if err := r.Report(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == egpu.Swappable && (c.Status != want || c.Message != message) {
				t.Errorf("%s: %+v, want %s %q", what, c, want, message)
			}
			if c.Type == egpu.Swappable {
				return
			}
		}
		if want != "" {
			t.Errorf("%s: nothing is said", what)
		}
	}
	says("its server has nothing on a card yet", a.pod, "", "")
	a.serverSays(condition(egpu.Swappable, corev1.ConditionFalse, egpu.ReasonImmovable, "container server: process 7: arrays"))
	says("its server cannot", a.pod, corev1.ConditionFalse, "container main: its server, pod system/remote-e: container server: process 7: arrays")
	a.serverSays(condition(egpu.Swappable, corev1.ConditionTrue, egpu.ReasonMovable, ""))
	says("its server can", a.pod, corev1.ConditionTrue, "")
	a.server.Annotations[egpu.SharedAnnotation] = "pods of 2 jobs use its claim: p, q"
	if err := a.client.Update(t.Context(), a.server); err != nil {
		t.Fatal(err)
	}
	says("another job uses it", a.pod, corev1.ConditionFalse, "container main: its server, pod system/remote-e: pods of 2 jobs use its claim: p, q")

	// The agent of the card's node, of the server itself, which has no annotation for it.
	serves := slots.Grant{Backend: "gpushare", Share: *conformance.Subject{}.Share("3", 0)}
	serves.Pod, serves.UID, serves.Container, serves.Serves = client.ObjectKeyFromObject(a.server), a.server.UID, "server", farClaim
	a.serverSays()
	processes := []gpushare.Process{{PID: 7, Immovable: "arrays"}}
	r = &SwapReporter{Client: a.client, Log: testr.New(t),
		Grants:    func() ([]slots.Grant, error) { return []slots.Grant{serves}, nil },
		Processes: func(context.Context, *share.Share) ([]gpushare.Process, error) { return processes, nil },
	}
	says("the server", a.server, corev1.ConditionFalse, "container server: process 7: arrays")
	processes = nil
	says("the server of a program that has ended", a.server, corev1.ConditionTrue, "")
}
