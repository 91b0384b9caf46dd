package migration

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
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/test/sandbox"
)

const (
	kueueNamespace = "kueue-system"
	folderVariable = "ELASTIC_KUEUE"
)

// manager is Kueue's, as a process in the place of its pod.
type manager struct {
	dir  string
	port int64
	cmd  *exec.Cmd
	done chan struct{}
}

// installKueue applies Kueue's chart, and starts its manager with the rights
// that the chart gives it.
func installKueue(t *testing.T, c client.Client, kubeconfig string) *manager {
	t.Helper()
	m := &manager{dir: t.TempDir(), port: freePort(t), done: make(chan struct{})}
	objects := m.chart(t)
	for _, object := range objects {
		unstructured.RemoveNestedField(object.Object, "status")
		sandbox.Eventually(t, "Kueue's "+object.GetKind()+" "+object.GetName()+" is applied", func(ctx context.Context) error {
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("helm"), client.ForceOwnership)
		})
	}
	m.start(t, c, kubeconfig, configOf(t, objects))
	return m
}

// chart is Kueue's own, in which its services are names of this machine and its
// webhooks' port is the manager's.
func (m *manager) chart(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	values := fmt.Sprintf(`fullnameOverride: kueue
managerConfig:
  controllerManagerConfigYaml: |-
    apiVersion: config.kueue.x-k8s.io/v1beta2
    kind: Configuration
    namespace: %[1]s
    health: {healthProbeBindAddress: "127.0.0.1:%[2]d"}
    metrics: {bindAddress: "0"}
    webhook: {port: %[3]d, host: 127.0.0.1, certDir: %[4]q}
    leaderElection: {leaderElect: true, resourceName: c1f6bfd2.kueue.x-k8s.io, resourceNamespace: %[1]s}
    featureGates: {VisibilityOnDemand: false}
    integrations: {frameworks: [batch/job, pod]}
`, kueueNamespace, freePort(t), m.port, filepath.Join(m.dir, "certs"))
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue").Output()
	if err != nil {
		t.Fatal(err)
	}
	objects := sandbox.Render(t, kueueNamespace, values, filepath.Join(strings.TrimSpace(string(module)), "charts", "kueue"))
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": kueueNamespace}}}
	for _, object := range objects {
		m.redirect(t, object)
	}
	return append([]*unstructured.Unstructured{namespace}, objects...)
}

// redirect has what calls the manager in the cluster call the process.
func (m *manager) redirect(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	var err error
	switch object.GetKind() {
	case "Service":
		object.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "localhost"}
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		hooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
		for _, hook := range hooks {
			err = errors.Join(err, unstructured.SetNestedField(hook.(map[string]any), m.port, "clientConfig", "service", "port"))
		}
		err = errors.Join(err, unstructured.SetNestedSlice(object.Object, hooks, "webhooks"))
	case "CustomResourceDefinition":
		if _, found, _ := unstructured.NestedMap(object.Object, "spec", "conversion", "webhook"); found {
			err = unstructured.SetNestedField(object.Object, m.port, "spec", "conversion", "webhook", "clientConfig", "service", "port")
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func configOf(t *testing.T, objects []*unstructured.Unstructured) string {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() == "ConfigMap" && object.GetName() == "kueue-manager-config" {
			text, _, _ := unstructured.NestedString(object.Object, "data", "controller_manager_config.yaml")
			return text
		}
	}
	t.Fatal("the chart has no configuration of the manager")
	return ""
}

func (m *manager) start(t *testing.T, c client.Client, kubeconfig, config string) {
	t.Helper()
	file := filepath.Join(m.dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(m.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	m.cmd = exec.Command(filepath.Join(os.Getenv(folderVariable), "kueue"), "--config", file, "--kubeconfig", m.account(t, c, kubeconfig))
	m.cmd.Stdout, m.cmd.Stderr = log, log
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = m.cmd.Wait()
		_ = log.Close()
		close(m.done)
	}()
	t.Cleanup(func() {
		m.stop()
		if t.Failed() {
			data, _ := os.ReadFile(log.Name())
			t.Logf("Kueue's manager said:\n%s", data[max(0, len(data)-8000):])
		}
	})
	m.mount(t, c)
}

func (m *manager) stop() {
	_ = m.cmd.Process.Signal(syscall.SIGTERM)
	<-m.done
}

// mount is the kubelet's part: the Secret with the webhooks' certificate, which
// the manager fills, as files.
func (m *manager) mount(t *testing.T, c client.Client) {
	t.Helper()
	certs := filepath.Join(m.dir, "certs")
	if err := os.MkdirAll(certs, 0o700); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "Kueue has made its webhooks' certificate", func(ctx context.Context) error {
		secret := &corev1.Secret{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: kueueNamespace, Name: "kueue-webhook-server-cert"}, secret); err != nil {
			return err
		}
		if len(secret.Data["tls.crt"]) == 0 {
			return errors.New("it is empty")
		}
		var err error
		for name, data := range secret.Data {
			err = errors.Join(err, os.WriteFile(filepath.Join(certs, name), data, 0o600))
		}
		return err
	})
}

// account is a kubeconfig with the rights of the chart's service account.
func (m *manager) account(t *testing.T, c client.Client, kubeconfig string) (file string) {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: kueueNamespace, Name: "kueue-controller-manager"}}
	if err := c.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.AuthInfos = map[string]*clientcmdapi.AuthInfo{"kueue": {Token: request.Status.Token}}
	for _, context := range config.Contexts {
		context.AuthInfo = "kueue"
	}
	file = filepath.Join(m.dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func freePort(t *testing.T) int64 {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return int64(listener.Addr().(*net.TCPAddr).Port)
}

// step runs what a page says to type; kubectl is the sandbox's.
func step(t *testing.T, kubeconfig, command string) string {
	t.Helper()
	cmd := exec.Command("bash", "-c", `kubectl() { elastic-sandbox kubectl "$@"; }; `+command)
	cmd.Dir = sandbox.Root()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, &out)
	}
	return out.String()
}
