package main

import (
	"regexp"
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
