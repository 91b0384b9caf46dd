// Package outside runs a program in the place of the manager that a suite of Kueue's sets up in its own process.
//
// The suites' framework, as edited, calls Run instead of starting its manager. The set-up has run by then, so package
// record knows what it asked for: that becomes Kueue's configuration file, and the suite's feature gates become a flag.
// When a spec changes gates, the program is started again. The helpers of the suites read metrics from vectors in their
// own process, so the program's are copied there.
package outside

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/onsi/ginkgo/v2"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	utiltesting "sigs.k8s.io/kueue/pkg/util/testing"

	"github.com/elastic-ai/elastic/test/kueue/record"
)

// How the runner tells the suite's process what to do.
const (
	envProgram    = "OUTSIDE_PROGRAM"    // what to run
	envOwn        = "OUTSIDE_KUEUE"      // it is Kueue's own manager, for comparison
	envLog        = "OUTSIDE_LOG"        // where its log goes
	envFrameworks = "OUTSIDE_FRAMEWORKS" // kinds of jobs that the suite takes for granted
)

const (
	readyWithin = time.Minute
	endsWithin  = 15 * time.Second
	workWithin  = 5 * time.Second
	look        = 100 * time.Millisecond // how often metrics are copied
)

// process is the program, and what it was started with.
type process struct {
	dir     string
	args    []string
	serving string // its webhooks' address
	metrics string
	gates   string
	always  []string // gates that the set-up says in other words
	queues  bool     // the set-up has controllers of queues
	decides bool     // it has a scheduler
	command *exec.Cmd
	ended   chan struct{}
	log     io.Writer
	said    *head // since it was started
}

// Run runs the program until the context ends.
func Run(ctx context.Context, cfg *rest.Config, serves *envtest.WebhookInstallOptions, asked record.Asked) error {
	p, err := prepare(cfg, serves, asked)
	if err != nil {
		return err
	}
	defer os.RemoveAll(p.dir)
	restart, over := make(chan chan error), make(chan struct{})
	defer close(over)
	record.OnGates(func() {
		done := make(chan error, 1)
		select {
		case restart <- done:
			if err := <-done; err != nil {
				ginkgo.Fail(err.Error())
			}
		case <-ctx.Done():
		case <-over: // it could not be started: the spec fails for that
		}
	})
	if err := p.start(ctx); err != nil {
		return unlessEnded(ctx, err)
	}
	defer p.stop()
	release := func() {}
	if !p.queues {
		if release, err = releaser(ctx, cfg); err != nil {
			return err
		}
	}
	series, known := vectors(), copied{}
	defer forget(p.metrics)
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			known.copyMetrics(p.metrics, series)
			release()
		case <-p.ended: // some specs wait for a restart
			if err := p.start(ctx); err != nil {
				return unlessEnded(ctx, err)
			}
		case done := <-restart:
			if gates() == p.gates {
				done <- nil
				continue
			}
			done <- unlessEnded(ctx, p.restart(ctx))
		}
	}
}

