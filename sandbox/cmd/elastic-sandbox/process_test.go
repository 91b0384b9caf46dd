package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/elastic-ai/elastic/sandbox/internal/run"
)

// startTimeout is far above the few seconds a start takes, for slow machines.
const startTimeout = 90 * time.Second

// binary is the program under test, as the Makefile builds it.
var binary string

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "elastic-sandbox")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "elastic-sandbox")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", binary, ".")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		panic(err)
	}
	return m.Run()
}

// process is a running sandbox as its parent sees it.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	events chan run.Event // closed when stdout ends
	stderr *bytes.Buffer
	ready  run.Event
	before []string // what it said on the way to ready
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(binary, append([]string{"run", "--until-stdin-closes"}, args...)...), events: make(chan run.Event, 64), stderr: &bytes.Buffer{}}
	p.cmd.Stderr = p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	go func() {
		defer close(p.events)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var e run.Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				e = run.Event{Event: "garbage", Message: lines.Text()}
			}
			p.events <- e
		}
	}()
	return p
}

// startReady starts a sandbox and waits until it says that it is ready.
func startReady(t *testing.T, args ...string) *process {
	t.Helper()
	p := start(t, args...)
	deadline := time.After(startTimeout)
	for {
		select {
		case e, open := <-p.events:
			switch {
			case !open:
				t.Fatalf("ended before it was ready; stderr: %s", p.stderr)
			case e.Event == "ready":
				p.ready = e
				return p
			case e.Event != "progress":
				t.Fatalf("got %+v", e)
			}
			p.before = append(p.before, e.Message)
		case <-deadline:
			t.Fatalf("not ready; it said %q", p.before)
		}
	}
}

// end waits for the process to end by itself and returns its exit code and last event.
func (p *process) end(t *testing.T) (int, run.Event) {
	t.Helper()
	var last run.Event
	deadline := time.After(startTimeout)
	for {
		select {
		case e, open := <-p.events:
			if open {
				last = e
				continue
			}
			_ = p.cmd.Wait() // the exit code says more
			return p.cmd.ProcessState.ExitCode(), last
		case <-deadline:
			t.Fatal("does not end")
		}
	}
}

func (p *process) config(t *testing.T) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", p.ready.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

func (p *process) client(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(p.config(t))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// kubectl runs the kubectl inside the program.
func (p *process) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"kubectl", "--kubeconfig", p.ready.Kubeconfig}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// eventually asks until the answer is yes.
func eventually(t *testing.T, what string, yes func() bool) {
	t.Helper()
	deadline := time.After(startTimeout)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not so: %s", what)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
