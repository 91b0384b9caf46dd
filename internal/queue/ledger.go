package queue

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// ledger counts workloads and what they hold, per ClusterQueue and per
// LocalQueue, for the queues' status. It is kept by differences: a workload is
// taken out as it was and put in as it is.
type ledger struct {
	clusterQueues map[string]*account
	localQueues   map[client.ObjectKey]*account
	cohorts       map[string]*account
}

// account is what a ledger knows of one queue.
type account struct {
	pending, reserving, admitted int32
	reserved, used               map[flavorResource]int64
	changed, writing             bool
	since                        time.Time     // it was noticed that the status has changed
	queue                        client.Object // as last looked at
}

// settled: what was written is true.
func (a *account) settled() { a.changed, a.since = false, time.Time{} }

type flavorResource struct {
	flavor   kueue.ResourceFlavorReference
	resource corev1.ResourceName
}

func newLedger() *ledger {
	return &ledger{clusterQueues: map[string]*account{}, localQueues: map[client.ObjectKey]*account{}, cohorts: map[string]*account{}}
}

// move takes a workload out as it was (nil: new) and puts it in as it is
// (nil: gone).
func (l *ledger) move(was, is *kueue.Workload) {
	l.count(was, -1)
	l.count(is, +1)
}

func (l *ledger) count(wl *kueue.Workload, sign int32) {
	if wl == nil || workload.IsFinished(wl) {
		return
	}
	local := l.localQueue(client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)})
	if !workload.HasReservation(wl) {
		if workload.IsActive(wl) {
			local.pending += sign
			local.changed = true
		}
		return
	}
	for _, a := range []*account{local, l.clusterQueue(string(wl.Status.Admission.ClusterQueue))} {
		a.changed = true
		a.reserving += sign
		a.add(a.reserved, wl, int64(sign))
		if workload.IsAdmitted(wl) {
			a.admitted += sign
			a.add(a.used, wl, int64(sign))
		}
	}
}

func (a *account) add(sums map[flavorResource]int64, wl *kueue.Workload, sign int64) {
	for _, set := range wl.Status.Admission.PodSetAssignments {
		for name, flavor := range set.Flavors {
			sums[flavorResource{flavor, name}] += sign * workload.Amount(name, set.ResourceUsage[name])
		}
	}
}

func (l *ledger) clusterQueue(name string) *account { return accountOf(l.clusterQueues, name) }

func (l *ledger) localQueue(key client.ObjectKey) *account { return accountOf(l.localQueues, key) }

func (l *ledger) cohort(name string) *account { return accountOf(l.cohorts, name) }

func accountOf[K comparable](accounts map[K]*account, key K) *account {
	a := accounts[key]
	if a == nil {
		a = &account{reserved: map[flavorResource]int64{}, used: map[flavorResource]int64{}}
		accounts[key] = a
	}
	return a
}

// sorted lists the sums by flavor and resource, those that came back to zero
// included: a queue shows them until its flavors change.
func sorted(sums map[flavorResource]int64) []flavorResource {
	keys := make([]flavorResource, 0, len(sums))
	for key := range sums {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b flavorResource) int {
		return cmp.Or(cmp.Compare(a.flavor, b.flavor), cmp.Compare(a.resource, b.resource))
	})
	return keys
}
