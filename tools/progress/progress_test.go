package main

import (
	"archive/zip"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// list is a program that imports b and c, and b that imports a.
const list = "a|||\nb|||a\nc|||\nexample.com/p|||b c\n"

func read(t *testing.T) *graph {
	t.Helper()
	g, err := readGraph(list)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestEstimateCountsWhatIsThere(t *testing.T) {
	e := newEstimate(read(t))
	if got := e.line(time.Minute); got != "" {
		t.Errorf("nothing compiled, yet it says %q", got)
	}
	// b is compiled, so a must be there, though it was not: from an earlier build.
	e.started("b")
	e.started("unknown")
	if got, want := e.line(10*time.Second), "2 of 4 packages, about 20 s more"; got != want {
		t.Errorf("it says %q, not %q", got, want)
	}
	e.started("c")
	e.started("example.com/p")
	if got, want := e.line(10*time.Second), "all 4 packages compiled, linking"; got != want {
		t.Errorf("it says %q, not %q", got, want)
	}
}

func TestGraphRefusesWhatItCannotRead(t *testing.T) {
	for _, list := range []string{"", "a|b\n"} {
		if _, err := readGraph(list); err == nil {
			t.Errorf("%q must be refused", list)
		}
	}
}

func TestDisplayInAFile(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	d := &display{out: &out, now: func() time.Time { return now }, began: now}
	at := func(seconds int, line string) {
		now = time.Unix(int64(seconds), 0)
		d.status(line)
	}
	at(1, "too early")
	at(3, "one")
	at(10, "too soon after")
	at(20, "two")
	d.end("done")
	if got, want := out.String(), "one\ntwo\ndone\n"; got != want {
		t.Errorf("it printed\n%s, not\n%s", got, want)
	}
}

func TestReadsWhatGoPrints(t *testing.T) {
	p := &progress{say: "it", modules: 3}
	for line, known := range map[string]bool{
		"go: downloading example.com/m v1.0.0": true,
		"example.com/p":                        true,
		"# example.com/p":                      false,
		"./p.go:3:15: undefined: missing":      false,
		"go: module lookup disabled":           false,
	} {
		if got := p.read(line); got != known {
			t.Errorf("%q is read: %t", line, got)
		}
	}
	if got, want := p.line(time.Now()), "it: 1 packages"; got != want {
		t.Errorf("it says %q, not %q", got, want)
	}
	p.know(nil) // go could not say
	p.know(read(t))
	if got, want := p.line(p.compiling.Add(time.Second)), "it: all 4 packages compiled, linking"; got != want {
		t.Errorf("it says %q, not %q", got, want)
	}
}

// A build of a real module: nothing is said of one that takes no time, and an error of the compiler is printed.
func TestBuild(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/p\n")
	write("p.go", "package main\n\nfunc main() {}\n")
	var out bytes.Buffer
	o := options{dir: dir, say: "it", out: filepath.Join(dir, "p"), packages: []string{"."}}
	show := func() *display { return &display{out: &out, now: time.Now, began: time.Now()} }
	if err := o.build(show()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if _, err := os.Stat(o.out); err != nil {
		t.Error(err)
	}
	write("p.go", "package main\n\nfunc main() { missing() }\n")
	out.Reset()
	if err := o.build(show()); err == nil || !strings.Contains(out.String(), "undefined: missing") {
		t.Errorf("the compiler's words must be shown: %v\n%s", err, out.String())
	}
}

// A module that has to be downloaded: Go's own packages are compiled meanwhile, and nothing of that is left or shown.
func TestCompilesAheadOfModules(t *testing.T) {
	out, err := exec.Command("go", append([]string{"list", "-f", "{{.Standard}}"}, ahead...)...).Output()
	if err != nil || strings.Contains(string(out), "false") {
		t.Fatalf("what is compiled ahead must be of Go itself: %v %s", err, out)
	}
	dir, proxy := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var module bytes.Buffer
	zipped := zip.NewWriter(&module)
	for name, text := range map[string]string{"go.mod": "module example.com/m\n", "m.go": "package m\n\nfunc F() {}\n"} {
		w, err := zipped.Create("example.com/m@v1.0.0/" + name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte(text))
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	there := filepath.Join(proxy, "example.com", "m", "@v")
	write(filepath.Join(there, "v1.0.0.info"), `{"Version": "v1.0.0"}`)
	write(filepath.Join(there, "v1.0.0.mod"), "module example.com/m\n")
	write(filepath.Join(there, "v1.0.0.zip"), module.String())
	write(filepath.Join(dir, "go.mod"), "module example.com/p\n\nrequire example.com/m v1.0.0\n")
	write(filepath.Join(dir, "p.go"), "package main\n\nimport \"example.com/m\"\n\nfunc main() { m.F() }\n")
	for name, value := range map[string]string{"GOPROXY": "file://" + proxy, "GONOSUMDB": "*", "GOMODCACHE": t.TempDir(), "GOFLAGS": "-mod=mod -modcacherw"} {
		t.Setenv(name, value)
	}
	var said bytes.Buffer
	o := options{dir: dir, say: "it", out: filepath.Join(dir, "p"), packages: []string{"."}}
	if err := o.build(&display{out: &said, now: time.Now, began: time.Now()}); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	if _, err := os.Stat(o.out); err != nil {
		t.Error(err)
	}
	if strings.Contains(said.String(), "interrupt") || strings.Contains(said.String(), "net/http") {
		t.Errorf("it shows what is compiled ahead:\n%s", said.String())
	}
}
