package status

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	queuepolicy "github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/inbox"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/writes"
)

const (
	// statusInterval is how often the status of a busy queue is written at most.
	statusInterval = 500 * time.Millisecond
	// RetryInterval is how long to wait while there is no budget for a write.
	RetryInterval = 100 * time.Millisecond
)

// Publisher computes the queues' statuses from usage and the engine, and hands over those that
// differ to be written, no more often than statusInterval and within a budget.
type Publisher struct {
	objects  *engineview.Objects
	usage    *Usage
	budget   writes.Budget
	fair     bool          // fair shares of queues and cohorts are shown
	sampling time.Duration // how often the usage of LocalQueues is sampled; 0: never
	due      time.Time     // not before this time again
	sampled  time.Time
	write    func(client.Object)
	// quantity is an amount as it is to be written.
	quantity func(corev1.ResourceName, int64) resource.Quantity
}

// New makes a Publisher that hands statuses to write. With reclaim, pods that are done and will not be
// replaced use no quota.
func New(objects *engineview.Objects, write func(client.Object), quantity func(corev1.ResourceName, int64) resource.Quantity, engine admission.Options, reclaim bool) *Publisher {
	p := &Publisher{objects: objects, usage: newUsage(reclaim), budget: writes.StatusBudget(), write: write, quantity: quantity}
	p.fair = engine.Policy == admission.PolicyDRF || engine.Policy == admission.PolicyMaxMin
	if engine.UsageHalfLife > 0 {
		p.sampling = cmp.Or(engine.UsageSampling, 5*time.Minute)
	}
	return p
}

// Usage is what statuses are computed from.
func (p *Publisher) Usage() *Usage { return p.usage }

// Budget bounds how many statuses are written.
func (p *Publisher) Budget() *writes.Budget { return &p.budget }

// FairShares says that the fair share of a ClusterQueue counts, or that of a Cohort if there is no ClusterQueue.
func (p *Publisher) FairShares(clusterQueue, cohort string) bool {
	return p.objects.SharesFairly(clusterQueue, cohort, p.fair)
}

// SamplesUsage says that the usage of LocalQueues counts over time.
func (p *Publisher) SamplesUsage() bool { return p.sampling > 0 }

// ObjectChanged has the statuses computed again that an object is part of: of the queue itself, of the one in
// which a workload has quota, or of all queues if they may refer to it.
func (p *Publisher) ObjectChanged(obj client.Object) {
	switch o := obj.(type) {
	case *kueue.ClusterQueue:
		p.usage.ClusterQueue(o.Name).changed = true
		if p.objects.ClusterQueues[o.Name] == nil {
			p.localQueuesChanged(o.Name)
		}
	case *kueue.LocalQueue:
		p.usage.LocalQueue(client.ObjectKeyFromObject(o)).changed = true
	case *kueue.Workload:
		if a := o.Status.Admission; a != nil {
			p.usage.ClusterQueue(string(a.ClusterQueue)).changed = true
		}
	case *kueue.ResourceFlavor, *kueue.AdmissionCheck, *kueue.Topology, *queuepolicy.QueuePolicy:
		for name := range p.objects.ClusterQueues {
			p.usage.ClusterQueue(name).changed = true
		}
	}
}

// shownToLocals is what the statuses of LocalQueues say of their ClusterQueue.
type shownToLocals struct {
	generation int64
	active     metav1.ConditionStatus
}

// localQueuesChanged has the statuses of a ClusterQueue's LocalQueues computed again.
func (p *Publisher) localQueuesChanged(clusterQueue string) {
	for key, lq := range p.objects.LocalQueues {
		if string(lq.Spec.ClusterQueue) == clusterQueue {
			p.usage.LocalQueue(key).changed = true
		}
	}
}

// Publish hands over the statuses that changed, if it is time, and returns when to call it again;
// zero: after the next event. Those that changed first go first, as many as the budget has writes
// for; a change of the Active condition is written at once.
func (p *Publisher) Publish(engine *admission.Engine, now time.Time) time.Time {
	if now.Before(p.due) {
		return p.due
	}
	again := p.takeSample(now)
	wrote, left := p.publishCohorts(engine)
	for _, a := range p.changed(engine, now) {
		next, differs, urgent := p.compute(a, engine, now)
		switch {
		case !differs:
			a.upToDate()
		case urgent || p.budget.Take():
			a.upToDate()
			a.writing, wrote = true, true
			p.write(next)
		default:
			left = true
		}
		a.changed = a.changed || a.inFlight
	}
	if wrote {
		p.due = now.Add(statusInterval)
		again = inbox.Earlier(p.due, again)
	}
	if left {
		p.due = later(p.due, now.Add(RetryInterval))
		again = later(p.due, inbox.Earlier(p.budget.Next(), again))
	}
	return again
}

