package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Parts of a suite add up: what a run did not come to, or did not end, is as runs before it say.
func TestPartsOfASuiteAddUp(t *testing.T) {
	first := []outcome{{Text: "s a", State: passed}, {Text: "s b", State: "failed", Why: "x"}, {Text: "s twice", State: passed}, {Text: "s twice", State: "interrupted"}, {Text: "s c", State: "skipped"}}
	before := together(nil, first)
	if r := sum("s", before); r.passed != 2 || len(r.failed) != 1 || r.left != 2 {
		t.Errorf("after the first part: %+v", r)
	}
	skip := regexp.MustCompile(done(before))
	for text, want := range map[string]bool{"Suite s a": true, "Suite s b": false, "Suite s twice": false, "Suite s c": false, "Suite s a and more": false} {
		if skip.MatchString(text) != want {
			t.Errorf("%q is left out: %t", text, !want)
		}
	}
	second := []outcome{{Text: "s twice", State: passed}, {Text: "s twice", State: passed}, {Text: "s c", State: passed}, {Text: "s a", State: "skipped"}, {Text: "s b", State: "timedout"}}
	if r := sum("s", together(before, second)); r.passed != 4 || len(r.failed) != 1 || r.left != 0 || r.failed[0].why != "x" {
		t.Errorf("after the second part: %+v", r)
	}
	if r := sum("s", second); len(r.failed) != 1 {
		t.Errorf("a spec that a run did not end is one that did not pass in it: %+v", r)
	}
}

// A run that its time ended did not pass, although all specs that it came to did.
func TestARunThatIsCutShortDoesNotPass(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	const report = `[{"SpecialSuiteFailureReasons": ["Suite Timeout Elapsed"], "SpecReports": [
		{"LeafNodeType": "It", "LeafNodeText": "a", "State": "passed"}, {"LeafNodeType": "It", "LeafNodeText": "b", "State": "skipped"}]}]`
	if err := os.WriteFile(path, []byte(report), 0o600); err != nil {
		t.Fatal(err)
	}
	specs, setUp, cut, err := readReport(path)
	if err != nil || len(specs) != 2 || len(setUp) != 0 || len(cut) != 1 {
		t.Fatalf("%v %v %v %v", specs, setUp, cut, err)
	}
	if unexplained := sum("s", append(specs, cut...)).print(nil); unexplained != 1 {
		t.Errorf("%d failures that nothing explains", unexplained)
	}
}

// A container within an ordered one must not say what its specs do after a failure.
func TestOuterContainersGoOn(t *testing.T) {
	const text = `var _ = ginkgo.Describe("a", ginkgo.Ordered, func() {
	ginkgo.When("b", ginkgo.Ordered, func() {
	})
})
var _ = ginkgo.Describe("c", ginkgo.Ordered, ginkgo.ContinueOnFailure, func() {
	ginkgo.When("d", ginkgo.Ordered, func() {
	})
})
var _ = ginkgo.Describe("e", func() {
	ginkgo.When("f", ginkgo.Ordered, func() {
	})
})
`
	want := strings.NewReplacer(`"a", ginkgo.Ordered, `, `"a", ginkgo.Ordered, ginkgo.ContinueOnFailure, `, `"f", ginkgo.Ordered, `, `"f", ginkgo.Ordered, ginkgo.ContinueOnFailure, `).Replace(text)
	if got := continued(text); got != want {
		t.Errorf("got\n%s", got)
	}
}

// The page has one row for each suite, in their order, with the tree it was measured on, and beside it what Kueue passes.
func TestPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	const head = rowsBegin + "\n| suite | specs that pass | specs | tree | Kueue itself |\n|---|---|---|---|---|\n"
	const page = head + "| `multikueue` | 1 | 9 | abc | 8 of 9 |\n" + rowsEnd + "\n" + specsBegin + "\n\n### `multikueue`\n- x: y\n" + specsEnd + "\n"
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		suite string
		own   bool
		all   []outcome
	}{
		{"multikueue", false, []outcome{{Text: "a", State: passed}}},
		{"singlecluster/controller/dra", false, []outcome{{Text: "a", State: passed}, {Text: "b", State: "failed"}, {Text: "c", State: "skipped"}}},
		{"singlecluster/controller/dra", true, []outcome{{Text: "a", State: passed}, {Text: "b", State: passed}, {Text: "c", State: "failed"}}},
	} {
		if err := sum(test.suite, test.all).write(path, "def", test.own, nil); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	const want = head + "| `singlecluster/controller/dra` | 1 | 3, 1 not run | def | 2 of 3 |\n| `multikueue` | 1 | 1 | def | 8 of 9 |\n" + rowsEnd + "\n" +
		specsBegin + "\n\n### `singlecluster/controller/dra`\n- b: **not explained yet**\n" + specsEnd + "\n"
	if err != nil || string(got) != want {
		t.Errorf("%v, got\n%s\nwant\n%s", err, got, want)
	}
}
