package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/slots"
	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// Pods of a node without cards use a share of a card of another node, while agents and the server are killed and others take
// their turn, until pod and claim go.
//
// Real, as in a cluster: two nodes, each with its own kubelet, containerd and agent, a process with a token of its node; the
// GPU scheduler, and the server in the pod that it makes, under the library and as nobody; the programs in containers, with
// the client that the agent mounts; TLS between the agents. Not real: the driver, and so the card, are those of the library's
// tests; both nodes are this machine, and the network between their agents its loopback; the agents are processes of it and
// no pods, which the sandbox and the test start again; the server's image is made here, of the program that is released.
func TestCardOfAnotherNode(t *testing.T) {
	f := newFar(t)
	ns := cluster.Namespace(t)
	class := &egpu.ElasticGPUClass{
		ObjectMeta: metav1.ObjectMeta{Name: ns}, Provisioner: egpu.ProvisionerShare, EGPUBindingMode: egpu.BindWaitForFirstConsumer,
		ReclaimPolicy: egpu.ReclaimDelete, Parameters: map[string]string{"sharing": egpu.SharingRemote, "distance": "any", "swap": "on"},
	}
	claim := &egpu.ElasticGPUClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "card"}}
	claim.Spec.ElasticGPUClassName = &class.Name
	claim.Spec.Resources.Requests = corev1.ResourceList{egpu.ResourceCore: resource.MustParse("30"), egpu.ResourceMemory: resource.MustParse("1000")}
	probe := f.pod(ns, "probe", image, claim.Name)
	cluster.Make(t, class, claim, probe)
	// The server's image comes late, and the container waits for it: a program that was there before its card would fail.
	awaitsImage(t, claim)
	loadServer(t)
	// The share holds from afar.
	if saw := probed(t, probe); saw.Backend != "remote" || saw.Cards != 1 || saw.TotalMB != 1000 || saw.LargestMB >= 1000 || saw.LargestMB < 400 {
		t.Errorf("%+v: want a card of 1000 MiB by the backend remote", saw)
	}
	device, server := served(t, claim)
	strangerIsRefused(t, claim)

	loses := f.run(t, ns, "loses", claim)
	loses.ask(1, 100)
	loses.says("ok 1")
	endServer(t, server)
	loses.ask(1, 1)
	loses.says("error 46") // CUDA_ERROR_DEVICE_UNAVAILABLE
	sandbox.Eventually(t, "the pod is told that its card's server is lost", func(ctx context.Context) error { return hasEvent(ctx, loses.pod, "RemoteCardLost") })

	// The next program has the next server. It works all the time, and either agent is killed meanwhile.
	work := f.run(t, ns, "work", claim)
	work.ask(1000, 100)
	work.goesOn()
	f.killAgent(t)
	f.startAgent(t)
	work.goesOn()
	kill(t, "the agent", agentPID)
	work.goesOn()

	podGoes(t, f, work.pod)
	again := server.DeepCopy()
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(server), again); err != nil || again.UID != server.UID || again.Status.ContainerStatuses[0].RestartCount != 1 {
		t.Errorf("the server is another one, or has ended again: %+v %v", again.Status.ContainerStatuses, err)
	}
	if !allocated(t, device) {
		t.Error("the claim is there, and the card is not allocated to it")
	}

	jobLeavesItsCard(t, f, claim, device, server)

	if err := cluster.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	cluster.WaitGone(t, server)
	cluster.WaitGone(t, device)
	sandbox.Eventually(t, "the card is free", func(context.Context) error {
		if allocated(t, device) {
			return fmt.Errorf("GPU %s is allocated to it", device.Spec.RemoteGPU.GPUName)
		}
		grant, err := servingGrant(claim)
		if err == nil && grant != nil {
			err = fmt.Errorf("slot %s serves it", grant.ID)
		}
		return err
	})
}

// awaitsImage waits until the server of a claim has no image.
func awaitsImage(t *testing.T, claim *egpu.ElasticGPUClaim) {
	t.Helper()
	sandbox.Eventually(t, "the server has no image", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
			return err
		}
		server := &corev1.Pod{}
		if err := cluster.Get(ctx, serverOf(claim), server); err != nil {
			return err
		}
		if s := server.Status.ContainerStatuses; len(s) == 0 || s[0].State.Waiting == nil || !strings.Contains(s[0].State.Waiting.Reason, "ImagePull") {
			return fmt.Errorf("its containers are %+v", s)
		}
		return nil
	})
}

// serverOf a claim is a pod.
func serverOf(claim *egpu.ElasticGPUClaim) client.ObjectKey {
	return client.ObjectKey{Namespace: "elastic-queue", Name: "remote-" + claim.Spec.ElasticGPUName}
}

