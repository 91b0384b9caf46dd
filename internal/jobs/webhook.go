package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// WebhookPath is where the API server sends jobs of every kind.
const WebhookPath = "/mutate-job"

// manages says the job is ours: it names a queue, and no other job of ours
// owns it.
func (o Options) manages(j job) bool {
	if j.queueName() == "" && !o.ManageJobsWithoutQueueName {
		return false
	}
	owner := metav1.GetControllerOf(j)
	return owner == nil || !isTableKind(owner)
}

func isTableKind(owner *metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return false
	}
	for _, kind := range Table() {
		if kind.GVK.Group == gv.Group && kind.GVK.Kind == owner.Kind {
			return true
		}
	}
	return false
}

// suspender suspends jobs as they are created.
type suspender struct {
	kinds   map[schema.GroupVersionKind]*Kind
	options Options
}

func newWebhook(table []Kind, options Options) *webhook.Admission {
	return &webhook.Admission{Handler: &suspender{kinds: index(table), options: options}}
}

// Handle answers one admission request.
func (s *suspender) Handle(_ context.Context, request admission.Request) admission.Response {
	kind := s.kinds[schema.GroupVersionKind(request.Kind)]
	if kind == nil || request.Operation != admissionv1.Create {
		return admission.Allowed("")
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(request.Object.Raw, object); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("reading the %s: %w", kind.GVK.Kind, err))
	}
	j := job{object, kind}
	if !s.options.manages(j) || j.suspended() {
		return admission.Allowed("")
	}
	if err := j.setSuspended(true); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("suspending the %s: %w", kind.GVK.Kind, err))
	}
	changed, err := json.Marshal(object)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, changed)
}
