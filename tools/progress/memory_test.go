package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLimits(t *testing.T) {
	for meminfo, want := range map[string][]string{
		"MemTotal: 1 kB\nMemAvailable:   4194304 kB\n": {"GOGC=off", "GOMEMLIMIT=1073741824"},
		"MemAvailable: 67108864 kB\n":                  {"GOGC=off", "GOMEMLIMIT=2147483648"},
		"MemAvailable: 2000000 kB\n":                   {"GOGC=100"}, // too little to be generous
		"MemAvailable: much\n":                         nil,
		"":                                             nil,
	} {
		if got := limits(meminfo, 2); !slices.Equal(got, want) {
			t.Errorf("of %q a process gets %v, not %v", meminfo, got, want)
		}
	}
}

// What runs the compiler does not undo it: where memory is short, Go's own settings are used.
func TestLimitsOfTheCompiler(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "compile")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\necho \"GOGC=$GOGC GOMEMLIMIT=$GOMEMLIMIT\"\n"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	for meminfo, want := range map[string]string{
		"MemAvailable: 2000000 kB\n": "GOGC=100 GOMEMLIMIT=",
		"MemAvailable: 4194304 kB\n": "GOGC=off GOMEMLIMIT=1073741824",
	} {
		cmd := exec.Command("../compiler.sh", tool, "-V=full")
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, limits(meminfo, 2)...)
		if out, err := cmd.Output(); err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("with %q the compiler runs with %s, not %s (%v)", meminfo, out, want, err)
		}
	}
}