// served waits for the server of a claim, and returns the claim's ElasticGPU and the server's pod.
func served(t *testing.T, claim *egpu.ElasticGPUClaim) (*egpu.ElasticGPU, *corev1.Pod) {
	t.Helper()
	device := &egpu.ElasticGPU{}
	sandbox.Eventually(t, "the claim's card is served", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
			return err
		}
		if err := cluster.Get(ctx, client.ObjectKey{Name: claim.Spec.ElasticGPUName}, device); err != nil {
			return err
		}
		if device.Status.Reason != egpu.ReasonServed || device.Spec.RemoteGPU.NodeName != local.NodeName {
			return fmt.Errorf("ElasticGPU %+v, status %+v", device.Spec.RemoteGPU, device.Status)
		}
		return nil
	})
	if !allocated(t, device) {
		t.Errorf("GPU %s is not allocated to ElasticGPU %s", device.Spec.RemoteGPU.GPUName, device.Name)
	}
	server := &corev1.Pod{}
	if err := cluster.Get(t.Context(), serverOf(claim), server); err != nil {
		t.Fatal(err)
	}
	if server.Spec.NodeName != local.NodeName || server.Status.ContainerStatuses[0].State.Running == nil {
		t.Errorf("the server is on %s: %+v", server.Spec.NodeName, server.Status.ContainerStatuses)
	}
	grant, err := servingGrant(claim)
	if err != nil || grant == nil || grant.UID != server.UID || grant.Backend != "gpushare" || grant.Cards[0].Percent != 30 || grant.Cards[0].MemoryMB != 1000 {
		t.Errorf("the server's share is %+v: %v", grant, err)
	}
	return device, server
}

// servingGrant is what the server of a claim has on the card's node; none is no error.
func servingGrant(claim *egpu.ElasticGPUClaim) (*slots.Grant, error) {
	grants, err := (&slots.Slots{Dir: nodeDir("cdi")}).Grants()
	if at := slices.IndexFunc(grants, func(g slots.Grant) bool { return g.Serves == claim.UID }); at >= 0 {
		return &grants[at], err
	}
	return nil, err
}

// allocated says whether its card is recorded for an ElasticGPU.
func allocated(t *testing.T, device *egpu.ElasticGPU) bool {
	t.Helper()
	gpu := &egpu.GPU{}
	if err := cluster.Get(context.WithoutCancel(t.Context()), client.ObjectKey{Name: device.Spec.RemoteGPU.GPUName}, gpu); err != nil {
		t.Fatal(err)
	}
	return gpu.Status.Allocated[egpu.DeviceNamespace+"/"+device.Name] != nil
}

// strangerIsRefused: who reaches the agent of the card's node and knows the claim, and has no certificate of an agent whose
// node has a pod with it, gets nothing.
func strangerIsRefused(t *testing.T, claim *egpu.ElasticGPUClaim) {
	t.Helper()
	node := &corev1.Node{}
	if err := cluster.Get(t.Context(), client.ObjectKey{Name: local.NodeName}, node); err != nil {
		t.Fatal(err)
	}
	var agent struct{ Address string }
	if err := json.Unmarshal([]byte(node.Annotations[egpu.RemoteAgentAnnotation]), &agent); err != nil {
		t.Fatal(err)
	}
	stranger, err := tls.Dial("tcp", agent.Address, &tls.Config{InsecureSkipVerify: true, ServerName: string(claim.UID) + ".claim.elasticgpu.io"})
	if err == nil {
		_, err = stranger.Read(make([]byte, 1)) // by then the agent has looked at the certificate that did not come
		_ = stranger.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("a stranger is answered %v", err)
	}
}

// endServer has a server end as one does that breaks, and waits for the next.
func endServer(t *testing.T, server *corev1.Pod) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for _, dir := range processes {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if in, err := gpushare.InPod(pid, server.UID); err == nil && in && strings.HasPrefix(string(line), "/var/run/ko/elastic-gpu-remote") {
			killed++
			_ = syscall.Kill(pid, syscall.SIGKILL) // its children go with it
		}
	}
	if killed == 0 {
		t.Fatal("no process of the server was found")
	}
	sandbox.Eventually(t, "the server runs again", func(ctx context.Context) error {
		again := &corev1.Pod{}
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(server), again); err != nil {
			return err
		}
		if is := again.Status.ContainerStatuses[0]; is.RestartCount != 1 || !is.Ready {
			return fmt.Errorf("it is %+v", is)
		}
		return nil
	})
}

// hasEvent says whether a pod has an event.
func hasEvent(ctx context.Context, p *corev1.Pod, reason string) error {
	list := &corev1.EventList{}
	if err := cluster.List(ctx, list, client.InNamespace(p.Namespace)); err != nil {
		return err
	}
	if !slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return e.Reason == reason && e.InvolvedObject.UID == p.UID }) {
		return fmt.Errorf("%d events, and none is %s", len(list.Items), reason)
	}
	return nil
}

// podGoes deletes a pod and waits until its way to the card is closed, and nothing of it is left on its node.
func podGoes(t *testing.T, f *far, p *corev1.Pod) {
	t.Helper()
	grants, err := f.grants()
	at := slices.IndexFunc(grants, func(g slots.Grant) bool { return g.UID == p.UID })
	if at < 0 {
		t.Fatalf("grants %+v: %v", grants, err)
	}
	link := f.path("elastic-gpu", "remote", "links", grants[at].ID)
	socket, err := net.Dial("unix", filepath.Join(link, "run", "socket"))
	if err != nil {
		t.Fatal(err)
	}
	_ = socket.Close()
	if err := cluster.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	cluster.WaitGone(t, p)
	sandbox.Eventually(t, "the pod's socket is closed", func(context.Context) error {
		if _, err := os.Stat(link); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is there: %w", link, err)
		}
		left, err := f.grants()
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("grants %+v", left)
		}
		return err
	})

}
