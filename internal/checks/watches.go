package checks

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Checked says that a workload has checks, or had: what was made for a check that no longer applies
// is to be removed.
func Checked() predicate.Predicate {
	has := func(obj client.Object) bool { return len(obj.(*kueue.Workload).Status.AdmissionChecks) > 0 }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return has(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return has(e.ObjectOld) || has(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return has(e.Object) },
	}
}

// Of are the AdmissionChecks of a controller.
func Of(ctx context.Context, c client.Client, controller string) []kueue.AdmissionCheck {
	list := &kueue.AdmissionCheckList{}
	if err := c.List(ctx, list); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing admission checks failed")
		return nil
	}
	return slices.DeleteFunc(list.Items, func(check kueue.AdmissionCheck) bool { return check.Spec.ControllerName != controller })
}

// RequestsFor asks for checks to be looked at.
func RequestsFor(list []kueue.AdmissionCheck) []reconcile.Request {
	var out []reconcile.Request
	for _, check := range list {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: check.Name}})
	}
	return out
}

// WorkloadsWith are those that must pass a check.
func WorkloadsWith(ctx context.Context, c client.Client, check string) []reconcile.Request {
	list := &kueue.WorkloadList{}
	if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing workloads failed")
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		wl := &list.Items[i]
		if slices.ContainsFunc(wl.Status.AdmissionChecks, func(s kueue.AdmissionCheckState) bool { return string(s.Name) == check }) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(wl)})
		}
	}
	return out
}
