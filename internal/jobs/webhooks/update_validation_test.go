package webhooks

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/managed"
)

func TestValidateUpdate(t *testing.T) {
	var row *kinds.Kind
	for _, kind := range kinds.Table() {
		if kind.GVK.Kind == "Job" && kind.GVK.Group == "batch" {
			row = kind
		}
	}
	// A job is written "suspended queue-name=a ^elastic-job=true"; ^ is an annotation.
	parse := func(text string) kinds.Object {
		obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"suspend": false}}}
		for _, word := range strings.Fields(text) {
			key, value, set := strings.Cut(word, "=")
			switch {
			case !set:
				obj.Object["spec"] = map[string]any{"suspend": true}
			case key[0] == '^':
				kinds.SetAnnotation(obj, "kueue.x-k8s.io/"+key[1:], value)
			default:
				kinds.SetLabel(obj, "kueue.x-k8s.io/"+key, value)
			}
		}
		return row.Object(obj)
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
			if errs := validateUpdate(parse(test.before), parse(test.after), test.fallback); len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// The groups of an object in a queue cannot change in size.
func TestValidateGroupSize(t *testing.T) {
	set := func(size, replicas int64, cpu, image, queue string) []byte {
		obj := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
			"metadata": map[string]any{"name": "set"},
			"spec": map[string]any{"replicas": replicas, "leaderWorkerTemplate": map[string]any{
				"size": size, "workerTemplate": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
					"name": "main", "image": image, "resources": map[string]any{"requests": map[string]any{"cpu": cpu}},
				}}}},
			}},
		}}
		if queue != "" {
			kinds.SetLabel(obj, kinds.QueueNameLabel, queue)
		}
		raw, err := obj.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	const (
		fixed  = "spec.leaderWorkerTemplate.size: Invalid value: 4: field is immutable"
		larger = "spec.leaderWorkerTemplate.workerTemplate.spec.containers[0].resources: Invalid value:"
	)
	for name, test := range map[string]struct {
		after []byte
		loose bool
		want  string
	}{
		"larger groups":             {after: set(4, 1, "1", "a", "main"), want: fixed},
		"larger groups, if allowed": {after: set(4, 1, "1", "a", "main"), loose: true},
		"more groups":               {after: set(3, 2, "1", "a", "main")},
		"larger pods":               {after: set(3, 1, "2", "a", "main"), want: larger},
		"the same in other words":   {after: set(3, 1, "1000m", "a", "main")},
		"another image":             {after: set(3, 1, "1", "b", "main")},
		"out of its queue":          {after: set(3, 1, "1", "a", ""), want: "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"\": field is immutable"},
		"into another queue":        {after: set(3, 1, "1", "a", "other")},
	} {
		t.Run(name, func(t *testing.T) {
			inUse := &kinds.InUse{}
			inUse.Set(kinds.Table())
			g := &validator{filter: &managed.Filter{Kinds: inUse, Namespaces: labels.Everything()}, kinds: inUse, resizableGroups: test.loose}
			for at, handler := range map[string]admission.Handler{"Kueue's path": g, "our path": &defaulter{validator: g}} {
				answer := handler.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
					Kind: metav1.GroupVersionKind{Group: "leaderworkerset.x-k8s.io", Version: "v1", Kind: "LeaderWorkerSet"}, Namespace: "ns",
					Operation: admissionv1.Update, OldObject: runtime.RawExtension{Raw: set(3, 1, "1", "a", "main")}, Object: runtime.RawExtension{Raw: test.after},
				}})
				got := ""
				if !answer.Allowed {
					got = answer.Result.Message
				}
				if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
					t.Errorf("%s: got %q, want %q", at, got, test.want)
				}
			}
		})
	}
}
