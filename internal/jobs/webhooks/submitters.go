package webhooks

import (
	"encoding/json"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Who made a job is known when it is made and at no other time. Where the configuration says so, it is written into an annotation
// then, whatever the job says of it itself, and each later change of that is undone. Jobs that are not managed have it as well,
// since they may be put into a queue later.

// recordSubmitter writes who makes a job.
func recordSubmitter(kind *kinds.Kind, request admission.Request, obj client.Object) bool {
	if !kinds.RecordsSubmitters() || !kind.Suspends() || request.Operation != admissionv1.Create {
		return false
	}
	kinds.SetAnnotation(obj, v1alpha1.SubmittedByAnnotation, workload.CutSubmitter(request.UserInfo.Username))
	return true
}

// submittedAlone is a new job that is not managed, with who makes it; nil: that is not recorded.
func submittedAlone(kind *kinds.Kind, request admission.Request) (client.Object, error) {
	job, err := decode(kind, request.Namespace, request.Object.Raw)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if !recordSubmitter(kind, request, job.Unstructured) {
		return nil, nil
	}
	return job.Unstructured, nil
}

// restoreSubmitter allows a change, and undoes that of who made the job. One from before that was recorded has none.
func restoreSubmitter(kind *kinds.Kind, request admission.Request) admission.Response {
	if !kinds.RecordsSubmitters() || request.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	before, err := decode(kind, request.Namespace, request.OldObject.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	after, err := decode(kind, request.Namespace, request.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	was, had := before.GetAnnotations()[v1alpha1.SubmittedByAnnotation]
	is, has := after.GetAnnotations()[v1alpha1.SubmittedByAnnotation]
	switch {
	case was == is && had == has:
		return admission.Allowed("")
	case had:
		kinds.SetAnnotation(after.Unstructured, v1alpha1.SubmittedByAnnotation, was)
	default:
		annotations := after.GetAnnotations()
		delete(annotations, v1alpha1.SubmittedByAnnotation)
		after.SetAnnotations(annotations)
	}
	data, err := json.Marshal(after.Unstructured)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, data)
}
