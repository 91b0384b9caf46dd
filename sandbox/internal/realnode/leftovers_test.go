//go:build linux

package realnode

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
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

// Processes are the node's by who runs them and its files among their arguments, and no others are.
func TestProcessesOfANode(t *testing.T) {
	n := &node{dir: t.TempDir()}
	pipe := "CUDA_MPS_PIPE_DIRECTORY=" + n.path("elastic-gpu", "space", "cards", "0", "pipe")
	for _, c := range []struct {
		name string
		args []string
		env  string
		uid  int // another's, if not 0
		want whose
	}{
		{name: "containerd-shim-runc-v2", args: []string{"-address", n.socket()}, want: ours},
		{name: "containerd-shim-runc-v2", args: []string{"-address", "/run/containerd/containerd.sock"}},
		{name: "containerd", args: []string{"--config", n.path("containerd.toml")}, want: ours},
		{name: "containerd", args: []string{"--config", n.path("containerd.toml")}, uid: 4021},
		{name: "kubelet", args: []string{"--config", n.path("kubelet.json")}, want: ours},
		{name: "kubelet", args: []string{"--config", n.path("kubelet.json")}, uid: 4021},
		{name: "kubelet", args: []string{"--config", "/etc/kubelet.json"}},
		{name: "vi", args: []string{n.path("kubelet.json")}},
		{name: "nvidia-cuda-mps-control", env: pipe, want: ours},
		{name: "nvidia-cuda-mps-control", env: pipe, uid: 4021},
		{name: "nvidia-cuda-mps-server", env: pipe, uid: 4021, want: perhaps},
		{name: "nvidia-cuda-mps-control", env: "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps"},
		{name: "nvidia-cuda-mps-control", env: "X=CUDA_MPS_PIPE_DIRECTORY=" + n.dir + "/"},
	} {
		if c.uid != 0 && os.Geteuid() != 0 {
			continue
		}
		cmd, end := runs(t, c.uid, c.name, c.args, c.env)
		if got := n.started(fmt.Sprintf("/proc/%d", cmd.Process.Pid)); got != c.want {
			t.Errorf("%s %v %s of %d: %d", c.name, c.args, c.env, c.uid, got)
		}
		_ = end()
	}
	if n.started("/proc/0") != others {
		t.Error("a process that is not there is the node's")
	}
}

// What people start under the names of the node's programs does not keep a node from its end. A server of MPS is its
// client's, so that one is ended too, and not waited for.
func TestProcessesOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root starts processes of others")
	}
	n := &node{dir: t.TempDir()}
	_, endForged := runs(t, 4021, "kubelet", []string{"--config", n.path("kubelet.json")}, "")
	_, endServer := runs(t, 4021, "nvidia-cuda-mps-server", nil, "CUDA_MPS_PIPE_DIRECTORY="+n.dir+"/x")
	_, endKubelet := runs(t, 0, "kubelet", []string{"--config", n.path("kubelet.json")}, "")
	if err := n.endProcesses(); err != nil {
		t.Fatal(err)
	}
	for _, end := range []func() error{endServer, endKubelet} {
		if err := end(); err == nil || err.Error() != "signal: killed" {
			t.Error(err)
		}
	}
	if err := endForged(); err == nil || err.Error() != "exit status 1" { // as a shell that finds nothing to read
		t.Errorf("another's process: %v", err)
	}
}

// runs a shell that waits, by another name, until it is ended. Its arguments are in /proc once it runs, which is after Start
// returns.
func runs(t *testing.T, uid int, name string, args []string, env string) (*exec.Cmd, func() error) {
	t.Helper()
	cmd := &exec.Cmd{Path: "/bin/sh", Args: append([]string{name, "-c", "echo; read x"}, args...), Env: []string{env}, Dir: "/"}
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
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
	end := sync.OnceValue(func() error {
		_ = input.Close()
		return cmd.Wait()
	})
	t.Cleanup(func() { _ = end() })
	if _, err := output.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd, end
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
