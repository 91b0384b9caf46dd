package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// DefaultName is the cluster that commands mean when none is named.
const DefaultName = "elastic"

// Cluster is a local cluster: a folder with everything it is made of.
type Cluster struct {
	Name string
	Dir  string
}

// State is what a running cluster says of itself, in state.json.
type State struct {
	PID        int            `json:"pid"`
	Version    string         `json:"version"`
	Nodes      string         `json:"nodes"`
	Phase      string         `json:"phase"` // starting, ready, failed
	Message    string         `json:"message,omitempty"`
	Server     string         `json:"server,omitempty"`
	Kubeconfig string         `json:"kubeconfig,omitempty"`
	Page       string         `json:"page,omitempty"` // its link, with the person's key
	Started    time.Time      `json:"started"`
	SandboxPID int            `json:"sandboxPid,omitempty"` // of the control plane
	Programs   []ProgramState `json:"programs,omitempty"`
}

// ProgramState is a program of a running cluster.
type ProgramState struct {
	Name    string `json:"name"`
	PID     int    `json:"pid"`
	Health  string `json:"health"`
	Metrics string `json:"metrics"`
	Log     string `json:"log"`
}

// Phases of a cluster.
const (
	PhaseStarting = "starting"
	PhaseReady    = "ready"
	PhaseFailed   = "failed"
)

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`)

// Home is the folder that holds all local clusters.
func Home() (string, error) {
	if home := os.Getenv("ELASTIC_HOME"); home != "" {
		return filepath.Abs(home)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no home folder for clusters (set ELASTIC_HOME): %w", err)
	}
	return filepath.Join(home, ".elastic"), nil
}

// Open names a cluster; it need not exist yet.
func Open(name string) (*Cluster, error) {
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("a cluster's name is made of a-z, 0-9 and '-', 32 characters at most; %q is not", name)
	}
	home, err := Home()
	if err != nil {
		return nil, err
	}
	return &Cluster{Name: name, Dir: filepath.Join(home, name)}, nil
}

// List names every cluster that has a folder.
func List() ([]*Cluster, error) {
	home, err := Home()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(home)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var clusters []*Cluster
	for _, entry := range entries {
		if entry.IsDir() && validName.MatchString(entry.Name()) {
			clusters = append(clusters, &Cluster{Name: entry.Name(), Dir: filepath.Join(home, entry.Name())})
		}
	}
	return clusters, nil
}

func (c *Cluster) path(elem ...string) string {
	return filepath.Join(slices.Concat([]string{c.Dir}, elem)...)
}

// Kubeconfig is the administrator's.
func (c *Cluster) Kubeconfig() string { return c.path("sandbox", "kubeconfig") }

// errRunning says another process holds the cluster.
var errRunning = errors.New("the cluster is running")

// lock takes the cluster for this process; the kernel gives it back when the
// process ends, however it ends.
func (c *Cluster) lock() (release func(), err error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	return lockFile(c.path("lock"))
}

// lockFile takes a lock, or says errRunning where another process has it.
func lockFile(path string) (release func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errRunning
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { _ = file.Close() }, nil
}

// Running says a process holds the cluster.
func (c *Cluster) Running() bool {
	if _, err := os.Stat(c.path("lock")); err != nil {
		return false
	}
	release, err := c.lock()
	if err != nil {
		return errors.Is(err, errRunning)
	}
	release()
	return false
}

// State reads what the cluster last said of itself.
func (c *Cluster) State() (State, error) {
	var state State
	data, err := os.ReadFile(c.path("state.json"))
	if err != nil {
		return state, err
	}
	return state, json.Unmarshal(data, &state)
}

func (c *Cluster) saveState(state State) error {
	data, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.path("state.json.new"), data, 0o600); err != nil {
		return err
	}
	return os.Rename(c.path("state.json.new"), c.path("state.json"))
}

// Down ends a running cluster and waits until it has ended; a process that
// does not end in time is killed.
func (c *Cluster) Down(grace time.Duration) (wasRunning bool, err error) {
	if !c.Running() {
		return false, nil
	}
	state, err := c.State()
	if err != nil {
		return true, fmt.Errorf("the cluster runs, but its state cannot be read: %w", err)
	}
	process, err := os.FindProcess(state.PID)
	if err != nil {
		return true, err
	}
	if err := process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return true, fmt.Errorf("stopping process %d: %w", state.PID, err)
	}
	for deadline := time.Now().Add(grace); c.Running(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			_ = process.Kill()
			deadline = deadline.Add(grace)
		}
	}
	return true, nil
}

// Delete removes a stopped cluster's folder.
func (c *Cluster) Delete() error {
	if c.Running() {
		return errRunning
	}
	if err := c.cleanNode(); err != nil { // of an "up" that was killed
		return err
	}
	if err := c.releaseCards(); err != nil {
		return err
	}
	return os.RemoveAll(c.Dir)
}

// Memory is the resident size of a process in bytes, where the system reports it.
func Memory(pid int) (int64, bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib * 1024, err == nil
		}
	}
	return 0, false
}
