package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// sandboxEvent is a line that elastic-sandbox prints.
type sandboxEvent struct {
	Event      string  `json:"event"` // progress, ready, stopped, error
	Message    string  `json:"message"`
	Kubeconfig string  `json:"kubeconfig"`
	Server     string  `json:"server"`
	Seconds    float64 `json:"seconds"`
}

// startSandbox starts the control plane and the nodes, and returns when they
// are ready. On an error nothing is left running.
func (c *Cluster) startSandbox(ctx context.Context, options UpOptions, progress func(string)) (*child, sandboxEvent, error) {
	path, err := sibling("elastic-sandbox")
	if err != nil {
		return nil, sandboxEvent{}, err
	}
	if err := waitForOrphan(ctx, c.path("sandbox"), progress); err != nil {
		return nil, sandboxEvent{}, err
	}
	args := []string{"run", "--dir", c.path("sandbox"), "--nodes", options.Nodes}
	if options.Cards {
		args = append(args, "--job-batch-period=100ms") // jobs are few there, and the next one waits for the card
	}
	if options.Clouds {
		args = append(args, "--clouds")
	}
	args = append(args, options.SandboxArgs...)
	return c.startReporting(ctx, "elastic-sandbox", path, args, "starting Kubernetes", progress)
}

// Pauses between attempts to start the control plane again. One that ran for steadyAfter is not in a loop of failures.
const (
	firstPause  = 100 * time.Millisecond
	longPause   = 10 * time.Second
	steadyAfter = time.Minute
)

// superviseSandbox starts the control plane again when it ends, until ctx ends. Its objects are on the disk, and it has the
// same address and certificates: programs and nodes go on as after any API server's restart. It gives up when it cannot
// be started for as long as a start may take.
func (r *running) superviseSandbox(ctx context.Context) error {
	again := r.options
	address, err := url.Parse(r.state.Server)
	if err != nil {
		return err
	}
	again.SandboxArgs = slices.DeleteFunc(slices.Clone(again.SandboxArgs), func(arg string) bool { return strings.HasPrefix(arg, "--fresh") })
	again.SandboxArgs = append(again.SandboxArgs, "--port="+address.Port())
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		began := time.Now()
		select {
		case <-ctx.Done():
			return nil
		case <-r.sandbox.done:
		}
		if time.Since(began) > steadyAfter {
			pause = firstPause
		}
		r.say("Kubernetes ended (%v); starting it again in %s, its log is %s", r.sandbox.err, pause, r.cluster.path("log", "elastic-sandbox.log"))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		if err := r.restartSandbox(ctx, again); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		r.saveState()
		r.say("Kubernetes is there again")
	}
}

// restartSandbox tries until it is there: another program may have its port for a moment.
func (r *running) restartSandbox(ctx context.Context, options UpOptions) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		sandbox, _, err := r.cluster.startSandbox(ctx, options, func(string) {})
		if err == nil {
			r.mu.Lock()
			r.sandbox = sandbox
			r.mu.Unlock()
			return nil
		}
		r.say("Kubernetes does not start: %v", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("the control plane ended and could not be started again: %w", err)
		case <-time.After(pause):
		}
	}
}

// NodeName is the real node's.
const NodeName = "real"

// NodeDir is the folder of the real node.
func (c *Cluster) NodeDir() string { return c.path("node") }

// startNode starts a node with a kubelet and containers, beside the sandbox. With host its containers may have this
// machine's own root.
func (c *Cluster) startNode(ctx context.Context, host bool, progress func(string)) (*child, float64, error) {
	path, err := sibling("elastic-sandbox")
	if err != nil {
		return nil, 0, err
	}
	if err := os.MkdirAll(c.NodeDir(), 0o700); err != nil {
		return nil, 0, err
	}
	if err := waitForOrphan(ctx, c.NodeDir(), progress); err != nil {
		return nil, 0, err
	}
	process, event, err := c.startReporting(ctx, "elastic-node", path, []string{
		"node", "--dir", c.NodeDir(), "--sandbox-dir", c.path("sandbox"), "--name", NodeName, "--bin", filepath.Join(filepath.Dir(path), "node"),
		fmt.Sprintf("--host-image=%t", host),
	}, "starting the real node", progress)
	return process, event.Seconds, err
}

// cleanNode takes away what a real node has left that was killed. What is still ending is waited for.
func (c *Cluster) cleanNode() error {
	for _, dir := range []string{c.NodeDir(), c.path("sandbox")} {
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		if err := waitForOrphan(context.Background(), dir, func(string) {}); err != nil {
			return err
		}
	}
	if _, err := os.Stat(c.NodeDir()); err != nil {
		return nil //nolint:nilerr // there was none
	}
	path, err := sibling("elastic-sandbox")
	if err != nil {
		return err
	}
	if out, err := exec.Command(path, "clean-node", "--dir", c.NodeDir()).CombinedOutput(); err != nil {
		return fmt.Errorf("cleaning up after the node: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// startReporting starts a program that reports its progress, and returns when it is ready. On an error
// nothing is left running.
func (c *Cluster) startReporting(ctx context.Context, name, path string, args []string, what string, progress func(string)) (*child, sandboxEvent, error) {
	log, err := os.OpenFile(c.path("log", name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, sandboxEvent{}, err
	}
	defer func() { _ = log.Close() }() // the child has its own handle
	reader, writer := io.Pipe()
	process, err := startChild(name, path, args, writer, log, 0)
	if err != nil {
		return nil, sandboxEvent{}, err
	}
	go func() {
		<-process.done
		_ = writer.Close()
	}()
	ready := make(chan sandboxEvent, 1)
	go readEvents(reader, ready, progress)
	select {
	case event, ok := <-ready:
		if ok && event.Event == "ready" {
			return process, event, nil
		}
		process.stop(5 * time.Second)
		if event.Message == "" {
			event.Message = "it ended without saying why; see " + log.Name()
		}
		return nil, sandboxEvent{}, errors.New(what + ": " + event.Message)
	case <-ctx.Done():
		process.stop(5 * time.Second)
		return nil, sandboxEvent{}, fmt.Errorf("%s: %w", what, ctx.Err())
	}
}

// waitForOrphan waits for the sandbox of a parent that was killed: it has seen
// its parent go and is ending, but until it has it holds its folder.
func waitForOrphan(ctx context.Context, dir string, progress func(string)) error {
	const limit = 2 * time.Minute
	reported := false
	for deadline := time.Now().Add(limit); ; {
		release, err := lockFile(filepath.Join(dir, "lock"))
		if err == nil {
			release()
			return nil
		}
		if !errors.Is(err, errRunning) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the sandbox of an earlier run still holds %s after %s: end it by hand", dir, limit)
		}
		if !reported {
			progress("waiting for an earlier run to end")
			reported = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// readEvents passes progress on, and the first ready or error to the channel;
// it goes on reading so that the process never blocks.
func readEvents(r io.Reader, ready chan<- sandboxEvent, progress func(string)) {
	defer close(ready)
	lines := bufio.NewScanner(r)
	reported := false
	for lines.Scan() {
		var event sandboxEvent
		if json.Unmarshal(lines.Bytes(), &event) != nil || reported {
			continue
		}
		switch event.Event {
		case "progress":
			progress(event.Message)
		case "ready", "error":
			ready <- event
			reported = true
		}
	}
}
