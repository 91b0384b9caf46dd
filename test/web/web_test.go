// Package web tests the page in a real browser, against a real cluster as "make up" starts it. The browser's side is in
// web/test. With ELASTIC_SHOTS it leaves images of the views in that folder.
package web

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/elastic-ai/elastic/test/sandbox"
)

// needBrowser skips a test where there is none.
func needBrowser(t *testing.T) {
	t.Helper()
	if os.Getenv("ELASTIC_BROWSER") == "" {
		t.Skip("no browser: 'make test-web' finds one")
	}
}

// browse runs one file of the browser's tests.
func browse(t *testing.T, file string, env ...string) {
	t.Helper()
	cmd := exec.Command("node", "--test", "--test-reporter=spec", file)
	cmd.Dir = filepath.Join(sandbox.Root(), "web", "test")
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
}

func TestViews(t *testing.T) {
	needBrowser(t)
	cluster := sandbox.For(t, sandbox.Options{Nodes: "3x8:H100-80G,4x4:A100-40G"})
	root := sandbox.Root()
	browse(t, "views.test.mjs", "ELASTIC="+filepath.Join(root, "bin", "elastic"), "ELASTIC_CLUSTER=test", "KUBECONFIG="+cluster.Kubeconfig,
		"ELASTIC_TESTDATA="+filepath.Join(root, "test", "web", "testdata"))
}
