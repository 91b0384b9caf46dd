package workload

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

func TestIndexesOfDependencies(t *testing.T) {
	for text, want := range map[string]string{
		"ok job/a[3]":               "[ok job/a[3]]",
		"ok job/a[0-2], any job/b":  "[ok job/a[0] ok job/a[1] ok job/a[2] any job/b]",
		"ok job/data/a[0-1]":        "[ok job/data/a[0] ok job/data/a[1]]",
		"ok job/a[1],ok job/a[0-1]": "[ok job/a[1] ok job/a[0]]",
		"ok job/a[0-999]":           "1000",
		"ok job/a[]":                "has no index",
		"ok job/a[1":                "has no index",
		"ok job/a[x]":               "an index is a number",
		"ok job/a[2-1]":             "an index is a number",
		"ok job/a[-1]":              "an index is a number",
		"ok job/a[0-1000]":          "more than 1000",
		"ok job/a[0-2147483647]":    "more than 1000",
		"ok job/a[0-99999999999]":   "an index is a number",
		"ok jobset/a[1]":            "only a job/",
		"ok workload/a[1]":          "only a job/",
	} {
		list, err := Dependencies(text, "ns")
		var got []string
		for _, d := range list {
			got = append(got, d.In("ns"))
		}
		switch {
		case err != nil:
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", text, err, want)
			}
		case len(got) > 100:
			if fmt.Sprint(len(got)) != want {
				t.Errorf("%q: %d", text, len(got))
			}
		case fmt.Sprint(got) != want:
			t.Errorf("%q: %v, want %s", text, got, want)
		}
	}
}

// What is written of ended indexes is read as it was, as far as it fits; what is read of it was written.
func TestEndedIndexesAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) []int {
			list := rapid.SliceOfN(rapid.IntRange(0, 30), 0, 20).Draw(t, name)
			slices.Sort(list)
			return slices.Compact(list)
		}
		e := EndedIndexes{OK: draw("ok"), NotOK: draw("notok")}
		var again EndedIndexes
		for _, r := range ReadEndedIndexes(e.String()) {
			for i := r.First; i <= r.Last; i++ {
				if r.Outcome == Succeeded {
					again.OK = append(again.OK, i)
				} else {
					again.NotOK = append(again.NotOK, i)
				}
			}
		}
		if !slices.Equal(again.OK, e.OK) || !slices.Equal(again.NotOK, e.NotOK) {
			t.Fatalf("%+v was written as %q and read as %+v", e, e, again)
		}
	})
	var many []int
	for i := range 100_000 {
		many = append(many, 2*i)
	}
	if text := (EndedIndexes{OK: many, NotOK: many}).String(); len(text) > 3*longestEndedIndexes || len(ReadEndedIndexes(text)) < 1000 {
		t.Errorf("%d bytes", len(text))
	}
}

func TestAwaitedIndexes(t *testing.T) {
	wl := &kueue.Workload{}
	wl.Namespace = "ns"
	wl.Annotations = map[string]string{
		v1alpha1.AfterAnnotation:    "ok job/a[0-2], any job/b, notok job/data/c[7]",
		v1alpha1.AfterMetAnnotation: "ok job/a[1]",
	}
	if got := fmt.Sprint(AwaitedIndexes(wl)); got != "map[data/c:[7] ns/a:[0 2]]" {
		t.Error(got)
	}
	wl.Annotations[v1alpha1.AfterAnnotation] = "ok job/a"
	if got := AwaitedIndexes(wl); got != nil {
		t.Error(got)
	}
}
