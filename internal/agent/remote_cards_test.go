package agent

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/backend/simulated"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/remotegpu"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
)

const farClaim = "6f1f1c7e-0000-4000-8000-000000000001"

// farCluster has a claim whose card is on node card, and a pod on node pods that uses it.
func farCluster(t *testing.T) client.Client {
	t.Helper()
	scheme := k8sruntime.NewScheme()
	for _, add := range []func(*k8sruntime.Scheme) error{clientgoscheme.AddToScheme, egpu.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	device := &egpu.ElasticGPU{ObjectMeta: metav1.ObjectMeta{Name: "e"}}
	device.Spec.RemoteGPU = &egpu.RemoteGPUSource{NodeName: "card", GPUName: "card-0"}
	device.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "team", Name: "c", UID: farClaim}
	user := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p", UID: "p", Annotations: map[string]string{egpu.ClaimPrefix + "main": "c"}},
		Spec:       corev1.PodSpec{NodeName: "pods", Containers: []corev1.Container{{Name: "main"}}},
	}
	objects := []client.Object{device, user}
	for _, name := range []string{"card", "pods", "stranger"} {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	// As the API server does, and the client in memory does not: a patch of a node's status has annotations, too.
	patch := func(ctx context.Context, c client.Client, part string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
		if _, isNode := object.(*corev1.Node); isNode {
			return c.Patch(ctx, object, patch)
		}
		return c.SubResource(part).Patch(ctx, object, patch, options...)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1.Pod{}).WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: patch}).Build()
}

// startRemote starts the part of a node's agent that this is about.
func startRemote(t *testing.T, c client.Client, name string) *Node {
	t.Helper()
	dir, err := os.MkdirTemp("", "far-") // a short path: sockets' are limited
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{Name: name, Source: discovery.None{}, API: c, Cache: c, Log: testr.New(t), Config: v1alpha1.DevicePlugin{
		StateDir: dir, CDIDir: filepath.Join(dir, "cdi"),
		Remote: v1alpha1.RemoteCards{BindAddress: "127.0.0.1:0", Engines: map[string]map[string]string{"elastic": {}}},
	}}
	n.shares = &gpushare.Backend{Dir: filepath.Join(dir, "gpushare")}
	n.slots = &slots.Slots{Dir: n.Config.CDIDir, Log: n.Log, Backends: []backend.Backend{&simulated.Backend{As: "gpushare", Dir: filepath.Join(dir, "simulated")}}}
	if _, err := n.remoteClients(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.RemoteCards(c).Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	for published := false; !published; runtime.Gosched() {
		node := &corev1.Node{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, node); err != nil {
			t.Fatal(err)
		}
		published = node.Annotations[egpu.RemoteAgentAnnotation] != ""
	}
	return n
}

// serveEcho stands for the server of the claim: it says a word to who comes.
func serveEcho(t *testing.T, n *Node) {
	t.Helper()
	giveShare(t, n)
	listenEcho(t, n)
}

// giveShare of the card to the server.
func giveShare(t *testing.T, n *Node) {
	t.Helper()
	s := conformance.Subject{}.Share("7", 0)
	s.Serves, s.Device = farClaim, "e"
	if _, err := n.slots.Prepare(t.Context(), *s); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(n.shares.RunFolder("7"), 0o750); err != nil {
		t.Fatal(err)
	}
}

func listenEcho(t *testing.T, n *Node) {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(n.shares.RunFolder("7"), remotegpu.ServerSocket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "the card")
			_ = c.Close()
		}
	}()
}

// reach the card as a container of the node does.
func reach(t *testing.T, n *Node) string {
	t.Helper()
	return hear(dialCard(t, n))
}

func dialCard(t *testing.T, n *Node) net.Conn {
	t.Helper()
	to := &share.Remote{Claim: farClaim, Device: "e", Engine: "elastic"}
	if _, err := n.remote.clients.Prepare(t.Context(), &share.Share{ID: "1", Remote: to}); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", filepath.Join(n.remote.clients.Dir, "links", "1", "run", "socket"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func hear(c net.Conn) string {
	defer func() { _ = c.Close() }()
	said, _ := io.ReadAll(c)
	return string(said)
}

