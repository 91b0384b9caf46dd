package admission

import (
	"cmp"
	"strings"
	"time"
)

// queueOrder orders pending workloads: by priority (and level, where a queue has them), then by age, then by name so
// that the order never depends on when we heard of them.
func queueOrder(a, b *workload) int {
	if a.rank != b.rank {
		return cmp.Compare(b.rank, a.rank)
	}
	if a.order != b.order {
		return cmp.Compare(a.order, b.order)
	}
	return tieOrder(a, b)
}

// tieOrder orders workloads that are equal in every other respect.
func tieOrder(a, b *workload) int {
	if c := strings.Compare(a.spec.UID, b.spec.UID); c != 0 {
		return c
	}
	if c := strings.Compare(a.spec.Namespace, b.spec.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.spec.Name, b.spec.Name)
}

// turnOrder puts a workload that was told to wait for others' pods before those that were not, as Kueue does, which goes
// on with that workload as soon as the pods are ready.
func turnOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// hasTurn: it waited for pods, and has nothing else to wait for.
func (a *assignment) hasTurn() bool { return a.w.spec.AwaitsPods && a.mode == fit }

// entryOrder orders the entries of a round: whose turn it is, nominal quota before borrowed, then as in a queue.
func entryOrder(a, b *assignment) int {
	if c := turnOrder(a.hasTurn(), b.hasTurn()); c != 0 {
		return c
	}
	if a.borrow != b.borrow {
		return cmp.Compare(a.borrow, b.borrow)
	}
	if c := queueOrder(a.w, b.w); c != 0 {
		return c
	}
	return strings.Compare(a.w.queue.name, b.w.queue.name)
}

// pendingOrder is queueOrder, after the LocalQueues' usage where that counts.
func (q *queue) pendingOrder(a, b *workload) int {
	if q.spec.UsageFairSharing && a.local != b.local && a.local.share != b.local.share {
		return cmp.Compare(a.local.share, b.local.share)
	}
	return queueOrder(a, b)
}

// orderTime is the age that counts: a workload's creation, or the eviction that sent it to the back.
func (e *Engine) orderTime(w *Workload) int64 {
	t := w.Created
	switch w.EvictedBy {
	case evictedByPodsReadyTimeout:
		if !e.opts.RequeueByCreation {
			t = w.EvictedAt
		}
	case evictedByAdmissionCheck:
		t = w.EvictedAt
	}
	return nanos(t)
}

const (
	evictedByPodsReadyTimeout = "PodsReadyTimeout"
	evictedByAdmissionCheck   = "AdmissionCheck"
)

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
