package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
)

// outcome is what one side did with the work.
type outcome struct {
	name                string
	wall, cpu, apiCPU   time.Duration
	runnerCPU           time.Duration
	memory              int // MiB
	admitted, evictions int
	// writes to objects; events are counted apart.
	writes, events int
	wait           map[string]time.Duration // mean time to admission, by class
}

func (o outcome) perAdmission(n int) float64 { return float64(n) / float64(o.admitted) }

// setup is what all runs have in common.
type setup struct {
	bin, harness, crds, work string
	timeout                  time.Duration
}

// run gives the work to one side on a control plane of its own.
func (s setup) run(ctx context.Context, name string, program func(dir, kubeconfig, metrics string) (*process, error)) (out outcome, err error) {
	dir, err := os.MkdirTemp("", "bench-queue-")
	if err != nil {
		return out, err
	}
	defer func() {
		if err == nil {
			_ = os.RemoveAll(dir)
		} else {
			err = fmt.Errorf("%s: %w (logs in %s)", name, err, dir)
		}
	}()
	plane, kubeconfig, err := controlPlane(ctx, s.bin, dir, s.crds)
	if err != nil {
		return out, err
	}
	defer func() { _ = plane.end() }()
	metrics, err := freeAddress()
	if err != nil {
		return out, err
	}
	side, err := program(dir, kubeconfig, metrics)
	if err != nil {
		return out, err
	}
	if err := wait(ctx, time.Minute, side, func() bool { _, err := requests(metrics); return err == nil }); err != nil {
		return out, errors.Join(err, side.end())
	}
	results := filepath.Join(dir, "results")
	if err := os.Mkdir(results, 0o700); err != nil {
		return out, err
	}
	planeBefore, err := plane.cpu()
	if err != nil {
		return out, err
	}
	runner, err := start(filepath.Join(dir, "runner.log"), append(surroundings, "KUBECONFIG="+kubeconfig),
		filepath.Join(s.harness, "runner"), "-o", results, "-generatorConfig", s.work, "-timeout", s.timeout.String(),
		"-qps", "2000", "-burst", "2000", "-zap-log-level", "error")
	if err != nil {
		return out, errors.Join(err, side.end())
	}
	// The runner writes this file last, then deletes everything, which is not
	// part of the work.
	last := filepath.Join(results, "wlStates.csv")
	err = wait(ctx, s.timeout+time.Minute, runner, func() bool { _, err := os.Stat(last); return err == nil })
	if err == nil {
		out, err = measure(name, side, plane, runner, planeBefore, metrics)
	}
	_ = runner.cmd.Process.Kill()
	<-runner.done
	if stopped := side.end(); stopped != nil {
		err = errors.Join(err, fmt.Errorf("it did not end with 0: %w", stopped))
	}
	if err != nil {
		return out, err
	}
	return out, out.read(filepath.Join(results, "summary.yaml"))
}

func measure(name string, side, plane, runner *process, planeBefore time.Duration, metrics string) (outcome, error) {
	out := outcome{name: name, memory: side.peak()}
	cpu, err1 := side.cpu()
	planeCPU, err2 := plane.cpu()
	counts, err3 := requests(metrics)
	out.runnerCPU, _ = runner.cpu() // it may have ended
	out.cpu, out.apiCPU = cpu, planeCPU-planeBefore
	out.writes, out.events = counts["PATCH"]+counts["PUT"]+counts["DELETE"], counts["POST"]
	return out, errors.Join(err1, err2, err3)
}

