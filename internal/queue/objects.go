package queue

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// objects is what the loop knows of the queues and of what they refer to.
type objects struct {
	clusterQueues map[string]*kueue.ClusterQueue
	localQueues   map[client.ObjectKey]*kueue.LocalQueue
	cohorts       map[string]*kueue.Cohort
	flavors       map[string]*kueue.ResourceFlavor
	checks        map[string]*kueue.AdmissionCheck
	topologies    map[string]*kueue.Topology
}

func newObjects() *objects {
	return &objects{
		clusterQueues: map[string]*kueue.ClusterQueue{},
		localQueues:   map[client.ObjectKey]*kueue.LocalQueue{},
		cohorts:       map[string]*kueue.Cohort{},
		flavors:       map[string]*kueue.ResourceFlavor{},
		checks:        map[string]*kueue.AdmissionCheck{},
		topologies:    map[string]*kueue.Topology{},
	}
}

func (o *objects) note(obj client.Object, gone bool) {
	switch obj := obj.(type) {
	case *kueue.ClusterQueue:
		keep(o.clusterQueues, obj.Name, obj, gone)
	case *kueue.LocalQueue:
		keep(o.localQueues, client.ObjectKeyFromObject(obj), obj, gone)
	case *kueue.Cohort:
		keep(o.cohorts, obj.Name, obj, gone)
	case *kueue.ResourceFlavor:
		keep(o.flavors, obj.Name, obj, gone)
	case *kueue.AdmissionCheck:
		keep(o.checks, obj.Name, obj, gone)
	case *kueue.Topology:
		keep(o.topologies, obj.Name, obj, gone)
	}
}

func keep[K comparable, V any](m map[K]V, key K, value V, gone bool) {
	if gone {
		delete(m, key)
		return
	}
	m[key] = value
}

// inactive says why a queue can admit nobody, in Kueue's words; no reason: it
// can. Of several reasons the first one is the condition's, and all are told.
func (o *objects) inactive(cq *kueue.ClusterQueue) (reason, message string) {
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
	missing, homeless := o.missingFlavors(cq)
	if len(missing) > 0 {
		add(kueue.ClusterQueueActiveReasonFlavorNotFound, "references missing ResourceFlavor(s): %s", strings.Join(missing, ","))
	}
	o.checkProblems(cq, add)
	if o.elsewhere(cq) {
		homeless = nil // where its pods go is not known here
	}
	for _, flavor := range homeless {
		add(kueue.ClusterQueueActiveReasonTopologyNotFound, "there is no Topology %q for TAS flavor %q", *flavor.Spec.TopologyName, flavor.Name)
	}
	if reason == "" {
		return "", ""
	}
	return reason, "Can't admit new workloads: " + strings.Join(messages, ", ") + "."
}

// missingFlavors are those a queue names that are not there, and those whose
// topology is not.
func (o *objects) missingFlavors(cq *kueue.ClusterQueue) (missing []string, homeless []*kueue.ResourceFlavor) {
	for _, group := range cq.Spec.ResourceGroups {
		for _, quotas := range group.Flavors {
			flavor := o.flavors[string(quotas.Name)]
			if flavor == nil {
				missing = append(missing, string(quotas.Name))
			} else if name := flavor.Spec.TopologyName; name != nil && o.topologies[string(*name)] == nil {
				homeless = append(homeless, flavor)
			}
		}
	}
	return missing, homeless
}

