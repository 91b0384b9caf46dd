package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	apiruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/internal/certs"
	"github.com/elastic-ai/elastic/internal/version"
)

// startTimeout is for what takes seconds on an idle machine and minutes on a busy one.
const startTimeout = 5 * time.Minute

// UpOptions say what to start.
type UpOptions struct {
	Nodes  string
	Sample bool
	// RealNode adds a node whose pods are real containers. Linux and root.
	RealNode bool
	// Cards has the real node offer this machine's cards and its own root as an image, and a queue of all of it.
	Cards bool
	// Clouds has the sandbox play clouds that sell machines, and a queue that buys there what the nodes do not have.
	Clouds bool
	// GPUScheduler is how pods with cards are scheduled; empty means AsExtender.
	GPUScheduler GPUScheduler
	// Lease is how long a leader's lease lasts; 0 takes production's, which a busy machine does not lose.
	Lease time.Duration
	// SandboxArgs go to elastic-sandbox as they are.
	SandboxArgs []string
	// Queue changes elastic-queue's configuration; nil leaves it as it is.
	Queue func(*v1alpha1.QueueConfiguration)
	// ConfigureScheduler and ConfigureAgent do so with the GPU scheduler's and the real node's agent's.
	ConfigureScheduler func(*v1alpha1.GPUSchedulerConfiguration)
	ConfigureAgent     func(*v1alpha1.GPUAgentConfiguration)
	// Page serves the cluster's page; nil where there is none.
	Page Page
	Out  io.Writer
}

// Page serves the page of the cluster with this kubeconfig until ctx ends, and returns its link.
type Page func(ctx context.Context, kubeconfig string) (link string, err error)

// AlreadyRunning is the error of an Up that found the cluster running.
type AlreadyRunning struct{ State State }

func (e *AlreadyRunning) Error() string {
	return fmt.Sprintf("it is already running (process %d, nodes %s)", e.State.PID, e.State.Nodes)
}

// Up starts the cluster, calls ready when it is, and holds it until ctx ends.
// When it returns, nothing that it started is left.
func (c *Cluster) Up(ctx context.Context, options UpOptions, ready func(State)) error {
	release, err := c.lock()
	if errors.Is(err, errRunning) {
		state, _ := c.State()
		return &AlreadyRunning{State: state}
	}
	if err != nil {
		return err
	}
	defer release()
	run := &running{cluster: c, options: options, state: State{
		PID: os.Getpid(), Version: version.String(), Nodes: options.Nodes, Phase: PhaseStarting, Started: time.Now(),
	}}
	err = run.start(ctx, ready)
	if err != nil && ctx.Err() == nil {
		run.state.Phase, run.state.Message = PhaseFailed, err.Error()
	}
	return errors.Join(err, c.saveState(run.state))
}

// running is a cluster that this process holds.
type running struct {
	cluster *Cluster
	options UpOptions

	mu          sync.Mutex // of state and sandbox, once supervisors run
	state       State
	sandbox     *child
	supervisors []*supervisor
}

func (r *running) say(format string, args ...any) {
	fmt.Fprintf(r.options.Out, format+"\n", args...)
}

func (r *running) start(ctx context.Context, ready func(State)) (err error) {
	c := r.cluster
	for _, dir := range []string{c.path("log"), c.path("sandbox"), c.path("programs")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if err := c.saveState(r.state); err != nil {
		return err
	}
	if r.options.RealNode && runtime.GOOS != "linux" {
		return errors.New("a real node takes Linux and root: containers, mounts and cgroups are made on this machine")
	}
	began := time.Now()
	list, err := programs(c.path("programs"), r.options)
	if err != nil {
		return err
	}
	for i := range list {
		if _, err := list[i].path(); err != nil {
			return err // before anything is started
		}
	}
	if err := r.extendScheduler(list); err != nil {
		return err
	}
	if err := waitForOrphan(ctx, c.path("sandbox"), func(message string) { r.say("  %s", message) }); err != nil {
		return err // it may have the address still
	}
	r.chooseAddress()
	sandbox, event, err := c.startSandbox(ctx, r.options, func(message string) { r.say("  %s", message) })
	if err != nil {
		return err
	}
	r.sandbox = sandbox
	defer func() { r.sandbox.stop(15 * time.Second) }()
	with := ""
	if r.options.Nodes != "" {
		with = " with nodes " + r.options.Nodes
	}
	r.say("Kubernetes is ready%s (%.1f s)", with, event.Seconds)

	r.state.Server, r.state.Kubeconfig = event.Server, c.Kubeconfig()
	admin, cluster, err := connect(c.Kubeconfig())
	if err != nil {
		return err
	}
	if r.options.RealNode {
		stopNode, failed := r.startNode(ctx, list)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, stopNode()) }()
	}
	supervising, stopSupervising := context.WithCancel(context.WithoutCancel(ctx))
	var supervised sync.WaitGroup
	defer supervised.Wait()
	defer stopSupervising() // programs end before the API server they talk to
	if err := r.startPrograms(ctx, cluster, admin, list); err != nil {
		r.stopPrograms()
		return err
	}
	for _, k := range r.supervisors {
		supervised.Go(func() { k.supervise(supervising, r.saveState) })
	}
	r.say("Elastic is ready (%.1f s in all)", time.Since(began).Seconds())
	if err := r.setUp(ctx, cluster); err != nil {
		return err
	}
	page := r.servePage(ctx)
	r.mu.Lock()
	r.state.Phase, r.state.Page = PhaseReady, page
	r.mu.Unlock()
	r.saveState()
	ready(r.state)

	if err := r.superviseSandbox(ctx); err != nil {
		return err
	}
	r.say("Stopping ...")
	return nil
}

