package queue

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// Concurrent admission: in a ClusterQueue with a policy for it, every workload is a parent and has one variant for each
// flavor. Only variants count: they are in the queue and use quota. The parent, which its job follows, is admitted as one
// of them is. Which workload is a parent follows from the ClusterQueue, which is an administrator's, and not from labels.

// parentWaits is why a parent has no quota.
const parentWaits = "Its variants are in the queue, one for each flavor"

// createAgain is how long to wait after a variant could not be created.
const createAgain = 5 * time.Second

// member is a workload in its family; nil: concurrent admission does not concern it.
type member struct {
	*workload.Family      // nil: its parent is not there
	isParent         bool // otherwise it says that it is a variant
}

// variantCreated comes back to the loop when a variant was created, or could not be.
type variantCreated struct {
	asked  *kueue.Workload
	object *kueue.Workload // as the API server has it
	err    error
}

// concurrentQueue is the ClusterQueue of a workload, if it has a policy for concurrent admission.
func (s *Shell) concurrentQueue(wl *kueue.Workload) *kueue.ClusterQueue {
	if !s.gates.concurrent {
		return nil
	}
	cq := s.objects.ClusterQueues[s.objects.ClusterQueueOf(wl)]
	if cq == nil || cq.Spec.ConcurrentAdmissionPolicy == nil || len(cq.Spec.ResourceGroups) != 1 {
		return nil
	}
	return cq
}

// isParent says that variants stand in the queue for the workload.
func (s *Shell) isParent(wl *kueue.Workload) bool {
	if s.concurrentQueue(wl) == nil || workload.IsExtra(wl) || s.workloads[workload.KeyOf(wl)] == nil {
		return false // one that is only asked about is considered as it is
	}
	parent, _ := workload.ParentOf(wl)
	return parent == admission.Key{}
}

// isVariant says that the workload stands in the queue for another one, or says so.
func (s *Shell) isVariant(wl *kueue.Workload) bool {
	if s.concurrentQueue(wl) == nil {
		return false
	}
	parent, _ := workload.ParentOf(wl)
	return parent != admission.Key{}
}

// usesQuota says that the workload counts against quota. A parent does not: its variant does.
func (s *Shell) usesQuota(wl *kueue.Workload) bool { return workload.UsesQuota(wl) && !s.isParent(wl) }

func (s *Shell) familyOf(wl *kueue.Workload) *member {
	isParent := s.isParent(wl)
	if !isParent && !s.isVariant(wl) {
		return nil
	}
	m, key, parent := &member{isParent: isParent}, familyKey(wl), wl
	if !isParent {
		t := s.workloads[key]
		if t == nil || !s.isParent(t.object) {
			return m
		}
		parent = t.object
	}
	var members []*kueue.Workload
	for other := range s.families[key] {
		if t := s.workloads[other]; t != nil && t.object.UID != wl.UID {
			members = append(members, t.object)
		}
	}
	if !isParent {
		members = append(members, wl)
	}
	m.Family = workload.NewFamily(parent, s.concurrentQueue(parent), members)
	return m
}

// familyKey is the parent of a variant, or the workload itself.
func familyKey(wl *kueue.Workload) admission.Key {
	if parent, _ := workload.ParentOf(wl); parent != (admission.Key{}) {
		return parent
	}
	return workload.KeyOf(wl)
}

func (s *Shell) joinFamily(wl *kueue.Workload) {
	if !s.gates.concurrent {
		return
	}
	delete(s.creating, workload.KeyOf(wl))
	parent, _ := workload.ParentOf(wl)
	if parent == (admission.Key{}) {
		return
	}
	if s.families[parent] == nil {
		s.families[parent] = map[admission.Key]bool{}
	}
	s.families[parent][workload.KeyOf(wl)] = true
}

func (s *Shell) leaveFamily(wl *kueue.Workload) {
	if !s.gates.concurrent {
		return
	}
	parent, _ := workload.ParentOf(wl)
	if delete(s.families[parent], workload.KeyOf(wl)); len(s.families[parent]) == 0 {
		delete(s.families, parent)
	}
}

// relatives calls f with the others of a workload's family.
func (s *Shell) relatives(wl *kueue.Workload, f func(*tracked)) {
	if !s.gates.concurrent {
		return
	}
	key := familyKey(wl)
	if t := s.workloads[key]; t != nil && key != workload.KeyOf(wl) {
		f(t)
	}
	for other := range s.families[key] {
		if t := s.workloads[other]; t != nil && other != workload.KeyOf(wl) {
			f(t)
		}
	}
}

