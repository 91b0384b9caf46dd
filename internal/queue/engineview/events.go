package engineview

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	cloud "github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// ChangedEvent is the engine's event for an object that was created or changed.
func ChangedEvent(obj any) admission.Event {
	switch o := obj.(type) {
	case *kueue.Cohort:
		return admission.CohortChanged{Cohort: admission.Cohort{
			Name:       o.Name,
			Parent:     string(o.Spec.ParentName),
			Groups:     groups(o.Spec.ResourceGroups),
			FairWeight: weight(o.Spec.FairSharing),
		}}
	case *kueue.LocalQueue:
		return admission.LocalQueueChanged{LocalQueue: localQueueForEngine(o)}
	case *kueue.ResourceFlavor:
		return admission.FlavorChanged{Flavor: admission.Flavor{
			Name:        o.Name,
			NodeLabels:  o.Spec.NodeLabels,
			NodeTaints:  taints(o.Spec.NodeTaints),
			Tolerations: workload.Tolerations(o.Spec.Tolerations),
			Topology:    string(ptr.Deref(o.Spec.TopologyName, "")),
		}}
	case *cloud.CloudOffer:
		return flavorPrice(o)
	case *corev1.Namespace:
		return admission.NamespaceChanged{Name: o.Name, Labels: o.Labels}
	}
	return nil
}

// DeletedEvent is the engine's event for an object that was deleted.
func DeletedEvent(obj any) admission.Event {
	switch o := obj.(type) {
	case *kueue.Cohort:
		return admission.CohortGone{Name: o.Name}
	case *kueue.LocalQueue:
		return admission.LocalQueueGone{Key: admission.Key{Namespace: o.Namespace, Name: o.Name}}
	case *kueue.ResourceFlavor:
		return admission.FlavorGone{Name: o.Name}
	case *cloud.CloudOffer:
		return admission.FlavorPriceGone{Flavor: o.Name}
	case *corev1.Namespace:
		return admission.NamespaceGone{Name: o.Name}
	}
	return nil
}

// flavorPrice is what a CloudOffer's status says. Where that has no price, since its table is broken or was not read yet, the
// flavor comes last: a slip in a table does not make what is bought look as if it cost nothing.
// One of another cluster is no flavor's.
func flavorPrice(o *cloud.CloudOffer) admission.Event {
	if o.Spec.Cluster() != "" {
		return admission.FlavorPriceGone{Flavor: o.Name}
	}
	resource, price, known := PriceOf(o)
	if !known {
		return admission.FlavorPriceChanged{Price: admission.FlavorPrice{Flavor: o.Name, Unknown: true}}
	}
	unit := 1.0
	if resource == string(corev1.ResourceCPU) {
		unit = 1000 // quota counts it in thousandths
	}
	losses, _ := strconv.ParseFloat(o.Status.LossesPerHour, 64) // none unless it says so
	event := admission.FlavorPriceChanged{Price: admission.FlavorPrice{
		Flavor: o.Name, Resource: resource, Price: price / unit,
		StartUp: o.Status.StartUp.Duration, LossRate: losses,
	}}
	event.Price.Regions = regionPrices(o, unit)
	event.Price.Spot = o.Spec.NodeClass() != nil && o.Spec.Match.CapacityType == cloud.Spot
	for _, node := range o.Status.Largest {
		has := admission.Requests{}
		for name, amount := range node {
			has[string(name)] = workload.Amount(name, amount)
		}
		event.Price.Largest = append(event.Price.Largest, has)
	}
	event.Price.OtherRegion, event.Price.OtherCloud = o.Spec.Egress.Prices()
	if until := o.Status.ClosedUntil; until != nil {
		event.Price.ClosedUntil = until.Time
	}
	return event
}

// regionPrices are what a CloudOffer's status says of regions, for units of the resource. What cannot be read is left out.
func regionPrices(o *cloud.CloudOffer, unit float64) []admission.RegionPrice {
	var out []admission.RegionPrice
	for i := range o.Status.Regions {
		r := &o.Status.Regions[i]
		price, err := strconv.ParseFloat(r.PricePerHour, 64)
		if err != nil {
			continue
		}
		losses, _ := strconv.ParseFloat(r.LossesPerHour, 64) // none unless it says so
		size, _ := strconv.ParseFloat(r.GPUs, 64)            // any unless it says so
		out = append(out, admission.RegionPrice{
			Cloud: r.Cloud, Region: r.Region, Price: price / unit, Size: size * unit, StartUp: r.StartUp.Duration, LossRate: losses,
		})
	}
	return out
}

// PriceOf a CloudOffer is what a unit of a resource costs an hour, if its status says so.
func PriceOf(o *cloud.CloudOffer) (resource string, price float64, known bool) {
	price, err := strconv.ParseFloat(o.Status.PricePerHour, 64)
	return o.Spec.CardResource(), price, err == nil
}

func localQueueForEngine(lq *kueue.LocalQueue) admission.LocalQueue {
	out := admission.LocalQueue{
		Key:        admission.Key{Namespace: lq.Namespace, Name: lq.Name},
		Queue:      string(lq.Spec.ClusterQueue),
		Stop:       stopPolicy(lq.Spec.StopPolicy),
		FairWeight: weight(lq.Spec.FairSharing),
	}
	if f := lq.Status.FairSharing; f != nil && f.AdmissionFairSharingStatus != nil {
		out.ConsumedAt, out.Consumed = f.AdmissionFairSharingStatus.LastUpdate.Time, map[string]float64{}
		for name, q := range f.AdmissionFairSharingStatus.ConsumedResources {
			out.Consumed[string(name)] = workload.Average(name, q)
		}
	}
	return out
}

