// Package cli tests the command line as people type it: sessions of commands
// with the output they must give, and the tasks of the documentation, against
// the sandbox.
package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/test/sandbox"
)

var cluster *sandbox.Cluster

func TestMain(m *testing.M) {
	os.Exit(sandbox.Run(m, &cluster, sandbox.Options{
		Nodes:  "2x8:H100-80G,1x4:A100-40G",
		Queue:  mapDevices,
		Scheme: []func(*apiruntime.Scheme) error{apiextensionsv1.AddToScheme, egpu.AddToScheme},
	}))
}

// shell runs a line as a person types it, in a namespace. One that waits for what does not come is ended,
// with all that it started, and the output says what was there then.
func shell(t *testing.T, namespace, line string) (string, error) {
	t.Helper()
	// Also after the test, to clean up.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(t.Context()), 2*sandbox.Timeout, errors.New("this waits in vain"))
	defer cancel()
	out, err := command(ctx, t, namespace, line)
	if ctx.Err() != nil {
		there, _ := command(context.WithoutCancel(ctx), t, namespace, "elastic-sandbox kubectl get queuepolicy,clusterqueue,localqueue,workload,job,pod -o wide; elastic-sandbox kubectl get events")
		return out + "\n" + there, context.Cause(ctx)
	}
	return out, err
}

func command(ctx context.Context, t *testing.T, namespace, line string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "bash", "-c", line)
	cmd.Dir = sandbox.Root()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig(t, namespace), "HOME="+t.TempDir(), "TERM=dumb")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// must runs a line that has to succeed.
func must(t *testing.T, namespace, line string) string {
	t.Helper()
	out, err := shell(t, namespace, line)
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}

// kubeconfig is the cluster's with another namespace.
func kubeconfig(t *testing.T, namespace string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(cluster.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range config.Contexts {
		c.Namespace = namespace
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// queues makes a queue "main" of n H100 cards in a namespace.
func queues(t *testing.T, namespace, name, cards string) {
	t.Helper()
	cluster.Make(t,
		sandbox.Flavor(name, map[string]string{"elasticgpu.io/gpu-model": "H100-80G"}),
		sandbox.ClusterQueue(name, name, cards),
		sandbox.LocalQueue(namespace, "main", name),
	)
}

// eventually runs a line until its output has a text.
func eventually(t *testing.T, namespace, line, want string) {
	t.Helper()
	sandbox.Eventually(t, line+" says "+want, func(context.Context) error {
		out, err := shell(t, namespace, line)
		if err == nil && strings.Contains(out, want) {
			return nil
		}
		return fmt.Errorf("%w\n%s", err, out)
	})
}
