package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/backend/mig"
	"github.com/elastic-ai/elastic/internal/agent/backend/mps"
	"github.com/elastic-ai/elastic/internal/agent/backend/remote"
	"github.com/elastic-ai/elastic/internal/agent/backend/simulated"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/dra"
	"github.com/elastic-ai/elastic/internal/agent/exporter"
	"github.com/elastic-ai/elastic/internal/agent/kubelet"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
)

// Node is one node with what the agent needs to give its containers cards.
type Node struct {
	Name   string
	Source discovery.Source
	// API is not a cache: a container starts once, and must not start on old data. Cache says when to ask it.
	API    client.Reader
	Cache  client.Reader
	Config v1alpha1.DevicePlugin
	// Events of pods that a defect concerns; may be nil.
	Events events.EventRecorder
	Log    logr.Logger

	shares    *gpushare.Backend
	divisions func(uuid string) ([]mig.Partition, bool) // what cards can be divided into; nil where they are not real
	daemons   []*mps.Daemons
	remote    *remoteCards // nil where cards of other nodes are not used
	slots     *slots.Slots
	changes   chan event.GenericEvent
}

// DevicePlugin of the node.
func (n *Node) DevicePlugin() (*kubelet.Plugin, error) {
	resources, _, err := kubelet.NewResources(filepath.Join(n.Config.KubeletDir, "pod-resources", "kubelet.sock"), string(egpu.ResourceClaim))
	if err != nil {
		return nil, err
	}
	backends, err := n.Backends()
	if err != nil {
		return nil, err
	}
	n.changes = make(chan event.GenericEvent, 1)
	n.slots = &slots.Slots{
		Dir: n.Config.CDIDir, Log: n.Log, Containers: resources.Containers, Share: n.share, Gone: n.gone, Changed: n.changed, Defective: n.defective, Backends: backends,
	}
	return &kubelet.Plugin{
		Dir: filepath.Join(n.Config.KubeletDir, "device-plugins"), Resource: string(egpu.ResourceClaim), Log: n.Log, Slots: n.slots,
	}, nil
}

// changed says that containers have come to have cards, or no longer do. One event that waits stands for all.
func (n *Node) changed() {
	select {
	case n.changes <- event.GenericEvent{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}}:
	default:
	}
}

// setAside is the event of a pod that a defect concerns.
const setAside = "SetAside"

// defective tells a pod of a defect.
func (n *Node) defective(ctx context.Context, key types.NamespacedName, defect error) {
	pod := &corev1.Pod{}
	if n.Events == nil || n.API.Get(ctx, key, pod) != nil {
		return
	}
	n.Events.Eventf(pod, nil, corev1.EventTypeWarning, setAside, "Allocate", "%v", defect)
}

// ClaimPlugin serves ResourceClaims, from the same slots.
func (n *Node) ClaimPlugin(kube kubernetes.Interface) *dra.Plugin {
	p := &dra.Plugin{Node: n.Name, KubeletDir: n.Config.KubeletDir, Kube: kube, API: n.API, Slots: n.slots, Log: n.Log.WithName("dra")}
	p.Partitions = n.divisions
	return p
}

// AllocationPaths of the node's cards; cards are those that ResourceClaims get where the node does not say.
func (n *Node) AllocationPaths(claims *dra.Plugin, cards string) *AllocationPaths {
	return &AllocationPaths{Cards: cards, Held: n.slots.AllocationPaths, Changes: n.changes, Offer: claims.Offer}
}

// state is a folder of the agent's own.
func (n *Node) state(name string) string { return filepath.Join(n.Config.StateDir, name) }

