package placer

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/elastic-ai/elastic/internal/placement"
)

// What pods have that are being deleted is about to come free, and a workload may be nominated for it; so are the pods of a
// workload that has lost its quota, before the controller of its job deletes them. But a pod may never end: its node is
// cut off, a finalizer stays, its processes hang. So it counts as leaving for a time only.

const (
	// overdueAfter is how long after its grace period a pod counts as leaving.
	overdueAfter = 5 * time.Minute
	// mostGrace is how much of the grace period counts: the pod's author writes it.
	mostGrace = time.Hour
)

// overdueAt is when a pod that is being deleted should have ended.
func overdueAt(pod *corev1.Pod) time.Time {
	at := pod.DeletionTimestamp.Time // when its grace period is over
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		grace := time.Duration(min(*s, int64(24*time.Hour*365/time.Second))) * time.Second
		at = at.Add(min(grace, mostGrace) - grace)
	}
	return at.Add(overdueAfter)
}

// Overdue ends the leaving of pods that should have ended by now, and reports whether there are any, and when the next
// one should have.
func (p *Placer) Overdue(now time.Time) (found bool, next time.Time) {
	for key, at := range p.leaving {
		switch {
		case at.IsZero():
		case at.After(now):
			if next.IsZero() || at.Before(next) {
				next = at
			}
		default:
			p.leaving[key] = time.Time{}
			found = true
		}
	}
	for gang, at := range p.released {
		switch {
		case at.IsZero():
			at = now.Add(overdueAfter)
			p.released[gang] = at
			fallthrough
		case at.After(now):
			if next.IsZero() || at.Before(next) {
				next = at
			}
		default:
			delete(p.released, gang)
			found = true
		}
	}
	return found, next
}

// leave takes a pod that is being deleted out of its workload. It has its node until it ends, but where another one
// comes for it, or its workload is admitted again, that needs a place of its own.
func (p *Placer) leave(key string, b bound, pod *corev1.Pod) {
	p.leaving[key] = overdueAt(pod)
	if b.pod.Gang == "" {
		return
	}
	p.outdated[b.pod.Gang] = true
	if r := p.reservations[b.pod.Gang]; r != nil {
		r.count(b.pod.PodSet, -1)
	}
	p.countAsAsked(b.pod.Gang, &b.pod)
	b.pod.Gang, b.pod.PodSet = "", ""
	p.pods[key] = b
	p.apply(placement.PodBound{Pod: b.pod, Node: b.node, Grants: b.grants})
}

// RemoveLeaving removes pods that are being deleted, in a what-if, unless they should have ended long ago.
func (p *Placer) RemoveLeaving() bool {
	if len(p.leaving)+len(p.released) == 0 {
		return false // as nearly always
	}
	txn := p.engine.Begin()
	defer txn.Commit(time.Time{})
	removed := false
	for _, key := range slices.Sorted(maps.Keys(p.leaving)) {
		if !p.leaving[key].IsZero() {
			removed = txn.Remove(key) || removed
		}
	}
	for _, gang := range slices.Sorted(maps.Keys(p.released)) {
		removed = txn.RemoveGang(gang) > 0 || removed
	}
	return removed
}
