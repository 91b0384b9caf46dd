package engineview

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
)

// DelayedFlavors are the flavors of a queue whose nodes come with an admission check: quota is
// reserved on them without a look at nodes, and pods are placed in the second pass.
func (o *Objects) DelayedFlavors(cq *kueue.ClusterQueue) []string {
	if cq == nil || cq.Spec.AdmissionChecksStrategy == nil {
		return nil
	}
	remote := o.RunsRemotely(cq)
	var delayed []string
	for _, rule := range cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
		if !remote && !o.checkedBy(rule, kueue.ProvisioningRequestControllerName) && !o.checkedBy(rule, cloud.PurchaseController) {
			continue
		}
		for _, group := range cq.Spec.ResourceGroups {
			for _, flavor := range group.Flavors {
				if remote || len(rule.OnFlavors) == 0 || slices.Contains(rule.OnFlavors, flavor.Name) {
					delayed = append(delayed, string(flavor.Name))
				}
			}
		}
	}
	slices.Sort(delayed)
	return slices.Compact(delayed)
}

// RunsRemotely says that the jobs of a queue run in other clusters.
func (o *Objects) RunsRemotely(cq *kueue.ClusterQueue) bool {
	return cq != nil && cq.Spec.AdmissionChecksStrategy != nil &&
		slices.ContainsFunc(cq.Spec.AdmissionChecksStrategy.AdmissionChecks, func(rule kueue.AdmissionCheckStrategyRule) bool {
			return o.checkedBy(rule, kueue.MultiKueueControllerName)
		})
}

func (o *Objects) checkedBy(rule kueue.AdmissionCheckStrategyRule, controller string) bool {
	check := o.Checks[string(rule.Name)]
	return check != nil && check.Spec.ControllerName == controller
}
