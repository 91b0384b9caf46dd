package clients

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/elastic-ai/elastic/test/sandbox"
)

var cluster *sandbox.Cluster

func TestMain(m *testing.M) {
	os.Exit(sandbox.Run(m, &cluster, sandbox.Options{Nodes: "1x8:H100-80G"}))
}

// The Python client submits a job, watches it go through the queue, and reads what the queue says of itself.
func TestPython(t *testing.T) {
	packages := os.Getenv("ELASTIC_PYTHON")
	if packages == "" {
		t.Fatal("it needs the Python client: run 'make test-clients'")
	}
	ns := cluster.Namespace(t)
	cluster.Make(t, sandbox.Flavor(ns, nil), sandbox.ClusterQueue(ns, ns, "4"), sandbox.LocalQueue(ns, "main", ns))
	ctx, cancel := context.WithTimeout(t.Context(), sandbox.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "python3", filepath.Join("testdata", "submit.py"), ns, "main")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig, "PYTHONPATH="+filepath.Join(packages, "usr", "lib", "python3", "dist-packages"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const want = `created suspended
workload in queue main
started
succeeded 2
admitted by its ClusterQueue, finished
`
	if string(out) != want {
		t.Errorf("it printed\n%s, not\n%s", out, want)
	}
}