// checkProblems tells what is wrong with a queue's admission checks.
func (o *objects) checkProblems(cq *kueue.ClusterQueue, add func(reason, format string, args ...any)) {
	if cq.Spec.AdmissionChecksStrategy == nil {
		return
	}
	var missing, inactive, remote, remotePerFlavor, provisioning []string
	for _, rule := range cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
		name := string(rule.Name)
		check := o.checks[name]
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

// active is the queue's condition of that name.
func (o *objects) active(cq *kueue.ClusterQueue) metav1.Condition {
	condition := metav1.Condition{
		Type: kueue.ClusterQueueActive, Status: metav1.ConditionTrue,
		Reason: kueue.ClusterQueueActiveReasonReady, Message: "Can admit new workloads",
	}
	if reason, message := o.inactive(cq); reason != "" {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reason, message
	}
	return condition
}

// reopens says a queue stops or starts, comes or goes, or has other checks.
func (o *objects) reopens(obj client.Object, gone bool) bool {
	switch now := obj.(type) {
	case *kueue.ClusterQueue:
		was := o.clusterQueues[now.Name]
		return gone || was == nil || open(was.DeletionTimestamp, was.Spec.StopPolicy) != open(now.DeletionTimestamp, now.Spec.StopPolicy) ||
			!equality.Semantic.DeepEqual(was.Spec.AdmissionChecksStrategy, now.Spec.AdmissionChecksStrategy)
	case *kueue.LocalQueue:
		was := o.localQueues[client.ObjectKeyFromObject(now)]
		return gone || was == nil || open(was.DeletionTimestamp, was.Spec.StopPolicy) != open(now.DeletionTimestamp, now.Spec.StopPolicy)
	}
	return false
}

// respecified says a queue or flavor is new, or says something else than before.
func (o *objects) respecified(obj client.Object) bool {
	switch now := obj.(type) {
	case *kueue.ClusterQueue:
		was := o.clusterQueues[now.Name]
		return was == nil || was.Generation != now.Generation
	case *kueue.LocalQueue:
		was := o.localQueues[client.ObjectKeyFromObject(now)]
		return was == nil || was.Generation != now.Generation
	case *kueue.ResourceFlavor:
		return true
	}
	return false
}

func open(deleted *metav1.Time, stop *kueue.StopPolicy) bool {
	return deleted == nil && ptr.Deref(stop, kueue.None) == kueue.None
}

// queuesOf is what a workload's life asks of its queues.
func (o *objects) queuesOf(wl *kueue.Workload) workload.Queues {
	q := workload.Queues{LocalQueue: string(wl.Spec.QueueName)}
	lq := o.localQueues[client.ObjectKey{Namespace: wl.Namespace, Name: q.LocalQueue}]
	if q.LocalGone = lq == nil || lq.DeletionTimestamp != nil; lq != nil {
		q.LocalStopped = ptr.Deref(lq.Spec.StopPolicy, kueue.None) != kueue.None
		q.ClusterQueue = string(lq.Spec.ClusterQueue)
	}
	if wl.Status.Admission != nil {
		q.ClusterQueue = string(wl.Status.Admission.ClusterQueue)
	}
	cq := o.clusterQueues[q.ClusterQueue]
	if q.Gone = cq == nil || cq.DeletionTimestamp != nil; cq != nil {
		q.Stopped = ptr.Deref(cq.Spec.StopPolicy, kueue.None) != kueue.None
	}
	switch {
	case wl.Status.Admission == nil:
	case cq == nil: // what it must pass is not known; it keeps what it has
		for _, check := range wl.Status.AdmissionChecks {
			q.Checks = append(q.Checks, string(check.Name))
		}
	default:
		q.Checks = checksFor(cq, func(flavor kueue.ResourceFlavorReference) bool {
			for _, set := range wl.Status.Admission.PodSetAssignments {
				for _, given := range set.Flavors {
					if given == flavor {
						return true
					}
				}
			}
			return false
		})
	}
	return q
}

// uses says some queue (or flavor) refers to the object.
func (o *objects) uses(obj client.Object) bool {
	switch obj := obj.(type) {
	case *kueue.ResourceFlavor:
		for _, cq := range o.clusterQueues {
			for _, group := range cq.Spec.ResourceGroups {
				for _, flavor := range group.Flavors {
					if string(flavor.Name) == obj.Name {
						return true
					}
				}
			}
		}
	case *kueue.AdmissionCheck:
		for _, cq := range o.clusterQueues {
			if cq.Spec.AdmissionChecksStrategy == nil {
				continue
			}
			for _, rule := range cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
				if string(rule.Name) == obj.Name {
					return true
				}
			}
		}
	case *kueue.Topology:
		for _, flavor := range o.flavors {
			if string(ptr.Deref(flavor.Spec.TopologyName, "")) == obj.Name {
				return true
			}
		}
	}
	return false
}
