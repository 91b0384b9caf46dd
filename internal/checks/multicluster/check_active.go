package multicluster

import (
	"context"
	"fmt"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/elastic-ai/elastic/internal/checks"
)

// checkActivity writes whether AdmissionChecks are active: whether some cluster is.
type checkActivity struct{ client client.Client }

// Reconcile handles one check.
func (a *checkActivity) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	check := &kueue.AdmissionCheck{}
	if err := a.client.Get(ctx, request.NamespacedName, check); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	config := &kueue.MultiKueueConfig{}
	if err := checks.Parameters(ctx, a.client, check, config); err != nil {
		return ctrl.Result{}, checks.WriteActive(ctx, a.client, check, checks.Inactive("BadConfig", "Cannot load the AdmissionChecks parameters: "+err.Error()))
	}
	var missing, inactive []string
	for _, name := range config.Spec.Clusters {
		cluster := &kueue.MultiKueueCluster{}
		err := a.client.Get(ctx, types.NamespacedName{Name: name}, cluster)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return ctrl.Result{}, err
		case err != nil:
			missing = append(missing, name)
		case !apimeta.IsStatusConditionTrue(cluster.Status.Conditions, kueue.MultiKueueClusterActive):
			inactive = append(inactive, name)
		}
	}
	return ctrl.Result{}, checks.WriteActive(ctx, a.client, check, activeCondition(len(config.Spec.Clusters), missing, inactive))
}

// activeCondition is the condition of a check some of whose clusters may not be active.
func activeCondition(all int, missing, inactive []string) metav1.Condition {
	active := checks.Active()
	if len(missing)+len(inactive) == 0 {
		return active
	}
	active.Reason = "SomeActiveClusters"
	if len(missing)+len(inactive) >= all {
		active = checks.Inactive("NoUsableClusters", "")
	}
	var parts []string
	if len(missing) > 0 {
		parts = append(parts, fmt.Sprintf("Missing clusters: %v", missing))
	}
	if len(inactive) > 0 {
		parts = append(parts, fmt.Sprintf("Inactive clusters: %v", inactive))
	}
	active.Message = strings.Join(parts, ", ")
	return active
}

// all requeues all of our checks when a configuration or cluster changes: there are few of each.
func (a *checkActivity) all() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		list := &kueue.AdmissionCheckList{}
		if err := a.client.List(ctx, list); err != nil {
			return nil
		}
		var out []reconcile.Request
		for i := range list.Items {
			if list.Items[i].Spec.ControllerName == kueue.MultiKueueControllerName {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}
		return out
	})
}
