package sandbox

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Bare starts a control plane in a folder, with nodes and without Elastic; what
// was in the folder's is there again.
func Bare(dir, nodes string) (kubeconfig string, stop func(), err error) {
	ready, stop, err := startAlone("run", dir, "--nodes", nodes)
	return ready.Kubeconfig, stop, err
}

// AddRealNode adds one more node whose pods are real containers, without an agent, and returns its folder. It goes with
// the test.
func (c *Cluster) AddRealNode(t *testing.T, name string) (dir string) {
	t.Helper()
	dir = filepath.Join(c.Dir, "test", "nodes", name)
	_, stop, err := startAlone("node", dir, "--sandbox-dir", filepath.Join(c.Dir, "test", "sandbox"), "--name", name, "--bin", filepath.Join(Root(), "bin", "node"))
	if err != nil {
		t.Fatalf("starting node %s: %v", name, err)
	}
	t.Cleanup(stop)
	return dir
}

// said is what elastic-sandbox prints.
type said struct{ Event, Message, Kubeconfig string }

// startAlone starts a part of the sandbox that ends with us, and returns when it is ready.
func startAlone(part, dir string, args ...string) (ready said, stop func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return said{}, nil, err
	}
	cmd := exec.Command(filepath.Join(Root(), "bin", "elastic-sandbox"), append([]string{part, "--dir", dir, "--until-stdin-closes"}, args...)...)
	hold, err := cmd.StdinPipe()
	if err != nil {
		return said{}, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return said{}, nil, err
	}
	if err := cmd.Start(); err != nil {
		return said{}, nil, err
	}
	stop = func() {
		_ = hold.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	}
	var last said
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var is said
		if json.Unmarshal(lines.Bytes(), &is) == nil && is.Event == "ready" {
			return is, stop, nil
		}
		last = is
	}
	stop()
	return said{}, nil, fmt.Errorf("it did not get ready: %s", last.Message)
}