// Queue is a ClusterQueue as the engine sees it.
func (o *Objects) Queue(cq *kueue.ClusterQueue) admission.Queue {
	q := queueForEngine(cq)
	reason, _ := o.InactiveReason(cq)
	q.DelayedPlacement = o.DelayedFlavors(cq)
	q.Inactive = reason != "" && reason != kueue.ClusterQueueActiveReasonStopped
	o.applyPolicy(&q)
	return q
}

func queueForEngine(cq *kueue.ClusterQueue) admission.Queue {
	q := admission.Queue{
		Name:              cq.Name,
		Cohort:            string(cq.Spec.CohortName),
		Groups:            groups(cq.Spec.ResourceGroups),
		NamespaceSelector: selector(cq.Spec.NamespaceSelector),
		StrictFIFO:        cq.Spec.QueueingStrategy == kueue.StrictFIFO,
		Stop:              stopPolicy(cq.Spec.StopPolicy),
		FairWeight:        weight(cq.Spec.FairSharing),
	}
	if p := cq.Spec.Preemption; p != nil {
		q.Preemption = admission.Preemption{
			WithinQueue:         preemptionPolicies[p.WithinClusterQueue],
			ReclaimWithinCohort: preemptionPolicies[p.ReclaimWithinCohort],
		}
		if b := p.BorrowWithinCohort; b != nil && b.Policy == kueue.BorrowWithinCohortPolicyLowerPriority {
			q.Preemption.BorrowWithinCohort = true
			if b.MaxPriorityThreshold != nil {
				q.Preemption.BorrowMaxPriority = ptr.To(int64(*b.MaxPriorityThreshold))
			}
		}
	}
	if f := cq.Spec.FlavorFungibility; f != nil {
		q.Fungibility = admission.Fungibility{
			BorrowTryNext:    f.WhenCanBorrow == kueue.TryNextFlavor,
			PreemptStay:      f.WhenCanPreempt == kueue.MayStopSearch,
			PreferPreemption: ptr.Deref(f.Preference, "") == kueue.PreemptionOverBorrowing,
		}
	}
	if s := cq.Spec.AdmissionScope; s != nil {
		q.UsageFairSharing = s.AdmissionMode == kueue.UsageBasedAdmissionFairSharing
	}
	return q
}

var preemptionPolicies = map[kueue.PreemptionPolicy]admission.PreemptionPolicy{
	kueue.PreemptionPolicyNever:                     admission.PreemptNever,
	kueue.PreemptionPolicyLowerPriority:             admission.PreemptLowerPriority,
	kueue.PreemptionPolicyLowerOrNewerEqualPriority: admission.PreemptLowerOrNewerEqualPriority,
	kueue.PreemptionPolicyAny:                       admission.PreemptAny,
}

func groups(in []kueue.ResourceGroup) []admission.ResourceGroup {
	var out []admission.ResourceGroup
	for _, group := range in {
		g := admission.ResourceGroup{}
		for _, name := range group.CoveredResources {
			g.Resources = append(g.Resources, string(name))
		}
		for _, flavor := range group.Flavors {
			quotas := make(map[string]admission.Quota, len(flavor.Resources))
			for _, r := range flavor.Resources {
				quotas[string(r.Name)] = quota(r)
			}
			g.Flavors = append(g.Flavors, admission.FlavorQuotas{Flavor: string(flavor.Name), Quotas: quotas})
		}
		out = append(out, g)
	}
	return out
}

func quota(r kueue.ResourceQuota) admission.Quota {
	q := admission.Quota{Nominal: workload.Amount(r.Name, r.NominalQuota)}
	if r.BorrowingLimit != nil {
		q.BorrowingLimit = ptr.To(workload.Amount(r.Name, *r.BorrowingLimit))
	}
	if r.LendingLimit != nil {
		q.LendingLimit = ptr.To(workload.Amount(r.Name, *r.LendingLimit))
	}
	return q
}

// selector is nil for nil: as in Kubernetes, nil selects nothing and an empty selector everything.
func selector(in *metav1.LabelSelector) *admission.Term {
	if in == nil {
		return nil
	}
	term := admission.Term{}
	for _, key := range slices.Sorted(maps.Keys(in.MatchLabels)) {
		term = append(term, admission.Requirement{Key: key, Operator: "In", Values: []string{in.MatchLabels[key]}})
	}
	for _, r := range in.MatchExpressions {
		term = append(term, admission.Requirement{Key: r.Key, Operator: string(r.Operator), Values: r.Values})
	}
	return &term
}

func stopPolicy(p *kueue.StopPolicy) admission.StopPolicy {
	switch ptr.Deref(p, kueue.None) {
	case kueue.Hold:
		return admission.StopHold
	case kueue.HoldAndDrain:
		return admission.StopHoldAndDrain
	}
	return admission.StopNone
}

func weight(fs *kueue.FairSharing) *float64 {
	if fs == nil || fs.Weight == nil {
		return nil
	}
	return ptr.To(fs.Weight.AsApproximateFloat64())
}

func taints(in []corev1.Taint) []admission.Taint {
	var out []admission.Taint
	for _, t := range in {
		out = append(out, admission.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	return out
}
