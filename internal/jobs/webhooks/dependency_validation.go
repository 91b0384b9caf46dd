package webhooks

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// validateAfter checks what a job says it comes after. That jobs come after each other shows when they are there: their
// workloads' statuses say so. The message is about the job's own words alone: whether others exist is not looked at.
func (v *validator) validateAfter(kind *kinds.Kind, obj client.Object) field.ErrorList {
	text, given := obj.GetAnnotations()[v1alpha1.AfterAnnotation]
	if !given {
		return nil
	}
	namespace := cmp.Or(obj.GetNamespace(), "default") // a pod's may not be filled in yet
	list, err := workload.Dependencies(text, namespace)
	if err != nil {
		return field.ErrorList{field.Forbidden(annotationsPath.Key(v1alpha1.AfterAnnotation), err.Error())}
	}
	for _, d := range list {
		what := ""
		switch {
		case d.Kind != workload.KindWorkload && v.kinds.ByLowerCase(d.Kind) == nil:
			what = fmt.Sprintf("%q: no kind of jobs in this cluster is called %s", d.In(namespace), d.Kind)
		case d.Kind == strings.ToLower(kind.GVK.Kind) && d.Name == obj.GetName() && d.Namespace == namespace:
			what = fmt.Sprintf("%q is the job itself", d.In(namespace))
		}
		if what != "" {
			return field.ErrorList{field.Forbidden(annotationsPath.Key(v1alpha1.AfterAnnotation), what)}
		}
	}
	return nil
}
