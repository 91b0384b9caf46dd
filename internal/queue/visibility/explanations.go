package visibility

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/api/visibility/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue"
)

// Explainer is the queue's loop, as this package needs it.
type Explainer interface {
	Explain(ctx context.Context, workload admission.Key) (v1alpha1.WorkloadStanding, error)
	Plan(ctx context.Context, wl *kueue.Workload) (v1alpha1.PlanStatus, error)
	PlanQuotas(ctx context.Context, spec *v1alpha1.QuotaPlanSpec) (v1alpha1.QuotaPlanStatus, error)
}

// Explanations serves why a workload waits.
func Explanations(e Explainer) Resource {
	return Resource{
		Group: v1alpha1.Group, Version: v1alpha1.Version, Name: v1alpha1.Explanations, Kind: "Explanation", Namespaced: true, Verb: "get",
		Handle: func(ctx context.Context, q *Request) (any, error) {
			standing, err := e.Explain(ctx, admission.Key{Namespace: q.Namespace, Name: q.Name})
			if err != nil {
				return nil, wrap(err, v1alpha1.Explanations, q.Name)
			}
			if err := hide(ctx, q, refsOf(&standing)); err != nil {
				return nil, err
			}
			return &v1alpha1.Explanation{
				TypeMeta:         metav1.TypeMeta{APIVersion: v1alpha1.Group + "/" + v1alpha1.Version, Kind: "Explanation"},
				ObjectMeta:       metav1.ObjectMeta{Namespace: q.Namespace, Name: q.Name},
				WorkloadStanding: standing,
			}, nil
		},
	}
}

// startAnnotations are what a plan says of its start: what it comes after, and what its nodes may cost.
func startAnnotations(said map[string]string) map[string]string {
	out := map[string]string{}
	for _, name := range []string{queuepolicy.AfterAnnotation, cloud.CheckpointAnnotation, cloud.InputSizeAnnotation, cloud.InputRegionAnnotation} {
		if text := said[name]; text != "" {
			out[name] = text
		}
	}
	return out
}

// Plans serves whether a workload would start. The reader is for priority classes.
func Plans(e Explainer, reader client.Reader) Resource {
	return Resource{
		Group: v1alpha1.Group, Version: v1alpha1.Version, Name: v1alpha1.Plans, Kind: "Plan", Namespaced: true, Verb: "create",
		Handle: func(ctx context.Context, q *Request) (any, error) {
			plan := &v1alpha1.Plan{}
			if err := json.Unmarshal(q.Body, plan); err != nil {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("the body is no Plan: %v", err))
			}
			wl := &kueue.Workload{Spec: plan.Spec.Workload}
			// A unique name: several plans may be asked for at once.
			wl.Namespace, wl.Name, wl.UID = q.Namespace, "plan-"+string(uuid.NewUUID()), types.UID("plan")
			wl.CreationTimestamp = metav1.NewTime(time.Now())
			wl.Annotations = startAnnotations(plan.Annotations)
			if len(wl.Spec.PodSets) == 0 {
				return nil, apierrors.NewBadRequest("spec.workload.podSets is empty: nothing to plan for")
			}
			if err := resolvePriority(ctx, reader, wl); err != nil {
				return nil, err
			}
			status, err := e.Plan(ctx, wl)
			if err != nil {
				return nil, wrap(err, v1alpha1.Plans, plan.Name)
			}
			if err := hide(ctx, q, refsOf(&status.WorkloadStanding)); err != nil {
				return nil, err
			}
			plan.Status = &status
			plan.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.Group + "/" + v1alpha1.Version, Kind: "Plan"}
			plan.Namespace = q.Namespace
			return plan, nil
		},
	}
}

// mostReviews are asked for at once.
const mostReviews = 20

