package webhooks

import (
	"encoding/json"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	cloudv1 "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/managed"
)

// TestManagedJobsAreSuspended: which jobs the webhook suspends, by their queue name, namespace
// and owner, and by the settings.
func TestManagedJobsAreSuspended(t *testing.T) {
	queued := map[string]string{kinds.QueueNameLabel: "main"}
	parent := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "in", Name: "parent", UID: "1", Labels: queued}}
	unqueued := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "in", Name: "unqueued", UID: "2"}}
	by := func(owner *batchv1.Job) []metav1.OwnerReference {
		return []metav1.OwnerReference{*metav1.NewControllerRef(owner, batchv1.SchemeGroupVersion.WithKind("Job"))}
	}
	for name, tc := range map[string]struct {
		job              metav1.ObjectMeta
		withoutQueueName bool
		want             bool
	}{
		"names a queue":                           {job: metav1.ObjectMeta{Namespace: "in", Labels: queued}, want: true},
		"names a queue in the old way":            {job: metav1.ObjectMeta{Namespace: "in", Annotations: queued}, want: true},
		"names none":                              {job: metav1.ObjectMeta{Namespace: "in"}},
		"names none, all are managed":             {job: metav1.ObjectMeta{Namespace: "in"}, withoutQueueName: true, want: true},
		"in a namespace that is not managed":      {job: metav1.ObjectMeta{Namespace: "out", Labels: queued}},
		"there, all are managed":                  {job: metav1.ObjectMeta{Namespace: "out"}, withoutQueueName: true},
		"of a queued job":                         {job: metav1.ObjectMeta{Namespace: "in", Labels: queued, OwnerReferences: by(parent)}},
		"of a job that is not":                    {job: metav1.ObjectMeta{Namespace: "in", Labels: queued, OwnerReferences: by(unqueued)}, want: true},
		"of a job that is not, all are managed":   {job: metav1.ObjectMeta{Namespace: "in", OwnerReferences: by(unqueued)}, withoutQueueName: true},
		"names none where there is a default":     {job: metav1.ObjectMeta{Namespace: "defaulted"}, want: true},
		"names none where a default takes no one": {job: metav1.ObjectMeta{Namespace: "out"}},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			namespace := func(name string, labels map[string]string) client.Object {
				return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
			}
			takes := map[string]string{"queues": "yes"}
			reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(parent.DeepCopy(), unqueued.DeepCopy(),
				namespace("in", takes), namespace("defaulted", takes), namespace("out", nil),
				&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "defaulted", Name: "default"}},
				&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "out", Name: "default"}},
			).Build()
			inUse := &kinds.InUse{}
			inUse.Set(kinds.Table())
			h := &defaulter{validator: &validator{kinds: inUse, filter: &managed.Filter{
				Cached: reader, Direct: reader, Kinds: inUse, WithoutQueueName: tc.withoutQueueName, Namespaces: labels.SelectorFromSet(takes),
			}}}
			tc.job.Name = "job"
			patch := created(t, h, &batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: tc.job})
			if got := strings.Contains(patch, `"/spec/suspend"`); got != tc.want {
				t.Fatalf("suspended: %v, want %v (%s)", got, tc.want, patch)
			}
		})
	}
}

// created is what the webhook changes of a new object, as JSON.
func created(t *testing.T, h *defaulter, obj client.Object) string {
	t.Helper()
	raw, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	response := h.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind(obj.GetObjectKind().GroupVersionKind()), Namespace: obj.GetNamespace(),
		Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw},
	}})
	if !response.Allowed {
		t.Fatalf("refused: %v", response.Result)
	}
	patch, err := json.Marshal(response.Patches)
	if err != nil {
		t.Fatal(err)
	}
	return string(patch)
}

// A new job with an input that cannot be read gets a warning, and is not refused; later changes of it say nothing.
func TestWarnsOfInputs(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{cloudv1.InputSizeAnnotation: "much", cloudv1.InputRegionAnnotation: "aws/us-east-1"}}}
	got := purchaseWarnings(admissionv1.Create, job)
	if len(got) != 1 || !strings.Contains(got[0], `its input does not count: annotation elasticai.io/input-size "much"`) {
		t.Errorf("%q", got)
	}
	if got := purchaseWarnings(admissionv1.Update, job); got != nil {
		t.Errorf("at a change: %q", got)
	}
	job.Annotations[cloudv1.InputSizeAnnotation] = "1Gi"
	if got := purchaseWarnings(admissionv1.Create, job); got != nil {
		t.Errorf("a good one: %q", got)
	}
	if errs := validatePurchaseTerms(job); len(errs) > 0 {
		t.Error(errs)
	}
}

// A deadline counts with the time that a job runs: one that does not say how long that is gets a warning, and is not refused.
func TestWarnsOfDeadlinesWithoutARunTime(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{cloudv1.DeadlineAnnotation: "2026-01-02T15:04:05Z"}}}
	if got := purchaseWarnings(admissionv1.Create, job); len(got) != 1 || !strings.Contains(got[0], "or with an hour") {
		t.Errorf("%q", got)
	}
	if got := purchaseWarnings(admissionv1.Update, job); got != nil {
		t.Errorf("at a change: %q", got)
	}
	job.Labels = map[string]string{kinds.MaxExecTimeLabel: "3600"}
	if got := purchaseWarnings(admissionv1.Create, job); got != nil {
		t.Errorf("with a run time: %q", got)
	}
}
