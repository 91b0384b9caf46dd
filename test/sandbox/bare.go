package sandbox

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// Bare starts a control plane in a folder, with nodes and without Elastic; what
// was in the folder's is there again.
func Bare(dir, nodes string) (kubeconfig string, stop func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	cmd := exec.Command(filepath.Join(Root(), "bin", "elastic-sandbox"), "run", "--dir", dir, "--nodes", nodes, "--until-stdin-closes")
	hold, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = hold.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	}
	for lines := bufio.NewScanner(out); kubeconfig == "" && lines.Scan(); {
		var said struct{ Event, Kubeconfig string }
		if json.Unmarshal(lines.Bytes(), &said) == nil && said.Event == "ready" {
			kubeconfig = said.Kubeconfig
		}
	}
	if kubeconfig == "" {
		stop()
		return "", nil, errors.New("the control plane did not get ready")
	}
	return kubeconfig, stop, nil
}