// reapplyFamily applies the others of a workload's family again, whom it may concern that it has changed.
func (s *Shell) reapplyFamily(wl *kueue.Workload) {
	s.relatives(wl, s.reapplyMember)
}

func (s *Shell) reapplyMember(t *tracked) {
	s.updateUsage(t)
	s.reapply(t)
	s.followPods(t.object)
	s.scheduleStep(t)
}

// updateFamilies looks again at who is a parent, and at which variants there are to be, after queues have changed.
func (s *Shell) updateFamilies() {
	if !s.gates.concurrent || !s.familiesChanged {
		return
	}
	s.familiesChanged = false
	for _, t := range s.workloads {
		was := t.inFamily
		if t.inFamily = s.familyOf(t.object) != nil; was || t.inFamily {
			s.reapplyMember(t)
		}
	}
}

// asCounted is a workload as queues and engine count it.
func (s *Shell) asCounted(wl *kueue.Workload) *kueue.Workload {
	return s.familyOf(wl).asCounted(wl)
}

func (m *member) asCounted(wl *kueue.Workload) *kueue.Workload {
	switch {
	case m == nil:
		return wl
	case m.isParent:
		parent := *wl
		parent.Status.Admission = nil
		return &parent
	case m.Family != nil && m.IndexOf(wl) >= 0:
		return m.AsCounted(wl)
	}
	return wl
}

// limit says what a workload may have, and whether it is in the queue.
func (s *Shell) limit(w *admission.Workload, counted *kueue.Workload, m *member) {
	w.PreemptionGated = (s.gates.concurrent || s.gates.orchestrated) && workload.IsPreemptionGated(counted)
	if !s.gates.concurrent {
		return
	}
	if allowed := workload.AllowedFlavors(counted); len(allowed) > 0 {
		for i := range w.PodSets {
			if len(w.PodSets[i].Flavors) == 0 {
				w.PodSets[i].Flavors = allowed
			}
		}
	}
	switch {
	case m == nil || w.Admission != nil:
	case m.isParent && w.Awaits == "":
		w.Unready = parentWaits
	case m.isParent:
	case m.Family == nil || !m.IsWanted(m.IndexOf(counted)):
		w.Inactive = true
	}
}

// podsNamedAfter is the workload whose name the pods of wl carry.
func (s *Shell) podsNamedAfter(wl *kueue.Workload) admission.Key {
	if m := s.familyOf(wl); m != nil && m.hasPods(wl) {
		return workload.KeyOf(m.Parent)
	}
	return workload.PodsNamedAfter(wl)
}

// hasPods says that pods of the job may be the workload's: those of a parent are the variant's that it is admitted as.
func (m *member) hasPods(wl *kueue.Workload) bool {
	return m == nil || m.Family != nil && !m.isParent && m.Uses(m.IndexOf(wl))
}

// queuesOf is what the lifecycle of a workload depends on in its queues. Checks are its variants' affair.
func (s *Shell) queuesOf(wl *kueue.Workload) workload.Queues {
	queues := s.objects.QueuesOf(wl)
	if s.isParent(wl) {
		queues.Checks = nil
	}
	return queues
}

// familyStep is the next step that a workload takes as a parent or a variant.
func (s *Shell) familyStep(wl *kueue.Workload) workload.Step {
	m := s.familyOf(wl)
	switch {
	case m == nil || m.Family == nil || s.options.NoDecisions:
		return workload.Step{}
	case !m.isParent:
		return m.VariantStep(wl, s.now())
	}
	s.createMissing(m.Family)
	return m.ParentStep()
}

// createMissing has variants created that a parent lacks.
func (s *Shell) createMissing(f *workload.Family) {
	if s.dependencies.Of(workload.KeyOf(f.Parent)).Waits != "" {
		return
	}
	for _, flavor := range f.Missing() {
		variant := workload.NewVariant(f.Parent, flavor)
		if key := workload.KeyOf(variant); !s.creating[key] && s.workloads[key] == nil {
			s.creating[key] = true
			s.variantWrites.submit(variant)
		}
	}
}

func (s *Shell) createVariant(ctx context.Context, asked *kueue.Workload) {
	object := asked.DeepCopy()
	err := s.client.Create(ctx, object)
	if apierrors.IsAlreadyExists(err) {
		err = s.options.Direct.Get(ctx, client.ObjectKeyFromObject(asked), object)
	}
	s.options.Metrics.Inc("elastic_writes_total", "workload", outcome(err))
	s.inbox.Put(message{created: &variantCreated{asked: asked, object: object, err: err}})
}

