// Package agent tests elastic-gpu-agent on a real node: a real kubelet calls it, containers are real,
// and in them the library of native/cuda is in force against a driver that its tests build.
//
// It takes Linux, root and a kubelet, containerd and runc, so "make test-node" builds those first and
// says so in ELASTIC_REAL_NODE.
package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"tags.cncf.io/container-device-interface/specs-go"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/test/sandbox"
)

var (
	cluster *sandbox.Cluster
	pods    kubernetes.Interface // for logs
)

const (
	variable    = "ELASTIC_REAL_NODE"
	image       = "registry.local/probe:1"
	serverImage = "registry.local/server:1" // of cards that are used from other nodes
	cardMB      = 40960
)

func TestMain(m *testing.M) {
	if os.Getenv(variable) == "" {
		fmt.Fprintln(os.Stderr, "it needs a real node: run 'make test-node'")
		os.Exit(1)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	// The agent finds two cards through the tests' NVML.
	for name, value := range map[string]string{
		"LD_LIBRARY_PATH": stub(), "STUB_DEVICES": "2", "STUB_MEMORY": fmt.Sprint(cardMB << 20),
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	return sandbox.Run(prepared{m}, &cluster, sandbox.Options{
		Nodes: "1x0", RealNode: true, Scheme: []func(*apiruntime.Scheme) error{egpu.AddToScheme}, Queue: countCore,
		ConfigureScheduler: func(cfg *v1alpha1.GPUSchedulerConfiguration) {
			engine := cfg.RemoteEngines["elastic"]
			engine.Image = serverImage
			cfg.RemoteEngines["elastic"] = engine
		},
		ConfigureAgent: connectCards,
	})
}

// connectCards has an agent connect containers with cards of other nodes.
func connectCards(cfg *v1alpha1.GPUAgentConfiguration) {
	cfg.DevicePlugin.Remote = v1alpha1.RemoteCards{BindAddress: "127.0.0.1:0", ServerNamespace: "elastic-queue"}
}

// prepared are the tests, once the node has the driver and the image.
type prepared struct{ *testing.M }

func (p prepared) Run() int {
	err := writeDriver()
	if err == nil {
		err = loadProbe(nodeDir())
	}
	if err == nil {
		pods, err = kubernetes.NewForConfig(cluster.REST)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "preparing the node:", err)
		return 1
	}
	return p.M.Run()
}

func stub() string { return filepath.Join(sandbox.Root(), "native", "cuda", "build", "test") }

func nodeDir(names ...string) string {
	return filepath.Join(append([]string{cluster.Dir, "test", "node"}, names...)...)
}

// writeDriver is what "nvidia-ctk cdi generate" does on a node with cards.
func writeDriver() error {
	mount := func(name string) *specs.Mount {
		return &specs.Mount{HostPath: filepath.Join(stub(), name), ContainerPath: "/usr/lib/x86_64-linux-gnu/" + name, Options: []string{"ro", "bind"}}
	}
	spec := specs.Spec{
		Version: "0.6.0", Kind: "nvidia.com/gpu",
		ContainerEdits: specs.ContainerEdits{
			Env:    []string{"STUB_DEVICES=1", fmt.Sprintf("STUB_MEMORY=%d", cardMB<<20)},
			Mounts: []*specs.Mount{mount("libcuda.so.1"), mount("libnvidia-ml.so.1")},
		},
	}
	for i := range 2 {
		spec.Devices = append(spec.Devices, specs.Device{
			Name: fmt.Sprint(i), ContainerEdits: specs.ContainerEdits{Env: []string{fmt.Sprintf("STUB_FIRST=%d", i)}},
		})
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(nodeDir("cdi", "nvidia.json"), data, 0o600)
}

// loadProbe builds the probe and gives it to the node of a folder.
func loadProbe(node string) error {
	_, file, _, _ := runtime.Caller(0)
	return loadSource(node, image, filepath.Join(filepath.Dir(file), "testdata", "probe.c"))
}

// loadSource gives a node the image of a program of one file.
func loadSource(node, image, source string, flags ...string) error {
	program := filepath.Join(cluster.Dir, strings.TrimSuffix(filepath.Base(source), ".c"))
	args := append([]string{"-std=gnu11", "-O1", "-o", program, source, "-ldl"}, flags...)
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", source, err, out)
	}
	return load(node, image, "/"+filepath.Base(program), program)
}

// load an image of a program into a node, with the libc that it is linked to.
func load(node, image, inside, program string) error {
	args := []string{"image", image, "--file", inside + "=" + program}
	libraries, err := exec.Command("ldd", program).Output()
	if err != nil {
		return err
	}
	for word := range strings.FieldsSeq(string(libraries)) {
		if filepath.IsAbs(word) {
			args = append(args, "--file", word+"="+word)
		}
	}
	data, err := exec.Command("elastic-sandbox", append(args, "--", inside)...).Output()
	if err != nil {
		return fmt.Errorf("making image %s: %w", image, err)
	}
	load := ctr(node, "images", "import", "-")
	load.Stdin = bytes.NewReader(data)
	if out, err := load.CombinedOutput(); err != nil {
		return fmt.Errorf("loading image %s: %w: %s", image, err, out)
	}
	return nil
}

// ctr asks the containerd of a node.
func ctr(node string, args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(sandbox.Root(), "bin", "node", "ctr"), append([]string{"--address", filepath.Join(node, "containerd.sock"), "--namespace", "k8s.io"}, args...)...)
}

