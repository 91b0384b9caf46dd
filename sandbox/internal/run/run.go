// Package run is the life of one sandbox process: lock the folder, start the
// control plane and the simulated nodes, say "ready", wait, stop.
package run

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/elastic-ai/elastic/sandbox/internal/clouds"
	"github.com/elastic-ai/elastic/sandbox/internal/controlplane"
	"github.com/elastic-ai/elastic/sandbox/internal/kubelet"
	"github.com/elastic-ai/elastic/sandbox/internal/nodespec"
	"github.com/elastic-ai/elastic/sandbox/internal/pki"
	"github.com/elastic-ai/elastic/sandbox/internal/statedir"
)

// Options says how to run a sandbox.
type Options struct {
	Dir             string
	Fresh           bool // forget what an earlier run left
	Fleet           []nodespec.Node
	Listen          net.IP
	Port            int // of the API server; 0 for a free one
	SchedulerConfig string
	APIServer       map[string]string
	APIOnly         bool // etcd and the API server alone
	Clouds          bool // play clouds that sell machines
	Verbosity       int
	JobBatchPeriod  time.Duration // for which the Job controller gathers changes of a Job's pods; 0 leaves it as it is
	StartTimeout    time.Duration
}

// Run runs a sandbox until the context ends, which is a success, or a part of it fails.
func Run(ctx context.Context, o Options, events *Events) error {
	began := time.Now()
	dir, err := statedir.Open(o.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	logs, err := openLogs(dir, o.Verbosity)
	if err != nil {
		return err
	}
	defer logs.close()
	if err := prepareState(dir, o.Fresh, events); err != nil {
		return err
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{})

	s := &sandbox{dir: dir, logs: logs, options: o, events: events}
	defer s.stop()
	starting, cancel := context.WithTimeoutCause(ctx, o.StartTimeout, fmt.Errorf("not ready after %s", o.StartTimeout))
	defer cancel()
	if err := s.start(starting); err != nil {
		if ctx.Err() != nil {
			return nil // stopped before it was up
		}
		return fmt.Errorf("%w (logs in %s)", err, dir.Path()+"/log")
	}
	events.Send(Event{
		Event: "ready", Kubeconfig: dir.Kubeconfig(), Server: s.plane.Server, Components: s.plane.Components,
		Seconds: float64(time.Since(began).Milliseconds()) / 1000,
	})
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.plane.Failed():
		return fmt.Errorf("%w (logs in %s)", err, dir.Path()+"/log")
	}
}

// prepareState decides whether an earlier run is continued. Data that cannot be
// read is moved aside rather than deleted, and never stops a start.
func prepareState(dir *statedir.Dir, fresh bool, events *Events) error {
	if fresh {
		return dir.Wipe()
	}
	bad := controlplane.CheckEtcdData(dir.Etcd())
	if bad == nil {
		return nil
	}
	aside := dir.Etcd() + ".unreadable"
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	if err := os.Rename(dir.Etcd(), aside); err != nil {
		return err
	}
	events.Progress(fmt.Sprintf("the state of the last run cannot be read (%v); it is now in %s, and this run starts empty", bad, aside))
	return nil
}

type sandbox struct {
	dir      *statedir.Dir
	logs     *logs
	options  Options
	events   *Events
	plane    *controlplane.ControlPlane
	kubelets *kubelet.Kubelets
	clouds   *clouds.Provider
}

func (s *sandbox) start(ctx context.Context) (err error) {
	s.plane, err = controlplane.Start(ctx, controlplane.Config{
		Dir:             s.dir,
		Listen:          s.options.Listen,
		Port:            s.options.Port,
		SchedulerConfig: s.options.SchedulerConfig,
		APIServer:       s.options.APIServer,
		APIOnly:         s.options.APIOnly,
		JobBatchPeriod:  s.options.JobBatchPeriod,
		EtcdLogger:      s.logs.etcdLogger(s.options.Verbosity),
		Progress:        s.events.Progress,
	})
	if err != nil {
		return err
	}
	kubeconfig := func() error {
		return pki.WriteKubeconfig(s.dir.Kubeconfig(), s.plane.Server, s.plane.Files.CA.Cert, s.plane.Files.Admin)
	}
	if s.options.APIOnly {
		return kubeconfig()
	}
	if s.kubelets, err = kubelet.Start(s.plane.SimulatorConfig(), s.plane.Files, s.logs.nodes); err != nil {
		return fmt.Errorf("simulated nodes: %w", err)
	}
	if err := s.kubelets.SetFleet(ctx, s.options.Fleet); err != nil {
		return fmt.Errorf("simulated nodes: %w", err)
	}
	s.events.Progress(fmt.Sprintf("%d simulated nodes are ready", len(s.options.Fleet)))
	if s.options.Clouds {
		if s.clouds, err = clouds.Start(ctx, s.plane.SimulatorConfig(), s.kubelets); err != nil {
			return fmt.Errorf("simulated clouds: %w", err)
		}
	}
	if err := awaitDefaults(ctx, s.plane.SimulatorConfig()); err != nil {
		return err
	}
	return kubeconfig()
}

// awaitDefaults waits for what controllers make in every cluster and every pod needs.
func awaitDefaults(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := client.CoreV1().ServiceAccounts(corev1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			_, err = client.CoreV1().ConfigMaps(corev1.NamespaceDefault).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		}
		if err == nil {
			return nil
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("default namespace: %w", errors.Join(err, context.Cause(ctx)))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the default namespace has no service account yet: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

func (s *sandbox) stop() {
	if s.clouds != nil {
		s.clouds.Stop()
	}
	if s.kubelets != nil {
		s.kubelets.Stop()
	}
	if s.plane != nil {
		s.plane.Stop()
	}
}
