package cli

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the sessions' output anew; commit only what you understand")

// session runs a file of commands, each after a "$ ", and compares what they
// print with what stands below them. Lines that begin with # are comments.
func session(t *testing.T, namespace, file string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, line := range strings.SplitAfter(string(data), "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
			got.WriteString(line)
		case strings.HasPrefix(line, "$ "):
			got.WriteString(line)
			out, err := shell(t, namespace, strings.TrimPrefix(strings.TrimSpace(line), "$ "))
			got.WriteString(steady(out, namespace))
			if err != nil {
				got.WriteString("(" + err.Error() + ")\n")
			}
		}
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := string(data); got.String() != want {
		t.Errorf("%s: commands must print\n%s\nbut print\n%s", file, want, got.String())
	}
}

// changing are parts of the output that differ from run to run, and what is put
// in their place; columns are as wide as what stands in them, so runs of blanks
// are made two.
var changing = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\b\d+(s|m|h)\b`), "<time>"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT[0-9:.]+Z`), "<when>"},
	{regexp.MustCompile(`\b[ah]100-[48]0g-\d\b(,[ah]100-[48]0g-\d\b)*`), "<node>"},
	{regexp.MustCompile(`(?m)[ \t]+$`), ""},
	{regexp.MustCompile(`(\S) {2,}`), "$1  "},
}

func steady(out, namespace string) string {
	if namespace != "default" {
		out = strings.ReplaceAll(out, namespace, "<namespace>")
	}
	for _, c := range changing {
		out = c.pattern.ReplaceAllString(out, c.instead)
	}
	return out
}
