package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/elastic-ai/elastic/test/sandbox"
)

// kubectl finds the plugin by its name, and its completion by another.
func TestKubectlPlugin(t *testing.T) {
	ns := cluster.Namespace(t)
	queues(t, ns, ns, "1")
	path := "PATH=" + filepath.Join(sandbox.Root(), "bin") + ":$PATH "
	if out := must(t, ns, path+"elastic-sandbox kubectl elastic queue list -o name"); !strings.Contains(out, "clusterqueue/"+ns) {
		t.Errorf("'kubectl elastic queue list' prints\n%s", out)
	}
	if out := must(t, ns, path+"elastic-sandbox kubectl __complete elastic queue ''"); !strings.Contains(out, "describe\t") {
		t.Errorf("kubectl completes 'elastic queue' with\n%s", out)
	}
}
