package backend_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/elastic-ai/elastic/internal/agent/backend"
	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
)

// The node's own specification names the driver's files; only the share's card is taken from it.
func TestDriverFilesComeFromTheNodesSpecification(t *testing.T) {
	dir, root := t.TempDir(), t.TempDir()
	const spec = `cdiVersion: 0.5.0
kind: nvidia.com/gpu
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void]
  mounts:
  - {hostPath: /usr/lib/libcuda.so.1, containerPath: /usr/lib/libcuda.so.1}
devices:
- name: "0"
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}
- name: "1"
  containerEdits: {deviceNodes: [{path: /dev/nvidia1}, {path: /dev/nvidia-caps/1}]}
`
	for path, text := range map[string]string{filepath.Join(dir, "nvidia.yaml"): spec, filepath.Join(root, "dev", "nvidiactl"): ""} {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	driver := &backend.NodeDriver{CDIDirs: []string{filepath.Join(dir, "none"), dir}, Kind: "nvidia.com/gpu", Root: root}
	edits, err := driver.Edits(conformance.Subject{}.Share("1", 1))
	if err != nil {
		t.Fatal(err)
	}
	var nodes []string
	for _, n := range edits.DeviceNodes {
		nodes = append(nodes, n.Path)
	}
	if len(nodes) != 3 || nodes[0] != "/dev/nvidia1" || nodes[1] != "/dev/nvidia-caps/1" || nodes[2] != "/dev/nvidiactl" {
		t.Errorf("device nodes %v", nodes)
	}
	if len(edits.Mounts) != 1 || len(edits.Env) != 1 {
		t.Errorf("mounts %v, env %v", edits.Mounts, edits.Env)
	}
}
