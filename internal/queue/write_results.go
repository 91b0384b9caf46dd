package queue

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
	"github.com/elastic-ai/elastic/internal/queue/writes"
)

// workloadWrite is a workload as it is to be, and how to write it.
type workloadWrite struct {
	workload *kueue.Workload
	write    writeFunc
	paced    bool // it counts as a decision under way
}

// writeFunc writes a workload and returns it as the API server has it then.
type writeFunc func(context.Context, client.Client, *kueue.Workload) (*kueue.Workload, error)

// writeResult comes back to the loop when a workload was written.
type writeResult struct {
	sent    workloadWrite   // what the loop asked for
	written *kueue.Workload // what the API server now has; nil after an error
	err     error
}

// statusResult comes back when a queue's status was written.
type statusResult struct {
	queue client.Object
	err   error
}

func (s *Shell) writeWorkload(ctx context.Context, w workloadWrite) {
	written, err := w.write(ctx, s.client, w.workload)
	s.options.Metrics.Inc("elastic_writes_total", "workload", outcome(err))
	s.inbox.Put(message{written: &writeResult{sent: w, written: written, err: err}})
}

func (s *Shell) writeStatus(ctx context.Context, queue client.Object) {
	if account, ok := queue.(*queuepolicy.BudgetAccount); ok {
		s.writeAccount(ctx, account)
		return
	}
	err := writes.QueueStatus(ctx, s.client, queue)
	s.options.Metrics.Inc("elastic_writes_total", "queue", outcome(err))
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		s.options.Log.Error(err, "writing a queue's status failed, trying again", "queue", client.ObjectKeyFromObject(queue).String())
	}
	s.inbox.Put(message{statusWritten: &statusResult{queue: queue, err: client.IgnoreNotFound(err)}})
}

func (s *Shell) writeFinalizer(ctx context.Context, obj client.Object) {
	for {
		err := writes.Finalizer(ctx, s.client, obj)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return // the informer delivers the newer object
		}
		if ctx.Err() == nil {
			s.options.Log.Error(err, "writing a finalizer failed, trying again", "object", client.ObjectKeyFromObject(obj).String())
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Second):
		}
	}
}

// writeFinished handles the result of a write.
func (s *Shell) writeFinished(r *writeResult) {
	if r.sent.paced {
		s.pacing.underWay--
	}
	key := workload.KeyOf(r.sent.workload)
	t := s.workloads[key]
	if t == nil || t.object.UID != r.sent.workload.UID {
		return // deleted meanwhile, which the engine knows
	}
	finished := t.writing
	if r.err != nil && !apierrors.IsConflict(r.err) && !apierrors.IsNotFound(r.err) {
		s.retryLater(t, r)
		return
	}
	t.writing, t.failures = nil, 0
	if r.err != nil {
		if t.lostReason == nil {
			t.lostReason = finished.pending
		}
		if t.next != nil && t.next.pending != nil {
			t.lostReason = t.next.pending
		}
		t.next = nil // decided on an old version
		if t.outdated = !newer(t.object, r.sent.workload); t.outdated {
			return
		}
		s.engine.Apply(admission.DecisionDropped{Key: key})
		s.applyWorkload(t.object)
		s.rewriteReason(t)
		s.scheduleStep(t)
		return
	}
	if finished.last {
		t.outdated = true
		if finished.done != nil {
			finished.done(r.written)
		}
		return
	}
	seen := newer(t.object, r.written)
	if !seen {
		s.updateTracked(t, r.written)
	}
	t.outdated = false
	if finished.done != nil {
		finished.done(r.written)
	}
	if !finished.onlyReason || seen || t.stale {
		t.stale = false
		s.applyWorkload(t.object)
	}
	if next := t.next; next != nil {
		t.next = nil
		s.startWrite(t, next)
	}
	s.scheduleStep(t)
}

// retryLater writes again after a pause that doubles with each failure: the API server is in
// trouble, and another decision would not help.
func (s *Shell) retryLater(t *tracked, r *writeResult) {
	pause := min(100*time.Millisecond<<min(t.failures, 10), 15*time.Second)
	t.failures++
	s.options.Log.Error(r.err, "writing a workload's status failed, trying again", "workload", workload.KeyOf(r.sent.workload).String(), "pause", pause.String())
	again := r.sent
	again.paced = false // while it waits, other decisions can be written
	time.AfterFunc(pause, func() { s.workloadWrites.submit(again) })
}

// rewriteReason has a reason written that met a newer object. The engine does not report it again, as it
// has not changed.
func (s *Shell) rewriteReason(t *tracked) {
	lost := t.lostReason
	t.lostReason = nil
	if lost == nil || workload.HasReservation(t.object) {
		return
	}
	if _, newer := s.pendingReasons.unwritten[lost.Workload]; !newer {
		s.pendingReasons.add(*lost)
	}
}
