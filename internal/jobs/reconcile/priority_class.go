package reconcile

import (
	"context"
	"errors"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// priorityClassReconciler writes the value of a WorkloadPriorityClass into the workloads that name it, when
// the class changes or comes again with another value.
type priorityClassReconciler struct{ client client.Client }

func (r *priorityClassReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("workload-priority-classes").
		For(&kueue.WorkloadPriorityClass{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).Complete(r)
}

// Reconcile updates the workloads of one class.
func (r *priorityClassReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	class := &kueue.WorkloadPriorityClass{}
	if err := r.client.Get(ctx, request.NamespacedName, class); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // workloads of a class that is gone stay as they are
	}
	list := &kueue.WorkloadList{}
	if err := r.client.List(ctx, list, client.MatchingFields{kinds.PriorityClassIndex: class.Name}); err != nil {
		return ctrl.Result{}, err
	}
	var errs []error
	for i := range list.Items {
		wl := &list.Items[i]
		if workload.IsFinished(wl) || ptr.Deref(wl.Spec.Priority, 0) == class.Value {
			continue
		}
		wl = wl.DeepCopy()
		wl.Spec.Priority = ptr.To(class.Value)
		errs = append(errs, client.IgnoreNotFound(r.client.Update(ctx, wl)))
	}
	return ctrl.Result{}, errors.Join(errs...)
}
