package kubelet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/kubelet"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
)

const resource = "elasticgpu.io/claim"

func TestMain(m *testing.M) { conformance.Apart(m) }

// node is a kubelet as far as device plugins see one: it registers them, gives out devices, says which container has
// holds them, and calls before each start. It speaks the real protocols over real sockets.
type node struct {
	deviceplugin.UnimplementedRegistrationServer
	podresources.UnimplementedPodResourcesListerServer
	testing.TB

	dir        string // plugins, cdi, state, pod-resources.sock
	registered chan string
	server     *grpc.Server

	mu         sync.Mutex
	containers map[string]slots.ContainerRef
	busy       int // questions that are turned away for now
}

func newNode(t *testing.T) *node {
	dir, err := os.MkdirTemp("", "kubelet-") // short: sockets' paths are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	conformance.UnmountAtEnd(t, dir)
	n := &node{TB: t, dir: dir, registered: make(chan string, 10), containers: map[string]slots.ContainerRef{}}
	for _, sub := range []string{"plugins", "cdi", "state"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "lib.so"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	resources := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(resources, n)
	n.listen(resources, n.path("pod-resources.sock"))
	t.Cleanup(resources.Stop)
	n.start()
	return n
}

func (n *node) path(names ...string) string {
	return filepath.Join(append([]string{n.dir}, names...)...)
}

func (n *node) listen(server *grpc.Server, socket string) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		n.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
}

// start the kubelet, or start it again: plugins' sockets are removed, and its own is made anew.
func (n *node) start() {
	if n.server != nil {
		n.server.Stop()
	}
	files, _ := filepath.Glob(n.path("plugins", "*"))
	for _, file := range files {
		_ = os.Remove(file)
	}
	n.server = grpc.NewServer()
	deviceplugin.RegisterRegistrationServer(n.server, n)
	n.listen(n.server, n.path("plugins", "kubelet.sock"))
}

func (n *node) Register(_ context.Context, r *deviceplugin.RegisterRequest) (*deviceplugin.Empty, error) {
	if r.GetResourceName() != resource || !r.GetOptions().GetPreStartRequired() || r.GetVersion() != "v1beta1" {
		return nil, fmt.Errorf("registered as %v", r)
	}
	n.registered <- r.GetEndpoint()
	return &deviceplugin.Empty{}, nil
}

func (n *node) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.busy > 0 {
		n.busy--
		return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
	}
	list := &podresources.ListPodResourcesResponse{}
	for id, h := range n.containers {
		list.PodResources = append(list.PodResources, &podresources.PodResources{
			Namespace: h.Namespace, Name: h.Pod, Containers: []*podresources.ContainerResources{{
				Name: h.Container, Devices: []*podresources.ContainerDevices{{ResourceName: resource, DeviceIds: []string{id}}},
			}},
		})
	}
	return list, nil
}

// agent of the node, until the context ends.
func (n *node) agent(ctx context.Context) deviceplugin.DevicePluginClient {
	n.Helper()
	resources, _, err := kubelet.NewResources(n.path("pod-resources.sock"), resource)
	if err != nil {
		n.Fatal(err)
	}
	p := &kubelet.Plugin{
		Dir: n.path("plugins"), Resource: resource, Log: logr.Discard(),
		Slots: &slots.Slots{
			Dir: n.path("cdi"), Containers: resources.Containers, Log: logr.Discard(),
			Gone:     func(context.Context, *share.Share) (bool, error) { return true, nil },
			Backends: []backend.Backend{&gpushare.Backend{Driver: &backend.NodeDriver{Root: n.dir}, Dir: n.path("state"), Library: n.path("lib.so")}},
			// A pod's share is its number in percent.
			Share: func(_ context.Context, h slots.ContainerRef) (share.Share, error) {
				var percent float64
				if _, err := fmt.Sscanf(h.Pod, "pod-%f", &percent); err != nil {
					return share.Share{}, errors.New("no cards were chosen for it")
				}
				s := conformance.Subject{}.Share("", 0)
				s.Cards[0].Percent = percent
				return *s, nil
			},
		},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := p.Start(ctx); err != nil {
			n.Error(err)
		}
	}()
	n.Cleanup(func() { <-done })
	return n.plugin()
}

