package job

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

func TestArrayIndexes(t *testing.T) {
	for given, want := range map[string]string{
		"0-3": "[0 1 2 3]", "7": "[7]", "1,3,7-8, 3": "[1 3 7 8]", "0-999": "1000",
		"": "error", "a": "error", "3-1": "error", "-1": "error", "0-1000": "error", "0-600,700-1299": "error", "0-99999999999": "error",
	} {
		list, err := arrayIndexes(given)
		got := fmt.Sprint(list)
		switch {
		case err != nil:
			got = "error"
		case len(list) > 100:
			got = fmt.Sprint(len(list))
		}
		if got != want {
			t.Errorf("%q: %s, want %s (%v)", given, got, want, err)
		}
	}
}

// Each job of an array knows its index and its array, and comes after the same index of another, which need not be there
// where there is no cluster to ask.
func TestMembersOfAnArray(t *testing.T) {
	f := formNamed("job")
	s := &submission{name: "eval", image: "example.com/eval:1", command: "python eval.py", shell: "sh", workers: 1, envs: []string{"A=b"}, roles: map[string]*roleFlags{"": {}}}
	each := eachResolver{indexed: map[string]bool{"job/indexed": true}}
	for _, index := range []int{0, 11} {
		objects, err := s.member(index).objects(f, "ns")
		if err != nil {
			t.Fatal(err)
		}
		entries, err := each.entries(t.Context(), []string{"job/train, any job/data/clean", "notok job/indexed"}, index)
		if err != nil {
			t.Fatal(err)
		}
		if err := comeAfter(t.Context(), nil, objects, entries); err != nil {
			t.Fatal(err)
		}
		job := objects[0]
		want := fmt.Sprintf("ok job/train-%d, any job/data/clean-%d, notok job/indexed[%d]", index, index, index)
		if got := job.GetAnnotations()[queuepolicy.AfterAnnotation]; got != want || job.GetName() != fmt.Sprint("eval-", index) || job.GetLabels()[queuepolicy.ArrayLabel] != "eval" {
			t.Errorf("%s, labels %v, comes after %q", job.GetName(), job.GetLabels(), got)
		}
		containers, _, _ := unstructured.NestedSlice(job.Object, "spec", "template", "spec", "containers")
		if text := fmt.Sprint(containers); !strings.Contains(text, fmt.Sprintf("name:ELASTIC_ARRAY_INDEX value:%d", index)) || !strings.Contains(text, "name:A value:b") {
			t.Errorf("its environment: %s", text)
		}
	}
	if _, err := each.entries(t.Context(), []string{"ok job/a b"}, 0); err == nil {
		t.Error("three words are taken")
	}
}
