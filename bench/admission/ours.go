package main

import (
	"fmt"
	"time"

	"github.com/elastic-ai/elastic/internal/admission"
)

// ours is Elastic's engine, fed as its shell feeds it.
type ours struct {
	w     *work
	e     *admission.Engine
	specs []admission.Workload
	plan  decision
	wake  millis // when it wants to be asked again; 0: never
}

// What the product recommends (QueueConfiguration.Recommend).
const (
	preemptAfter       = time.Second
	preemptionCooldown = time.Minute
)

const (
	namespace = "team"
	flavor    = "default"
)

func newOurs(w *work) *ours {
	o := &ours{w: w}
	options := admission.Options{PreemptionDelay: preemptAfter, PreemptionCooldown: preemptionCooldown, NoRings: true}
	if w.fair {
		options.Policy = admission.PolicyDRF
	}
	o.e = admission.New(options)
	o.e.Apply(admission.FlavorChanged{Flavor: admission.Flavor{Name: flavor}})
	o.e.Apply(admission.NamespaceChanged{Name: namespace})
	for _, c := range w.cohorts {
		o.e.Apply(admission.CohortChanged{Cohort: admission.Cohort{
			Name: c.name, Parent: c.parent, FairWeight: &c.weight, Groups: ourQuota(c.nominal, 0),
		}})
	}
	for _, q := range w.queues {
		o.e.Apply(admission.QueueChanged{Queue: admission.Queue{
			Name: q.name, Cohort: q.cohort, FairWeight: &q.weight, Groups: ourQuota(q.nominal, q.borrowingLimit),
			NamespaceSelector: &admission.Term{},
			Preemption:        admission.Preemption{WithinQueue: admission.PreemptLowerPriority, ReclaimWithinCohort: admission.PreemptAny},
		}})
		o.e.Apply(admission.LocalQueueChanged{LocalQueue: admission.LocalQueue{Key: admission.Key{Namespace: namespace, Name: q.name}, Queue: q.name}})
	}
	o.specs = make([]admission.Workload, len(w.jobs))
	for i := range w.jobs {
		j := &w.jobs[i]
		name := jobName(i)
		o.specs[i] = admission.Workload{
			Key: admission.Key{Namespace: namespace, Name: name}, UID: name, LocalQueue: w.queues[j.queue].name,
			Priority: int64(j.priority), Created: w.created(i),
			PodSets: []admission.PodSet{{Name: "main", Count: 1, Requests: admission.Requests{admission.CPU: j.cpus}}},
		}
	}
	return o
}

func ourQuota(nominal, borrowingLimit int64) []admission.ResourceGroup {
	if nominal == 0 {
		return nil
	}
	q := admission.Quota{Nominal: nominal * 1000}
	if borrowingLimit > 0 {
		limit := borrowingLimit * 1000
		q.BorrowingLimit = &limit
	}
	return []admission.ResourceGroup{{
		Resources: []string{admission.CPU},
		Flavors:   []admission.FlavorQuotas{{Flavor: flavor, Quotas: map[string]admission.Quota{admission.CPU: q}}},
	}}
}

func (o *ours) changed(job int32) {
	o.e.Apply(admission.WorkloadChanged{Workload: o.specs[job]})
}

func (o *ours) arrive(job int32, _ millis) { o.changed(job) }

func (o *ours) finish(job int32, _ millis) {
	o.specs[job].Finished = true
	o.changed(job)
}

func (o *ours) release(job int32, _ millis) {
	w := &o.specs[job]
	w.Admission, w.Evicting = nil, false
	o.changed(job)
}

// decide carries a plan out as the shell does: every write comes back as an event.
func (o *ours) decide(now millis) (decision, bool) {
	at := now.time()
	plan := o.e.Decide(at)
	o.wake = 0
	if !plan.NextAt.IsZero() { // at the first batch of events from then on
		o.wake = (millis((plan.NextAt.Sub(epoch)-1)/time.Millisecond)/beat + 1) * beat
	}
	o.plan.admit, o.plan.evict = o.plan.admit[:0], o.plan.evict[:0]
	for _, a := range plan.Admit {
		job := jobIndex(a.Workload.Name)
		w := &o.specs[job]
		w.Admission, w.StartedAt = a.Admission, at
		o.changed(job)
		o.plan.admit = append(o.plan.admit, job)
	}
	for _, ev := range plan.Evict {
		job := jobIndex(ev.Workload.Name)
		w := &o.specs[job]
		w.Evicting, w.EvictedAt, w.EvictedBy = true, at, string(ev.Reason)
		w.Preemptions++
		o.changed(job)
		o.plan.evict = append(o.plan.evict, job)
	}
	for _, p := range plan.Pending {
		if w := jobIndex(p.Workload.Name); o.specs[w].Admission == nil {
			o.changed(w)
		}
	}
	return o.plan, false
}

func (o *ours) wakeAt() millis { return o.wake }

func (o *ours) empty() error {
	for _, q := range o.w.queues {
		s, ok := o.e.Status(q.name)
		if !ok || s.Pending != 0 || s.Reserving != 0 || s.Usage[0].Used != 0 {
			return fmt.Errorf("%s: elastic: queue %s is not empty at the end: %+v", o.w.name, q.name, s)
		}
	}
	return nil
}
