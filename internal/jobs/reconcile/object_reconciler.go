package reconcile

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// objectReconciler reconciles the jobs of one kind that have a suspend flag.
type objectReconciler struct {
	*controller
	kind *kinds.Kind
}

// Reconcile brings one job and its workload together.
func (c *objectReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if ready, err := c.caughtUp(ctx); !ready || err != nil {
		return ctrl.Result{RequeueAfter: catchUpPause}, err
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(c.kind.GVK)
	err := c.client.Get(ctx, request.NamespacedName, obj)
	if apierrors.IsNotFound(err) {
		return c.finishWorkloadsOfGone(ctx, c.kind, request)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	managed, err := c.filter.Manages(ctx, c.kind, obj)
	if err == nil && !managed && kinds.QueueName(obj) == "" && c.kind.Object(obj).IsSuspended() {
		// The user removed its queue name: its pending workload would never be started.
		wls, err := c.workloadsNamed(ctx, c.kind, request.Namespace, request.Name)
		if err != nil {
			return ctrl.Result{}, err
		}
		return c.deleteWorkloads(ctx, wls)
	}
	if err != nil || !managed {
		return ctrl.Result{}, errors.Join(err, c.suspendChild(ctx, obj))
	}
	if again, err := c.finishWorkloadsOfPredecessor(ctx, c.kind, obj); err != nil || again.RequeueAfter > 0 {
		return again, err
	}
	wls, err := c.workloadsOf(ctx, obj)
	if err != nil {
		return ctrl.Result{}, err
	}
	j := c.kind.Object(obj)
	if obj.GetDeletionTimestamp() != nil {
		return c.result(j, c.releaseDeleted(ctx, wls))
	}
	wl, err := c.currentWorkload(ctx, j, wls)
	if err != nil {
		return ctrl.Result{}, err
	}
	if lacksPrebuilt(j, wl) {
		return c.result(j, c.adoptPrebuilt(ctx, j, wls))
	}
	c.adapters.JobChanged(c.kind, wl)
	if err = c.step(ctx, j, wl); err == nil {
		err = errors.Join(c.ungateAdmitted(ctx, j, wl), c.followExtras(ctx, j, wl), c.reportIndexes(ctx, j, wl))
	}
	return c.result(j, err)
}

// suspendChild stops a job that is part of another, queued one which may not run.
func (c *objectReconciler) suspendChild(ctx context.Context, obj *unstructured.Unstructured) error {
	child := c.kind.Object(obj)
	if end, err := child.Finished(); err != nil || end.Ended || child.IsSuspended() || obj.GetDeletionTimestamp() != nil {
		return err
	}
	above, err := c.filter.Ancestor(ctx, obj)
	if err != nil || above == nil {
		return err
	}
	wls, err := c.workloadsOf(ctx, above)
	if err != nil {
		return err
	}
	wls = slices.DeleteFunc(wls, func(wl kueue.Workload) bool { return workload.IsFinished(&wl) })
	elastic := above.GetAnnotations()[kinds.ElasticAnnotation] == "true" || obj.GetAnnotations()[kinds.ElasticAnnotation] == "true"
	if slices.ContainsFunc(wls, func(wl kueue.Workload) bool {
		return workload.IsAdmitted(&wl) || elastic && !workload.IsEvicted(&wl) // whose next slice may not be admitted yet
	}) {
		return nil
	}
	if _, err := child.Stop(ctx, c.client, kinds.Stop{Reason: kinds.StopNotAdmitted}); err != nil {
		return err
	}
	c.recorder.Eventf(obj, nil, corev1.EventTypeNormal, "Suspended", "Suspend", "Kueue managed child job suspended")
	return nil
}

// workloadsOf are the workloads a job owns, the oldest first.
func (c *controller) workloadsOf(ctx context.Context, obj client.Object) ([]kueue.Workload, error) {
	list := &kueue.WorkloadList{}
	err := c.client.List(ctx, list, client.InNamespace(obj.GetNamespace()), client.MatchingFields{kinds.OwnerUIDIndex: string(obj.GetUID())})
	slices.SortFunc(list.Items, func(a, b kueue.Workload) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return list.Items, err
}
