package main

import (
	"fmt"
	"math"
	"time"

	"github.com/elastic-ai/elastic/internal/admission"
)

// ours is Elastic's engine, fed as its shell feeds it.
type ours struct {
	w      *work
	e      *admission.Engine
	specs  []admission.Workload
	queues []admission.Queue
	plan   decision
	wake   millis // when it wants to be asked again; 0: never
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

// asking is what the engine is asked beside Kueue's objects.
type asking int

const (
	nothing asking = iota
	// budgets, an advance reservation, timing and a price, in such amounts that decisions are the same: what is measured is
	// the asking.
	policies
	// everything that needs no nodes: beside these, queues that backfill, go by attained service, preempt late and have
	// minimum runtimes, workloads that may not be preempted, and trees shared out by MaxMin. Decisions differ.
	everyPolicy
)

// withPolicies has QueuePolicies and CloudOffers ask what changes no decision.
func (o *ours) withPolicies() {
	rates := map[string]map[string]int64{"": {admission.CPU: 1}}
	budget := func(name string) admission.Budget {
		return admission.Budget{Name: name, From: epoch.Add(-time.Hour), Until: epoch.Add(30 * day), Amount: math.MaxInt64 / 4, Rates: rates, On: name, Unit: "CPU hours", Period: "this month", PerUnit: 3600}
	}
	for i, q := range o.w.queues {
		own, local := budget("queue/"+q.name), budget("local/"+q.name)
		own.Queue, local.LocalQueue = q.name, admission.Key{Namespace: namespace, Name: q.name}
		o.e.Apply(admission.BudgetChanged{Budget: own})
		if i < 3 { // where many have one of their own, workloads form as many classes
			o.e.Apply(admission.BudgetChanged{Budget: local})
		}
	}
	for _, c := range o.w.cohorts {
		b := budget("cohort/" + c.name)
		b.Cohort = c.name
		o.e.Apply(admission.BudgetChanged{Budget: b})
	}
	ahead := admission.AdvanceReservation{
		Name: "ahead", Queue: o.w.queues[0].name, From: epoch.Add(20 * day), Until: epoch.Add(21 * day),
		Amounts: map[string]admission.Requests{flavor: {admission.CPU: 1000}}, For: o.w.queues[0].name,
	}
	o.e.Apply(admission.AdvanceReservationsChanged{Reservations: []admission.AdvanceReservation{ahead}})
	o.e.Apply(admission.FlavorPriceChanged{Price: admission.FlavorPrice{Flavor: flavor, Resource: admission.CPU, Price: 0.001, LossRate: 0.01}})
	for i := range o.specs {
		o.specs[i].MaxRunTime = day
	}
	timing := admission.Timing{
		Delay: preemptAfter, Cooldown: preemptionCooldown, // as without one
		MinRuntime: admission.MinRuntime{WithinQueue: preemptAfter, Reclaim: preemptAfter, Borrowed: preemptAfter},
	}
	for i := range o.queues {
		o.queues[i].Timing = &timing
		o.e.Apply(admission.QueueChanged{Queue: o.queues[i]})
	}
}

// withEveryPolicy has QueuePolicies ask what changes decisions, each of some queues and workloads.
func (o *ours) withEveryPolicy() {
	for _, c := range o.w.cohorts {
		if c.parent == "" && o.w.fair {
			o.e.Apply(admission.CohortChanged{Cohort: admission.Cohort{
				Name: c.name, FairWeight: &c.weight, Groups: ourQuota(c.nominal, 0), Policy: admission.PolicyMaxMin,
			}})
		}
	}
	for i := range o.queues {
		q := &o.queues[i]
		switch i % 3 {
		case 0:
			q.StrictFIFO, q.Backfill = true, true
		case 1:
			q.Order = admission.OrderLeastAttainedService
		}
		q.Timing = &admission.Timing{
			Delay: 2 * time.Second, Cooldown: 10 * time.Second,
			MinRuntime: admission.MinRuntime{WithinQueue: time.Second, Reclaim: 500 * time.Millisecond, Borrowed: 2 * time.Second},
		}
		o.e.Apply(admission.QueueChanged{Queue: *q})
	}
	for i := range o.specs {
		o.specs[i].MaxRunTime = time.Duration(o.w.jobs[i].runs+1000) * time.Millisecond
		o.specs[i].NeverPreempt = i%10 == 0
	}
}

const day = 24 * time.Hour

func newOurs(w *work, asks asking) *ours {
	o := &ours{w: w}
	options := admission.Options{PreemptionDelay: preemptAfter, PreemptionCooldown: preemptionCooldown, NoRings: true}
	if w.fair {
		options.Policy = admission.PolicyDRF
	}
	if asks == everyPolicy {
		options.Service = []admission.CardsPerUnit{{Resource: admission.CPU, Cards: 1}}
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
		o.queues = append(o.queues, admission.Queue{
			Name: q.name, Cohort: q.cohort, FairWeight: &q.weight, Groups: ourQuota(q.nominal, q.borrowingLimit),
			NamespaceSelector: &admission.Term{},
			Preemption:        admission.Preemption{WithinQueue: admission.PreemptLowerPriority, ReclaimWithinCohort: admission.PreemptAny},
		})
		o.e.Apply(admission.QueueChanged{Queue: o.queues[len(o.queues)-1]})
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
	if asks >= policies {
		o.withPolicies()
	}
	if asks == everyPolicy {
		o.withEveryPolicy()
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
		w.PreemptedByOthers = ev.Reason == admission.ReasonPreempted && ev.Preempted != admission.ReasonInClusterQueue
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
