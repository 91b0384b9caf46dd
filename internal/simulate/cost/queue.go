package cost

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elastic-ai/elastic/api/cloud/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/cloud"
	"github.com/elastic-ai/elastic/internal/queue/cloudoffers"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/simulate/world"
)

// A queue whose flavors are markets. Which flavor a job gets, and when it has quota, is decided by the admission engine, which is told prices
// as elastic-queue tells it: those of the status that a CloudOffer would have. Where in the flavor a job buys, and when, is decided as in a
// run of one market. A job that loses its machines, or that no place of its flavor sells any, gives its quota back, as one whose admission
// check says so. One that goes back to spot keeps it.

// Flavor is a market in which a queue has quota.
type Flavor struct {
	Market *Market
	Cards  int64 // quota
}

// cards is the resource that quotas are of.
const cards = "nvidia.com/gpu"

// queueKey is the queue's LocalQueue.
var queueKey = admission.Key{Namespace: "ns", Name: "queue"}

type queueRun struct {
	flavors []Flavor
	markets []*run
	engine  *admission.Engine
	priced  bool // the engine is told prices
	events  []admission.Event
	seen    seen
	jobs    []*queuedJob
	now     time.Time
	out     *Result
}

// seen is what prices depend on, and the minute in which it last changed.
type seen struct {
	offers                []*cloud.Offer // the first of each market: they are made anew with their prices
	tries, losses, bought int
	at                    int
}

// queuedJob is a job of a queue.
type queuedJob struct {
	runningJob
	at        int // market, while it has quota
	admission *admission.Admission
	created   time.Time
	evicted   time.Time
}

// QueueRule is how a queue decides: which flavor, and where in it.
type QueueRule struct {
	Name   string
	Within Rule
	Priced bool // the engine is told prices; without them it takes flavors as they are written
}

// QueueRules, the product's and that of a queue without CloudOffers.
var QueueRules = []QueueRule{
	{"as-written", Elastic, false}, {Elastic.Name, Elastic, true}, {ElasticReporting.Name, ElasticReporting, true},
}

// RunQueue has the jobs of a queue run on its flavors.
func RunQueue(flavors []Flavor, jobs []Job, rule QueueRule, s *Settings) (*Result, error) {
	q, err := newQueueRun(flavors, jobs, rule.Within, rule.Priced, s)
	if err != nil {
		return nil, err
	}
	q.out.Rule = rule.Name
	for t := range q.minutes() {
		if err := q.minute(t); err != nil {
			return nil, err
		}
	}
	for _, j := range q.jobs {
		if !j.done {
			q.out.Late++
		}
	}
	return q.out, nil
}

func newQueueRun(flavors []Flavor, jobs []Job, rule Rule, priced bool, s *Settings) (*queueRun, error) {
	q := &queueRun{flavors: flavors, priced: priced, out: &Result{Jobs: len(jobs)}, events: make([]admission.Event, len(flavors))}
	learned := &cloud.Learned{}
	for _, f := range flavors {
		if len(f.Market.Zones) == 0 || !f.Market.Start.Equal(flavors[0].Market.Start) {
			return nil, fmt.Errorf("%s begins at another time than %s: a queue's markets begin together", f.Market.Name, flavors[0].Market.Name)
		}
		q.markets = append(q.markets, &run{m: f.Market, rule: rule, s: s, shared: learned, out: q.out})
	}
	if len(q.markets) == 0 {
		return nil, errors.New("a queue without flavors")
	}
	start := flavors[0].Market.Start
	for i := range jobs {
		job := jobs[i]
		q.jobs = append(q.jobs, &queuedJob{runningJob: runningJob{Job: &job, learned: learned}, created: start.Add(minutes(job.Submit))})
	}
	q.newEngine()
	return q, nil
}

// newEngine is one that knows the queue, and what has become of its jobs.
func (q *queueRun) newEngine() {
	q.engine = admission.New(admission.Options{})
	q.engine.Apply(admission.NamespaceChanged{Name: queueKey.Namespace})
	group := admission.ResourceGroup{Resources: []string{cards}}
	for _, f := range q.flavors {
		q.engine.Apply(admission.FlavorChanged{Flavor: admission.Flavor{Name: f.Market.Name}})
		group.Flavors = append(group.Flavors, admission.FlavorQuotas{Flavor: f.Market.Name, Quotas: map[string]admission.Quota{cards: {Nominal: f.Cards}}})
	}
	q.engine.Apply(admission.QueueChanged{Queue: admission.Queue{Name: queueKey.Name, NamespaceSelector: &admission.Term{}, Groups: []admission.ResourceGroup{group}}})
	q.engine.Apply(admission.LocalQueueChanged{LocalQueue: admission.LocalQueue{Key: queueKey, Queue: queueKey.Name}})
	for i, event := range q.events {
		if event != nil {
			q.engine.Apply(q.events[i])
		}
	}
	for i, j := range q.jobs {
		if !q.now.IsZero() && !j.created.After(q.now) && !j.done {
			q.tell(i)
		}
	}
}

// minutes that all markets were watched.
func (q *queueRun) minutes() int {
	n := q.flavors[0].Market.Minutes()
	for _, f := range q.flavors {
		n = min(n, f.Market.Minutes())
	}
	return n
}

