//go:build linux

package realnode

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// Pods of a node that is there no more are disrupted, and gone; what had ended before stays as it is, and so do others' pods.
func TestPodsOfAnEarlierRun(t *testing.T) {
	pod := func(name, node string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "x"}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase}}
	}
	client := fake.NewClientset(pod("ran", "real", corev1.PodRunning), pod("came", "real", corev1.PodPending), pod("done", "real", corev1.PodSucceeded),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "real"}})
	n := &node{Options: Options{Name: "real"}}
	if err := n.forgetNode(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	for _, action := range client.Actions() {
		if update, ok := action.(clienttesting.UpdateAction); ok && action.GetSubresource() == "status" {
			lost := update.GetObject().(*corev1.Pod)
			last := lost.Status.Conditions[len(lost.Status.Conditions)-1]
			said[lost.Name] = lost.Status.Phase == corev1.PodFailed && last.Type == corev1.DisruptionTarget && last.Status == corev1.ConditionTrue
		}
	}
	if len(said) != 2 || !said["ran"] || !said["came"] {
		t.Errorf("disrupted: %v", said)
	}
	left, err := client.CoreV1().Pods("x").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 1 || left.Items[0].Name != "done" || left.Items[0].Status.Phase != corev1.PodSucceeded {
		t.Errorf("left: %v %v", left.Items, err)
	}
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "real", metav1.GetOptions{}); err == nil {
		t.Error("the node is still there")
	}
	if err := n.forgetNode(t.Context(), client); err != nil {
		t.Errorf("without a node: %v", err)
	}
}

// Processes are the node's by its files among their arguments, and no others are.
func TestProcessesOfANode(t *testing.T) {
	n := &node{dir: t.TempDir()}
	for _, c := range []struct {
		name string
		args []string
		env  string
		ours bool
	}{
		{"containerd-shim-runc-v2", []string{"-address", n.socket()}, "", true},
		{"containerd-shim-runc-v2", []string{"-address", "/run/containerd/containerd.sock"}, "", false},
		{"containerd", []string{"--config", n.path("containerd.toml")}, "", true},
		{"kubelet", []string{"--config", n.path("kubelet.json")}, "", true},
		{"kubelet", []string{"--config", "/etc/kubelet.json"}, "", false},
		{"vi", []string{n.path("kubelet.json")}, "", false},
		{"nvidia-cuda-mps-control", nil, "CUDA_MPS_PIPE_DIRECTORY=" + n.path("elastic-gpu", "space", "cards", "0", "pipe"), true},
		{"nvidia-cuda-mps-control", nil, "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps", false},
		{"nvidia-cuda-mps-control", nil, "X=CUDA_MPS_PIPE_DIRECTORY=" + n.dir + "/", false},
	} {
		// A shell that waits, by another name. Its arguments are in /proc once it runs, which is after Start returns.
		cmd := &exec.Cmd{Path: "/bin/sh", Args: append([]string{c.name, "-c", "echo; read x"}, c.args...), Env: []string{c.env}}
		input, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		output, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := output.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if got := n.started(fmt.Sprintf("/proc/%d", cmd.Process.Pid)); got != c.ours {
			t.Errorf("%s %v %s: %t", c.name, c.args, c.env, got)
		}
		_ = input.Close()
		_ = cmd.Wait()
	}
	if n.started("/proc/0") {
		t.Error("a process that is not there is the node's")
	}
}

// What a kubelet and containerd noted of containers goes, with shims' sockets elsewhere; images stay.
func TestForgetContainers(t *testing.T) {
	n := &node{dir: t.TempDir()}
	elsewhere := t.TempDir()
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(elsewhere, "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	socket.SetUnlinkOnClose(false)
	_ = socket.Close()
	kept := filepath.Join(elsewhere, "file")
	shim := func(id, address string) string {
		text, err := json.Marshal(map[string]any{"version": 3, "address": "unix://" + address})
		if err != nil {
			t.Fatal(err)
		}
		write(t, n.path("containerd", "state", "io.containerd.runtime.v2.task", "k8s.io", id, "bootstrap.json"), string(text))
		return address
	}
	gone := []string{shim("1", filepath.Join(elsewhere, "s")), n.path("kubelet", "device-plugins", "kubelet_internal_checkpoint"), n.path("containerd", "runc", "k8s.io", "1", "state.json"), n.path("kubelet.pid")}
	stays := []string{shim("2", kept), n.path("containerd", "root", "meta.db"), n.path("pki", "ca.crt"), n.path("elastic-gpu", "x")}
	for _, path := range append(gone[1:], stays...) {
		write(t, path, "x")
	}
	if err := n.forgetContainers(); err != nil {
		t.Fatal(err)
	}
	for _, path := range append(gone, n.path("containerd", "state")) {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range append(stays, n.path("kubelet")) {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
