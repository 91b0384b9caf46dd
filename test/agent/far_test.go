package agent

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/agent/slots"
	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// farNode is the name of a second real node, without cards; roundsImage has the program of native/remote/test/rounds.c.
const (
	farNode     = "far"
	roundsImage = "registry.local/rounds:1"
)

// far is that node, with an agent of its own.
type far struct {
	dir   string
	agent *exec.Cmd
}

// newFar starts it. It has its own kubelet, containerd, mounts, cgroup and bridge, and this machine's address.
func newFar(t *testing.T) *far {
	t.Helper()
	f := &far{dir: cluster.AddRealNode(t, farNode)}
	native := filepath.Join(sandbox.Root(), "native")
	if err := loadProbe(f.dir); err != nil {
		t.Fatal(err)
	}
	if err := loadSource(f.dir, roundsImage, filepath.Join(native, "remote", "test", "rounds.c"), "-I"+filepath.Join(native, "remote", "build"), "-I"+filepath.Join(native, "cuda")); err != nil {
		t.Fatal(err)
	}
	if err := f.configureAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.startAgent(t)
	t.Cleanup(func() { f.killAgent(t) })
	return f
}

// loadServer gives the card's node the server's image, for one test.
func loadServer(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if out, err := ctr(nodeDir(), "images", "rm", serverImage).CombinedOutput(); err != nil {
			t.Errorf("removing image %s: %v: %s", serverImage, err, out)
		}
	})
	if err := load(nodeDir(), serverImage, "/var/run/ko/elastic-gpu-remote", filepath.Join(sandbox.Root(), "bin", "elastic-gpu-remote")); err != nil {
		t.Fatal(err)
	}
}

func (f *far) path(names ...string) string {
	return filepath.Join(append([]string{f.dir}, names...)...)
}

// configureAgent writes what the agent reads: a configuration as the other node's, and the account of an agent, with a
// token that is bound to this node.
func (f *far) configureAgent(ctx context.Context) (err error) {
	cfg := v1alpha1.NewGPUAgentConfiguration()
	for _, address := range []*string{&cfg.Metrics.BindAddress, &cfg.Health.BindAddress} {
		if *address, err = local.FreeAddress(); err != nil {
			return err
		}
	}
	cfg.NodeName = farNode
	plugin := &cfg.DevicePlugin
	plugin.KubeletDir, plugin.CDIDir, plugin.StateDir = f.path("kubelet"), f.path("cdi"), f.path("elastic-gpu")
	plugin.Library = filepath.Join(sandbox.Root(), "bin", "libelasticgpu.so")
	connectCards(cfg)
	text, err := yaml.Marshal(cfg)
	if err != nil {
		return err
	}
	if err := os.WriteFile(f.path("agent.yaml"), text, 0o600); err != nil {
		return err
	}
	node := &corev1.Node{}
	if err := cluster.Get(ctx, client.ObjectKey{Name: farNode}, node); err != nil {
		return err
	}
	token, err := pods.CoreV1().ServiceAccounts("elastic-queue").CreateToken(ctx, "elastic-gpu-agent", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: farNode, UID: node.UID}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	config, err := clientcmd.LoadFromFile(cluster.Kubeconfig)
	if err != nil {
		return err
	}
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	return clientcmd.WriteToFile(*config, f.path("agent.kubeconfig"))
}

// startAgent without a driver, and wait until containers may come.
func (f *far) startAgent(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(f.path("log", "agent.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the agent has its own handle
	f.agent = exec.Command("elastic-gpu-agent", "--config", f.path("agent.yaml"), "--kubeconfig", f.path("agent.kubeconfig"), "--until-stdin-closes")
	f.agent.Stdout, f.agent.Stderr = log, log
	f.agent.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LD_LIBRARY_PATH=") })
	if _, err := f.agent.StdinPipe(); err != nil { // which closes when the test ends, however it ends
		t.Fatal(err)
	}
	if err := f.agent.Start(); err != nil {
		t.Fatal(err)
	}
	waitRegistered(t, f.dir)
}

func (f *far) killAgent(t *testing.T) {
	t.Helper()
	if err := f.agent.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = f.agent.Wait() // it was killed
}

// pod of an image on this node, whose container uses a claim.
func (f *far) pod(namespace, name, image, claim string) *corev1.Pod {
	p := pod(namespace, name, nil)
	p.Annotations = map[string]string{egpu.ClaimPrefix + "main": claim}
	p.Spec.NodeSelector[corev1.LabelHostname] = farNode
	p.Spec.Containers[0].Image = image
	return p
}

// grants of this node's containers.
func (f *far) grants() ([]slots.Grant, error) { return (&slots.Slots{Dir: f.path("cdi")}).Grants() }

// program is a container of roundsImage: it does a round of work for each line that it is given, and says how that went.
type program struct {
	t   *testing.T
	pod *corev1.Pod
}

// run it on this node with a claim, until it is ready.
func (f *far) run(t *testing.T, namespace, name string, claim *egpu.ElasticGPUClaim) program {
	t.Helper()
	p := program{t, f.pod(namespace, name, roundsImage, claim.Name)}
	p.pod.Spec.Containers[0].Stdin = true
	p.pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(1))
	cluster.Make(t, p.pod)
	p.says("ready 0")
	return p
}

// ask for rounds of so many launches each.
func (p program) ask(rounds, launches int) {
	p.t.Helper()
	request := pods.CoreV1().RESTClient().Post().Resource("pods").Namespace(p.pod.Namespace).Name(p.pod.Name).SubResource("attach").
		VersionedParams(&corev1.PodAttachOptions{Container: "main", Stdin: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(cluster.REST, "GET", request.URL().String())
	if err != nil {
		p.t.Fatal(err)
	}
	lines := strings.NewReader(strings.Repeat(fmt.Sprintln(launches), rounds))
	if err := executor.StreamWithContext(p.t.Context(), remotecommand.StreamOptions{Stdin: lines}); err != nil {
		p.t.Fatal(err)
	}
}

// said are its lines.
func (p program) said(ctx context.Context) ([]string, error) {
	log, err := pods.CoreV1().Pods(p.pod.Namespace).GetLogs(p.pod.Name, &corev1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	text, err := io.ReadAll(log)
	return strings.Split(strings.TrimSpace(string(text)), "\n"), err
}

// says waits for a line of its that begins so.
func (p program) says(want string) {
	p.t.Helper()
	ended := ""
	sandbox.Eventually(p.t, p.pod.Name+" says "+want, func(ctx context.Context) error {
		said, err := p.said(ctx)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(said, func(line string) bool { return strings.HasPrefix(line, want) }) {
			return nil
		}
		if last := said[len(said)-1]; strings.HasPrefix(last, "error") {
			ended = last
			return nil
		}
		return fmt.Errorf("it says %q", said)
	})
	if ended != "" {
		p.t.Fatalf("%s says %q, want %q", p.pod.Name, ended, want)
	}
}

// goesOn waits for a round that begins later than now, and ends well.
func (p program) goesOn() {
	p.t.Helper()
	said, err := p.said(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	p.says(fmt.Sprintf("ok %d", len(said)+1)) // the first line is of no round, and one is on its way
}
