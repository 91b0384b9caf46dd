package webhooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// refusal is an error that the user of a job can correct.
type refusal struct{ field.ErrorList }

func (r refusal) Error() string { return r.ToAggregate().Error() }

// refuse is nil where there are no mistakes.
func refuse(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return refusal{errs}
}

// validateCreate finds what makes a job invalid, whatever it was before. The messages are Kueue's.
func (v *validator) validateCreate(ctx context.Context, job kinds.Object, raw []byte) field.ErrorList {
	errs := v.validateMeta(job.Row(), job)
	if err := job.CheckPodRange(); err != nil {
		errs = append(errs, field.Invalid(annotationsPath.Key(v1alpha1.PodsAnnotation), job.GetAnnotations()[v1alpha1.PodsAnnotation], err.Error()))
	}
	return append(errs, v.validateTopology(ctx, job, raw)...)
}

// validateSkipped finds what the kind's own rules refuse in a job of a queue that its kind leaves alone; before
// is nil for a new one.
func (v *validator) validateSkipped(ctx context.Context, before *kinds.Object, job kinds.Object) error {
	if queued, err := v.filter.IsQueued(ctx, job.Unstructured); err != nil || !queued {
		return err
	}
	return refuse(job.Validate(before))
}

// validateMeta checks the labels and annotations that any job, or pod, has for its queue.
func (v *validator) validateMeta(kind *kinds.Kind, obj client.Object) field.ErrorList {
	var errs field.ErrorList
	isName := func(path *field.Path, name string, given bool) {
		if problems := validation.IsDNS1123Subdomain(name); given && len(problems) > 0 {
			errs = append(errs, field.Invalid(path, name, strings.Join(problems, ",")))
		}
	}
	name, given := obj.GetLabels()[kinds.QueueNameLabel]
	isName(labelsPath.Key(kinds.QueueNameLabel), name, given)
	if name, given := obj.GetAnnotations()[kinds.PrebuiltLabel]; given {
		isName(annotationsPath.Key(kinds.PrebuiltLabel), name, given)
	} else if name, given := obj.GetLabels()[kinds.PrebuiltLabel]; given {
		isName(labelsPath.Key(kinds.PrebuiltLabel), name, given)
	}
	if text, given := obj.GetLabels()[kinds.MaxExecTimeLabel]; given {
		switch seconds, err := strconv.ParseInt(text, 10, 32); {
		case err != nil:
			errs = append(errs, field.Invalid(labelsPath.Key(kinds.MaxExecTimeLabel), text, "should be a number of seconds"))
		case seconds <= 0:
			errs = append(errs, field.Invalid(labelsPath.Key(kinds.MaxExecTimeLabel), seconds, "should be greater than 0"))
		}
	}
	if hasElasticAnnotation(obj) && !kind.Spec.Elastic {
		errs = append(errs, field.Forbidden(annotationsPath.Key(kinds.ElasticAnnotation), fmt.Sprintf("elastic job is not supported for %q", kind.GVK)))
	}
	if v.gatedBy {
		errs = append(errs, workload.ValidateGates(obj, nil)...)
	}
	errs = append(errs, validatePurchaseTerms(obj)...)
	return append(errs, v.validateAfter(kind, obj)...)
}

// validatePurchaseTerms checks what a job says of the time and money that its nodes may take.
func validatePurchaseTerms(obj client.Object) (errs field.ErrorList) {
	_, err := workload.PurchaseTermsOf(obj.GetAnnotations())
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			var term *workload.TermError
			if errors.As(one, &term) {
				errs = append(errs, field.Invalid(annotationsPath.Key(term.Annotation), term.Text, term.Problem))
			}
		}
	}
	return errs
}

// validateTopology checks the topology annotations of a job's pod sets. A job that cannot be read yet
// is left to its controller, which reports the problem as an event.
func (v *validator) validateTopology(ctx context.Context, job kinds.Object, raw []byte) field.ErrorList {
	if !v.topology || !bytes.Contains(raw, []byte("kueue.x-k8s.io/podset-")) {
		return nil
	}
	sets, err := job.PodSets(ctx, v.filter.Cached)
	if err != nil {
		return nil
	}
	return kinds.ValidateTopologyRequests(sets, v.noSliceLayers)
}

// added are the mistakes that were not there before.
func added(now, before field.ErrorList) field.ErrorList {
	return slices.DeleteFunc(now, func(e *field.Error) bool {
		return slices.ContainsFunc(before, func(old *field.Error) bool { return old.Error() == e.Error() })
	})
}
