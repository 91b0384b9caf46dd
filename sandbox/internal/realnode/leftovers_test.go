//go:build linux

package realnode

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Pods of a node that is there no more are disrupted, and gone; what had ended before stays as it is, and others' pods are not
// asked for.
func TestPodsOfAnEarlierRun(t *testing.T) {
	pod := func(name string, phase corev1.PodPhase) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "x"}, Status: corev1.PodStatus{Phase: phase}}
	}
	pods := corev1.PodList{Items: []corev1.Pod{pod("ran", corev1.PodRunning), pod("came", corev1.PodPending), pod("done", corev1.PodSucceeded)}}
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := r.Method + " " + r.URL.String()
		var answer any = &metav1.Status{}
		w.Header().Set("Content-Type", "application/json")
		switch r.Method {
		case http.MethodGet:
			answer = &pods
		case http.MethodPut:
			var lost corev1.Pod
			if err := json.NewDecoder(r.Body).Decode(&lost); err != nil {
				t.Error(err)
			}
			last := lost.Status.Conditions[len(lost.Status.Conditions)-1]
			request += fmt.Sprintf(" %s, %s %s", lost.Status.Phase, last.Type, last.Status)
			answer = &lost
		case http.MethodDelete:
			if r.URL.Path == "/api/v1/nodes/real" { // it was never there
				w.WriteHeader(http.StatusNotFound)
				answer = &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
			}
		}
		asked = append(asked, request)
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{Options: Options{Name: "real"}}
	if err := n.forgetNode(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"GET /api/v1/pods?fieldSelector=spec.nodeName%3Dreal",
		"PUT /api/v1/namespaces/x/pods/ran/status Failed, DisruptionTarget True",
		"DELETE /api/v1/namespaces/x/pods/ran",
		"PUT /api/v1/namespaces/x/pods/came/status Failed, DisruptionTarget True",
		"DELETE /api/v1/namespaces/x/pods/came",
		"DELETE /api/v1/nodes/real",
	}
	if !slices.Equal(asked, want) {
		t.Errorf("asked\n%s\nnot\n%s", strings.Join(asked, "\n"), strings.Join(want, "\n"))
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