// createdVariant handles the creation of a variant.
func (s *Shell) createdVariant(r *variantCreated) {
	key := workload.KeyOf(r.asked)
	parent := s.workloads[familyKey(r.asked)]
	switch {
	case r.err == nil:
		delete(s.creating, key)
		s.workloadChanged(r.object)
		if parent != nil {
			s.recordEvent(parent.object, corev1.EventTypeNormal, "CreatedVariant", "Variant Workload %q created", key.String())
		}
	case parent == nil:
		delete(s.creating, key)
	default:
		s.options.Log.Error(r.err, "creating a variant failed, trying again", "workload", key.String())
		time.AfterFunc(createAgain, func() { s.inbox.Put(message{createAgain: r.asked}) })
	}
}

// retryVariant looks again at the family of a variant that could not be created.
func (s *Shell) retryVariant(asked *kueue.Workload) {
	delete(s.creating, workload.KeyOf(asked))
	if t := s.workloads[familyKey(asked)]; t != nil {
		s.scheduleStep(t)
	}
}

// oneOfEachFamily gives back to the engine all admissions of a family but that of its most favorable variant: once that one
// is admitted, the others are not wanted. If it has to wait for checks, they are decided again.
func (s *Shell) oneOfEachFamily(admits []admission.Admit) []admission.Admit {
	if !s.gates.concurrent {
		return admits
	}
	best := map[admission.Key]int{}
	place := func(a admission.Admit) (family admission.Key, i int) {
		t := s.workloads[a.Workload]
		if t == nil || !s.isVariant(t.object) {
			return family, -1
		}
		if m := s.familyOf(t.object); m.Family != nil {
			i = m.IndexOf(t.object)
		}
		return familyKey(t.object), i
	}
	for _, a := range admits {
		if family, i := place(a); i >= 0 {
			if first, found := best[family]; !found || i < first {
				best[family] = i
			}
		}
	}
	left := admits[:0]
	for _, a := range admits {
		if family, i := place(a); i >= 0 && (i != best[family] || s.isReserving(family)) {
			s.pacing.dropped = true
			s.engine.Apply(admission.DecisionDropped{Key: a.Workload})
			continue
		}
		left = append(left, a)
	}
	return left
}

// isReserving says that an admission of a variant is being written.
func (s *Shell) isReserving(family admission.Key) bool {
	for key := range s.families[family] {
		if t := s.workloads[key]; t != nil && (t.writing != nil && t.writing.admits || t.next != nil && t.next.admits) {
			return true
		}
	}
	return false
}

// whoseTimeIsOver is the workload that an eviction concerns. With its maximum execution time the time of a job is over, and
// not that of one of its variants.
func (s *Shell) whoseTimeIsOver(e admission.Evict) (admission.Key, string) {
	if t := s.workloads[e.Workload]; e.Reason == admission.ReasonMaxExecutionExceeded && t != nil {
		if m := s.familyOf(t.object); m != nil && m.Family != nil {
			return workload.KeyOf(m.Parent), string(m.Parent.UID)
		}
	}
	return e.Workload, e.UID
}

// explainedAs is the workload that stands in the queue for another one.
func (s *Shell) explainedAs(wl *kueue.Workload) admission.Key {
	m := s.familyOf(wl)
	if m == nil || m.Family == nil || !m.isParent {
		return workload.KeyOf(wl)
	}
	best := workload.KeyOf(wl)
	for i, v := range m.Variants {
		switch {
		case v == nil:
		case m.Uses(i):
			return workload.KeyOf(v)
		case best == workload.KeyOf(wl) && m.IsWanted(i):
			best = workload.KeyOf(v)
		}
	}
	return best
}

// forMetrics is a workload as transitions count it: those of quota are a variant's, the end is the parent's.
func (s *Shell) forMetrics(wl *kueue.Workload) *kueue.Workload {
	switch {
	case s.isParent(wl):
		return s.asCounted(wl)
	case s.isVariant(wl):
		variant := *wl
		variant.Status.Conditions = slices.Clone(wl.Status.Conditions)
		apimeta.RemoveStatusCondition(&variant.Status.Conditions, kueue.WorkloadFinished)
		return &variant
	}
	return wl
}