// Backends of the node, the one for shares first.
func (n *Node) Backends() ([]backend.Backend, error) {
	state := n.state
	library, err := installLibrary(n.Config.Library, filepath.Join(state("lib"), gpushare.Version))
	if err != nil {
		return nil, fmt.Errorf("installing the library that holds shares: %w", err)
	}
	driver := &backend.NodeDriver{CDIDirs: n.Config.DriverDirs, Kind: "nvidia.com/gpu"}
	n.shares = &gpushare.Backend{Driver: driver, Dir: state("gpushare"), Library: library}
	var list []backend.Backend
	switch source := n.Source.(type) {
	case discovery.Simulated:
		list = []backend.Backend{&simulated.Backend{As: "simulated", Dir: state("simulated")}, &simulated.Backend{As: "whole", Dir: state("whole")}}
	case *discovery.NVML:
		list = n.ofRealCards(source, driver)
	}
	if n.Config.Remote.BindAddress != "" {
		clients, err := n.remoteClients()
		if err != nil {
			return nil, fmt.Errorf("cards of other nodes: %w", err)
		}
		list = append(list, clients)
	}
	for _, name := range slices.Sorted(maps.Keys(n.Config.RemoteBackends)) {
		other, err := remote.New(name, n.Config.RemoteBackends[name])
		if err != nil {
			return nil, err
		}
		list = append(list, other)
	}
	return list, nil
}

// Swapper moves what containers have to the host and back.
func (n *Node) Swapper(c client.Client) *Swapper {
	return &Swapper{Client: c, Grants: n.slots.Grants, Shares: n.shares, OnCard: n.onCard, Unexplained: n.unexplained, LookEvery: restLook, Server: n.remote.serverPod, Events: n.Events}
}

// onCard are the processes of a pod that the driver sees on a card.
func (n *Node) onCard(ctx context.Context, uid types.UID, uuid string) ([]discovery.Process, error) {
	all, err := n.Source.Processes(ctx, uuid)
	if err != nil {
		return nil, err
	}
	var ours []discovery.Process
	for _, p := range all {
		in, err := gpushare.InPod(p.PID, uid)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // one that has ended has left the card
			return nil, err
		}
		if in {
			ours = append(ours, p)
		}
	}
	return ours, nil
}

// unexplained is how much memory (MiB) of a card is in use by no process that the driver sees.
func (n *Node) unexplained(ctx context.Context, uuid string) (int64, error) {
	if _, simulated := n.Source.(discovery.Simulated); simulated {
		return 0, nil
	}
	cards, err := n.Source.Cards(ctx, &corev1.Node{})
	if err != nil {
		return 0, err
	}
	at := slices.IndexFunc(cards, func(c discovery.Card) bool { return c.UUID == uuid })
	if at < 0 {
		return 0, nil // whether it is there at all is not asked here
	}
	processes, err := n.Source.Processes(ctx, uuid)
	if err != nil {
		return 0, err
	}
	rest := cards[at].UsedMB
	for _, p := range processes {
		rest -= p.MemoryMB
	}
	return max(rest, 0), nil
}

// SwapReporter says which pods could be swapped.
func (n *Node) SwapReporter(c client.Client) manager.Runnable {
	return &SwapReporter{Client: c, Grants: n.slots.Grants, Processes: n.shares.Processes, Server: n.remote.serverPod, Log: n.Log}
}

// CardProcesses says what runs on the node's cards.
func (n *Node) CardProcesses() *CardProcesses {
	return &CardProcesses{
		Grants: n.slots.Grants, OnCard: n.Source.Processes, UnderLibrary: n.shares.Processes, Log: n.Log,
		IsOf: func(pid int, s *share.Share) bool {
			in, err := gpushare.InPod(pid, s.UID)
			return err == nil && in
		},
	}
}

// IdleWatch has containers leave cards that they do not use, and brings them back.
func (n *Node) IdleWatch(swapper *Swapper) manager.Runnable {
	return &IdleWatch{Swapper: swapper, Processes: n.shares.Processes, Log: n.Log}
}

// PIDReporter reports to processes under which pid the driver knows them.
func (n *Node) PIDReporter() manager.Runnable { return &pidReporter{node: n} }

// Exporter of what the device plugin has given out. pods is asked for their labels.
func (n *Node) Exporter(pods client.Reader) *exporter.Exporter {
	return &exporter.Exporter{
		Node: n.Name, Log: n.Log, Grants: n.slots.Grants, Processes: n.shares.Processes,
		Cards: func(ctx context.Context) ([]discovery.Card, error) {
			node := &corev1.Node{}
			if err := pods.Get(ctx, client.ObjectKey{Name: n.Name}, node); err != nil {
				return nil, err
			}
			return n.Source.Cards(ctx, node)
		},
		Pod: func(ctx context.Context, key types.NamespacedName) *corev1.Pod {
			pod := &corev1.Pod{}
			if pods.Get(ctx, key, pod) != nil {
				return nil
			}
			return pod
		},
	}
}