// takeSample has the usage of LocalQueues written when it is time to, and returns when that is next.
func (p *Publisher) takeSample(now time.Time) time.Time {
	if p.sampling == 0 {
		return time.Time{}
	}
	if now.Sub(p.sampled) >= p.sampling {
		p.sampled = now
		for key := range p.objects.LocalQueues {
			p.usage.LocalQueue(key).changed = true
		}
	}
	return p.sampled.Add(p.sampling)
}

// changed lists the queues whose status may no longer be true, in the order in which that was noticed.
func (p *Publisher) changed(engine *admission.Engine, now time.Time) []*QueueUsage {
	var list []*QueueUsage
	add := func(a *QueueUsage) {
		if a.changedAt.IsZero() {
			a.changedAt = now
		}
		list = append(list, a)
	}
	for name, cq := range p.objects.ClusterQueues {
		a := p.usage.ClusterQueue(name)
		pending, exists := engine.PendingIn(name)
		if exists && !a.writing && (a.changed || int32(pending) != cq.Status.PendingWorkloads) {
			if show := (shownToLocals{cq.Generation, p.objects.ActiveCondition(cq).Status}); show != a.shown {
				a.shown = show
				p.localQueuesChanged(name)
			}
			a.queue = cq
			add(a)
		}
	}
	for key, lq := range p.objects.LocalQueues {
		if a := p.usage.LocalQueue(key); a.changed && !a.writing {
			a.queue = lq
			add(a)
		}
	}
	slices.SortFunc(list, func(a, b *QueueUsage) int { return a.changedAt.Compare(b.changedAt) })
	return list
}

// compute is a queue's status as it is now, whether it differs from the one written, and whether in
// more than numbers.
func (p *Publisher) compute(a *QueueUsage, engine *admission.Engine, now time.Time) (next client.Object, differs, urgent bool) {
	switch q := a.queue.(type) {
	case *kueue.ClusterQueue:
		status, _ := engine.Status(q.Name)
		// A decision that the objects do not show yet is in one number and not in the other. If the
		// workload ends meanwhile the objects never show it, and only the engine's number changes.
		a.inFlight = status.Reserving != int(a.WithQuota)
		n := p.clusterQueueStatus(q, a, status, now)
		return n, !equality.Semantic.DeepEqual(q.Status, n.Status), !equality.Semantic.DeepEqual(q.Status.Conditions, n.Status.Conditions)
	case *kueue.LocalQueue:
		n := p.localQueueStatus(q, a, now)
		if p.sampling > 0 {
			p.setUsage(n, engine, now)
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

// publishCohorts hands over the fair shares of cohorts that changed.
func (p *Publisher) publishCohorts(engine *admission.Engine) (wrote, left bool) {
	for name, cohort := range p.objects.Cohorts {
		if !p.FairShares("", name) {
			continue
		}
		status, exists := engine.CohortStatus(name)
		a := p.usage.cohort(name)
		if !exists || a.writing {
			continue
		}
		share := &kueue.FairSharingStatus{WeightedShare: weighted(status.FairShare)}
		if equality.Semantic.DeepEqual(cohort.Status.FairSharing, share) {
			continue
		}
		if !p.budget.Take() {
			return wrote, true
		}
		a.writing, wrote = true, true
		p.write(&kueue.Cohort{ObjectMeta: cohort.ObjectMeta, Spec: cohort.Spec, Status: kueue.CohortStatus{FairSharing: share}})
	}
	return wrote, false
}

// Written takes in how a write ended. After an error the status is computed and written again.
func (p *Publisher) Written(queue client.Object, err error) {
	a := p.usageOf(queue)
	a.writing = false
	a.changed = a.changed || err != nil
	if err != nil {
		return
	}
	switch o := queue.(type) {
	case *kueue.ClusterQueue:
		if known := p.objects.ClusterQueues[o.Name]; known != nil && known.UID == o.UID {
			now := *known // its metadata and spec may be newer than what was written
			now.Status = o.Status
			p.objects.ClusterQueues[o.Name] = &now
		}
	case *kueue.Cohort:
		if known := p.objects.Cohorts[o.Name]; known != nil && known.UID == o.UID {
			now := *known
			now.Status = o.Status
			p.objects.Cohorts[o.Name] = &now
		}
	case *kueue.LocalQueue:
		key := client.ObjectKeyFromObject(o)
		if known := p.objects.LocalQueues[key]; known != nil && known.UID == o.UID {
			now := *known
			now.Status = o.Status
			p.objects.LocalQueues[key] = &now
		}
	}
}

func (p *Publisher) usageOf(queue client.Object) *QueueUsage {
	switch queue.(type) {
	case *kueue.LocalQueue:
		return p.usage.LocalQueue(client.ObjectKeyFromObject(queue))
	case *kueue.Cohort:
		return p.usage.cohort(queue.GetName())
	}
	return p.usage.ClusterQueue(queue.GetName())
}