func (q *queueRun) minute(t int) error {
	for _, w := range q.markets {
		w.begin(t)
	}
	q.now = q.markets[0].now
	for i, j := range q.jobs {
		switch {
		case j.Submit == t:
			q.tell(i)
		case j.admission != nil && j.on > 0:
			if q.markets[j.at].checkLoss(&j.runningJob); j.on == 0 {
				q.requeue(i)
			}
		}
	}
	if err := q.decide(); err != nil {
		return err
	}
	for i, j := range q.jobs {
		if j.admission == nil || j.done {
			continue
		}
		sold := q.markets[j.at].step(&j.runningJob)
		switch {
		case j.done:
			j.admission = nil
			q.engine.Apply(admission.WorkloadChanged{Workload: admission.Workload{Key: q.key(i), UID: q.key(i).Name, LocalQueue: queueKey.Name, Finished: true}})
		case !sold:
			q.requeue(i)
		}
	}
	return nil
}

// decide has the engine give quota, at the prices of now.
func (q *queueRun) decide() error {
	if q.priced && q.pricesChange() {
		for i, w := range q.markets {
			if event := q.price(w); !sameEvent(event, q.events[i]) {
				q.events[i] = event
				q.engine.Apply(event)
			}
		}
	}
	plan := q.engine.Decide(q.now)
	if len(plan.Evict)+len(plan.Panics) > 0 {
		return fmt.Errorf("the engine evicts %d jobs of a queue without preemption, and fails over %d", len(plan.Evict), len(plan.Panics))
	}
	for i := range plan.Admit {
		a := &plan.Admit[i]
		at := world.JobOf(a.Workload)
		j := q.jobs[at]
		flavor := a.Admission.PodSets[0].Flavors[cards]
		j.at = slices.IndexFunc(q.flavors, func(f Flavor) bool { return f.Market.Name == flavor })
		j.Machines, j.look, j.admission = q.flavors[j.at].Market.machinesFor(j.Cards), 0, a.Admission
		q.tell(at)
	}
	return nil
}

// pricesChange says that the statuses of CloudOffers may differ from those of a minute ago: something was seen, places that were closed
// then open again, or, every ten minutes, time has passed.
func (q *queueRun) pricesChange() bool {
	t, is := q.markets[0].t, seen{tries: q.out.Tries, losses: q.out.Losses, bought: q.out.Bought, at: q.seen.at}
	for _, w := range q.markets {
		is.offers = append(is.offers, &w.offers[0])
	}
	if is.tries != q.seen.tries || is.losses != q.seen.losses || is.bought != q.seen.bought || !slices.Equal(is.offers, q.seen.offers) {
		is.at = t
	}
	q.seen = is
	return t-is.at <= int(cloud.MostClosed.Minutes()) || t%10 == 0
}

// price is what the engine is told of a market: what elastic-queue makes of the status of a CloudOffer.
func (q *queueRun) price(w *run) admission.Event {
	offer := &v1alpha1.CloudOffer{Spec: v1alpha1.CloudOfferSpec{Resource: cards, Via: &v1alpha1.Via{NodeClass: &v1alpha1.NodeClass{}}}}
	offer.Name = w.m.Name
	offer.Status = cloudoffers.Priced(offer, w.offers, minutes(w.s.StartUp), w.shared, q.now)
	return engineview.ChangedEvent(offer)
}

func sameEvent(a, b admission.Event) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// key of a job: its number, since names may be there twice.
func (q *queueRun) key(i int) admission.Key {
	return admission.Key{Namespace: queueKey.Namespace, Name: fmt.Sprintf("%09d", i)}
}

// requeue has a job give its quota back.
func (q *queueRun) requeue(i int) {
	j := q.jobs[i]
	j.admission, j.evicted, j.on, j.next = nil, q.now, 0, 0
	q.tell(i)
}

// tell the engine of a job.
func (q *queueRun) tell(i int) {
	j := q.jobs[i]
	w := admission.Workload{
		Key: q.key(i), UID: q.key(i).Name, LocalQueue: queueKey.Name, Created: j.created, EvictedAt: j.evicted,
		PodSets:            []admission.PodSet{{Name: "main", Count: int32(j.Cards), Requests: admission.Requests{cards: 1}}}, // on machines of any size
		ExpectedRunTime:    minutes(j.Work - j.saved),
		CheckpointInterval: minutes(q.markets[0].s.Checkpoint),
	}
	if !j.evicted.IsZero() {
		w.EvictedBy = v1alpha1.ReasonMachineLost
	}
	if j.admission != nil {
		written := *j.admission
		w.Admission, w.StartedAt, w.PodsReady = &written, q.now, true
	}
	q.engine.Apply(admission.WorkloadChanged{Workload: w})
}

// Queues are the markets that can be flavors of one queue, as they have the same cards at the same time, where there are several.
func Queues(markets []*Market, quota int64) (queues [][]Flavor) {
	used := map[*Market]bool{}
	for _, m := range markets {
		var flavors []Flavor
		for _, other := range markets {
			if !used[other] && other.GPU == m.GPU && other.Start.Equal(m.Start) {
				used[other] = true
				flavors = append(flavors, Flavor{other, quota})
			}
		}
		if len(flavors) > 1 {
			queues = append(queues, flavors)
		}
	}
	return queues
}

// CompareQueue runs the jobs of a queue with its flavors as they are written, and in the order of what they are expected to cost.
func CompareQueue(flavors []Flavor, jobs []Job, s *Settings) (*Comparison, error) {
	names := make([]string, len(flavors))
	c := &Comparison{Bound: BoundOfQueue(flavors, jobs, s)}
	for i, f := range flavors {
		names[i] = f.Market.Name
		c.Zones += len(f.Market.Zones)
		c.Share = max(c.Share, f.Market.Share(1))
	}
	c.Market = strings.Join(names, " + ")
	for _, rule := range QueueRules {
		r, err := RunQueue(flavors, jobs, rule, s)
		if err != nil {
			return nil, err
		}
		c.add(r, len(jobs))
	}
	return c, nil
}
