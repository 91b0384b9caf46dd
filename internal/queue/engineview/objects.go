package engineview

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/policy"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Objects are the queues and what they refer to, in their newest version. Only the loop may use
// them.
type Objects struct {
	ClusterQueues map[string]*kueue.ClusterQueue
	LocalQueues   map[client.ObjectKey]*kueue.LocalQueue
	Cohorts       map[string]*kueue.Cohort
	Flavors       map[string]*kueue.ResourceFlavor
	Checks        map[string]*kueue.AdmissionCheck
	Topologies    map[string]*kueue.Topology
	Policies      map[string]*v1alpha1.QueuePolicy
	Offers        map[string]*cloud.CloudOffer // those of flavors
	// Timing is what holds where no policy says otherwise.
	Timing admission.Timing

	resolved *policy.Resolved // what policies say
}

// NewObjects makes an empty set.
func NewObjects() *Objects {
	return &Objects{
		ClusterQueues: map[string]*kueue.ClusterQueue{},
		LocalQueues:   map[client.ObjectKey]*kueue.LocalQueue{},
		Cohorts:       map[string]*kueue.Cohort{},
		Flavors:       map[string]*kueue.ResourceFlavor{},
		Checks:        map[string]*kueue.AdmissionCheck{},
		Topologies:    map[string]*kueue.Topology{},
		Policies:      map[string]*v1alpha1.QueuePolicy{},
		Offers:        map[string]*cloud.CloudOffer{},
		resolved:      policy.Resolve(nil, policy.World{}),
	}
}

// Set stores an object that changed, or removes one that was deleted.
func (o *Objects) Set(obj client.Object, deleted bool) {
	switch obj := obj.(type) {
	case *kueue.ClusterQueue:
		store(o.ClusterQueues, obj.Name, obj, deleted)
	case *kueue.LocalQueue:
		store(o.LocalQueues, client.ObjectKeyFromObject(obj), obj, deleted)
	case *kueue.Cohort:
		store(o.Cohorts, obj.Name, obj, deleted)
	case *kueue.ResourceFlavor:
		store(o.Flavors, obj.Name, obj, deleted)
	case *kueue.AdmissionCheck:
		store(o.Checks, obj.Name, obj, deleted)
	case *kueue.Topology:
		store(o.Topologies, obj.Name, obj, deleted)
	case *v1alpha1.QueuePolicy:
		store(o.Policies, obj.Name, obj, deleted)
	case *cloud.CloudOffer: // one of another cluster is no flavor's, whatever its name
		store(o.Offers, obj.Name, obj, deleted || obj.Spec.Cluster() != "")
	}
}

// Known is the version stored of an object; nil if there is none.
func (o *Objects) Known(obj client.Object) client.Object {
	switch obj := obj.(type) {
	case *kueue.ClusterQueue:
		return stored(o.ClusterQueues, obj.Name)
	case *kueue.LocalQueue:
		return stored(o.LocalQueues, client.ObjectKeyFromObject(obj))
	case *kueue.Cohort:
		return stored(o.Cohorts, obj.Name)
	case *kueue.ResourceFlavor:
		return stored(o.Flavors, obj.Name)
	case *kueue.AdmissionCheck:
		return stored(o.Checks, obj.Name)
	case *kueue.Topology:
		return stored(o.Topologies, obj.Name)
	case *v1alpha1.QueuePolicy:
		return stored(o.Policies, obj.Name)
	case *cloud.CloudOffer:
		return stored(o.Offers, obj.Name)
	}
	return nil
}

func stored[K comparable, V client.Object](m map[K]V, key K) client.Object {
	if obj, found := m[key]; found {
		return obj
	}
	return nil
}

func store[K comparable, V any](m map[K]V, key K, value V, deleted bool) {
	if deleted {
		delete(m, key)
		return
	}
	m[key] = value
}

// ChangesLifecycle says that a queue stops or starts, is created or deleted, or has other admission
// checks: the next step of its workloads may be another one. Ask before Set.
func (o *Objects) ChangesLifecycle(obj client.Object, deleted bool) bool {
	switch now := obj.(type) {
	case *kueue.ClusterQueue:
		was := o.ClusterQueues[now.Name]
		return deleted || was == nil || open(was.DeletionTimestamp, was.Spec.StopPolicy) != open(now.DeletionTimestamp, now.Spec.StopPolicy) ||
			!equality.Semantic.DeepEqual(was.Spec.AdmissionChecksStrategy, now.Spec.AdmissionChecksStrategy)
	case *kueue.LocalQueue:
		was := o.LocalQueues[client.ObjectKeyFromObject(now)]
		return deleted || was == nil || open(was.DeletionTimestamp, was.Spec.StopPolicy) != open(now.DeletionTimestamp, now.Spec.StopPolicy)
	}
	return false
}

// ChangesSpec says that a queue or flavor is new, or that its spec changed. Ask before Set.
func (o *Objects) ChangesSpec(obj client.Object) bool {
	switch now := obj.(type) {
	case *kueue.ClusterQueue:
		was := o.ClusterQueues[now.Name]
		return was == nil || was.Generation != now.Generation
	case *kueue.LocalQueue:
		was := o.LocalQueues[client.ObjectKeyFromObject(now)]
		return was == nil || was.Generation != now.Generation
	case *kueue.ResourceFlavor:
		return true
	}
	return false
}

