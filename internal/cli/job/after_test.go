package job

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
)

// Without a cluster --after takes what says which kind of job it means.
func TestComeAfterWithoutCluster(t *testing.T) {
	for given, want := range map[string]string{
		"job/prepare":               "ok job/prepare",
		"any job/a, notok jobset/b": "any job/a, notok jobset/b",
		"workload/x|job/data/y":     "ok workload/x, ok job/data/y",
		"prepare":                   "error: without a cluster say what kind",
		"when job/a":                "error: begins with none of ok, notok, any",
		"ok job/a b":                "error: write JOB",
		"":                          "error: write JOB",
	} {
		object := &unstructured.Unstructured{Object: map[string]any{}}
		err := comeAfter(context.Background(), nil, []*unstructured.Unstructured{object}, strings.Split(given, "|"))
		got := object.GetAnnotations()[queuepolicy.AfterAnnotation]
		if problem, refused := strings.CutPrefix(want, "error: "); refused {
			if err == nil || !strings.Contains(err.Error(), problem) {
				t.Errorf("%q: %v", given, err)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("%q: %q, %v", given, got, err)
		}
	}
}