// stay has the probe wait until it is to end.
var stay = []string{"stay"}

// pod that runs the probe on the real node, with the arguments, and asks for resources in pairs.
func pod(namespace, name string, args []string, pairs ...any) *corev1.Pod {
	limits := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		limits[corev1.ResourceName(fmt.Sprint(pairs[i]))] = *resource.NewQuantity(int64(pairs[i+1].(int)), resource.DecimalSI)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, NodeSelector: map[string]string{corev1.LabelHostname: local.NodeName},
			Containers: []corev1.Container{{
				Name: "main", Image: image, ImagePullPolicy: corev1.PullNever, Args: args, Resources: corev1.ResourceRequirements{Limits: limits},
			}},
		},
	}
}

// seen is what the probe says.
type seen struct {
	Error              string
	Cards              int
	TotalMB, LargestMB int
	Backend            string
	FilledMB, Sockets  int // by a hostile one
	Stats              *struct {
		Container string
		Devices   []struct {
			UUID           string
			Limit, Used    int64
			Compute        float64
			Held, Overhead int64
		}
	}
}

// probed waits for what a pod's probe says.
func probed(t *testing.T, p *corev1.Pod) seen {
	t.Helper()
	var found seen
	sandbox.Eventually(t, "the probe in pod "+p.Name, func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if p.Status.Phase == corev1.PodPending {
			return fmt.Errorf("it is pending: %v %v", p.Status.Conditions, p.Status.ContainerStatuses)
		}
		log, err := pods.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{}).Stream(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = log.Close() }()
		text, err := io.ReadAll(log)
		if err != nil {
			return err
		}
		found = seen{}
		if err := json.Unmarshal(text, &found); err != nil {
			return fmt.Errorf("%q, %s: %w", text, p.Status.Message, err)
		}
		return nil
	})
	if found.Error != "" {
		t.Fatalf("pod %s: %s", p.Name, found.Error)
	}
	return found
}

// holds checks that a container is held to its share from within.
func (s seen) holds(t *testing.T, percent float64, memoryMB int) {
	t.Helper()
	if s.Cards != 1 || s.TotalMB != memoryMB || s.Backend != "gpushare" {
		t.Errorf("%+v: want one card of %d MiB", s, memoryMB)
	}
	// The context takes some of it; not one MiB more is granted.
	if s.LargestMB >= memoryMB || s.LargestMB < memoryMB-600 {
		t.Errorf("%d MiB could be allocated of %d", s.LargestMB, memoryMB)
	}
	if s.Stats == nil || len(s.Stats.Devices) != 1 || s.Stats.Devices[0].Compute != percent || s.Stats.Devices[0].Limit != int64(memoryMB)<<20 {
		t.Errorf("the library says %+v, want %g percent and %d MiB", s.Stats, percent, memoryMB)
	}
}
