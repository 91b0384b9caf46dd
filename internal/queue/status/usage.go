package status

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
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
	reclaim       bool // pods that are done and will not be replaced give their quota back
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
	shown            shownToLocals // of a ClusterQueue, as last looked at
}

// upToDate notes that the status is true.
func (a *QueueUsage) upToDate() { a.changed, a.changedAt = false, time.Time{} }

// FlavorResource is a resource on a flavor.
type FlavorResource struct {
	Flavor   kueue.ResourceFlavorReference
	Resource corev1.ResourceName
}

func newUsage(reclaim bool) *Usage {
	return &Usage{reclaim: reclaim, clusterQueues: map[string]*QueueUsage{}, localQueues: map[client.ObjectKey]*QueueUsage{}, cohorts: map[string]*QueueUsage{}}
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
	if !workload.HoldsReservation(wl) {
		if workload.IsActive(wl) {
			local.Pending += sign
			local.changed = true
		}
		return
	}
	for _, a := range []*QueueUsage{local, u.ClusterQueue(string(wl.Status.Admission.ClusterQueue))} {
		a.changed = true
		a.WithQuota += sign
		u.add(a.Reserved, wl, int64(sign))
		if workload.IsAdmitted(wl) {
			a.Admitted += sign
			u.add(a.Used, wl, int64(sign))
		}
	}
}

func (u *Usage) add(sums map[FlavorResource]int64, wl *kueue.Workload, sign int64) {
	for _, set := range wl.Status.Admission.PodSetAssignments {
		for name, flavor := range set.Flavors {
			sums[FlavorResource{flavor, name}] += sign * u.amount(wl, &set, name)
		}
	}
}

// amount is what the pods of a set use, less those that are done and will not be replaced.
func (u *Usage) amount(wl *kueue.Workload, set *kueue.PodSetAssignment, name corev1.ResourceName) int64 {
	all, count := workload.Amount(name, set.ResourceUsage[name]), ptr.Deref(set.Count, 0)
	left := count
	if u.reclaim {
		left = min(count, workload.PodsLeft(wl, set.Name)) // it may have been admitted for what was left then
	}
	if left == count || count <= 0 {
		return all
	}
	return all / int64(count) * int64(left)
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

// Offered lists what a ClusterQueue has quota for, in the order of its spec and of the resources'
// names; nothing if there is no such queue.
func Offered(cq *kueue.ClusterQueue) []FlavorResource {
	if cq == nil {
		return nil
	}
	var list []FlavorResource
	for _, group := range cq.Spec.ResourceGroups {
		names := slices.Sorted(slices.Values(group.CoveredResources))
		for _, flavor := range group.Flavors {
			for _, name := range names {
				list = append(list, FlavorResource{flavor.Name, name})
			}
		}
	}
	return list
}
