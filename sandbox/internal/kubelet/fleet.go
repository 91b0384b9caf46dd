package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"strconv"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/version"

	"github.com/elastic-ai/elastic/sandbox/internal/nodespec"
)

const (
	// FakeAnnotation marks a node that is simulated; its name and value are KWOK's.
	FakeAnnotation = "kwok.x-k8s.io/node"
	fakeValue      = "fake"
	// remoteAgentAnnotation says that the node's agent connects pods with cards of other nodes. Nobody is at that address: what
	// simulated pods say to their cards is nothing.
	remoteAgentAnnotation = "elasticgpu.io/remote-agent"
	remoteAgentValue      = `{"address":"simulated"}`
	// fleetLabel marks the nodes that the node spec asked for, and may be removed with it.
	fleetLabel = "sandbox.elasticai.io/fleet"

	nodesPerRack  = 16
	racksPerZone  = 8
	fleetParallel = 32
)

var nodeNetwork = netip.MustParsePrefix("10.1.0.0/16")

// EnsureFleet makes the cluster's fleet the given one: missing nodes are
// created, others removed, changed ones replaced. port is where the simulated
// kubelets listen.
func EnsureFleet(ctx context.Context, client kubernetes.Interface, fleet []nodespec.Node, port int32) error {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	addresses := newAddresses(nodeNetwork)
	existing := map[string]*corev1.Node{}
	for i := range list.Items {
		node := &list.Items[i]
		for _, a := range node.Status.Addresses {
			addresses.use(a.Address)
		}
		existing[node.Name] = node
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fleetParallel)
	for _, n := range fleet {
		old := existing[n.Name]
		delete(existing, n.Name)
		ip, err := addressOf(old, addresses)
		if err != nil {
			return err
		}
		group.Go(func() error { return ensureNode(ctx, client, newNode(n, ip, port), old) })
	}
	for name, old := range existing {
		_, ours := old.Labels[fleetLabel]
		switch {
		case ours:
			group.Go(func() error { return deleteNode(ctx, client, name) })
		case old.Annotations[remoteAgentAnnotation] == remoteAgentValue: // it has joined since
			group.Go(func() error { return reconnect(ctx, client, newNode(nodespec.Node{Name: name}, "", port)) })
		}
	}
	return group.Wait()
}

func ensureNode(ctx context.Context, client kubernetes.Interface, want, old *corev1.Node) error {
	if old == nil {
		return createNode(ctx, client, want)
	}
	if !sameNode(old, want) {
		if err := deleteNode(ctx, client, want.Name); err != nil {
			return err
		}
		return createNode(ctx, client, want)
	}
	connected := old.Annotations[remoteAgentAnnotation] != "" // not by a sandbox before this version
	if connected && old.Status.DaemonEndpoints == want.Status.DaemonEndpoints && old.Status.NodeInfo == want.Status.NodeInfo {
		return nil
	}
	return reconnect(ctx, client, want)
}

// reconnect writes where the node's kubelet listens in this run, and what it is. A patch, since the controller manager may write
// to the node at the same time.
func reconnect(ctx context.Context, client kubernetes.Interface, want *corev1.Node) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": want.Annotations},
		"status":   map[string]any{"daemonEndpoints": want.Status.DaemonEndpoints, "nodeInfo": want.Status.NodeInfo},
	})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, want.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// createNode makes a node that was not there. One that is there now was made by a request that was answered too late.
func createNode(ctx context.Context, client kubernetes.Interface, node *corev1.Node) error {
	if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create node %s: %w", node.Name, err)
	}
	return nil
}

// addressOf is the address a node has, or the next free one.
func addressOf(node *corev1.Node, addresses *addresses) (string, error) {
	if node != nil {
		if ip := hostIP(node); ip != "" {
			return ip, nil
		}
	}
	return addresses.take()
}

func deleteNode(ctx context.Context, client kubernetes.Interface, name string) error {
	err := client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete node %s: %w", name, err)
	}
	return nil
}

// sameNode says whether a node still is what the node spec asks for; labels that
// others added do not matter.
func sameNode(old, want *corev1.Node) bool {
	for key, value := range want.Labels {
		if old.Labels[key] != value {
			return false
		}
	}
	return apiequality.Semantic.DeepEqual(old.Status.Capacity, want.Status.Capacity)
}

