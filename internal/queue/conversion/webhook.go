package conversion

import (
	"fmt"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Setup registers the conversion webhook for every kind whose versions differ.
func Setup(mgr ctrl.Manager) error {
	for _, hub := range []client.Object{
		&kueue.ClusterQueue{}, &kueue.Cohort{}, &kueue.LocalQueue{}, &kueue.MultiKueueCluster{}, &kueue.Workload{},
	} {
		if err := ctrl.NewWebhookManagedBy(mgr, hub).Complete(); err != nil {
			return fmt.Errorf("%T: %w", hub, err)
		}
	}
	return nil
}