// chooseAddress has the API server listen where it did the last time, if that is free: the kubeconfigs that people have
// lead there.
func (r *running) chooseAddress() {
	given := slices.ContainsFunc(r.options.SandboxArgs, func(arg string) bool {
		return strings.HasPrefix(arg, "--port") || strings.HasPrefix(arg, "--listen")
	})
	last, err := clientcmd.BuildConfigFromFlags("", r.cluster.Kubeconfig())
	if given || err != nil {
		return
	}
	address, err := url.Parse(last.Host)
	if err != nil {
		return
	}
	listener, err := net.Listen("tcp", address.Host)
	if err != nil {
		r.say("  another program has the API server's address %s: give people their kubeconfigs anew", address.Host)
		return
	}
	_ = listener.Close()
	r.options.SandboxArgs = append(slices.Clone(r.options.SandboxArgs), "--port="+address.Port())
}

// servePage returns the page's link; a cluster without its page is a cluster.
func (r *running) servePage(ctx context.Context) string {
	if r.options.Page == nil {
		return ""
	}
	link, err := r.options.Page(ctx, r.cluster.Kubeconfig())
	if err != nil {
		r.say("the page is not served: %v", err)
	}
	return link
}

// startNode starts the real node, whose mounts the programs have that serve it.
func (r *running) startNode(ctx context.Context, list []program) (stop func() error, err error) {
	node, seconds, err := r.cluster.startNode(ctx, r.options.Cards, func(message string) { r.say("  %s", message) })
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].onNode { // what it mounts goes with the node
			list[i].mountsOf = node.cmd.Process.Pid
		}
	}
	r.say("Node %s is ready (%.1f s): its pods are real containers", NodeName, seconds)
	return func() error {
		node.stop(time.Minute)
		if !r.options.Cards {
			return nil
		}
		return r.cluster.releaseCards()
	}, nil
}

// setUp what people find in the cluster: a queue of this machine's cards, or a sample.
func (r *running) setUp(ctx context.Context, cluster client.Client) error {
	if r.options.Cards {
		return offerCards(ctx, cluster, r.say)
	}
	if r.options.Sample {
		if err := showSample(ctx, cluster, r.options.sampleQueue(), r.say); err != nil {
			return fmt.Errorf("the sample job: %w", err)
		}
	}
	return nil
}

// extendScheduler has kube-scheduler ask the programs that are extenders, unless
// the user brings a configuration of their own.
func (r *running) extendScheduler(list []program) error {
	for _, arg := range r.options.SandboxArgs {
		if strings.HasPrefix(arg, "--scheduler-config") {
			return nil
		}
	}
	for i := range list {
		p := &list[i]
		if p.extender == "" {
			continue
		}
		host, _, err := net.SplitHostPort(p.extender)
		if err != nil {
			return err
		}
		// kube-scheduler starts before the program does, so it is made here, and found there.
		names := append([]string{host}, v1alpha1.NewGPUSchedulerConfiguration().Webhook.DNSNames...)
		if p.mutual, err = certs.MakeMutual(p.name, names, time.Now()); err != nil {
			return err
		}
		config, err := deploy.SchedulerConfiguration("https://"+p.extender, p.mutual.CA, p.mutual.ClientCertificate, p.mutual.ClientKey)
		if err != nil {
			return err
		}
		file := r.cluster.path("scheduler.yaml")
		if err := os.WriteFile(file, config, 0o600); err != nil {
			return err
		}
		r.options.SandboxArgs = append(slices.Clone(r.options.SandboxArgs), "--scheduler-config="+file)
	}
	return nil
}

// startPrograms starts them all at once: none needs another to become ready.
func (r *running) startPrograms(ctx context.Context, cluster client.Client, admin *rest.Config, list []program) error {
	if err := install(ctx, cluster, list); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	type result struct {
		of  int
		err error
	}
	all, results := make([]*supervisor, len(list)), make(chan result)
	for i := range list {
		k := &supervisor{program: list[i], report: r.say}
		all[i] = k
		go func() {
			err := k.program.prepare(ctx, cluster, admin)
			if err == nil {
				err = k.startReady(ctx)
			}
			results <- result{i, err}
		}()
	}
	var failed error
	for range all {
		done := <-results
		if done.err == nil {
			r.say("  %s is ready", all[done.of].program.name)
			continue
		}
		all[done.of] = nil // it has ended
		if failed == nil {
			failed = done.err // those that follow may only have been given up
			cancel()
		}
	}
	r.supervisors = slices.DeleteFunc(all, func(k *supervisor) bool { return k == nil })
	return failed
}

func (r *running) stopPrograms() {
	for _, k := range r.supervisors {
		k.process.stop(10 * time.Second)
	}
}

// saveState writes the state down with the programs as they are now.
func (r *running) saveState() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Programs, r.state.SandboxPID = nil, r.sandbox.cmd.Process.Pid
	for _, k := range r.supervisors {
		r.state.Programs = append(r.state.Programs, ProgramState{
			Name: k.program.name, PID: k.pid(), Health: k.program.health, Metrics: k.program.metrics, Log: k.program.logFile(),
		})
	}
	if err := r.cluster.saveState(r.state); err != nil {
		r.say("writing the cluster's state failed: %v", err)
	}
}

// connect makes a client from a kubeconfig file.
func connect(kubeconfig string) (*rest.Config, client.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	config.QPS, config.Burst = -1, 0 // a person's command, on loopback
	AskAgain(config)
	scheme := apiruntime.NewScheme()
	for _, add := range []func(*apiruntime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, nil, err
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	return config, c, err
}