// QuotaPlans serves what other quotas would change. The queue's loop answers one at a time: a question about thousands of
// pending workloads takes it a moment, and each must not take the next one.
func QuotaPlans(e Explainer) Resource {
	turn := make(chan struct{}, 1)
	return Resource{
		Group: v1alpha1.Group, Version: v1alpha1.Version, Name: v1alpha1.QuotaPlans, Kind: "QuotaPlan", Verb: "create",
		Handle: func(ctx context.Context, q *Request) (any, error) {
			plan := &v1alpha1.QuotaPlan{}
			if err := json.Unmarshal(q.Body, plan); err != nil {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("the body is no QuotaPlan: %v", err))
			}
			if len(plan.Spec.Quotas) == 0 {
				return nil, apierrors.NewBadRequest("spec.quotas is empty: nothing would change")
			}
			select {
			case turn <- struct{}{}:
				defer func() { <-turn }()
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			status, err := e.PlanQuotas(ctx, &plan.Spec)
			if errors.Is(err, queue.ErrNotAsked) {
				return nil, apierrors.NewBadRequest(err.Error())
			}
			if err != nil {
				return nil, wrap(err, v1alpha1.QuotaPlans, plan.Name)
			}
			var refs []*v1alpha1.WorkloadRef
			for _, list := range [][]v1alpha1.PlannedStart{status.Sooner, status.Later} {
				for i := range list {
					refs = append(refs, &list[i].WorkloadRef)
				}
			}
			if err := hide(ctx, q, refs); err != nil {
				return nil, err
			}
			plan.Status = &status
			plan.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.Group + "/" + v1alpha1.Version, Kind: "QuotaPlan"}
			return plan, nil
		},
	}
}

// resolvePriority fills in the priority of the class that a plan names.
func resolvePriority(ctx context.Context, reader client.Reader, wl *kueue.Workload) error {
	class := wl.Spec.PriorityClassRef
	if class == nil || wl.Spec.Priority != nil {
		return nil
	}
	var value int32
	var err error
	if class.Kind == kueue.WorkloadPriorityClassKind {
		found := &kueue.WorkloadPriorityClass{}
		err = reader.Get(ctx, types.NamespacedName{Name: class.Name}, found)
		value = found.Value
	} else {
		found := &schedulingv1.PriorityClass{}
		err = reader.Get(ctx, types.NamespacedName{Name: class.Name}, found)
		value = found.Value
	}
	if apierrors.IsNotFound(err) {
		return apierrors.NewBadRequest(fmt.Sprintf("there is no %s %q", class.Kind, class.Name))
	}
	wl.Spec.Priority = &value
	return err
}

func wrap(err error, resource, name string) error {
	where := schema.GroupResource{Group: v1alpha1.Group, Resource: resource}
	switch {
	case errors.Is(err, queue.ErrNotLeading):
		return apierrors.NewGenericServerResponse(503, "get", where, name, err.Error()+", ask again", 1, true)
	case errors.Is(err, queue.ErrUnknown):
		return apierrors.NewNotFound(where, name)
	}
	return err
}

// refsOf are the other workloads that a standing names.
func refsOf(standing *v1alpha1.WorkloadStanding) (refs []*v1alpha1.WorkloadRef) {
	for _, list := range [][]v1alpha1.WorkloadRef{standing.Ahead, standing.HeldBy, standing.PreemptionTargets} {
		for i := range list {
			refs = append(refs, &list[i])
		}
	}
	return refs
}

// hide removes the names of workloads in namespaces where the user may not list workloads. How many
// there are, and in which queue, is no secret.
func hide(ctx context.Context, q *Request, refs []*v1alpha1.WorkloadRef) error {
	may := map[string]bool{}
	if q.Namespace != "" {
		may[q.Namespace] = true
	}
	var asked []string
	for _, ref := range refs {
		if _, known := may[ref.Namespace]; !known {
			may[ref.Namespace] = false
			asked = append(asked, ref.Namespace)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	seen := func(ctx context.Context, namespace string) (bool, error) {
		return q.Authorize(ctx, authorizationv1.ResourceAttributes{
			Group: kueue.SchemeGroupVersion.Group, Resource: "workloads", Verb: "list", Namespace: namespace,
		})
	}
	// A user who may list all namespaces takes one review, others one for each namespace, in parallel.
	if all, err := seen(ctx, metav1.NamespaceAll); err != nil || all {
		return err
	}
	answers := make([]bool, len(asked))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(mostReviews)
	for i, namespace := range asked {
		group.Go(func() (err error) {
			answers[i], err = seen(ctx, namespace)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, namespace := range asked {
		may[namespace] = answers[i]
	}
	for _, ref := range refs {
		if !may[ref.Namespace] {
			ref.Namespace, ref.Name, ref.Job = "", "", ""
		}
	}
	return nil
}
