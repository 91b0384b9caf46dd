package queue

import (
	"cmp"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// statusInterval is how often a busy queue's status is written at most, and
// lookInterval how often it is looked at while there is no budget for it.
const (
	statusInterval = 500 * time.Millisecond
	lookInterval   = 100 * time.Millisecond
)

// statuses keeps the queues' status current. The loop computes it from the
// ledger and the engine, and hands over what differs to be written, no more
// often than statusInterval and within a budget.
type statuses struct {
	*objects
	ledger  *ledger
	budget  budget
	fair    bool          // shares of queues and cohorts count
	sample  time.Duration // how often LocalQueues' usage is noted; 0: it does not count
	due     time.Time     // not before this time again
	sampled time.Time
	write   func(client.Object)
	// quantity is an amount as it is to be written.
	quantity func(corev1.ResourceName, int64) resource.Quantity
}

func newStatuses(write func(client.Object), engine admission.Options) *statuses {
	s := &statuses{objects: newObjects(), ledger: newLedger(), budget: statusBudget(), write: write, quantity: workload.Quantity}
	s.fair = engine.Policy == admission.PolicyDRF || engine.Policy == admission.PolicyMaxMin
	if engine.UsageHalfLife > 0 {
		s.sample = cmp.Or(engine.UsageSampling, 5*time.Minute)
	}
	return s
}

// saw notes an object; all queues are looked at again when something they may
// refer to comes or goes.
func (s *statuses) saw(obj client.Object, gone bool) {
	s.note(obj, gone)
	switch o := obj.(type) {
	case *kueue.ClusterQueue:
		s.ledger.clusterQueue(o.Name).changed = true
	case *kueue.LocalQueue:
		s.ledger.localQueue(client.ObjectKeyFromObject(o)).changed = true
	case *kueue.ResourceFlavor, *kueue.AdmissionCheck, *kueue.Topology:
		for name := range s.clusterQueues {
			s.ledger.clusterQueue(name).changed = true
		}
	}
}

// publish hands over the statuses that changed, if it is time, and returns
// when it wants to be called again; zero: after the next event. Those that
// changed first go first, and as many as the budget has writes for; whether a
// queue is active is told at once.
func (s *statuses) publish(engine *admission.Engine, now time.Time) time.Time {
	if now.Before(s.due) {
		return s.due
	}
	again := s.takeSample(now)
	wrote, left := s.publishCohorts(engine)
	for _, a := range s.changed(engine, now) {
		next, differs, urgent := s.compute(a, engine, now)
		switch {
		case !differs:
			a.settled()
		case urgent || s.budget.take():
			a.settled()
			a.writing, wrote = true, true
			s.write(next)
		default:
			left = true
		}
	}
	if wrote {
		s.due = now.Add(statusInterval)
		again = earlier(s.due, again)
	}
	if left {
		s.due = later(s.due, now.Add(lookInterval))
		again = later(s.due, earlier(s.budget.next(), again))
	}
	return again
}

// takeSample has the LocalQueues' usage noted when it is time to, and returns
// when that is again.
func (s *statuses) takeSample(now time.Time) time.Time {
	if s.sample == 0 {
		return time.Time{}
	}
	if now.Sub(s.sampled) >= s.sample {
		s.sampled = now
		for key := range s.localQueues {
			s.ledger.localQueue(key).changed = true
		}
	}
	return s.sampled.Add(s.sample)
}

// changed lists the queues whose status may no longer be true, in the order in
// which that was noticed.
func (s *statuses) changed(engine *admission.Engine, now time.Time) []*account {
	var list []*account
	add := func(a *account) {
		if a.since.IsZero() {
			a.since = now
		}
		list = append(list, a)
	}
	for name, cq := range s.clusterQueues {
		a := s.ledger.clusterQueue(name)
		pending, exists := engine.PendingIn(name)
		if exists && !a.writing && (a.changed || int32(pending) != cq.Status.PendingWorkloads) {
			a.queue = cq
			add(a)
		}
	}
	for key, lq := range s.localQueues {
		if a := s.ledger.localQueue(key); a.changed && !a.writing {
			a.queue = lq
			add(a)
		}
	}
	slices.SortFunc(list, func(a, b *account) int { return a.since.Compare(b.since) })
	return list
}

// compute is a queue's status as it is now, whether it differs from what was
// written, and whether in more than numbers.
func (s *statuses) compute(a *account, engine *admission.Engine, now time.Time) (next client.Object, differs, urgent bool) {
	switch q := a.queue.(type) {
	case *kueue.ClusterQueue:
		status, _ := engine.Status(q.Name)
		n := s.clusterQueueStatus(q, a, status, now)
		return n, !equality.Semantic.DeepEqual(q.Status, n.Status), !equality.Semantic.DeepEqual(q.Status.Conditions, n.Status.Conditions)
	case *kueue.LocalQueue:
		n := s.localQueueStatus(q, a, now)
		if s.sample > 0 {
			s.noteUsage(n, engine)
		}
		return n, !equality.Semantic.DeepEqual(q.Status, n.Status), !equality.Semantic.DeepEqual(q.Status.Conditions, n.Status.Conditions)
	}
	return nil, false, false
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// publishCohorts hands over the shares of cohorts that changed.
func (s *statuses) publishCohorts(engine *admission.Engine) (wrote, left bool) {
	if !s.fair {
		return false, false
	}
	for name, cohort := range s.cohorts {
		status, exists := engine.CohortStatus(name)
		a := s.ledger.cohort(name)
		if !exists || a.writing {
			continue
		}
		share := &kueue.FairSharingStatus{WeightedShare: weighted(status.FairShare)}
		if equality.Semantic.DeepEqual(cohort.Status.FairSharing, share) {
			continue
		}
		if !s.budget.take() {
			return wrote, true
		}
		a.writing, wrote = true, true
		s.write(&kueue.Cohort{ObjectMeta: cohort.ObjectMeta, Spec: cohort.Spec, Status: kueue.CohortStatus{FairSharing: share}})
	}
	return wrote, false
}

// weighted is a share as a status shows it: the largest number there is for a
// queue that borrows on no weight.
func weighted(share float64) int64 {
	if share >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(share)
}

// noteUsage writes what a LocalQueue used lately, from where a new leader goes
// on.
func (s *statuses) noteUsage(lq *kueue.LocalQueue, engine *admission.Engine) {
	cq := s.clusterQueues[string(lq.Spec.ClusterQueue)]
	if cq == nil || cq.Spec.AdmissionScope == nil || cq.Spec.AdmissionScope.AdmissionMode != kueue.UsageBasedAdmissionFairSharing {
		lq.Status.FairSharing = nil
		return
	}
	usage, _ := engine.LocalStatus(admission.Key{Namespace: lq.Namespace, Name: lq.Name})
	if usage.ConsumedAt.IsZero() {
		return // nothing was ever used
	}
	consumed := corev1.ResourceList{}
	for name, amount := range usage.Consumed {
		consumed[corev1.ResourceName(name)] = workload.Fraction(corev1.ResourceName(name), amount)
	}
	lq.Status.FairSharing = &kueue.LocalQueueFairSharingStatus{
		WeightedShare: weighted(usage.Share),
		AdmissionFairSharingStatus: &kueue.LocalQueueAdmissionFairSharingStatus{
			ConsumedResources: consumed, LastUpdate: metav1.NewTime(usage.ConsumedAt),
		},
	}
}

// wrote takes in how a write ended; after an error the status is computed and
// written again.
func (s *statuses) wrote(r *statusResult) {
	a := s.account(r.queue)
	a.writing = false
	a.changed = a.changed || r.err != nil
	if r.err != nil {
		return
	}
	switch o := r.queue.(type) {
	case *kueue.ClusterQueue:
		if known := s.clusterQueues[o.Name]; known != nil && known.UID == o.UID {
			now := *known // what is known of the rest may be newer
			now.Status = o.Status
			s.clusterQueues[o.Name] = &now
		}
	case *kueue.Cohort:
		if known := s.cohorts[o.Name]; known != nil && known.UID == o.UID {
			now := *known
			now.Status = o.Status
			s.cohorts[o.Name] = &now
		}
	case *kueue.LocalQueue:
		key := client.ObjectKeyFromObject(o)
		if known := s.localQueues[key]; known != nil && known.UID == o.UID {
			now := *known
			now.Status = o.Status
			s.localQueues[key] = &now
		}
	}
}

func (s *statuses) account(queue client.Object) *account {
	switch queue.(type) {
	case *kueue.LocalQueue:
		return s.ledger.localQueue(client.ObjectKeyFromObject(queue))
	case *kueue.Cohort:
		return s.ledger.cohort(queue.GetName())
	}
	return s.ledger.clusterQueue(queue.GetName())
}

func (s *statuses) clusterQueueStatus(cq *kueue.ClusterQueue, a *account, engine admission.QueueStatus, now time.Time) *kueue.ClusterQueue {
	next := &kueue.ClusterQueue{ObjectMeta: cq.ObjectMeta, Spec: cq.Spec}
	next.Status = kueue.ClusterQueueStatus{
		Conditions:         append([]metav1.Condition(nil), cq.Status.Conditions...),
		PendingWorkloads:   int32(engine.Pending),
		ReservingWorkloads: a.reserving,
		AdmittedWorkloads:  a.admitted,
	}
	active := s.active(cq)
	active.LastTransitionTime, active.ObservedGeneration = metav1.NewTime(now), cq.Generation
	apimeta.SetStatusCondition(&next.Status.Conditions, active)
	if s.fair {
		next.Status.FairSharing = &kueue.FairSharingStatus{WeightedShare: weighted(engine.FairShare)}
	}
	for _, u := range engine.Usage {
		flavor, name := kueue.ResourceFlavorReference(u.Flavor), corev1.ResourceName(u.Resource)
		addUsage(&next.Status.FlavorsReservation, flavor, name, s.quantity(name, u.Used), s.quantity(name, u.Borrowed))
		addUsage(&next.Status.FlavorsUsage, flavor, name, s.quantity(name, a.used[flavorResource{flavor, name}]), s.quantity(name, u.Borrowed))
	}
	return next
}

func (s *statuses) localQueueStatus(lq *kueue.LocalQueue, a *account, now time.Time) *kueue.LocalQueue {
	next := &kueue.LocalQueue{ObjectMeta: lq.ObjectMeta, Spec: lq.Spec}
	next.Status = kueue.LocalQueueStatus{
		Conditions:         append([]metav1.Condition(nil), lq.Status.Conditions...),
		PendingWorkloads:   a.pending,
		ReservingWorkloads: a.reserving,
		AdmittedWorkloads:  a.admitted,
		FairSharing:        lq.Status.FairSharing,
	}
	active := metav1.Condition{
		Type: kueue.LocalQueueActive, Status: metav1.ConditionTrue, Reason: "Ready", Message: "Can submit new workloads to localQueue",
		LastTransitionTime: metav1.NewTime(now), ObservedGeneration: lq.Generation,
	}
	cq := s.clusterQueues[string(lq.Spec.ClusterQueue)]
	switch {
	case ptr.Deref(lq.Spec.StopPolicy, kueue.None) != kueue.None:
		active.Status, active.Reason, active.Message = metav1.ConditionFalse, "Stopped", "LocalQueue is stopped"
	case cq == nil:
		active.Status, active.Reason, active.Message = metav1.ConditionFalse, "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue"
	case s.active(cq).Status != metav1.ConditionTrue:
		active.Status, active.Reason, active.Message = metav1.ConditionFalse, "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue"
	}
	apimeta.SetStatusCondition(&next.Status.Conditions, active)
	for _, key := range sorted(a.reserved) {
		addLocalUsage(&next.Status.FlavorsReservation, key, s.quantity(key.resource, a.reserved[key]))
		addLocalUsage(&next.Status.FlavorsUsage, key, s.quantity(key.resource, a.used[key]))
	}
	return next
}

func addUsage(list *[]kueue.FlavorUsage, flavor kueue.ResourceFlavorReference, name corev1.ResourceName, total, borrowed resource.Quantity) {
	if n := len(*list); n == 0 || (*list)[n-1].Name != flavor {
		*list = append(*list, kueue.FlavorUsage{Name: flavor})
	}
	last := &(*list)[len(*list)-1]
	last.Resources = append(last.Resources, kueue.ResourceUsage{Name: name, Total: total, Borrowed: borrowed})
}

func addLocalUsage(list *[]kueue.LocalQueueFlavorUsage, key flavorResource, total resource.Quantity) {
	if n := len(*list); n == 0 || (*list)[n-1].Name != key.flavor {
		*list = append(*list, kueue.LocalQueueFlavorUsage{Name: key.flavor})
	}
	last := &(*list)[len(*list)-1]
	last.Resources = append(last.Resources, kueue.LocalQueueResourceUsage{Name: key.resource, Total: total})
}