// The scheduler records the cards of a pod just after it has bound it, and the kubelet waits 30 seconds for an
// answer. Waiting looks into the cache alone, so that pods without a record cost the API server nothing. A server of a card of
// another node may take longer: its image is fetched. The kubelet asks again.
const (
	answerTimeout = 25 * time.Second
	recordTimeout = 20 * time.Second
	recordPoll    = 20 * time.Millisecond
)

// share of a container, from the record of the scheduler and the cards that are there now.
func (n *Node) share(ctx context.Context, c slots.ContainerRef) (s share.Share, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	pod, node := &corev1.Pod{}, &corev1.Node{}
	if err := n.API.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Pod}, pod); err != nil {
		return s, err
	}
	if pod.Spec.NodeName != n.Name {
		return s, fmt.Errorf("pod %s/%s is on node %q by now", c.Namespace, c.Pod, pod.Spec.NodeName)
	}
	if err := n.API.Get(ctx, client.ObjectKey{Name: n.Name}, node); err != nil {
		return s, err
	}
	cards, err := n.Source.Cards(ctx, node)
	if err != nil {
		return s, err
	}
	resolver := &share.Resolver{Client: n.API, ServerNamespace: n.Config.Remote.ServerNamespace}
	var missing *share.NoRecord
	var refused error
	err = wait.PollUntilContextTimeout(ctx, recordPoll, recordTimeout, true, func(ctx context.Context) (bool, error) {
		known := &egpu.GPUList{}
		if err := n.Cache.List(ctx, known, client.MatchingFields{nodeIndex: n.Name}); err != nil {
			return false, err
		}
		if _, err := resolver.Of(ctx, pod, c.Container, cards, known.Items); errors.As(err, &missing) {
			return false, nil
		}
		// What the cache says may have changed since.
		gpus, err := n.gpus(ctx, known.Items)
		if err != nil {
			return false, err
		}
		s, refused = resolver.Of(ctx, pod, c.Container, cards, gpus)
		return !errors.As(refused, &missing), nil
	})
	switch {
	case missing != nil && wait.Interrupted(err):
		return s, fmt.Errorf("container %s of pod %s/%s: %w", c.Container, c.Namespace, c.Pod, missing)
	case err != nil:
		return s, err
	case refused == nil && s.Remote != nil && n.remote != nil:
		return s, n.remote.awaitServer(ctx, s.Remote)
	}
	return s, refused
}

// gpus as the API server has them; those that are gone are left out.
func (n *Node) gpus(ctx context.Context, known []egpu.GPU) ([]egpu.GPU, error) {
	var now []egpu.GPU
	for i := range known {
		gpu := egpu.GPU{}
		err := n.API.Get(ctx, client.ObjectKey{Name: known[i].Name}, &gpu)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil && gpu.Spec.NodeName == n.Name {
			now = append(now, gpu)
		}
	}
	return now, nil
}

// gone says whether the pod that a share is for has ended, or its ResourceClaim is allocated no more; another
// of its name is another one.
func (n *Node) gone(ctx context.Context, s *share.Share) (bool, error) {
	if s.Claim != nil {
		claim := &resourceapi.ResourceClaim{}
		if err := n.API.Get(ctx, s.Claim.NamespacedName, claim); err != nil {
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		}
		return claim.UID != s.Claim.UID || claim.Status.Allocation == nil, nil
	}
	pod := &corev1.Pod{}
	if err := n.API.Get(ctx, s.Pod, pod); err != nil {
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	return pod.UID != s.UID || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed, nil
}

// installLibrary copies the library to the node, where containers mount it from. Those that run stay with the
// one they have. A node without it serves whole cards alone.
func installLibrary(from, dir string) (string, error) {
	to := filepath.Join(dir, filepath.Base(from))
	source, err := os.Open(from)
	if errors.Is(err, os.ErrNotExist) {
		return to, nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = source.Close() }()
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // containers run it as any user
		return "", err
	}
	target, err := os.OpenFile(to+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755) //nolint:gosec // as above
	if err != nil {
		return "", err
	}
	_, err = io.Copy(target, source)
	if err := errors.Join(err, target.Close()); err != nil {
		return "", err
	}
	return to, os.Rename(to+".new", to)
}