// newNode is the node as its kubelet would register it.
func newNode(n nodespec.Node, ip string, port int32) *corev1.Node {
	capacity := capacityOf(n)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        n.Name,
			Labels:      labelsOf(n),
			Annotations: map[string]string{FakeAnnotation: fakeValue, remoteAgentAnnotation: remoteAgentValue},
		},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: maps.Clone(capacity),
			Conditions:  readyConditions(metav1.Now()),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: ip},
				{Type: corev1.NodeExternalIP, Address: "127.0.0.1"},
				{Type: corev1.NodeHostName, Address: n.Name},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
			NodeInfo: corev1.NodeSystemInfo{
				OperatingSystem: "linux", Architecture: "amd64", OSImage: "simulated", KernelVersion: "simulated",
				ContainerRuntimeVersion: "simulated://1", KubeletVersion: version.Get().GitVersion,
				MachineID: n.Name, SystemUUID: n.Name, BootID: n.Name,
			},
		},
	}
}

func labelsOf(n nodespec.Node) map[string]string {
	rack := n.Index / nodesPerRack
	labels := map[string]string{
		// Kubelets still set these two; left out, the controller manager adds them to every node.
		"beta.kubernetes.io/os":   "linux",
		"beta.kubernetes.io/arch": "amd64",

		"type":                             "kwok",
		fleetLabel:                         n.Pool,
		corev1.LabelHostname:               n.Name,
		corev1.LabelOSStable:               "linux",
		corev1.LabelArchStable:             "amd64",
		corev1.LabelTopologyRegion:         "sandbox",
		corev1.LabelTopologyZone:           fmt.Sprintf("zone-%d", rack/racksPerZone),
		"elasticai.io/rack":                fmt.Sprintf("%s-rack-%d", n.Pool, rack),
		"node.kubernetes.io/instance-type": fmt.Sprintf("%s-x%d", n.Pool, n.Cards),
	}
	if n.Cards > 0 {
		labels["nvidia.com/gpu.present"] = "true"
		labels["nvidia.com/gpu.product"] = n.Model.Product
		labels["nvidia.com/gpu.count"] = strconv.Itoa(n.Cards)
		labels["nvidia.com/gpu.memory"] = strconv.FormatInt(n.Model.MemoryMB, 10)
		labels["elasticgpu.io/gpu-model"] = n.Model.Name
		if n.Model.TFLOPS > 0 {
			labels["elasticgpu.io/gpu-fp16-tflops"] = strconv.FormatInt(n.Model.TFLOPS, 10)
		}
	}
	return labels
}

func capacityOf(n nodespec.Node) corev1.ResourceList {
	cpus, gib := int64(32), int64(128)
	if n.Cards > 0 {
		cpus, gib = 8+12*int64(n.Cards), 64+128*int64(n.Cards)
	}
	count := func(v int64) resource.Quantity { return *resource.NewQuantity(v, resource.DecimalSI) }
	bytes := func(v int64) resource.Quantity { return *resource.NewQuantity(v, resource.BinarySI) }
	list := corev1.ResourceList{
		corev1.ResourceCPU:              count(cpus),
		corev1.ResourceMemory:           bytes(gib << 30),
		corev1.ResourceEphemeralStorage: bytes(1 << 40),
		corev1.ResourcePods:             count(110),
	}
	if n.Cards > 0 {
		cards := int64(n.Cards)
		list["nvidia.com/gpu"] = count(cards)
		list["elasticgpu.io/gpu-core"] = count(100 * cards)
		list["elasticgpu.io/gpu-memory"] = count(n.Model.MemoryMB * cards)
	}
	return list
}

func readyConditions(now metav1.Time) []corev1.NodeCondition {
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, LastHeartbeatTime: now, LastTransitionTime: now}
	}
	return []corev1.NodeCondition{
		condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
	}
}

func hostIP(node *corev1.Node) string {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

// FleetReady says how many of the fleet's nodes may be scheduled on.
func FleetReady(nodes []*corev1.Node) int {
	ready := 0
	for _, node := range nodes {
		if _, ours := node.Labels[fleetLabel]; ours && isReady(node) {
			ready++
		}
	}
	return ready
}

func isReady(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		// The API server registers every node with this taint; the controller manager takes it off.
		if taint.Key == corev1.TaintNodeNotReady {
			return false
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
