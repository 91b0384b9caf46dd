package jobs

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestRefusals(t *testing.T) {
	var row *Kind
	for _, kind := range Table() {
		if kind.GVK.Kind == "Job" && kind.GVK.Group == "batch" {
			row = kind
		}
	}
	// A job is written "suspended queue-name=a ^elastic-job=true"; ^ is an annotation.
	parse := func(text string) object {
		obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"suspend": false}}}
		for _, word := range strings.Fields(text) {
			key, value, set := strings.Cut(word, "=")
			switch {
			case !set:
				obj.Object["spec"] = map[string]any{"suspend": true}
			case key[0] == '^':
				setAnnotation(obj, "kueue.x-k8s.io/"+key[1:], value)
			default:
				setLabel(obj, "kueue.x-k8s.io/"+key, value)
			}
		}
		return object{obj, row}
	}
	const label, annotation = "metadata.labels[kueue.x-k8s.io/", "metadata.annotations[kueue.x-k8s.io/"
	for name, test := range map[string]struct {
		before, after string
		fallback      bool
		want          string
	}{
		"a running job stays in its queue":      {before: "queue-name=a", after: "queue-name=b", want: label + `queue-name]: Invalid value: "b": field is immutable`},
		"a running job does not leave it":       {before: "queue-name=a", after: "", want: label + `queue-name]: Invalid value: "": field is immutable`},
		"nor by starting":                       {before: "suspended queue-name=a", after: "", want: label + `queue-name]: Invalid value: "": field is immutable`},
		"nor by the old annotation":             {before: "^queue-name=a", after: "^queue-name=b", want: label + `queue-name]: Invalid value: "b": field is immutable`},
		"from annotation to label is no change": {before: "^queue-name=a", after: "queue-name=a"},
		"a waiting job may move":                {before: "suspended queue-name=a", after: "suspended queue-name=b"},
		"a waiting job may leave":               {before: "suspended queue-name=a", after: "suspended"},
		"but not where all jobs are queued":     {before: "suspended queue-name=a", after: "suspended", fallback: true, want: label + `queue-name]: Invalid value: "": queue-name must not be empty in namespace with default queue`},
		"its time is given when it starts":      {before: "suspended max-exec-time-seconds=1", after: "max-exec-time-seconds=2", want: label + `max-exec-time-seconds]: Invalid value: "2": field is immutable`},
		"a waiting job may want more time":      {before: "suspended max-exec-time-seconds=1", after: "suspended max-exec-time-seconds=2"},
		"its workload is chosen before":         {before: "prebuilt-workload-name=a", after: "prebuilt-workload-name=b", want: label + `prebuilt-workload-name]: Invalid value: "b": field is immutable`},
		"a priority may change":                 {before: "priority-class=a", after: "priority-class=b"},
		"a priority may not go":                 {before: "suspended priority-class=a", after: "suspended", want: label + `priority-class]: Invalid value: "": WorkloadPriorityClass cannot be removed from a workload`},
		"a priority may not come late":          {before: "", after: "priority-class=b", want: label + `priority-class]: Invalid value: "b": WorkloadPriorityClass cannot be added to a non-suspended workload`},
		"elastic once and for all":              {before: "suspended", after: "suspended ^elastic-job=true", want: annotation + `elastic-job]: Invalid value: true: field is immutable`},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if errs := refusals(parse(test.before), parse(test.after), test.fallback); len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
