package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// list is a program that imports b and c, and b that imports a.
const list = "a||| |a\nb|||a|b\nc||| |c\nexample.com/p|||b c|main\n"

func read(t *testing.T) *graph {
	t.Helper()
	g, err := readGraph(list, ".")
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
	if e.started("# example.com/p") || e.started("p.go:1:1: expected 'package'") {
		t.Error("an error of the compiler is no package")
	}
	// b is compiled, so a must be there, though it was not: from an earlier build.
	if !e.started("b") {
		t.Fatal("b is a package")
	}
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
		if _, err := readGraph(list, "."); err == nil {
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
	if err := build(o, show()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if _, err := os.Stat(o.out); err != nil {
		t.Error(err)
	}
	write("p.go", "package main\n\nfunc main() { missing() }\n")
	out.Reset()
	if err := build(o, show()); err == nil || !strings.Contains(out.String(), "undefined: missing") {
		t.Errorf("the compiler's words must be shown: %v\n%s", err, out.String())
	}
}
