package status

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

func (p *Publisher) clusterQueueStatus(cq *kueue.ClusterQueue, a *QueueUsage, engine admission.QueueStatus, now time.Time) *kueue.ClusterQueue {
	next := &kueue.ClusterQueue{ObjectMeta: cq.ObjectMeta, Spec: cq.Spec}
	next.Status = kueue.ClusterQueueStatus{
		Conditions:         append([]metav1.Condition(nil), cq.Status.Conditions...),
		PendingWorkloads:   int32(engine.Pending),
		ReservingWorkloads: a.WithQuota,
		AdmittedWorkloads:  a.Admitted,
	}
	active := p.objects.ActiveCondition(cq)
	active.LastTransitionTime, active.ObservedGeneration = metav1.NewTime(now), cq.Generation
	apimeta.SetStatusCondition(&next.Status.Conditions, active)
	if p.FairShares(cq.Name, "") {
		next.Status.FairSharing = &kueue.FairSharingStatus{WeightedShare: weighted(engine.FairShare)}
	}
	for _, u := range engine.Usage {
		flavor, name := kueue.ResourceFlavorReference(u.Flavor), corev1.ResourceName(u.Resource)
		used, borrowed := a.Used[FlavorResource{flavor, name}], int64(0)
		if cq.Spec.CohortName != "" {
			borrowed = max(0, used-u.Nominal)
		}
		addUsage(&next.Status.FlavorsReservation, flavor, name, p.quantity(name, u.Used), p.quantity(name, u.Borrowed))
		addUsage(&next.Status.FlavorsUsage, flavor, name, p.quantity(name, used), p.quantity(name, borrowed))
	}
	return next
}

func (p *Publisher) localQueueStatus(lq *kueue.LocalQueue, a *QueueUsage, now time.Time) *kueue.LocalQueue {
	next := &kueue.LocalQueue{ObjectMeta: lq.ObjectMeta, Spec: lq.Spec}
	next.Status = kueue.LocalQueueStatus{
		Conditions:         append([]metav1.Condition(nil), lq.Status.Conditions...),
		PendingWorkloads:   a.Pending,
		ReservingWorkloads: a.WithQuota,
		AdmittedWorkloads:  a.Admitted,
		FairSharing:        lq.Status.FairSharing,
	}
	active := metav1.Condition{
		Type: kueue.LocalQueueActive, Status: metav1.ConditionTrue, Reason: "Ready", Message: "Can submit new workloads to localQueue",
		LastTransitionTime: metav1.NewTime(now), ObservedGeneration: lq.Generation,
	}
	cq := p.objects.ClusterQueues[string(lq.Spec.ClusterQueue)]
	switch {
	case ptr.Deref(lq.Spec.StopPolicy, kueue.None) != kueue.None:
		active.Status, active.Reason, active.Message = metav1.ConditionFalse, "Stopped", "LocalQueue is stopped"
		next.Status.PendingWorkloads = 0 // they are in no ClusterQueue meanwhile
	case cq == nil:
		active.Status, active.Reason, active.Message = metav1.ConditionFalse, "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue"
		next.Status.ReservingWorkloads, next.Status.AdmittedWorkloads = 0, 0
	case p.objects.ActiveCondition(cq).Status != metav1.ConditionTrue:
		active.Status, active.Reason, active.Message = metav1.ConditionFalse, "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue"
	}
	apimeta.SetStatusCondition(&next.Status.Conditions, active)
	for _, key := range Offered(cq) {
		addLocalUsage(&next.Status.FlavorsReservation, key, p.quantity(key.Resource, a.Reserved[key]))
		addLocalUsage(&next.Status.FlavorsUsage, key, p.quantity(key.Resource, a.Used[key]))
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

func addLocalUsage(list *[]kueue.LocalQueueFlavorUsage, key FlavorResource, total resource.Quantity) {
	if n := len(*list); n == 0 || (*list)[n-1].Name != key.Flavor {
		*list = append(*list, kueue.LocalQueueFlavorUsage{Name: key.Flavor})
	}
	last := &(*list)[len(*list)-1]
	last.Resources = append(last.Resources, kueue.LocalQueueResourceUsage{Name: key.Resource, Total: total})
}

// setUsage writes what a LocalQueue used lately; a new leader continues from there.
func (p *Publisher) setUsage(lq *kueue.LocalQueue, engine *admission.Engine, now time.Time) {
	usage, _ := engine.LocalStatus(admission.Key{Namespace: lq.Namespace, Name: lq.Name})
	if usage.ConsumedAt.IsZero() { // nothing was ever used
		usage.ConsumedAt = now
		if was := lq.Status.FairSharing; was != nil && was.AdmissionFairSharingStatus != nil {
			usage.ConsumedAt = was.AdmissionFairSharingStatus.LastUpdate.Time
		}
	}
	consumed := corev1.ResourceList{}
	for _, key := range Offered(p.objects.ClusterQueues[string(lq.Spec.ClusterQueue)]) {
		consumed[key.Resource] = resource.Quantity{}
	}
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

// weighted is a share as a status shows it: the largest number there is for a queue of weight zero
// that borrows.
func weighted(share float64) int64 {
	if share >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(math.Ceil(share))
}
