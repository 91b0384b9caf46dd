package cli

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var rewrite = flag.Bool("rewrite", false, "write docs/reference/cli.md anew")

const reference = "../../docs/reference/cli.md"

func TestReference(t *testing.T) {
	var got bytes.Buffer
	Reference(&got)
	if *rewrite {
		if err := os.WriteFile(reference, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("docs/reference/cli.md is not what the commands say: run 'go test ./internal/cli -rewrite'")
	}
}

// Every command says what it is for, shows how it is typed, and has no flag
// without a word about it.
func TestCommandsAreDescribed(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if !sub.Hidden && (sub.Short == "" || strings.HasSuffix(sub.Short, ".")) {
				t.Errorf("%s: short %q", sub.CommandPath(), sub.Short)
			}
			walk(sub)
		}
	}
	walk(Root("elastic"))
}

func run(called string, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = Main(append([]string{"/usr/bin/" + called}, args...), &out, &err)
	return code, out.String(), err.String()
}

func TestCalledBy(t *testing.T) {
	for called, want := range map[string]string{"elastic": "  elastic [command]", "arena": "  arena [command]", "kubectl-elastic": "  kubectl elastic [command]"} {
		if code, out, _ := run(called, "--help"); code != 0 || !strings.Contains(out, want) {
			t.Errorf("called as %s its help must say %q: %s", called, want, out)
		}
	}
	if code, _, err := run("arena", "nonsense"); code != 1 || !strings.HasPrefix(err, "arena: ") {
		t.Errorf("got %d %q", code, err)
	}
	// Flags that arena has everywhere, and Elastic does not need.
	code, out, _ := run("arena", "--loglevel=debug", "--arena-namespace=x", "--config=/nowhere", "submit", "job", "--dry-run", "--name=a", "--image=b", "true")
	if code != 0 || !strings.Contains(out, "kind: Job") {
		t.Errorf("got %d %q", code, out)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if code, out, err := run("elastic", "completion", shell); code != 0 || !strings.Contains(out, "__complete") {
			t.Errorf("%s: %d %s", shell, code, err)
		}
	}
	// kubectl asks a program of this name about its plugin.
	code, out, err := run("kubectl_complete-elastic", "queue", "")
	if code != 0 || !strings.Contains(out, "describe\t") || !strings.HasSuffix(out, ":4\n") {
		t.Errorf("kubectl must learn what follows 'kubectl elastic queue': %d %s%s", code, out, err)
	}
	if _, out, _ := run("elastic", "__complete", "submit", "--output", ""); !strings.Contains(out, "yaml\n") {
		t.Errorf("-o must complete: %s", out)
	}
}
