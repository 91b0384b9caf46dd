package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// surroundings is the environment of the control plane and of the harness, the
// same for both sides: they collect garbage less often than they would by
// themselves, so that more of the machine is left for what is compared.
var surroundings = []string{"GOGC=400"}

// process is a program under way; end stops it and waits for it.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

func start(log string, env []string, path string, args ...string) (*process, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	return begin(cmd, out)
}

func begin(cmd *exec.Cmd, out io.Closer) (*process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		_ = out.Close()
		close(p.done)
	}()
	return p, nil
}

func (p *process) end() error {
	_ = p.cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-p.done:
		return p.err
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s did not stop when it was told to", p.cmd.Path)
	}
}

// cpu is the time the process has used so far, in user and kernel mode.
func (p *process) cpu() (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	kernel, err2 := strconv.ParseInt(fields[12], 10, 64)
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux there is
	return time.Duration(user+kernel) * tick, errors.Join(err1, err2)
}

// peak is the most memory the process has had.
func (p *process) peak() (mebibytes int) {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	for line := range strings.Lines(string(data)) {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			kib, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			return kib / 1024
		}
	}
	return 0
}

// holdTo has the kernel refuse the process more memory of its own (RLIMIT_DATA: what it may write to and shares with
// nobody, touched or not). A Go program that is refused memory ends.
func (p *process) holdTo(mebibytes uint64) error {
	limit := &unix.Rlimit{Cur: mebibytes << 20, Max: mebibytes << 20}
	return unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_DATA, limit, nil)
}

// controlPlane starts etcd and the API server, as the harness does by itself, and
// installs Kueue's CRDs. Of Workloads only v1beta2 is served, which is what both
// sides and the harness speak: the API server keeps a copy of every object, and
// reads every change, for each version that is served.
func controlPlane(ctx context.Context, bin, dir, crds string) (p *process, kubeconfig string, err error) {
	sandbox := filepath.Join(bin, "elastic-sandbox")
	cmd := exec.Command(sandbox, "run", "--dir", filepath.Join(dir, "sandbox"), "--api-only", "--fresh")
	cmd.Env = append(os.Environ(), surroundings...)
	cmd.Stderr = io.Discard
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if p, err = begin(cmd, out); err != nil {
		return nil, "", err
	}
	lines := bufio.NewScanner(out)
	for kubeconfig == "" && lines.Scan() {
		var said struct{ Event, Message, Kubeconfig string }
		if json.Unmarshal(lines.Bytes(), &said) == nil && said.Event == "ready" {
			kubeconfig = said.Kubeconfig
		}
	}
	if kubeconfig == "" {
		return nil, "", errors.Join(errors.New("the sandbox did not start"), p.end())
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if err := errors.Join(
		kubectl(ctx, bin, kubeconfig, "apply", "--server-side", "-f", crds),
		kubectl(ctx, bin, kubeconfig, "patch", "crd", "workloads.kueue.x-k8s.io", "--type=json", "-p", unserved),
		kubectl(ctx, bin, kubeconfig, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"),
	); err != nil {
		return nil, "", errors.Join(err, p.end())
	}
	return p, kubeconfig, nil
}

const unserved = `[{"op": "test", "path": "/spec/versions/0/name", "value": "v1beta1"},
	{"op": "replace", "path": "/spec/versions/0/served", "value": false}]`

func kubectl(ctx context.Context, bin, kubeconfig string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "elastic-sandbox"), append([]string{"kubectl", "--kubeconfig", kubeconfig}, args...)...)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %v: %w: %s", args, err, said)
	}
	return nil
}

// freeAddress is one on which nothing listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}

// requests reads how many requests a program has made, by method, from its
// metrics.
func requests(address string) (map[string]int, error) {
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	counts := map[string]int{}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		labels, found := strings.CutPrefix(lines.Text(), "rest_client_requests_total{")
		if !found {
			continue
		}
		_, method, _ := strings.Cut(labels, `method="`)
		method, _, _ = strings.Cut(method, `"`)
		value, err := strconv.ParseFloat(labels[strings.LastIndexByte(labels, ' ')+1:], 64)
		if err != nil {
			return nil, err
		}
		counts[method] += int(value)
	}
	return counts, lines.Err()
}
