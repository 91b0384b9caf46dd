package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/pkg/controller/job"

	"github.com/elastic-ai/elastic/sandbox/internal/controllers"
	"github.com/elastic-ai/elastic/sandbox/internal/pki"
	"github.com/elastic-ai/elastic/sandbox/internal/statedir"
)

// stopTimeout bounds how long one component may take to end; the process exits
// afterwards, so nothing outlives it.
const stopTimeout = 4 * time.Second

// Config says how to start a control plane.
type Config struct {
	Dir             *statedir.Dir
	Listen          net.IP            // where the API server listens
	Port            int               // and on which port; 0 for a free one
	SchedulerConfig string            // a KubeSchedulerConfiguration file, or empty
	APIServer       map[string]string // more flags of kube-apiserver, or other values
	APIOnly         bool              // no controllers, no scheduler
	JobBatchPeriod  time.Duration     // for which the Job controller gathers changes of a Job's pods; 0 leaves it as it is
	EtcdLogger      *zap.Logger
	Progress        func(message string)
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	Server string // address of the API server
	Files  pki.Files
	// Components are the addresses of the parts that serve health and metrics of their own.
	Components map[string]string

	simulator *rest.Config
	etcd      *Etcd
	parts     []*part // in the order they were started
	failed    chan error
}

// part is one running component.
type part struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
}

// Start brings everything up and returns once the API server and the scheduler say that they are
// ready, and the controllers have started. On an error nothing is left running.
func Start(ctx context.Context, c Config) (cp *ControlPlane, err error) {
	cp = &ControlPlane{Components: map[string]string{}, failed: make(chan error, 8)}
	defer func() {
		if err != nil {
			cp.Stop()
		}
	}()
	ips, err := servedAt(c.Listen)
	if err != nil {
		return nil, err
	}
	if cp.Files, err = pki.Ensure(c.Dir.PKI(), ips, time.Now()); err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	if cp.etcd, err = StartEtcd(c.Dir.Etcd(), c.EtcdLogger); err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	c.Progress("etcd is up")
	if err := cp.startAPIServer(ctx, c); err != nil {
		return nil, err
	}
	c.Progress("kube-apiserver is up")
	if c.APIOnly {
		return cp, nil
	}
	if err := cp.startControllers(ctx, c); err != nil {
		return nil, err
	}
	c.Progress("controllers and kube-scheduler are up")
	return cp, nil
}

// servedAt are the addresses a server that listens there is reached at.
func servedAt(listen net.IP) ([]net.IP, error) {
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if !listen.IsUnspecified() {
		return append(ips, listen), nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if network, ok := a.(*net.IPNet); ok {
			ips = append(ips, network.IP)
		}
	}
	return ips, nil
}