// The libraries that stand for the driver's are on the node, and where each of the usual loaders looks in the container.
func TestContainersHaveTheLibrariesOfTheOwnEngine(t *testing.T) {
	image, state := t.TempDir(), t.TempDir()
	n := &Node{Config: v1alpha1.DevicePlugin{Library: filepath.Join(image, "libelasticgpu.so"), StateDir: state}}
	libraries := []string{"libcuda.so.1", "libnvidia-ml.so.1"}
	for _, name := range libraries {
		if err := os.WriteFile(filepath.Join(image, name), []byte("this is "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	engine, err := n.ownEngine()
	if err != nil {
		t.Fatal(err)
	}
	clients := &remotegpu.Clients{Dir: filepath.Join(state, "remote"), Engines: map[string]remotegpu.Engine{"elastic": engine}, Relay: &remotegpu.Relay{Log: testr.New(t)}}
	defer clients.Relay.End()
	edits, err := clients.Prepare(t.Context(), &share.Share{ID: "1", Remote: &share.Remote{Claim: farClaim, Device: "e", Engine: "elastic"}})
	if err != nil {
		t.Fatal(err)
	}
	mounted := map[string]string{}
	for _, m := range edits.Mounts {
		mounted[m.ContainerPath] = m.HostPath
	}
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	for _, name := range libraries {
		for _, folder := range []string{"/usr/lib/" + triplet, "/usr/lib64"} {
			is, err := os.ReadFile(mounted[filepath.Join(folder, name)])
			if err != nil || string(is) != "this is "+name {
				t.Errorf("%s/%s: %q, %v", folder, name, is, err)
			}
		}
	}
	if len(edits.Mounts) != 6 {
		t.Errorf("%d mounts, want both libraries twice, the address and the socket's folder", len(edits.Mounts))
	}
}

func TestAgentsConnectAContainerWithItsCard(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("cards of other nodes are for Linux")
	}
	c := farCluster(t)
	card, pods, stranger := startRemote(t, c, "card"), startRemote(t, c, "pods"), startRemote(t, c, "stranger")
	if said := reach(t, pods); said != "" {
		t.Errorf("without a server: %q", said)
	}
	serveEcho(t, card)
	if said := reach(t, pods); said != "the card" {
		t.Errorf("from the pod's node: %q", said)
	}
	if said := reach(t, stranger); said != "" {
		t.Errorf("from a node where no pod uses the claim: %q", said)
	}
	pod := &corev1.Pod{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "p"}, pod); err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodSucceeded
	if err := c.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if said := reach(t, pods); said != "" {
		t.Errorf("after the pod ended: %q", said)
	}
}

// A server that has just started is waited for until it listens.
func TestAgentWaitsUntilAServerListens(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("cards of other nodes are for Linux")
	}
	c := farCluster(t)
	card, pods := startRemote(t, c, "card"), startRemote(t, c, "pods")
	giveShare(t, card)
	program := dialCard(t, pods)
	listenEcho(t, card)
	if said := hear(program); said != "the card" {
		t.Errorf("a program that came before the server listened hears %q", said)
	}
}

// A container does not start before its server, and says what it waits for.
func TestContainerWaitsForItsServer(t *testing.T) {
	c := farCluster(t)
	n := &Node{Name: "pods", API: c}
	r, to := &remoteCards{node: n}, &share.Remote{Claim: farClaim, Device: "e", Engine: "elastic"}
	device := &egpu.ElasticGPU{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "e"}, device); err != nil {
		t.Fatal(err)
	}
	device.Status = egpu.ElasticGPUStatus{Reason: "ServerNotReady", Message: "its image is fetched"}
	if err := c.Update(t.Context(), device); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := r.awaitServer(short, to); err == nil || !strings.Contains(err.Error(), "its image is fetched") {
		t.Errorf("without a server: %v", err)
	}
	waited := make(chan error)
	go func() { waited <- r.awaitServer(t.Context(), to) }()
	device.Status.Reason = egpu.ReasonServed
	if err := c.Update(t.Context(), device); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Errorf("with one: %v", err)
	}
}

// A card of the pod's own node is reached without another agent, on the same terms.
func TestAgentConnectsAContainerWithACardOfItsNode(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("cards of other nodes are for Linux")
	}
	c := farCluster(t)
	card := startRemote(t, c, "card")
	serveEcho(t, card)
	if said := reach(t, card); said != "" {
		t.Errorf("from a node where no pod uses the claim: %q", said)
	}
	node := &corev1.Node{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "card"}, node); err != nil {
		t.Fatal(err)
	}
	node.Annotations[egpu.RemoteAgentAnnotation] = `{"address":"127.0.0.1:1"}` // nobody is there
	if err := c.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	user := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "q", Annotations: map[string]string{egpu.ClaimPrefix + "main": "c"}},
		Spec:       corev1.PodSpec{NodeName: "card", Containers: []corev1.Container{{Name: "main"}}},
	}
	if err := c.Create(t.Context(), user); err != nil {
		t.Fatal(err)
	}
	if said := reach(t, card); said != "the card" {
		t.Errorf("from the card's node: %q", said)
	}
	user.Status.Phase = corev1.PodSucceeded
	if err := c.Status().Update(t.Context(), user); err != nil {
		t.Fatal(err)
	}
	if said := reach(t, card); said != "" {
		t.Errorf("after the pod ended: %q", said)
	}
}
