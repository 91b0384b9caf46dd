package local

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/certs"
)

// program is one of Elastic's daemons as it runs beside the sandbox.
type program struct {
	name    string
	binary  string   // where it is not the name
	folders []string // of its manifests
	account client.ObjectKey
	node    string // that its token is bound to, as a pod's is; empty for none
	// webhook is the address it serves webhooks on, extender the one it answers
	// kube-scheduler on; empty for none.
	webhook, extender string
	mutual            certs.Mutual     // of the extender and kube-scheduler
	lease             client.ObjectKey // of its leader, once it is configured; empty for none
	// config makes its configuration file.
	config func(p *program) any
	// serves is the folder of shares that the arbiter serves, which is all it is told and all it can be asked about; empty
	// for the other programs.
	serves string

	metrics, health string
	dir             string
	// onNode says that what it mounts is for the real node's containers; mountsOf is the process whose mounts it has
	// for that; 0 for ours.
	onNode   bool
	mountsOf int
}

// programs lists what runs in a local cluster, each with addresses of its own.
func programs(dir string, options UpOptions) ([]program, error) {
	list := []program{
		{
			name: "elastic-queue", folders: []string{"queue"}, webhook: "free",
			account: client.ObjectKey{Namespace: "elastic-queue", Name: "elastic-queue"},
			config: func(p *program) any {
				cfg := v1alpha1.NewQueueConfiguration()
				cfg.Recommend()
				elect(&cfg.LeaderElection, options.Lease)
				cfg.Metrics.BindAddress, cfg.Health.BindAddress = p.metrics, p.health
				p.serveWebhooks(&cfg.Webhook)
				if options.Cards {
					countCards(cfg)
				}
				if options.Queue != nil {
					options.Queue(cfg)
				}
				p.lease = p.leaseOf(cfg.LeaderElection)
				return cfg
			},
		},
		{
			name: "elastic-gpu-scheduler", folders: []string{"gpu-scheduler", "gpu-remote"}, webhook: "free", extender: "free",
			account: client.ObjectKey{Namespace: "elastic-queue", Name: "elastic-gpu-scheduler"},
			config: func(p *program) any {
				cfg := v1alpha1.NewGPUSchedulerConfiguration()
				elect(&cfg.LeaderElection, options.Lease)
				cfg.Metrics.BindAddress, cfg.Health.BindAddress = p.metrics, p.health
				cfg.Extender.BindAddress = p.extender
				// For simulated nodes, which run any image.
				cfg.RemoteEngines = map[string]v1alpha1.RemoteServer{"elastic": {Image: "elastic-gpu-agent", Command: []string{"/var/run/ko/elastic-gpu-remote"}}}
				p.serveWebhooks(&cfg.Webhook)
				if options.ConfigureScheduler != nil {
					options.ConfigureScheduler(cfg)
				}
				p.lease = p.leaseOf(cfg.LeaderElection)
				return cfg
			},
		},
		{
			name: "elastic-gpu-agent", folders: []string{"gpu-agent", "gpu-agent-dra", "gpu-agent-simulated"},
			account: client.ObjectKey{Namespace: "elastic-queue", Name: "elastic-gpu-agent-simulated"},
			config: func(p *program) any {
				cfg := v1alpha1.NewGPUAgentConfiguration()
				cfg.Metrics.BindAddress, cfg.Health.BindAddress = p.metrics, p.health
				cfg.Simulate = true
				return cfg
			},
		},
	}
	if err := options.GPUScheduler.choose(&list[1]); err != nil {
		return nil, err
	}
	if options.RealNode {
		node := filepath.Join(filepath.Dir(dir), "node")
		list = append(list, nodeAgent(node, options.ConfigureAgent), nodeArbiter(node))
	}
	if options.Nodes == "" && options.RealNode { // the agent of simulated nodes has none to serve; what it installs stays
		list[3].folders = list[2].folders[:2]
		list = slices.Delete(list, 2, 3)
	}
	for i := range list {
		p := &list[i]
		p.dir = filepath.Join(dir, p.name)
		if p.serves != "" {
			continue // it listens to nobody
		}
		wanted := []*string{&p.metrics, &p.health}
		for _, address := range []*string{&p.webhook, &p.extender} {
			if *address != "" {
				wanted = append(wanted, address)
			}
		}
		for _, address := range wanted {
			var err error
			if *address, err = FreeAddress(); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

// nodeAgent serves the real node, whose folders it shares with the kubelet and containerd there.
func nodeAgent(node string, configure func(*v1alpha1.GPUAgentConfiguration)) program {
	return program{
		name: "elastic-gpu-agent-" + NodeName, binary: "elastic-gpu-agent", node: NodeName, onNode: true,
		account: client.ObjectKey{Namespace: "elastic-queue", Name: "elastic-gpu-agent"},
		config: func(p *program) any {
			cfg := v1alpha1.NewGPUAgentConfiguration()
			cfg.Metrics.BindAddress, cfg.Health.BindAddress = p.metrics, p.health
			cfg.NodeName = NodeName
			plugin := &cfg.DevicePlugin
			plugin.KubeletDir, plugin.CDIDir, plugin.StateDir = filepath.Join(node, "kubelet"), filepath.Join(node, "cdi"), stateDir(node)
			plugin.DriverDirs = append(plugin.DriverDirs, plugin.CDIDir)
			plugin.WholeCards = true // no other plugin is there
			cfg.DRA.Enabled = true   // which cards, an annotation of the node says
			if agent, err := sibling(p.binary); err == nil {
				plugin.Library = filepath.Join(filepath.Dir(agent), "libelasticgpu.so")
			}
			if configure != nil {
				configure(cfg)
			}
			return cfg
		},
	}
}

// stateDir is where the real node's agent keeps what it makes.
func stateDir(node string) string { return filepath.Join(node, "elastic-gpu") }

// nodeArbiter gives out turns among the real node's containers. As in the agent's pod, it finds them by the agent's folder
// and has no account.
func nodeArbiter(node string) program {
	return program{name: "elastic-gpu-arbiter", onNode: true, serves: filepath.Join(stateDir(node), "gpushare")}
}

// GPUScheduler is the way pods with cards are scheduled.
type GPUScheduler string

const (
	// AsExtender has kube-scheduler ask elastic-gpu-scheduler.
	AsExtender GPUScheduler = "extender"
	// AsPlugin has elastic-scheduler schedule them, with the engine in it.
	AsPlugin GPUScheduler = "plugin"
)

func (s GPUScheduler) choose(p *program) error {
	switch s {
	case AsExtender, "":
	case AsPlugin:
		p.binary, p.extender, p.folders = "elastic-scheduler", "", append(p.folders, "scheduler")
	default:
		return fmt.Errorf("GPU scheduler %q is none of %s, %s", s, AsExtender, AsPlugin)
	}
	return nil
}

// serveWebhooks on the program's address, with a certificate for it.
func (p *program) serveWebhooks(cfg *v1alpha1.Webhook) {
	cfg.CertDir = filepath.Join(p.dir, "certs")
	host, port, _ := net.SplitHostPort(p.webhook)
	// What is a part of the API is called by its service's name.
	cfg.Host, cfg.DNSNames = host, append([]string{host}, cfg.DNSNames...)
	cfg.Port, _ = strconv.Atoi(port)
}

// elect gives a leader's lease a duration, where it is to have another than in production.
func elect(election *v1alpha1.LeaderElection, lease time.Duration) {
	if lease > 0 {
		election.LeaseDuration.Duration = lease
		election.RenewDeadline.Duration = lease * 3 / 4
		election.RetryPeriod.Duration = lease / 8
	}
}

func (p *program) leaseOf(election v1alpha1.LeaderElection) client.ObjectKey {
	return client.ObjectKey{Namespace: election.Namespace, Name: cmp.Or(election.Name, p.name+"."+v1alpha1.Group)}
}

// forgetLeader deletes the lease of an earlier run: all its programs have ended, and waiting until it is over would
// only delay this one.
func (p *program) forgetLeader(ctx context.Context, c client.Client) error {
	if p.lease.Name == "" {
		return nil
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: p.lease.Namespace, Name: p.lease.Name}}
	return client.IgnoreNotFound(c.Delete(ctx, lease))
}

// prepare writes what the program reads at its start.
func (p *program) prepare(ctx context.Context, c client.Client, admin *rest.Config) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	if p.serves != "" {
		return os.MkdirAll(filepath.Dir(p.serves), 0o750)
	}
	if err := writeKubeconfig(ctx, c, admin, p.account, p.node, p.kubeconfig()); err != nil {
		return err
	}
	data, err := yaml.Marshal(p.config(p))
	if err != nil {
		return err
	}
	if err := p.forgetLeader(ctx, c); err != nil {
		return err
	}
	return os.WriteFile(p.configFile(), data, 0o600)
}

func (p *program) kubeconfig() string { return filepath.Join(p.dir, "kubeconfig") }
func (p *program) configFile() string { return filepath.Join(p.dir, "config.yaml") }
func (p *program) logFile() string    { return filepath.Join(p.dir, "log") }

func (p *program) path() (string, error) { return sibling(cmp.Or(p.binary, p.name)) }

func (p *program) start() (*child, error) {
	path, err := p.path()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the child has its own handle
	args := []string{"--config", p.configFile(), "--kubeconfig", p.kubeconfig()}
	if p.serves != "" {
		args = []string{p.serves}
	}
	return startChild(p.name, path, args, log, log, p.mountsOf)
}

// ready says whether a program that runs is ready, and else why not.
func (p *program) ready(ctx context.Context, running *child) error {
	if p.serves != "" {
		return exec.CommandContext(ctx, running.cmd.Path, "check", p.serves).Run()
	}
	return askReady(ctx, "http://"+p.health+"/readyz")
}

// supervisor runs one program: like a kubelet it starts it again when it ends,
// with a pause that grows while that goes on.
type supervisor struct {
	program program
	report  func(format string, args ...any)

	mu      sync.Mutex
	process *child
}

func (s *supervisor) pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.cmd.Process.Pid
}

// startReady starts the program and waits until it is ready.
func (s *supervisor) startReady(ctx context.Context) error {
	process, err := s.program.start()
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.process = process
	s.mu.Unlock()
	if err := waitReady(ctx, process, func(ctx context.Context) error { return s.program.ready(ctx, process) }); err != nil {
		process.stop(5 * time.Second)
		return fmt.Errorf("%w (%s)", err, s.program.logFile())
	}
	return nil
}

// supervise the program until ctx ends, then stop it.
func (s *supervisor) supervise(ctx context.Context, restarted func()) {
	pause := time.Second
	for {
		select {
		case <-ctx.Done():
			s.process.stop(10 * time.Second)
			return
		case <-s.process.done:
		}
		s.report("%s ended (%v); starting it again in %s, its log is %s", s.program.name, s.process.err, pause, s.program.logFile())
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Minute)
		if err := s.startReady(ctx); err == nil {
			pause = time.Second
			restarted()
		}
	}
}