// unlessEnded: a suite may end while the program is being started.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// prepare writes the files that the program reads.
func prepare(cfg *rest.Config, serves *envtest.WebhookInstallOptions, asked record.Asked) (*process, error) {
	dir, err := os.MkdirTemp("", "outside-")
	if err != nil {
		return nil, err
	}
	kubeconfig, err := utiltesting.RestConfigToKubeConfig(cfg)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	file, err := configuration(asked, addresses{
		webhookHost: serves.LocalServingHost, webhook: serves.LocalServingPort, certDir: serves.LocalServingCertDir,
		metrics: ports[0], health: ports[1], visibility: ports[2],
	})
	if err != nil {
		return nil, err
	}
	p := &process{
		dir:     dir,
		args:    []string{"--config", filepath.Join(dir, "config.yaml"), "--kubeconfig", filepath.Join(dir, "kubeconfig")},
		serving: net.JoinHostPort(serves.LocalServingHost, fmt.Sprint(serves.LocalServingPort)),
		metrics: fmt.Sprintf("http://127.0.0.1:%d/metrics", ports[0]),
	}
	p.decides, _ = record.Value[bool](asked, "scheduler")
	if !p.decides && os.Getenv(envOwn) == "" {
		p.args = append(p.args, "--no-decisions")
	}
	if recovers, _ := record.Value[bool](asked, "failureRecovery"); recovers {
		p.always = append(p.always, "FailureRecoveryPolicy=true")
	}
	_, p.queues = record.Value[*config.Configuration](asked, "configuration")
	if noPodsReady(asked) {
		p.always = append(p.always, "DisableWaitForPodsReady=true")
	}
	if p.log, err = os.OpenFile(os.Getenv(envLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	}
	return p, errors.Join(os.WriteFile(filepath.Join(dir, "config.yaml"), file, 0o600), os.WriteFile(filepath.Join(dir, "kubeconfig"), kubeconfig, 0o600))
}

// start starts the program with the gates as they are, without those it does not know, and waits until it serves.
func (p *process) start(ctx context.Context) error {
	p.gates = gates()
	given := slices.Concat(p.always, strings.FieldsFunc(p.gates, func(r rune) bool { return r == ',' }))
	for {
		said, err := p.launch(ctx, given)
		if err != nil {
			return err
		}
		if said == nil {
			return nil
		}
		left := slices.DeleteFunc(slices.Clone(given), func(gate string) bool {
			name, _, _ := strings.Cut(gate, "=")
			return bytes.Contains(said, []byte("feature gate "+name+":")) || bytes.Contains(said, []byte(`feature gate "`+name+`"`))
		})
		if len(left) == len(given) {
			return fmt.Errorf("%s ended at once: %s", os.Getenv(envProgram), said)
		}
		fmt.Fprintf(p.log, "== these gates are not to be had: %s\n", said)
		given = left
	}
}

// restart starts the program again with other gates, and waits until the controllers work that did before: to the spec that
// changed them it is the same manager.
func (p *process) restart(ctx context.Context) error {
	before := p.said.working()
	p.stop()
	if err := p.start(ctx); err != nil {
		return err
	}
	err := wait.PollUntilContextTimeout(ctx, look, workWithin, true, func(context.Context) (bool, error) {
		now := p.said.working()
		return !slices.ContainsFunc(before, func(name string) bool { return !slices.Contains(now, name) }), nil
	})
	if wait.Interrupted(err) { // a gate may have switched one of them off
		return ctx.Err()
	}
	return err
}

// launch starts the program. If it ended before it served, what it said is returned.
func (p *process) launch(ctx context.Context, given []string) (said []byte, err error) {
	args := p.args
	if len(given) > 0 {
		args = append(slices.Clone(args), "--feature-gates="+strings.Join(given, ","))
	}
	fmt.Fprintf(p.log, "== %s: %q\n", ginkgo.CurrentSpecReport().FullText(), args)
	beginning := &head{}
	p.said = beginning
	p.command = exec.Command(os.Getenv(envProgram), args...)
	p.command.Stdout, p.command.Stderr = io.MultiWriter(p.log, beginning), io.MultiWriter(p.log, beginning)
	p.command.Env = os.Environ()
	if p.decides { // Kueue's own scheduler, as edited, stands still for this
		p.command.Env = slices.DeleteFunc(p.command.Env, func(v string) bool { return strings.HasPrefix(v, envProgram+"=") })
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	p.ended = ended
	go func() {
		_ = p.command.Wait()
		close(ended)
	}()
	err = wait.PollUntilContextTimeout(ctx, look, readyWithin, true, func(context.Context) (bool, error) {
		select {
		case <-ended:
			return true, nil
		default:
		}
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Second}, "tcp", p.serving, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return false, nil //nolint:nilerr // not yet
		}
		return true, conn.Close()
	})
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("waiting for %s: %w", p.serving, err)
	}
	select {
	case <-ended:
		return beginning.text(), nil
	default:
		return nil, nil
	}
}

// stop ends the program, as the kubelet would.
func (p *process) stop() {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(endsWithin):
		_ = p.command.Process.Kill()
		<-p.ended
	}
}

// head remembers the beginning of what is written to it.
type head struct {
	mu   sync.Mutex
	data []byte
}

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	const most = 64 << 10
	h.data = append(h.data, p[:min(len(p), most-len(h.data))]...)
	return len(p), nil
}

var working = regexp.MustCompile(`msg="Starting workers" controller=(\S+)`)

// working are the controllers that said that they begin to work.
func (h *head) working() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	for _, found := range working.FindAllSubmatch(h.data, -1) {
		names = append(names, string(found[1]))
	}
	return names
}

func (h *head) text() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]byte("\n"), h.data...)
}

// freePorts of the loopback, all different.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports[i] = listener.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}
