package queue

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/workload"
	"github.com/elastic-ai/elastic/internal/queue/writes"
)

// tracked is a workload as the loop knows it.
type tracked struct {
	object  *kueue.Workload // the newest seen
	counted *kueue.Workload // as the queues' usage counts it
	// writing is the change being written; next is one decided meanwhile.
	writing, next *change
	// outdated: the last write met a newer object than ours, which the informer has yet to deliver.
	outdated bool
	// stale: something it uses has changed since it was last applied to the engine.
	stale bool
	// lostReason was not written, as the object had changed meanwhile, or another decision took its place: if that is not
	// written either, it is.
	lostReason      *admission.Pending
	failures        int
	stepDue         bool
	inFamily        bool                       // it is a parent or a variant, as of when queues last changed
	impliedTopology engineview.ImpliedTopology // as of when it was last applied
	runOf           types.NamespacedName       // the LocalQueue of the run that it tells of; empty: of none
}

// change is a write of one workload that is under way or about to be.
type change struct {
	// apply changes the status and reports whether there is anything to write; nil where write does
	// something else.
	apply func(wl *kueue.Workload, now time.Time) bool
	// write sends it to the API server; nil writes the status.
	write writeFunc
	// done is called after the write, for events and metrics; nil for nothing.
	done func(wl *kueue.Workload)
	// pending is the reason that it writes; nil: it writes something else.
	pending *admission.Pending
	// onlyReason: it only writes why the workload waits, which the engine knows.
	onlyReason bool
	// decided: the engine assumes that it is written.
	decided bool
	// admits: it reserves quota.
	admits bool
	// last: after it there is nothing to do but wait until the workload is deleted.
	last bool
}

// workloadDeleted handles the deletion of a workload.
func (s *Shell) workloadDeleted(wl *kueue.Workload) {
	key := workload.KeyOf(wl)
	t := s.workloads[key]
	if t != nil && t.object.UID != wl.UID && !newer(wl, t.object) {
		return // one of the same name that was created since is known already
	}
	if t != nil {
		s.statuses.Usage().Move(t.counted, nil)
		delete(s.workloads, key)
		delete(s.secondPass, key)
		delete(s.aside, key)
		s.leaveFamily(wl)
		if old := workload.Replaces(wl); s.replacements[old] == key {
			delete(s.replacements, old)
		}
		s.noteRun(t, true)
		s.unlearn(t.object)
		s.waitersDue = append(s.waitersDue, s.dependencies.Gone(key)...)
		s.gpuClaims.setUsed(wl, false)
	}
	s.engine.Apply(admission.WorkloadGone{Key: key})
	s.reapplyFamily(wl)
	s.updateReplacement(key)
	for _, claim := range gpuClaimKeys(wl) {
		s.reapplyUsers(claim, key)
	}
}

// workloadChanged handles a workload from the informer.
func (s *Shell) workloadChanged(wl *kueue.Workload) {
	key := workload.KeyOf(wl)
	t := s.workloads[key]
	if t == nil || t.object.UID != wl.UID {
		if t != nil && !newer(wl, t.object) {
			return // it was deleted since, and is known to have been created again
		}
		if t != nil {
			s.workloadDeleted(t.object) // deleted and created again since
		}
		t = &tracked{object: wl, impliedTopology: s.impliedTopologies[s.objects.ClusterQueueOf(wl)]}
		s.workloads[key] = t
		if old := workload.Replaces(wl); old.Name != "" {
			s.replacements[old] = key
		}
		s.joinFamily(wl)
		s.gpuClaims.setUsed(wl, true)
		s.updateDependencies(wl)
		s.updateUsage(t)
		s.noteRun(t, false)
		s.applyWorkload(wl)
		s.scheduleStep(t)
		s.restoreLater(t, nil)
		return
	}
	if !newer(wl, t.object) {
		return
	}
	before := t.object
	s.updateTracked(t, wl)
	if t.writing != nil {
		return // writeFinished handles it
	}
	if t.outdated {
		t.outdated = false
		s.engine.Apply(admission.DecisionDropped{Key: key})
	}
	s.applyWorkload(wl)
	s.rewriteReason(t)
	s.scheduleStep(t)
	s.restoreLater(t, before)
}

func (s *Shell) updateTracked(t *tracked, wl *kueue.Workload) {
	s.options.Metrics.WorkloadChanged(s.objects, s.forMetrics(t.object), s.forMetrics(wl), s.now())
	if s.gates.gated && workload.IsGated(t.object) && !workload.IsGated(wl) {
		s.recordEvent(wl, corev1.EventTypeNormal, "AdmissionGateCleared", "Admission gate cleared, workload is now admissible")
	}
	before := t.object
	t.object = wl
	s.leaveFamily(before)
	s.joinFamily(wl)
	s.relatives(wl, s.scheduleStep)
	s.updateDependencies(wl)
	s.updateUsage(t)
	s.noteRun(t, false)
	s.restoreFewer(t, before)
	if workload.HasReservation(before) && !workload.HasReservation(wl) {
		s.rewriteReason(t) // it could not be written before its pods were gone
	}
}

// startDecision writes a decision of the engine into a workload's status, after the write that is
// under way, if any.
func (s *Shell) startDecision(key admission.Key, uid string, c *change) {
	t := s.workloads[key]
	if t == nil || string(t.object.UID) != uid {
		return // deleted meanwhile; the inbox has the message
	}
	c.decided = !c.onlyReason
	switch {
	case c.pending != nil:
		t.lostReason = nil // it is not the last
	case t.next != nil && t.next.pending != nil:
		t.lostReason = t.next.pending
	}
	if t.writing != nil {
		t.next = c
		return
	}
	s.startWrite(t, c)
}

func (s *Shell) startWrite(t *tracked, c *change) {
	wl := *t.object
	wl.Status = *t.object.Status.DeepCopy()
	// The API stores whole seconds, so remember no more than that.
	now := s.now().Truncate(time.Second)
	if c.apply != nil && !c.apply(&wl, now) {
		return
	}
	if s.gates.orchestrated {
		workload.SetGates(&wl, now)
	}
	if s.options.Lifecycle.GranularReasons {
		workload.ExplainUnadmitted(&wl, now)
	}
	write := c.write
	switch {
	case write != nil:
	case len(t.object.Status.AdmissionChecks) > 0 && len(wl.Status.AdmissionChecks) == 0:
		write = writes.StatusWithoutChecks
	default:
		write = writes.WorkloadStatus
	}
	t.writing = c
	if c.decided {
		s.pacing.underWay++
	}
	s.workloadWrites.submit(workloadWrite{workload: &wl, write: write, paced: c.decided})
}

// newer compares two versions of one object; the API server's resource versions are increasing
// numbers.
func newer(a, b *kueue.Workload) bool {
	return newerVersion(a.ResourceVersion, b.ResourceVersion)
}

func newerVersion(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	if errX != nil || errY != nil {
		return a != b
	}
	return x > y
}
