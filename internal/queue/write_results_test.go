package queue

import (
	"errors"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// A change that comes while a workload is written gets to the engine when the write has ended, and then
// into the status of its queue.
func TestStatusOfWorkloadChangedWhileWritten(t *testing.T) {
	p := newHarness(t)
	p.gates.reclaim = true
	p.oneQueue()
	p.turn([]message{{statusWritten: &statusResult{queue: queueObject("cq", "", "")}}}) // see drops those writes
	wl := p.workload("job", "main", "batch", 1, "1")
	wl.ResourceVersion, wl.Spec.PodSets[0].Count = "1", 3
	p.turn([]message{{object: wl}})
	sent := p.workloadWrites.waiting[0]
	p.workloadWrites.waiting = nil

	// The write arrived, its answer did not, and one pod has ended since.
	now := sent.workload.DeepCopy()
	now.ResourceVersion, now.Status.ReclaimablePods = "3", []kueue.ReclaimablePod{{Name: "main", Count: 1}}
	p.turn([]message{{object: now}})
	for range 3 {
		p.advance(time.Minute)
		p.turn(p.writtenStatuses())
	}
	p.turn([]message{{written: &writeResult{sent: sent, err: apierrors.NewConflict(schema.GroupResource{}, "job", nil)}}})
	for range 3 {
		p.advance(time.Minute)
		p.turn(p.writtenStatuses())
	}
	if got := p.objects.ClusterQueues["cq"].Status.FlavorsReservation[0].Resources[0].Total; got.Value() != 2 {
		t.Errorf("the queue's status says that %s CPUs are reserved; two pods of one CPU are left", got.String())
	}
}

// Two writes meet a newer object, which is delivered between their answers: then there is nothing to wait for any more.
func TestTwoWritesThatMetANewerObject(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	wl := p.workload("job", "main", "batch", 1, "1")
	wl.ResourceVersion = "1"
	p.turn([]message{{object: wl}})
	outdated := func() message {
		t.Helper()
		if len(p.workloadWrites.waiting) != 1 {
			t.Fatalf("%d writes are under way", len(p.workloadWrites.waiting))
		}
		sent := p.workloadWrites.waiting[0]
		p.workloadWrites.waiting = nil
		return message{written: &writeResult{sent: sent, err: apierrors.NewConflict(schema.GroupResource{}, "job", nil)}}
	}
	p.turn([]message{outdated()})
	closed := queueObject("cq", "", "")
	closed.Spec.StopPolicy = ptr.To(kueue.HoldAndDrain)
	p.turn([]message{{object: closed}})
	second := outdated()
	now := wl.DeepCopy()
	now.ResourceVersion, now.Spec.Active = "2", ptr.To(false)
	p.turn([]message{{object: now}})
	p.turn([]message{second})
	if !slices.ContainsFunc(p.workloadWrites.waiting, func(w workloadWrite) bool { return workload.IsEvicted(w.workload) }) {
		t.Errorf("the deactivated workload is not evicted: %v", p.workloadWrites.waiting)
	}
}

// A workload is admitted and preempted again while the reason why it waited is still being written: it never was
// admitted, and holds nothing.
func TestEvictionOfAnAdmissionThatWasNotWritten(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	p.submit("first", "main", "batch", 1, "4")
	low := p.workload("low", "main", "batch", 1, "4")
	low.ResourceVersion = "100"
	p.turn([]message{{object: low}})
	if len(p.workloadWrites.waiting) != 1 {
		t.Fatalf("%d writes are under way; want the reason of one", len(p.workloadWrites.waiting))
	}
	reason := p.workloadWrites.waiting[0]
	p.workloadWrites.waiting = nil

	p.turn([]message{{object: p.written["first"], deleted: true}})
	high := p.workload("high", "main", "batch", 2, "4")
	high.ResourceVersion = "102"
	p.turn([]message{{object: high}})
	written := reason.workload.DeepCopy()
	written.ResourceVersion = "103"
	p.version = 200
	p.turn([]message{{written: &writeResult{sent: reason, written: written}}})
	p.see()
	if low := p.workloads[workload.KeyOf(low)].object; workload.IsEvicted(low) || workload.HasReservation(low) {
		t.Errorf("the one that was never admitted: %+v", low.Status.Conditions)
	}
	if high := p.workloads[workload.KeyOf(high)].object; !workload.IsAdmitted(high) {
		t.Errorf("the one that comes first: %+v", high.Status.Conditions)
	}
}

// A workload is preempted while its admission is written once more, after an error, and the preemptor is deleted before the eviction
// can be: it is not evicted.
func TestEvictionForOneThatIsGone(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	low, high := p.workload("low", "main", "batch", 1, "4"), p.workload("high", "main", "batch", 2, "4")
	low.ResourceVersion, high.ResourceVersion = "100", "101"
	p.turn([]message{{object: low}})
	admitted := p.workloadWrites.waiting[0]
	p.workloadWrites.waiting = nil
	p.turn([]message{{written: &writeResult{sent: admitted, err: errors.New("no answer")}}}) // it is written again
	p.turn([]message{{object: high}})
	if p.workloads[workload.KeyOf(low)].next == nil {
		t.Fatal("no eviction waits for the write of the admission")
	}
	p.turn([]message{{object: high, deleted: true}})
	written := admitted.workload.DeepCopy()
	written.ResourceVersion = "103"
	p.version = 200
	p.turn([]message{{written: &writeResult{sent: admitted, written: written}}})
	p.see()
	if low := p.workloads[workload.KeyOf(low)].object; workload.IsEvicted(low) || !workload.IsAdmitted(low) {
		t.Errorf("it was to free quota for one that is gone: %+v", low.Status.Conditions)
	}
}

// That a workload waits for those evicted for it is known although its admission took the place of the write that was to
// say so: if the admission fails, it still waits for what they left.
func TestNominationThatWasNotWritten(t *testing.T) {
	p := newHarness(t)
	p.oneQueue()
	p.submit("first", "main", "batch", 1, "4")
	wl := p.workload("job", "main", "batch", 1, "4")
	wl.ResourceVersion = "100"
	p.turn([]message{{object: wl}})
	key := workload.KeyOf(wl)
	if tracked := p.workloads[key]; tracked.writing == nil || tracked.writing.pending == nil {
		t.Fatal("the reason why it waits is not being written")
	}
	decide := func(c *change) bool {
		p.startDecision(key, "job", c)
		return p.willBeNominated(wl)
	}
	nominated := p.setPending(admission.Pending{Workload: key, UID: "job", Reason: admission.ReasonWaitingForPreemptedWorkloads})
	other := p.setPending(admission.Pending{Workload: key, UID: "job", Reason: admission.ReasonWaitingForQuota})
	if !decide(nominated) {
		t.Error("about to be nominated")
	}
	if !decide(&change{}) {
		t.Error("nominated, and about to be admitted")
	}
	if decide(other) {
		t.Error("no longer nominated")
	}
}

// writtenStatuses answers the writes of statuses that are under way.
func (p *harness) writtenStatuses() []message {
	var messages []message
	for _, queue := range p.statusWrites.waiting {
		messages = append(messages, message{statusWritten: &statusResult{queue: queue}})
	}
	p.statusWrites.waiting = nil
	return messages
}