func (cp *ControlPlane) startAPIServer(ctx context.Context, c Config) error {
	listener, err := net.Listen("tcp", net.JoinHostPort(c.Listen.String(), strconv.Itoa(c.Port)))
	if err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	host := c.Listen
	if host.IsUnspecified() {
		host = net.IPv4(127, 0, 0, 1)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	cp.Server = "https://" + net.JoinHostPort(host.String(), port)
	run, err := prepareAPIServer(ctx, cp.Files, cp.etcd.Endpoint, listener, c.APIServer)
	if err != nil {
		listener.Close()
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	cp.run("kube-apiserver", run)

	path, err := cp.kubeconfig(c, "simulator", cp.Files.Simulator)
	if err != nil {
		return err
	}
	if cp.simulator, err = clientcmd.BuildConfigFromFlags("", path); err != nil {
		return err
	}
	cp.simulator.QPS, cp.simulator.Burst = clientQPS, clientBurst
	cp.simulator.ContentType = "application/vnd.kubernetes.protobuf"
	return cp.await(ctx, "kube-apiserver", cp.Server)
}

func (cp *ControlPlane) startControllers(ctx context.Context, c Config) error {
	managerConfig, err := cp.kubeconfig(c, "controller-manager", cp.Files.ControllerManager)
	if err != nil {
		return err
	}
	schedulerConfig, err := cp.kubeconfig(c, "scheduler", cp.Files.Scheduler)
	if err != nil {
		return err
	}
	schedulerFile := filepath.Join(c.Dir.Config(), "scheduler.yaml")
	if err := writeSchedulerConfig(schedulerFile, c.SchedulerConfig, schedulerConfig); err != nil {
		return err
	}
	if c.JobBatchPeriod > 0 {
		job.SyncJobBatchPeriod = c.JobBatchPeriod // before any controller runs; a process runs one control plane
	}
	config, err := clientcmd.BuildConfigFromFlags("", managerConfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst, config.ContentType = clientQPS, clientBurst, "application/vnd.kubernetes.protobuf"
	cp.run("controllers", func(ctx context.Context) error {
		return controllers.Run(ctx, controllers.Config{
			API: config, CACert: cp.Files.CA.Cert, CAKey: cp.Files.CA.Key, ServiceAccountKey: cp.Files.ServiceAccountKey, NodeGrace: nodeGrace,
		})
	})
	err = cp.startServed("kube-scheduler", func(l net.Listener) (func(context.Context) error, error) {
		return prepareScheduler(ctx, cp.Files, schedulerConfig, schedulerFile, l)
	})
	if err != nil {
		return err
	}
	return cp.await(ctx, "kube-scheduler", cp.Components["kube-scheduler"])
}

// startServed starts a component that serves on a loopback port of its own.
func (cp *ControlPlane) startServed(name string, prepare func(net.Listener) (func(context.Context) error, error)) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	run, err := prepare(listener)
	if err != nil {
		listener.Close()
		return fmt.Errorf("%s: %w", name, err)
	}
	cp.Components[name] = "https://" + listener.Addr().String()
	cp.run(name, run)
	return nil
}

// run starts one component under a context of its own: they are stopped one
// after the other, last started first.
func (cp *ControlPlane) run(name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	p := &part{name: name, cancel: cancel, done: make(chan struct{})}
	cp.parts = append(cp.parts, p)
	go func() {
		defer close(p.done)
		err := run(ctx)
		if ctx.Err() != nil {
			return // asked to stop; what it says about that is no news
		}
		if err == nil {
			err = errors.New("ended by itself")
		}
		cp.failed <- fmt.Errorf("%s: %w", name, err)
	}()
}

// kubeconfig writes the kubeconfig of one user and returns its path.
func (cp *ControlPlane) kubeconfig(c Config, name string, user pki.Pair) (string, error) {
	if err := os.MkdirAll(c.Dir.Config(), 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(c.Dir.Config(), name+".kubeconfig")
	if err := pki.WriteKubeconfig(path, cp.Server, cp.Files.CA.Cert, user); err != nil {
		return "", fmt.Errorf("kubeconfig of %s: %w", name, err)
	}
	return path, nil
}

// await polls a component's readiness until it is given, the component fails or
// the context ends.
func (cp *ControlPlane) await(ctx context.Context, name, address string) error {
	config := rest.CopyConfig(cp.simulator)
	config.Host = address
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	var last error
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, last = client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); last == nil {
			return nil
		}
		select {
		case err := <-cp.failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (last answer: %w)", name, context.Cause(ctx), last)
		case <-tick.C:
		}
	}
}

// SimulatorConfig is the connection for what plays the nodes.
func (cp *ControlPlane) SimulatorConfig() *rest.Config {
	config := rest.CopyConfig(cp.simulator)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return askingAgain{next} })
	return config
}

// Failed reports a component that ended without being asked to.
func (cp *ControlPlane) Failed() <-chan error { return cp.failed }

// Stop ends everything, last started first, except that the controllers
// and the scheduler go together.
func (cp *ControlPlane) Stop() {
	var controllers sync.WaitGroup
	for i := len(cp.parts) - 1; i > 0; i-- {
		controllers.Go(cp.parts[i].stop)
	}
	controllers.Wait()
	if len(cp.parts) > 0 {
		cp.parts[0].stop()
	}
	if cp.etcd != nil {
		cp.etcd.Stop()
	}
}

func (p *part) stop() {
	p.cancel()
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
	}
}
