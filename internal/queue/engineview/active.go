package engineview

import (
	"fmt"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// InactiveReason says why a ClusterQueue cannot admit workloads, in Kueue's words; "" if it can. Of
// several reasons the first one is the condition's, and the message names all of them.
func (o *Objects) InactiveReason(cq *kueue.ClusterQueue) (reason, message string) {
	if cq.DeletionTimestamp != nil {
		return kueue.ClusterQueueActiveReasonTerminating, "Can't admit new workloads; clusterQueue is terminating"
	}
	var messages []string
	add := func(why, format string, args ...any) {
		if reason == "" {
			reason = why
		}
		messages = append(messages, fmt.Sprintf(format, args...))
	}
	if ptr.Deref(cq.Spec.StopPolicy, kueue.None) != kueue.None {
		add(kueue.ClusterQueueActiveReasonStopped, "is stopped")
	}
	missing, unplaceable := o.missingFlavors(cq)
	if len(missing) > 0 {
		add(kueue.ClusterQueueActiveReasonFlavorNotFound, "references missing ResourceFlavor(s): %s", strings.Join(missing, ","))
	}
	o.checkProblems(cq, add)
	if o.RunsRemotely(cq) {
		unplaceable = nil // the other cluster has the topology
	}
	for _, flavor := range unplaceable {
		add(kueue.ClusterQueueActiveReasonTopologyNotFound, "there is no Topology %q for TAS flavor %q", *flavor.Spec.TopologyName, flavor.Name)
	}
	if reason == "" {
		return "", ""
	}
	return reason, "Can't admit new workloads: " + strings.Join(messages, ", ") + "."
}

// missingFlavors are the flavors of a queue that do not exist, and those whose topology does not.
func (o *Objects) missingFlavors(cq *kueue.ClusterQueue) (missing []string, unplaceable []*kueue.ResourceFlavor) {
	for _, group := range cq.Spec.ResourceGroups {
		for _, quotas := range group.Flavors {
			flavor := o.Flavors[string(quotas.Name)]
			if flavor == nil {
				missing = append(missing, string(quotas.Name))
			} else if name := flavor.Spec.TopologyName; name != nil && o.Topologies[string(*name)] == nil {
				unplaceable = append(unplaceable, flavor)
			}
		}
	}
	return missing, unplaceable
}

// checkProblems reports what is wrong with a queue's admission checks.
func (o *Objects) checkProblems(cq *kueue.ClusterQueue, add func(reason, format string, args ...any)) {
	if cq.Spec.AdmissionChecksStrategy == nil {
		return
	}
	var missing, inactive, remote, remotePerFlavor, provisioning []string
	for _, rule := range cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
		name := string(rule.Name)
		check := o.Checks[name]
		if check == nil {
			missing = append(missing, name)
			continue
		}
		if !apimeta.IsStatusConditionTrue(check.Status.Conditions, kueue.AdmissionCheckActive) {
			inactive = append(inactive, name)
		}
		switch check.Spec.ControllerName {
		case kueue.MultiKueueControllerName:
			remote = append(remote, name)
			if len(rule.OnFlavors) > 0 && !onAllFlavors(cq, rule) {
				remotePerFlavor = append(remotePerFlavor, name)
			}
		case kueue.ProvisioningRequestControllerName:
			provisioning = append(provisioning, name)
		}
	}
	list := func(names []string) string {
		slices.Sort(names)
		return strings.Join(names, ",")
	}
	if len(missing) > 0 {
		add(kueue.ClusterQueueActiveReasonAdmissionCheckNotFound, "references missing AdmissionCheck(s): %s", list(missing))
	}
	if len(inactive) > 0 {
		add(kueue.ClusterQueueActiveReasonAdmissionCheckInactive, "references inactive AdmissionCheck(s): %s", list(inactive))
	}
	if len(remote) > 1 {
		add(kueue.ClusterQueueActiveReasonMultipleMultiKueueAdmissionChecks,
			"Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: %s", list(remote))
	}
	if len(remotePerFlavor) > 0 {
		add(kueue.ClusterQueueActiveReasonMultiKueueAdmissionCheckAppliedPerFlavor,
			"Cannot specify MultiKueue AdmissionCheck per flavor, found: %s", list(remotePerFlavor))
	}
	if len(remote) > 0 && len(provisioning) > 0 {
		add(kueue.ClusterQueueActiveReasonMultiKueueWithProvisioningRequest,
			"Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: %s, %s", list(remote), list(provisioning))
	}
}

func onAllFlavors(cq *kueue.ClusterQueue, rule kueue.AdmissionCheckStrategyRule) bool {
	for _, group := range cq.Spec.ResourceGroups {
		for _, flavor := range group.Flavors {
			if !slices.Contains(rule.OnFlavors, flavor.Name) {
				return false
			}
		}
	}
	return true
}

// ActiveCondition is the Active condition of a ClusterQueue.
func (o *Objects) ActiveCondition(cq *kueue.ClusterQueue) metav1.Condition {
	condition := metav1.Condition{
		Type: kueue.ClusterQueueActive, Status: metav1.ConditionTrue,
		Reason: kueue.ClusterQueueActiveReasonReady, Message: "Can admit new workloads",
	}
	if reason, message := o.InactiveReason(cq); reason != "" {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reason, message
	}
	return condition
}