func open(deleted *metav1.Time, stop *kueue.StopPolicy) bool {
	return deleted == nil && ptr.Deref(stop, kueue.None) == kueue.None
}

// QueuesOf is what the lifecycle of a workload depends on in its queues.
func (o *Objects) QueuesOf(wl *kueue.Workload) workload.Queues {
	q := workload.Queues{LocalQueue: string(wl.Spec.QueueName)}
	lq := o.LocalQueues[client.ObjectKey{Namespace: wl.Namespace, Name: q.LocalQueue}]
	if q.LocalGone = lq == nil || lq.DeletionTimestamp != nil; lq != nil {
		q.LocalStopped = ptr.Deref(lq.Spec.StopPolicy, kueue.None) != kueue.None
		q.ClusterQueue = string(lq.Spec.ClusterQueue)
	}
	if wl.Status.Admission != nil {
		q.ClusterQueue = string(wl.Status.Admission.ClusterQueue)
	}
	cq := o.ClusterQueues[q.ClusterQueue]
	if q.Gone = cq == nil || cq.DeletionTimestamp != nil; cq != nil {
		q.Stopped = ptr.Deref(cq.Spec.StopPolicy, kueue.None) != kueue.None
	}
	switch {
	case cq == nil: // which checks apply is not known; the workload stays with the ones it has
		for _, check := range wl.Status.AdmissionChecks {
			q.Checks = append(q.Checks, string(check.Name))
		}
	case wl.Status.Admission == nil:
		q.Checks = checksBeforeFlavors(cq, wl.Status.AdmissionChecks)
	default:
		q.Checks = ChecksFor(cq, func(flavor kueue.ResourceFlavorReference) bool {
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

// IsReferenced says that some queue or flavor refers to the object.
func (o *Objects) IsReferenced(obj client.Object) bool {
	switch obj := obj.(type) {
	case *kueue.ResourceFlavor:
		for _, cq := range o.ClusterQueues {
			for _, group := range cq.Spec.ResourceGroups {
				for _, flavor := range group.Flavors {
					if string(flavor.Name) == obj.Name {
						return true
					}
				}
			}
		}
	case *kueue.AdmissionCheck:
		for _, cq := range o.ClusterQueues {
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
		for _, flavor := range o.Flavors {
			if string(ptr.Deref(flavor.Spec.TopologyName, "")) == obj.Name {
				return true
			}
		}
	}
	return false
}

// ChecksFor lists the admission checks a workload must pass: those its queue asks of every workload,
// and those of the flavors it was given.
func ChecksFor(cq *kueue.ClusterQueue, given func(kueue.ResourceFlavorReference) bool) []string {
	if cq == nil || cq.Spec.AdmissionChecksStrategy == nil {
		return nil
	}
	var checks []string
	for _, rule := range cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
		if len(rule.OnFlavors) == 0 || slices.ContainsFunc(rule.OnFlavors, given) {
			checks = append(checks, string(rule.Name))
		}
	}
	slices.Sort(checks)
	return slices.Compact(checks)
}

// checksBeforeFlavors lists the admission checks of a workload that has no flavors yet: those it must
// pass in any case. A check of some flavors stays if the workload has it from before: it knows how often
// it was retried.
func checksBeforeFlavors(cq *kueue.ClusterQueue, has []kueue.AdmissionCheckState) []string {
	if cq.Spec.AdmissionChecksStrategy == nil {
		return nil
	}
	var checks []string
	for _, rule := range cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
		if len(rule.OnFlavors) == 0 || onAllFlavors(cq, rule) ||
			slices.ContainsFunc(has, func(state kueue.AdmissionCheckState) bool { return state.Name == rule.Name && state.RetryCount != nil }) {
			checks = append(checks, string(rule.Name))
		}
	}
	slices.Sort(checks)
	return slices.Compact(checks)
}

// ClusterQueueOf is the name of the ClusterQueue a workload waits in; "" if there is none.
func (o *Objects) ClusterQueueOf(wl *kueue.Workload) string {
	lq := o.LocalQueues[client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}]
	if lq == nil {
		return ""
	}
	return string(lq.Spec.ClusterQueue)
}

// CohortsAbove are the cohorts above a ClusterQueue, the nearest first. A cycle ends where it began.
func (o *Objects) CohortsAbove(clusterQueue string) []string {
	cq := o.ClusterQueues[clusterQueue]
	if cq == nil {
		return nil
	}
	return o.CohortPath(string(cq.Spec.CohortName))
}

// CohortNames are the cohorts that exist: as an object, or because something is in them.
func (o *Objects) CohortNames() map[string]bool {
	names := map[string]bool{}
	for name, cohort := range o.Cohorts {
		names[name] = true
		names[string(cohort.Spec.ParentName)] = true
	}
	for _, cq := range o.ClusterQueues {
		names[string(cq.Spec.CohortName)] = true
	}
	delete(names, "")
	return names
}

// CohortPath is a cohort and those above it.
func (o *Objects) CohortPath(name string) []string {
	var above []string
	seen := map[string]bool{}
	for name != "" && !seen[name] {
		seen[name] = true
		above = append(above, name)
		next := ""
		if cohort := o.Cohorts[name]; cohort != nil {
			next = string(cohort.Spec.ParentName)
		}
		name = next
	}
	return above
}
