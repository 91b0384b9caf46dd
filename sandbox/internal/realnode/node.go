//go:build linux

package realnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/elastic-ai/elastic/sandbox/internal/run"
	"github.com/elastic-ai/elastic/sandbox/internal/statedir"
)

// Options of a real node.
type Options struct {
	// Dir is the node's folder, SandboxDir that of the control plane it joins.
	Dir, SandboxDir string
	// Bin holds the kubelet, containerd and what they run.
	Bin    string
	Name   string
	Labels string
	// HostImage offers this machine's own root as an image.
	HostImage bool
	// StartTimeout is when to give up.
	StartTimeout time.Duration
}

type node struct {
	Options
	dir    string // Dir, absolute
	server string
	ip     net.IP
	port   int
	// host is this machine's root as containers may have it, where that is offered.
	host *hostRoot
}

func (n *node) path(names ...string) string {
	return filepath.Join(append([]string{n.dir}, names...)...)
}

func (n *node) socket() string { return n.path("containerd.sock") }

// Run a node until ctx ends.
func Run(ctx context.Context, o Options, events *run.Events) (err error) {
	began := time.Now()
	if os.Geteuid() != 0 {
		return errors.New("a real node takes root: it makes namespaces, mounts and cgroups")
	}
	for _, name := range []string{"kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "runc", "bridge", "loopback", "host-local", "pause"} {
		if _, err := os.Stat(filepath.Join(o.Bin, name)); err != nil {
			return fmt.Errorf("%s is not in %s: run 'make build-node'", name, o.Bin)
		}
	}
	absolute, err := filepath.Abs(o.Dir)
	if err != nil {
		return err
	}
	if err := enter(filepath.Join(absolute, "kubelet")); err != nil {
		return err
	}
	dir, err := statedir.Open(absolute)
	if err != nil {
		return err
	}
	defer dir.Close()
	n := &node{Options: o, dir: absolute}
	if err := n.clean(); err != nil {
		return fmt.Errorf("what an earlier run has left: %w", err)
	}
	defer func() { err = errors.Join(err, n.giveBackAddress()) }()
	if n.ip, err = n.address(); err != nil {
		return err
	}
	if n.port, err = freePort(n.ip); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(o.SandboxDir, "kubeconfig"))
	if err != nil {
		return err
	}
	n.server = config.Host
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := n.forgetNode(ctx, client); err != nil {
		return err
	}
	if err := n.configure(); err != nil {
		return err
	}
	if err := n.makeCgroup(); err != nil {
		return err
	}
	if o.HostImage {
		if n.host, err = n.mountHost(); err != nil {
			return fmt.Errorf("this machine's root as an image: %w", err)
		}
	}
	return n.run(ctx, client, began, events)
}

func (n *node) run(ctx context.Context, client kubernetes.Interface, began time.Time, events *run.Events) (err error) {
	supervising, stopAll := context.WithCancel(context.WithoutCancel(ctx))
	runtime := n.supervisor("containerd", func() *exec.Cmd { return n.program("containerd", "--config", n.path("containerd.toml")) })
	kubelet := n.supervisor("kubelet", n.kubeletCommand)
	kubeletContext, stopKubelet := context.WithCancel(supervising)
	defer func() {
		stopKubelet()
		kubelet.ended.Wait() // or it would start pods again
		ending, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		left := n.removePods(ending)
		// A node without a kubelet would be waited for; its pods are gone.
		_ = client.CoreV1().Nodes().Delete(ending, n.Name, metav1.DeleteOptions{})
		stopAll()
		runtime.ended.Wait()
		err = errors.Join(err, left, n.endProcesses(), n.removeCgroup(), n.removeBridge())
	}()
	starting, cancel := context.WithTimeoutCause(ctx, n.StartTimeout, fmt.Errorf("not ready after %s", n.StartTimeout))
	defer cancel()
	runtime.supervise(supervising)
	images := []Image{{Name: pauseImage, Files: map[string]string{"/pause": filepath.Join(n.Bin, "pause")}, Command: []string{"/pause"}}}
	if n.host != nil {
		images = append(images, Image{Name: HostImage, Links: n.host.links, Command: []string{"/bin/sh"}})
	}
	if err := n.load(starting, images); err != nil {
		return n.unlessStopped(ctx, err)
	}
	if err := n.removePods(starting); err != nil { // of an earlier run that was killed: nothing of them runs
		return n.unlessStopped(ctx, err)
	}
	events.Progress("containerd is ready")
	kubelet.supervise(kubeletContext)
	if err := n.awaitReady(starting, client, began); err != nil {
		return n.unlessStopped(ctx, err)
	}
	if err := n.announceHost(starting, client); err != nil {
		return n.unlessStopped(ctx, err)
	}
	events.Send(run.Event{Event: "ready", Message: "node " + n.Name, Seconds: float64(time.Since(began).Milliseconds()) / 1000})
	<-ctx.Done()
	return nil
}

func (n *node) unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("%w (logs in %s)", err, n.path("log"))
}

func (n *node) supervisor(name string, command func() *exec.Cmd) *supervisor {
	return &supervisor{name: name, log: n.path("log", name+".log"), pidFile: n.path(name + ".pid"), command: command}
}

// program of the node's folder of programs, which find each other there.
func (n *node) program(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(n.Bin, name), args...)
	cmd.Env = append(os.Environ(), "PATH="+n.Bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	return cmd
}

func (n *node) kubeletCommand() *exec.Cmd {
	return n.program("kubelet", "--config", n.path("kubelet.json"), "--kubeconfig", n.path("kubeconfig"), "--root-dir", kubeletDir,
		"--cert-dir", n.path("pki"), "--hostname-override", n.Name, "--node-ip", n.ip.String(), "--node-labels", n.Labels, "-v=2")
}

// load imports images, once containerd answers.
func (n *node) load(ctx context.Context, images []Image) error {
	for i := range images {
		var image bytes.Buffer
		if err := images[i].Write(&image); err != nil {
			return err
		}
		if err := poll(ctx, func() error {
			cmd := n.program("ctr", "--address", n.socket(), "--namespace", "k8s.io", "images", "import", "-")
			cmd.Stdin = bytes.NewReader(image.Bytes())
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("containerd takes no images: %w: %s", err, strings.TrimSpace(string(out)))
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// awaitReady waits for what the kubelet says of the node; what an earlier one said does not count.
func (n *node) awaitReady(ctx context.Context, client kubernetes.Interface, began time.Time) error {
	return poll(ctx, func() error {
		object, err := client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if object.CreationTimestamp.Time.Before(began.Truncate(time.Second)) {
			lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, n.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(began) {
				return errors.New("the kubelet gives no sign of life")
			}
		}
		for _, c := range object.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
			if c.Type == corev1.NodeReady {
				return fmt.Errorf("the node is not ready: %s", c.Message)
			}
		}
		return errors.New("the node says nothing of itself yet")
	})
}

func poll(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func freePort(ip net.IP) (int, error) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: ip})
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
