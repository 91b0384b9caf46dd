package status

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Usage counts workloads and their quota, per ClusterQueue and per LocalQueue. It is updated by
// differences: a workload is taken out as it was and put in as it is.
type Usage struct {
	clusterQueues map[string]*QueueUsage
	localQueues   map[client.ObjectKey]*QueueUsage
	cohorts       map[string]*QueueUsage
}

// QueueUsage is that of one queue.
type QueueUsage struct {
	Pending, WithQuota, Admitted int32
	// Reserved is the quota of all workloads with quota reserved, Used that of the admitted ones.
	Reserved, Used map[FlavorResource]int64

	changed, writing bool
	inFlight         bool          // the engine has decided what the objects do not show yet
	changedAt        time.Time     // when it was noticed that the status is no longer true
	queue            client.Object // as last looked at
}

// upToDate notes that the status is true.
func (a *QueueUsage) upToDate() { a.changed, a.changedAt = false, time.Time{} }

// FlavorResource is a resource on a flavor.
type FlavorResource struct {
	Flavor   kueue.ResourceFlavorReference
	Resource corev1.ResourceName
}

func newUsage() *Usage {
	return &Usage{clusterQueues: map[string]*QueueUsage{}, localQueues: map[client.ObjectKey]*QueueUsage{}, cohorts: map[string]*QueueUsage{}}
}

// Move takes a workload out as it was (nil: new) and puts it in as it is (nil: deleted).
func (u *Usage) Move(was, is *kueue.Workload) {
	u.count(was, -1)
	u.count(is, +1)
}

func (u *Usage) count(wl *kueue.Workload, sign int32) {
	if wl == nil || workload.IsFinished(wl) {
		return
	}
	local := u.LocalQueue(client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)})
	if !workload.HasReservation(wl) {
		if workload.IsActive(wl) {
			local.Pending += sign
			local.changed = true
		}
		return
	}
	for _, a := range []*QueueUsage{local, u.ClusterQueue(string(wl.Status.Admission.ClusterQueue))} {
		a.changed = true
		a.WithQuota += sign
		a.add(a.Reserved, wl, int64(sign))
		if workload.IsAdmitted(wl) {
			a.Admitted += sign
			a.add(a.Used, wl, int64(sign))
		}
	}
}

func (a *QueueUsage) add(sums map[FlavorResource]int64, wl *kueue.Workload, sign int64) {
	for _, set := range wl.Status.Admission.PodSetAssignments {
		for name, flavor := range set.Flavors {
			sums[FlavorResource{flavor, name}] += sign * workload.Amount(name, set.ResourceUsage[name])
		}
	}
}

// ClusterQueue is the usage of one.
func (u *Usage) ClusterQueue(name string) *QueueUsage { return usageOf(u.clusterQueues, name) }

// LocalQueue is the usage of one.
func (u *Usage) LocalQueue(key client.ObjectKey) *QueueUsage { return usageOf(u.localQueues, key) }

func (u *Usage) cohort(name string) *QueueUsage { return usageOf(u.cohorts, name) }

func usageOf[K comparable](usages map[K]*QueueUsage, key K) *QueueUsage {
	a := usages[key]
	if a == nil {
		a = &QueueUsage{Reserved: map[FlavorResource]int64{}, Used: map[FlavorResource]int64{}}
		usages[key] = a
	}
	return a
}

// Sorted lists the sums by flavor and resource, zeros included: a queue shows them until its flavors
// change.
func Sorted(sums map[FlavorResource]int64) []FlavorResource {
	keys := make([]FlavorResource, 0, len(sums))
	for key := range sums {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b FlavorResource) int {
		return cmp.Or(cmp.Compare(a.Flavor, b.Flavor), cmp.Compare(a.Resource, b.Resource))
	})
	return keys
}
