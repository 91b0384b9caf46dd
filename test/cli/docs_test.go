package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elastic-ai/elastic/test/sandbox"
)

// workstation is a page of several people on a machine with cards: test/gpu/cluster types it, on a real node.
const workstation = "share-my-workstation.md"

// clouds is a page with a cluster of its own: test/local types it.
const clouds = "burst-into-clouds.md"

// Every command of the other tasks' pages is run, in their order, each page in a
// namespace of its own.
func TestTasks(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(sandbox.Root(), "docs", "tasks", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, page := range pages {
		if name := filepath.Base(page); name == workstation || name == clouds {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			data, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			script := "set -ex\ncd " + t.TempDir() + "\nkubectl() { elastic-sandbox kubectl \"$@\"; }\n" + strings.Join(blocks(string(data)), "\n")
			if strings.Count(script, "\n") < 5 {
				t.Fatal("the page has no commands")
			}
			must(t, cluster.Namespace(t), script)
		})
	}
}

// blocks are the shell commands of a page.
func blocks(page string) []string {
	var out []string
	for {
		_, rest, ok := strings.Cut(page, "```sh\n")
		if !ok {
			return out
		}
		block, after, _ := strings.Cut(rest, "```")
		out, page = append(out, block), after
	}
}

// The recording in docs/demo is a session that works.
func TestDemo(t *testing.T) {
	ns := cluster.Namespace(t)
	t.Cleanup(func() {
		must(t, ns, "elastic-sandbox kubectl get clusterqueue,resourceflavor -o name | grep /demo- | xargs elastic-sandbox kubectl delete --wait=false")
	})
	out := must(t, ns, "PACE=0 docs/demo/play.sh")
	for _, want := range []string{"job/second would wait in queue main", "Held by    job/first", "second  RUNNING"} {
		if !strings.Contains(out, want) {
			t.Errorf("the recording does not show %q:\n%s", want, out)
		}
	}
}
