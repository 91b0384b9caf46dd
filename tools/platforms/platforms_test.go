package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// program is a module of one, with files of the given names.
func program(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module example.com/p\n\ngo 1.26\n"
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		with  string // +cgo
		want  string // in an error; empty for none
	}{
		"the same everywhere": {files: map[string]string{"p.go": "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println() }\n"}},
		"a file for each": {files: map[string]string{
			"p.go": "package main\n\nfunc main() { act() }\n", "p_linux.go": "package main\n\nfunc act() {}\n", "p_darwin.go": "package main\n\nfunc act() {}\n",
		}},
		"a file of Linux alone": {want: "undefined: act", files: map[string]string{
			"p.go": "package main\n\nfunc main() { act() }\n", "p_linux.go": "package main\n\nfunc act() {}\n",
		}},
		"C": {with: "+cgo", files: map[string]string{
			"p.go": "package main\n\n// int f(void);\nimport \"C\"\n\nfunc main() { println(int(C.f()), known(nil)) }\n",
			"q.go": "package main\n\nfunc known(s *_Ctype_struct_s) bool { return s != nil }\n",
		}},
		"C and a call of Linux alone": {with: "+cgo", want: "undefined: syscall.Unshare", files: map[string]string{
			"p.go": "package main\n\n// int f(void);\nimport \"C\"\n\nimport \"syscall\"\n\nfunc main() { _ = syscall.Unshare(int(C.f())) }\n",
		}},
		"a call of Linux alone": {want: "undefined: syscall.Unshare", files: map[string]string{
			"p.go": "package main\n\nimport \"syscall\"\n\nfunc main() { _ = syscall.Unshare(0) }\n",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, errs := check("darwin/arm64", []string{program(t, test.files) + test.with + "=."})
			switch {
			case test.want == "" && len(errs) > 0:
				t.Error(errs)
			case test.want != "" && (len(errs) == 0 || !strings.Contains(errs[0].Error(), test.want)):
				t.Errorf("%v do not name %q", errs, test.want)
			}
		})
	}
}

// A program that is checked without cgo first is checked with it as well, in what is of other files then and in what imports that.
func TestCheckBothWays(t *testing.T) {
	dir := program(t, map[string]string{
		"p.go": "package main\n\nimport \"example.com/p/q\"\n\nfunc main() { q.Act() }\n",
	})
	if err := os.Mkdir(filepath.Join(dir, "q"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"without.go": "//go:build !cgo\n\npackage q\n\nfunc Act() {}\n",
		"with.go":    "package q\n\n// int f(void);\nimport \"C\"\n\nimport \"syscall\"\n\nfunc Act() { _ = syscall.Unshare(int(C.f())) }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, "q", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, errs := check("darwin/arm64", []string{dir + "=."}); len(errs) > 0 {
		t.Fatal(errs)
	}
	if _, _, errs := check("darwin/arm64", []string{dir + "=.", dir + "+cgo=."}); len(errs) == 0 || !strings.Contains(errs[0].Error(), "undefined: syscall.Unshare") {
		t.Errorf("with cgo it says %v", errs)
	}
}
