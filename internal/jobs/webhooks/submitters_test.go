package webhooks

import (
	"encoding/json"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/managed"
)

// Who makes a job is written whatever the job says, and never changes; where it is not recorded, nothing is touched.
func TestSubmitters(t *testing.T) {
	defer kinds.SetRules(kinds.Rules{})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "in"}}).Build()
	inUse := &kinds.InUse{}
	inUse.Set(kinds.Table())
	h := &defaulter{validator: &validator{kinds: inUse, filter: &managed.Filter{Cached: reader, Direct: reader, Kinds: inUse, Namespaces: labels.Everything()}}}

	const forged = "elasticai.io/submitted-by=carol"
	queued, long := kinds.QueueNameLabel+"=main", strings.Repeat("x", 1000)
	for name, test := range map[string]struct {
		off         bool
		before, job string // labels and annotations as key=value, with spaces between
		user, want  string // of the annotation in the end; "": none
	}{
		"a new job":                          {job: queued, user: "ann", want: "ann"},
		"a forged one":                       {job: queued + " " + forged, user: "ann", want: "ann"},
		"one that may join a queue later":    {job: "", user: "ann", want: "ann"},
		"forged, and it may join a queue":    {job: forged, user: "ann", want: "ann"},
		"a very long name":                   {job: queued, user: long, want: long[:253]},
		"not recorded":                       {off: true, job: queued, user: "ann"},
		"not recorded, forged":               {off: true, job: queued + " " + forged, user: "ann", want: "carol"},
		"changed":                            {before: queued + " elasticai.io/submitted-by=ann", job: queued + " " + forged, user: "ann", want: "ann"},
		"taken away":                         {before: queued + " elasticai.io/submitted-by=ann", job: queued, user: "ann", want: "ann"},
		"unchanged by another":               {before: queued + " elasticai.io/submitted-by=ann", job: queued + " elasticai.io/submitted-by=ann", user: "bob", want: "ann"},
		"added to one from before":           {before: queued, job: queued + " " + forged, user: "carol"},
		"changed as it joins a queue":        {before: "elasticai.io/submitted-by=ann", job: queued + " " + forged, user: "ann", want: "ann"},
		"changed where that is not recorded": {off: true, before: queued + " elasticai.io/submitted-by=ann", job: queued + " " + forged, user: "ann", want: "carol"},
	} {
		t.Run(name, func(t *testing.T) {
			kinds.SetRules(kinds.Rules{Submitters: !test.off})
			request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Kind: metav1.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, Namespace: "in", Operation: admissionv1.Create,
				Object: runtime.RawExtension{Raw: jobSaying(t, test.job)}, UserInfo: authenticationv1.UserInfo{Username: test.user},
			}}
			if test.before != "" {
				request.Operation, request.OldObject.Raw = admissionv1.Update, jobSaying(t, test.before)
			}
			response := h.Handle(t.Context(), request)
			if !response.Allowed {
				t.Fatal(response.Result)
			}
			said := ""
			if i := strings.Index(test.job, "submitted-by="); i >= 0 {
				said = test.job[i+len("submitted-by="):]
			}
			for _, p := range response.Patches {
				switch values, whole := p.Value.(map[string]any); {
				case whole && p.Path == "/metadata/annotations":
					said, _ = values[v1alpha1.SubmittedByAnnotation].(string)
				case p.Operation == "remove" && (p.Path == "/metadata/annotations" || p.Path == "/metadata/annotations/elasticai.io~1submitted-by"):
					said = ""
				case p.Path == "/metadata/annotations/elasticai.io~1submitted-by":
					said, _ = p.Value.(string)
				}
			}
			if said != test.want {
				t.Errorf("%.20q, want %.20q (%v)", said, test.want, response.Patches)
			}
		})
	}
}

// jobSaying is a suspended Job with a queue name and annotations.
func jobSaying(t *testing.T, text string) []byte {
	t.Helper()
	suspended := true
	job := &batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{Suspend: &suspended}}
	for _, pair := range strings.Fields(text) {
		key, value, _ := strings.Cut(pair, "=")
		if key == kinds.QueueNameLabel {
			job.Labels = map[string]string{key: value}
			continue
		}
		job.Annotations = map[string]string{key: value}
	}
	raw, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
