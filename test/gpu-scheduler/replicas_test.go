package gpuscheduler

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/certs"
	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// Two replicas: the follower has the leader answer, and takes over with all it needs to know when
// the leader hangs and is killed.
func secondReplicaTakesOver(t *testing.T) {
	ns := cluster.Namespace(t)
	h100 := map[string]string{egpu.ModelLabel: "H100-80G"}
	for i := range 4 {
		p := pod(ns, fmt.Sprint("p", i), egpu.ResourceCore, 60)
		p.Spec.NodeSelector = h100
		cluster.Make(t, p)
		running(t, p)
	}
	first := leader(t)
	second := startReplica(t)
	if status := read(t, second, "/scheduler/status"); !strings.Contains(status, ns+"/p3") {
		t.Fatalf("the follower answers %s", status)
	}
	if leader(t) != first {
		t.Fatal("the second replica took the lead from one that is well")
	}

	// A leader that hangs is not started again, so the lead goes to the other; then it is killed.
	send(t, syscall.SIGSTOP)
	sandbox.Eventually(t, "the second replica leads", func(context.Context) error {
		if now := leader(t); now != second {
			return fmt.Errorf("the leader is %s", now)
		}
		return nil
	})
	killed := send(t, syscall.SIGKILL)
	sandbox.Eventually(t, "the first is started again", func(context.Context) error {
		if pid := scheduler(t).PID; pid == killed {
			return fmt.Errorf("it is still process %d", pid)
		}
		return nil
	})
	// kube-scheduler goes on asking the first, which is started again and passes on.
	late, small := pod(ns, "late", egpu.ResourceCore, 60), pod(ns, "small", egpu.ResourceCore, 40)
	late.Spec.NodeSelector, small.Spec.NodeSelector = h100, h100
	cluster.Make(t, late, small)
	running(t, small)
	if message := unschedulable(t, late); !strings.Contains(message, "not enough free capacity on cards") {
		t.Fatalf("the reason is %q: the new leader does not know which pods have the cards", message)
	}
}

// leader's address.
func leader(t *testing.T) string {
	t.Helper()
	lease := &coordinationv1.Lease{}
	err := cluster.Get(t.Context(), client.ObjectKey{Namespace: "elastic-queue", Name: "elastic-gpu-scheduler.elasticai.io"}, lease)
	if err != nil {
		t.Fatal(err)
	}
	address, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return address
}

// startReplica starts a second scheduler with the rights and the configuration of the first, on
// addresses of its own, and returns where it answers.
func startReplica(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(cluster.Dir, "test", "programs", "elastic-gpu-scheduler")
	data, err := os.ReadFile(filepath.Join(dir, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := v1alpha1.NewGPUSchedulerConfiguration()
	if err := yaml.Unmarshal(data, cfg); err != nil {
		t.Fatal(err)
	}
	cfg.Metrics.BindAddress = "0"
	cfg.Health.BindAddress, cfg.Extender.BindAddress = free(t), free(t)
	cfg.Webhook.CertDir = t.TempDir()
	cfg.Webhook.Port = portOf(t, free(t))
	if data, err = yaml.Marshal(cfg); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("elastic-gpu-scheduler", "--config", file, "--kubeconfig", filepath.Join(dir, "kubeconfig"))
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the second replica ended with %v", err)
		}
	})
	sandbox.Eventually(t, "the second replica is ready", func(context.Context) error {
		response, err := http.Get("http://" + cfg.Health.BindAddress + "/readyz")
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("it says %s", response.Status)
		}
		return nil
	})
	return cfg.Extender.BindAddress
}

func free(t *testing.T) string {
	t.Helper()
	address, err := local.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	tcp, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return tcp.Port
}

// read what a replica answers kube-scheduler, whose certificate is in the Secret.
func read(t *testing.T, address, path string) string {
	t.Helper()
	secret := &corev1.Secret{}
	if err := cluster.Get(t.Context(), client.ObjectKey{Namespace: "elastic-queue", Name: "elastic-gpu-scheduler-extender"}, secret); err != nil {
		t.Fatal(err)
	}
	config, err := certs.MutualOf(secret.Data).Client("")
	if err != nil {
		t.Fatal(err)
	}
	asks := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	response, err := asks.Get("https://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s %v", path, response.Status, body, err)
	}
	return string(body)
}

// A pod of the cluster that finds the extender cannot ask it.
func strangerIsNotAnswered(t *testing.T) {
	config := &tls.Config{InsecureSkipVerify: true} // a stranger minds nothing
	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	for _, path := range []string{"/scheduler/status", "/version", "/debug/pprof/"} {
		if response, err := stranger.Get("https://" + leader(t) + path); err == nil {
			_ = response.Body.Close()
			t.Errorf("%s: a stranger is answered: %s", path, response.Status)
		}
	}
	read(t, leader(t), "/version")
}

// send the scheduler that "elastic up" runs a signal it cannot handle, and return its process.
func send(t *testing.T, signal syscall.Signal) int {
	t.Helper()
	pid := scheduler(t).PID
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
	return pid
}

// scheduler that "elastic up" runs, as it last became ready.
func scheduler(t *testing.T) local.ProgramState {
	t.Helper()
	c, err := local.Open("test")
	if err != nil {
		t.Fatal(err)
	}
	state, err := c.State()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range state.Programs {
		if p.Name == "elastic-gpu-scheduler" {
			return p
		}
	}
	t.Fatal("no scheduler runs")
	return local.ProgramState{}
}
