// Package sandbox gives tests a real cluster: the sandbox with Elastic's
// programs in it, as "elastic up" starts them. One cluster serves all tests of
// a package; each test works in a namespace of its own.
//
//	var cluster *sandbox.Cluster
//
//	func TestMain(m *testing.M) { os.Exit(sandbox.Run(m, &cluster, sandbox.Options{})) }
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
	kueuev1beta1 "sigs.k8s.io/kueue/apis/kueue/v1beta1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	apiruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/test/rights"
)

// Timeout is how long a condition may take to come true. Nothing waits this
// long unless it is broken.
const Timeout = 2 * time.Minute

// leaseDuration is short, as tests kill leaders, and long enough for a machine that runs many of them.
const leaseDuration = 8 * time.Second

// Options of a cluster.
type Options struct {
	// Nodes is the node spec, as "elastic up --nodes" takes it; default one node with 8 cards.
	Nodes string
	// RealNode adds a node whose pods are real containers; Linux, root, 'make build-node'.
	RealNode bool
	// GPUScheduler is how pods with cards are scheduled.
	GPUScheduler local.GPUScheduler
	// SandboxArgs go to elastic-sandbox.
	SandboxArgs []string
	// Queue changes elastic-queue's configuration.
	Queue func(*v1alpha1.QueueConfiguration)
	// ConfigureScheduler and ConfigureAgent change the GPU scheduler's and the real node's agent's.
	ConfigureScheduler func(*v1alpha1.GPUSchedulerConfiguration)
	ConfigureAgent     func(*v1alpha1.GPUAgentConfiguration)
	// Before is done to the bare control plane, before Elastic comes to it.
	Before func(kubeconfig string) error
	// Scheme adds kinds to the client's.
	Scheme []func(*apiruntime.Scheme) error
}

// Cluster is a running one.
type Cluster struct {
	client.Client
	REST       *rest.Config
	Kubeconfig string
	State      local.State
	Dir        string

	stop    func() error
	stopped bool
}

// Run starts a cluster, runs the tests with it, ends it, and returns the exit
// code.
func Run(m interface{ Run() int }, cluster **Cluster, options Options) int {
	log.SetLogger(logr.Discard()) // the API server's warnings are not the test's
	c, err := Start(options)
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the sandbox:", err)
		return 1
	}
	*cluster = c
	code := m.Run()
	if err := c.end(code != 0); err != nil {
		fmt.Fprintln(os.Stderr, "ending the sandbox:", err)
		code = max(code, 1)
	}
	return code
}

// For starts a cluster for one test, which ends with it.
func For(t testing.TB, options Options) *Cluster {
	t.Helper()
	log.SetLogger(logr.Discard())
	c, err := Start(options)
	if err != nil {
		t.Fatal("starting the sandbox: ", err)
	}
	t.Cleanup(func() {
		if err := c.end(t.Failed()); err != nil {
			t.Error("ending the sandbox: ", err)
		}
	})
	return c
}

// end stops a cluster and removes its files; of one in which a test failed it first shows the programs' logs.
func (c *Cluster) end(failed bool) error {
	err := c.Stop()
	if failed || err != nil {
		c.dumpLogs(os.Stderr)
	}
	return errors.Join(err, os.RemoveAll(c.Dir))
}

// StartFor starts a cluster for one test, which may stop it before its end.
func StartFor(t *testing.T, options Options) *Cluster {
	t.Helper()
	log.SetLogger(logr.Discard())
	c, err := Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Stop()
		_ = os.RemoveAll(c.Dir)
	})
	return c
}

// Start starts a cluster in a folder of its own; the caller must Stop it.
func Start(options Options) (*Cluster, error) {
	if options.Nodes == "" {
		options.Nodes = "1x8:H100-80G"
	}
	bin := filepath.Join(Root(), "bin")
	if _, err := os.Stat(filepath.Join(bin, "elastic-sandbox")); err != nil {
		return nil, fmt.Errorf("the programs are not built: run 'make build' (%w)", err)
	}
	dir, err := os.MkdirTemp("", "elastic-test-")
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{
		"ELASTIC_HOME": dir,
		"PATH":         bin + string(os.PathListSeparator) + os.Getenv("PATH"),
	} {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	cluster, err := local.Open("test")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "audit-policy.yaml"), []byte(rights.Policy), 0o600); err != nil {
		return nil, err
	}
	if options.Before != nil {
		kubeconfig, stop, err := Bare(filepath.Join(dir, "test", "sandbox"), options.Nodes)
		if err != nil {
			return nil, err
		}
		err = options.Before(kubeconfig)
		stop()
		if err != nil {
			return nil, err
		}
	}
	audited := append(slices.Clone(options.SandboxArgs),
		"--apiserver-arg=audit-policy-file="+filepath.Join(dir, "audit-policy.yaml"), "--apiserver-arg=audit-log-path="+filepath.Join(dir, "audit.log"))
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan local.State, 1), make(chan error, 1)
	go func() {
		up := local.UpOptions{
			Nodes: options.Nodes, RealNode: options.RealNode, GPUScheduler: options.GPUScheduler, Lease: leaseDuration, SandboxArgs: audited, Out: io.Discard,
			Queue: options.Queue, ConfigureScheduler: options.ConfigureScheduler, ConfigureAgent: options.ConfigureAgent,
		}
		ended <- cluster.Up(ctx, up, func(s local.State) { ready <- s })
	}()
	c := &Cluster{Dir: dir, stop: func() error { cancel(); return <-ended }}
	select {
	case c.State = <-ready:
	case err := <-ended:
		cancel()
		c.dumpLogs(os.Stderr)
		return nil, err
	}
	if err := c.connect(options); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// Stop ends the cluster, and notes what the programs' accounts did in it.