// read takes in the runner's summary.
func (o *outcome) read(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var summary struct {
		ClusterQueueClasses map[string]struct{ FirstEventTime, LastEventTime time.Time }
		WorkloadClasses     map[string]struct{ Count, TotalEvictions, AverageTimeToAdmissionMs int }
	}
	if err := yaml.Unmarshal(data, &summary); err != nil {
		return err
	}
	for _, class := range summary.ClusterQueueClasses {
		o.wall = class.LastEventTime.Sub(class.FirstEventTime)
	}
	o.wait = map[string]time.Duration{}
	for name, class := range summary.WorkloadClasses {
		o.admitted += class.Count
		o.evictions += class.TotalEvictions
		o.wait[name] = time.Duration(class.AverageTimeToAdmissionMs) * time.Millisecond
		if class.AverageTimeToAdmissionMs == 0 {
			// So it is where all workloads are made before the first queue is active.
			return fmt.Errorf("the runner stopped before %s workloads were admitted: there are too few", name)
		}
	}
	return nil
}

// wait until it is true, unless the process ends or time runs out first.
func wait(ctx context.Context, limit time.Duration, p *process, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", filepath.Base(p.cmd.Path), ctx.Err())
		case <-p.done:
			if ok() {
				return nil
			}
			return fmt.Errorf("%s ended too early: %w", filepath.Base(p.cmd.Path), p.err)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// kueue is the harness's own.
func (s setup) kueue(dir, kubeconfig, metrics string) (*process, error) {
	_, port, _ := net.SplitHostPort(metrics)
	return start(filepath.Join(dir, "kueue.log"), nil, filepath.Join(s.harness, "minimalkueue"),
		"--kubeconfig", kubeconfig, "--metricsPort", port)
}

// elastic is the whole elastic-queue, with Kueue's file and a limit like that, or none.
func (s setup) elastic(qps, burst int) func(dir, kubeconfig, metrics string) (*process, error) {
	return s.elasticWith(func(dir, metrics, port string) (string, error) {
		return fmt.Sprintf(`apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
metrics: {bindAddress: %q}
health: {healthProbeBindAddress: "0"}
webhook: {host: 127.0.0.1, port: %s, certDir: %q}
leaderElection: {leaderElect: false}
clientConnection: {qps: %d, burst: %d}
featureGates: {VisibilityOnDemand: false}
`, metrics, port, filepath.Join(dir, "certs"), qps, burst), nil
	})
}

// recommended is elastic-queue with our own file and what is recommended, and the same limit. There are no nodes here, so
// nothing is placed on any.
func (s setup) recommended(qps, burst int) func(dir, kubeconfig, metrics string) (*process, error) {
	return s.elasticWith(func(dir, metrics, port string) (string, error) {
		cfg := v1alpha1.NewQueueConfiguration()
		cfg.FeatureGates = map[string]bool{"VisibilityOnDemand": false}
		cfg.Recommend()
		number, err := strconv.Atoi(port)
		if err != nil {
			return "", err
		}
		cfg.Metrics.BindAddress, cfg.Health.BindAddress = metrics, "0"
		cfg.Webhook.Host, cfg.Webhook.Port, cfg.Webhook.CertDir = "127.0.0.1", number, filepath.Join(dir, "certs")
		cfg.LeaderElection.Enabled, cfg.Placement.Enabled = ptr.To(false), ptr.To(false)
		cfg.ClientConnection = v1alpha1.ClientConnection{QPS: float32(qps), Burst: burst}
		file, err := yaml.Marshal(cfg)
		return string(file), err
	})
}

// elasticWith is elastic-queue with a configuration.
func (s setup) elasticWith(configuration func(dir, metrics, port string) (string, error)) func(dir, kubeconfig, metrics string) (*process, error) {
	return func(dir, kubeconfig, metrics string) (*process, error) {
		webhook, err := freeAddress()
		if err != nil {
			return nil, err
		}
		_, port, _ := net.SplitHostPort(webhook)
		file, err := configuration(dir, metrics, port)
		if err != nil {
			return nil, err
		}
		config := filepath.Join(dir, "config.yaml")
		if err := os.WriteFile(config, []byte(file), 0o600); err != nil {
			return nil, err
		}
		return start(filepath.Join(dir, "elastic.log"), nil, filepath.Join(s.bin, "elastic-queue"),
			"--kubeconfig", kubeconfig, "--config", config)
	}
}
