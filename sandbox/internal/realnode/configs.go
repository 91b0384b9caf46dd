//go:build linux

package realnode

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/elastic-ai/elastic/sandbox/internal/pki"
)

// pauseImage holds a pod's namespaces.
const pauseImage = "registry.local/pause:1"

// tag is short and the folder's own: names of a bridge and a cgroup, and the network, come from it.
func (n *node) tag() []byte {
	sum := sha256.Sum256([]byte(n.dir))
	return sum[:]
}

func (n *node) bridge() string { return fmt.Sprintf("elastic%x", n.tag()[:4]) }

func (n *node) cgroup() string { return fmt.Sprintf("elastic-%x", n.tag()[:4]) }

func (n *node) configure() error {
	for _, dir := range []string{"cdi", "cni", "kubelet", "log", "pki", "containerd"} {
		if err := os.MkdirAll(n.path(dir), 0o755); err != nil {
			return err
		}
	}
	ca, client, server, err := pki.ForNode(filepath.Join(n.SandboxDir, "pki"), n.path("pki"), n.Name, n.ip, time.Now())
	if err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	if err := pki.WriteKubeconfig(n.path("kubeconfig"), n.server, ca, client); err != nil {
		return err
	}
	for name, data := range map[string]any{"kubelet.json": n.kubelet(ca, server), "cni/10-bridge.conflist": n.network()} {
		text, err := json.MarshalIndent(data, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(n.path(name), text, 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(n.path("containerd.toml"), []byte(n.containerd()), 0o600)
}

func (n *node) containerd() string {
	return fmt.Sprintf(`version = 3
root = %[1]q
state = %[2]q
[grpc]
  address = %[3]q
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = %[4]q
[plugins.'io.containerd.cri.v1.runtime']
  # Not every machine lets its root lower a process's score.
  restrict_oom_score_adj = true
  # With all else that goes when the machine goes down.
  netns_mounts_under_state_dir = true
  enable_cdi = true
  cdi_spec_dirs = [%[5]q]
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [%[6]q]
    conf_dir = %[7]q
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = %[8]q
      Root = %[9]q
      SystemdCgroup = false
`, n.path("containerd", "root"), n.path("containerd", "state"), n.socket(), pauseImage, n.path("cdi"), n.Bin, n.path("cni"), filepath.Join(n.Bin, "runc"),
		n.path("containerd", "runc"))
}

// network is a bridge on this machine. Nothing leads from it to the outside: that takes rules in the
// machine's firewall, which are not ours to make.
func (n *node) network() map[string]any {
	tag := n.tag()
	return map[string]any{
		"cniVersion": "1.0.0", "name": "elastic",
		"plugins": []any{map[string]any{
			"type": "bridge", "bridge": n.bridge(), "isGateway": true, "hairpinMode": true,
			"ipam": map[string]any{
				"type": "host-local", "dataDir": n.path("cni", "addresses"),
				"ranges": []any{[]any{map[string]any{"subnet": fmt.Sprintf("10.%d.%d.0/24", 128+tag[4]%100, tag[5])}}},
			},
		}},
	}
}

func (n *node) kubelet(ca string, server pki.Pair) map[string]any {
	return map[string]any{
		"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
		"address": n.ip.String(), "port": n.port, "healthzPort": 0, "readOnlyPort": 0,
		"tlsCertFile": server.Cert, "tlsPrivateKeyFile": server.Key,
		"authentication": map[string]any{
			"x509": map[string]any{"clientCAFile": ca}, "anonymous": map[string]any{"enabled": false},
		},
		"containerRuntimeEndpoint": "unix://" + n.socket(),
		"cgroupDriver":             "cgroupfs", "cgroupRoot": "/" + n.cgroup(), "failCgroupV1": false, "failSwapOn": false,
		"makeIPTablesUtilChains": false, "nodeStatusUpdateFrequency": "1s",
		"podLogsDir": n.path("log", "pods"), "volumePluginDir": filepath.Join(kubeletDir, "volume-plugins"),
		"resolvConf": resolvConf(),
		// It looks at a pod when containerd says that something has changed, and not a second or two later.
		"featureGates": map[string]bool{"EventedPLEG": true},
		// The machine is not ours alone: how full it is says nothing about our pods, and some have more memory later
		// than when the kubelet starts.
		"enforceNodeAllocatable":      []string{"none"},
		"evictionHard":                map[string]string{"memory.available": "1Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
	}
}

func resolvConf() string {
	if _, err := os.Stat("/etc/resolv.conf"); err != nil {
		return ""
	}
	return "/etc/resolv.conf"
}

// loopbackAddress is given to the loopback of a machine that has no other address: a node may not have 127.0.0.1.
var loopbackAddress = net.IPv4(10, 127, 0, 1).To4()

// address of this machine that a node may have. One that was made for this node is written down, and given back.
func (n *node) address() (net.IP, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		if network, ok := a.(*net.IPNet); ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() && !network.IP.Equal(loopbackAddress) {
			return network.IP, nil
		}
	}
	if err := os.WriteFile(n.path(madeAddress), []byte(loopbackAddress.String()), 0o600); err != nil {
		return nil, err
	}
	if err := setLoopbackAddress(loopbackAddress); err != nil {
		return nil, fmt.Errorf("this machine has no address but 127.0.0.1, and a node needs one: %w", err)
	}
	return loopbackAddress, nil
}

// madeAddress is the file that says that the loopback has an address for this node.
const madeAddress = "address"

// giveBackAddress that was made for this node.
func (n *node) giveBackAddress() error {
	if _, err := os.Stat(n.path(madeAddress)); err != nil {
		return nil
	}
	if err := removeLoopbackAddress(); err != nil {
		return err
	}
	return os.Remove(n.path(madeAddress))
}
