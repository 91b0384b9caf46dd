package local

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	block = regexp.MustCompile("(?s)```sh\n(.*?)```")
	bill  = regexp.MustCompile(`(?m)^default/main .*aws [0-9.]+ h \$[0-9.]*[1-9][0-9.]*, gcp [0-9.]+ h \$[0-9.]*[1-9]`)
)

// The page about clouds, word for word: the cluster's own cards first, then the cheaper cloud, then the other one, and back to
// none. Its commands check what they claim.
func TestBurstIntoClouds(t *testing.T) {
	home(t)
	t.Setenv("PATH", filepath.Join(root(), "bin")+":"+os.Getenv("PATH"))
	page, err := os.ReadFile(filepath.Join(root(), "docs", "tasks", "burst-into-clouds.md"))
	if err != nil {
		t.Fatal(err)
	}
	script := "set -x\nkubectl() { elastic kubectl \"$@\"; }\n"
	for _, commands := range block.FindAllSubmatch(page, -1) {
		script += string(commands[1])
	}
	t.Cleanup(func() { elastic(t, "down", "--all") })
	out, err := shell(t.TempDir(), script)
	if err != nil {
		there, _ := shell(".", "elastic kubectl get nodeclaims,nodes,workloads,cloudoffers -o yaml; elastic kubectl get events; elastic list")
		t.Fatalf("%v\n%s\n%s", err, out, there)
	}
	for _, want := range []string{
		"finished: its quota is free again", // the sample job ran on the cluster's own cards
		"elastic cost spent",                // what to type next has the bill
		"use2-az1 obtainable: false",        // the cheaper place was asked
		"use2-az3 obtainable: false",        // and the other zone
		`Cluster "elastic" has ended`,       // all of it
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the page must show %q:\n%s", want, out)
		}
	}
	if !bill.MatchString(out) {
		t.Errorf("the bill must have what both clouds got:\n%s", out)
	}
}