func (c *Cluster) Stop() error {
	if c.stopped {
		return nil
	}
	c.stopped = true
	return errors.Join(c.stop(), rights.Keep(filepath.Join(c.Dir, "audit.log")))
}

func (c *Cluster) connect(options Options) (err error) {
	c.Kubeconfig = c.State.Kubeconfig
	c.Client, c.REST, err = connect(c.Kubeconfig, options.Scheme...)
	return err
}

// Connect to a cluster before Elastic is in it, or after.
func Connect(kubeconfig string, schemes ...func(*apiruntime.Scheme) error) (client.Client, error) {
	c, _, err := connect(kubeconfig, schemes...)
	return c, err
}

func connect(kubeconfig string, schemes ...func(*apiruntime.Scheme) error) (client.Client, *rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	config.QPS = -1
	local.AskAgain(config)
	scheme := apiruntime.NewScheme()
	for _, add := range append([]func(*apiruntime.Scheme) error{
		clientgoscheme.AddToScheme, kueue.AddToScheme, kueuev1beta1.AddToScheme,
	}, schemes...) {
		if err := add(scheme); err != nil {
			return nil, nil, err
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	return c, config, err
}

// Render a chart, as "make generate" renders ours.
func Render(t *testing.T, namespace, values, chart string) []*unstructured.Unstructured {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	render := exec.Command("go", "run", ".", "-namespace", namespace, "-values", file, chart)
	render.Dir = filepath.Join(Root(), "tools", "render")
	out, err := render.Output()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := deploy.Decode(out)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// Root is the project's folder.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// dumpLogs shows the end of every program's log, so that a failed run in CI
// tells what happened.
func (c *Cluster) dumpLogs(w io.Writer) {
	const most = 6000
	for _, pattern := range []string{"test/log/*.log", "test/programs/*/log", "test/node/log/*.log", "test/nodes/*/log/*.log"} {
		files, _ := filepath.Glob(filepath.Join(c.Dir, pattern))
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			if len(data) > most {
				data = data[len(data)-most:]
			}
			fmt.Fprintf(w, "--- the end of %s\n%s\n", strings.TrimPrefix(file, c.Dir), data)
		}
	}
}

// Namespace makes a namespace for the test and deletes it afterwards.
func (c *Cluster) Namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	c.Make(t, ns)
	return ns.Name
}

// Make creates objects and deletes them after the test.
func (c *Cluster) Make(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatalf("creating %T %s: %v", object, object.GetName(), err)
		}
		t.Cleanup(func() {
			background := client.PropagationPolicy(metav1.DeletePropagationBackground)
			if err := c.Delete(context.Background(), object, background); client.IgnoreNotFound(err) != nil {
				t.Errorf("deleting %T %s: %v", object, object.GetName(), err)
			}
		})
	}
}

// Change changes an object as it is now, whoever else writes it meanwhile.
func (c *Cluster) Change(t *testing.T, obj client.Object, change func()) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		change()
		return c.Update(t.Context(), obj)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// WaitGone waits until an object is no more.
func (c *Cluster) WaitGone(t *testing.T, obj client.Object) {
	t.Helper()
	Eventually(t, obj.GetName()+" goes", func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		if err == nil {
			return fmt.Errorf("it is there, with finalizers %v", obj.GetFinalizers())
		}
		return client.IgnoreNotFound(err)
	})
}

// Eventually waits until check returns nil, and fails the test with its last
// error if that takes too long.
func Eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	var last error
	// Also when a test cleans up, and its own context has ended.
	err := wait.PollUntilContextTimeout(context.WithoutCancel(t.Context()), 20*time.Millisecond, Timeout, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if err == nil || ctx.Err() == nil || last == nil { // that time is up says nothing
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("waited in vain: %s: %v", what, last)
	}
}

// WorkloadOf waits for the workload of a job and returns it.
func (c *Cluster) WorkloadOf(t *testing.T, job client.Object) *kueue.Workload {
	t.Helper()
	var found *kueue.Workload
	Eventually(t, "a workload for "+job.GetName(), func(ctx context.Context) error {
		list := &kueue.WorkloadList{}
		if err := c.List(ctx, list, client.InNamespace(job.GetNamespace())); err != nil {
			return err
		}
		for i := range list.Items {
			if metav1.IsControlledBy(&list.Items[i], job) {
				found = &list.Items[i]
				return nil
			}
		}
		return fmt.Errorf("none of %d workloads is its", len(list.Items))
	})
	return found
}