// plugin that registers next.
func (n *node) plugin() deviceplugin.DevicePluginClient {
	n.Helper()
	select {
	case endpoint := <-n.registered:
		connection, err := grpc.NewClient("unix://"+n.path("plugins", endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			n.Fatal(err)
		}
		n.Cleanup(func() { _ = connection.Close() })
		return deviceplugin.NewDevicePluginClient(connection)
	case <-time.After(time.Minute):
		n.Fatal("no plugin registers")
		return nil
	}
}

// allocate a device to a container, as the kubelet does when it admits a pod.
func (n *node) allocate(plugin deviceplugin.DevicePluginClient, id string, h slots.ContainerRef) error {
	response, err := plugin.Allocate(n.Context(), &deviceplugin.AllocateRequest{
		ContainerRequests: []*deviceplugin.ContainerAllocateRequest{{DevicesIds: []string{id}}},
	})
	if err != nil {
		return err
	}
	if devices := response.GetContainerResponses()[0].GetCdiDevices(); len(devices) != 1 || devices[0].GetName() != "elasticgpu.io/share="+id {
		return fmt.Errorf("CDI devices %v", devices)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.containers[id] = h
	return nil
}

// preStart is the call before the container starts; then what its runtime reads is the answer.
func (n *node) preStart(plugin deviceplugin.DevicePluginClient, id string) (limits string, err error) {
	if _, err := plugin.PreStartContainer(n.Context(), &deviceplugin.PreStartContainerRequest{DevicesIds: []string{id}}); err != nil {
		return "", err
	}
	data, err := os.ReadFile(n.path("cdi", "elasticgpu.io-share-"+id+".json"))
	if err != nil {
		return "", err
	}
	spec := specs.Spec{}
	if err := json.Unmarshal(data, &spec); err != nil {
		return "", err
	}
	for _, m := range spec.Devices[0].ContainerEdits.Mounts {
		if m.ContainerPath == "/etc/elastic-gpu" {
			text, err := os.ReadFile(filepath.Join(m.HostPath, "limits"))
			return string(text), err
		}
	}
	return "", fmt.Errorf("mounts %v", spec.Devices[0].ContainerEdits.Mounts)
}

// Ten pods start at once, and each gets its own share, whichever device the kubelet gave it.
func TestEachContainerGetsItsOwnShare(t *testing.T) {
	n := newNode(t)
	ctx, stop := context.WithCancel(t.Context())
	plugin := n.agent(ctx)
	var all sync.WaitGroup
	for i := 1; i <= 10; i++ {
		all.Go(func() {
			id := fmt.Sprint(100 - i)
			if err := n.allocate(plugin, id, slots.ContainerRef{Namespace: "team", Pod: fmt.Sprintf("pod-%d", i), Container: "main"}); err != nil {
				t.Error(err)
				return
			}
			limits, err := n.preStart(plugin, id)
			if err != nil || !strings.Contains(limits, fmt.Sprintf("compute %d.00", i)) {
				t.Errorf("pod %d: %v: %s", i, err, limits)
			}
		})
	}
	all.Wait()
	stop()
}

// The agent dies between Allocate and the start; the kubelet restarts; the pod still gets its share.
func TestAgentAndKubeletMayRestartAtAnyPoint(t *testing.T) {
	n := newNode(t)
	first, kill := context.WithCancel(t.Context())
	if err := n.allocate(n.agent(first), "5", slots.ContainerRef{Namespace: "team", Pod: "pod-30", Container: "main"}); err != nil {
		t.Fatal(err)
	}
	kill()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	plugin := n.agent(ctx)
	if limits, err := n.preStart(plugin, "5"); err != nil || !strings.Contains(limits, "compute 30.00") {
		t.Fatalf("%v: %s", err, limits)
	}
	n.start()
	if limits, err := n.preStart(n.plugin(), "5"); err != nil || !strings.Contains(limits, "compute 30.00") {
		t.Fatalf("after the kubelet's restart: %v: %s", err, limits)
	}
	stop()
}

// The kubelet limits questions; a container does not fail for it.
func TestKubeletThatIsAskedTooMuch(t *testing.T) {
	n := newNode(t)
	ctx, stop := context.WithCancel(t.Context())
	plugin := n.agent(ctx)
	if err := n.allocate(plugin, "5", slots.ContainerRef{Namespace: "team", Pod: "pod-30", Container: "main"}); err != nil {
		t.Fatal(err)
	}
	n.mu.Lock()
	n.busy = 3
	n.mu.Unlock()
	if limits, err := n.preStart(plugin, "5"); err != nil || !strings.Contains(limits, "compute 30.00") {
		t.Fatalf("%v: %s", err, limits)
	}
	stop()
}

func TestContainerWithoutAShareDoesNotStart(t *testing.T) {
	n := newNode(t)
	ctx, stop := context.WithCancel(t.Context())
	plugin := n.agent(ctx)
	if _, err := n.preStart(plugin, "7"); err == nil || !strings.Contains(err.Error(), "no container has it") {
		t.Errorf("a slot without a container: %v", err)
	}
	if err := n.allocate(plugin, "8", slots.ContainerRef{Namespace: "team", Pod: "stranger", Container: "main"}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.preStart(plugin, "8"); err == nil || !strings.Contains(err.Error(), "no cards were chosen") {
		t.Errorf("a pod that no scheduler gave cards: %v", err)
	}
	_, err := plugin.Allocate(t.Context(), &deviceplugin.AllocateRequest{
		ContainerRequests: []*deviceplugin.ContainerAllocateRequest{{DevicesIds: []string{"1", "2"}}},
	})
	if err == nil || !strings.Contains(err.Error(), "write 1") {
		t.Errorf("two slots for one container: %v", err)
	}
	stop()
}

// The kubelet's messages are 4 MiB at most; ours do not grow with the cards' memory.
func TestTheListIsSmall(t *testing.T) {
	size := proto.Size(kubelet.List())
	t.Logf("%d slots in %d bytes", kubelet.Count, size)
	if size > 64<<10 {
		t.Errorf("the list has %d bytes", size)
	}
}
