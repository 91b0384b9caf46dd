package engineview

import (
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/policy"
)

// ChangesPolicies says that an object changes what policies mean: a policy, or a queue or Cohort that is new, gone or
// elsewhere in the tree while there are policies. Ask before Set.
func (o *Objects) ChangesPolicies(obj client.Object, deleted bool) bool {
	switch obj.(type) {
	case *v1alpha1.QueuePolicy:
	case *kueue.Cohort, *kueue.ClusterQueue, *kueue.LocalQueue, *kueue.ResourceFlavor:
		if len(o.Policies) == 0 {
			return false
		}
	default:
		return false
	}
	was := o.Known(obj)
	return deleted || was == nil || was.GetGeneration() != obj.GetGeneration() || was.GetUID() != obj.GetUID()
}

// ResolvePolicies works out what the policies mean for all queues.
func (o *Objects) ResolvePolicies() {
	list := make([]*v1alpha1.QueuePolicy, 0, len(o.Policies))
	for _, p := range o.Policies {
		list = append(list, p)
	}
	o.resolved = policy.Resolve(list, o.world())
}

// world is the tree of Cohorts and queues by names. A Cohort that others name exists.
func (o *Objects) world() policy.World {
	w := policy.World{Cohorts: map[string]string{}, ClusterQueues: map[string]string{}, LocalQueues: map[types.NamespacedName]string{}, Flavors: map[string]bool{}, PreemptNobody: map[string]bool{}}
	for name := range o.CohortNames() {
		w.Cohorts[name] = ""
	}
	for name, cohort := range o.Cohorts {
		w.Cohorts[name] = string(cohort.Spec.ParentName)
	}
	for name, cq := range o.ClusterQueues {
		w.ClusterQueues[name], w.PreemptNobody[name] = string(cq.Spec.CohortName), preemptsNobody(cq)
	}
	for key, lq := range o.LocalQueues {
		w.LocalQueues[key] = string(lq.Spec.ClusterQueue)
	}
	for name := range o.Flavors {
		w.Flavors[name] = true
	}
	return w
}

// PolicyStatus is what to tell a policy about itself.
func (o *Objects) PolicyStatus(p *v1alpha1.QueuePolicy) ([]v1alpha1.TargetStatus, metav1.Condition) {
	return o.resolved.Status(p)
}

// InForce is what policies say at a LocalQueue.
func (o *Objects) InForce(localQueue types.NamespacedName) policy.Settings {
	return o.resolved.LocalQueue(localQueue)
}

// InForceAt is what policies say at a ClusterQueue.
func (o *Objects) InForceAt(clusterQueue string) policy.Settings {
	return o.resolved.ClusterQueue(clusterQueue)
}

// HonorsNeverPreempt says that policies let the jobs of a LocalQueue ask not to be preempted.
func (o *Objects) HonorsNeverPreempt(localQueue types.NamespacedName) bool {
	return o.resolved.Any() && o.InForce(localQueue).Text(policy.NeverPreempt) == string(v1alpha1.NeverPreemptHonor)
}

// Growth says whether jobs of a LocalQueue may grow into idle quota, why not, and how long pods that they had to give up
// stay away.
func (o *Objects) Growth(localQueue types.NamespacedName) (after time.Duration, refusal string) {
	if !o.resolved.Any() || o.InForce(localQueue).Text(policy.GrowAfter) == "" {
		return 0, "No QueuePolicy lets jobs of its queue grow (elasticJobs)"
	}
	lq := o.LocalQueues[localQueue]
	if lq == nil {
		return 0, ""
	}
	if cq := o.ClusterQueues[string(lq.Spec.ClusterQueue)]; cq != nil && preemptsNobody(cq) {
		return 0, "ClusterQueue " + cq.Name + " preempts nobody of its own (withinClusterQueue), so what jobs grow into could not be taken back"
	}
	return o.InForce(localQueue).Duration(policy.GrowAfter, 0), ""
}

// preemptsNobody says that workloads of a ClusterQueue preempt none of their own.
func preemptsNobody(cq *kueue.ClusterQueue) bool {
	return cq.Spec.Preemption == nil || cq.Spec.Preemption.WithinClusterQueue == kueue.PreemptionPolicyNever
}

// MayWaitFor says that policies let the jobs of a LocalQueue wait for those of another namespace.
func (o *Objects) MayWaitFor(localQueue types.NamespacedName, namespace string) bool {
	return o.resolved.Any() && o.InForce(localQueue).MayWaitFor(namespace)
}

// EstimatesRunTimes says that some policy says how long workloads are taken to run.
func (o *Objects) EstimatesRunTimes() bool {
	for _, p := range o.Policies {
		if b := p.Spec.Backfill; b != nil && (b.RunTime != nil || b.Quantile != nil) {
			return true
		}
	}
	return false
}

// RunTimesOf is from which quantile the run times of a LocalQueue's workloads are learned, in percent, 0 for not at all,
// and what they are by default.
func (o *Objects) RunTimesOf(localQueue types.NamespacedName) (percent int, byDefault time.Duration) {
	return RunTimesIn(o.InForce(localQueue))
}

// RunTimesIn is RunTimesOf by what is in force at a LocalQueue.
func RunTimesIn(settings policy.Settings) (percent int, byDefault time.Duration) {
	percent, err := strconv.Atoi(settings.Text(policy.Quantile))
	if err != nil {
		percent = 0
	}
	return percent, settings.Duration(policy.RunTime, 0)
}

// Budgets are those in force.
func (o *Objects) Budgets() []policy.Budget { return o.resolved.Budgets() }

// Reservations are the advance reservations in force.
func (o *Objects) Reservations() []policy.Reservation { return o.resolved.Reservations() }

// BudgetTargets are what the budgets are on that a LocalQueue's workloads use.
func (o *Objects) BudgetTargets(localQueue types.NamespacedName) []string {
	return o.resolved.Above(localQueue)
}

// BudgetTargetsOf are what the budgets are on that those with quota of a ClusterQueue use, beside their LocalQueue's.
func (o *Objects) BudgetTargetsOf(clusterQueue string) []string {
	return o.resolved.AboveClusterQueue(clusterQueue)
}

// BudgetRates are what a unit of a resource costs a second.
func BudgetRates(b *policy.Budget) map[string]map[string]int64 {
	cards := map[string]float64{}
	for _, s := range service {
		cards[s.Resource] = s.Cards
	}
	return b.Rates(cards)
}

// applyPolicy adds to a queue what policies say.
func (o *Objects) applyPolicy(q *admission.Queue) {
	if o.resolved.Any() {
		settings := o.resolved.ClusterQueue(q.Name)
		q.Timing = o.timingOf(settings)
		if settings.Text(policy.Order) == string(v1alpha1.OrderLeastAttainedService) {
			q.Order = admission.OrderLeastAttainedService
		}
		if settings.Text(policy.Backfill) == string(v1alpha1.BackfillEASY) {
			q.Backfill, q.StrictFIFO = true, true
		}
		if moves, err := strconv.Atoi(settings.Text(policy.Moves)); err == nil {
			q.Defragmentation = &admission.Defragmentation{Moves: moves, LostWork: settings.Duration(policy.LostWork, 0)}
		}
	}
}

// WithPolicy adds to the event of a LocalQueue or Cohort what policies say.
func (o *Objects) WithPolicy(event admission.Event) admission.Event {
	switch e := event.(type) {
	case admission.LocalQueueChanged:
		if key := (types.NamespacedName{Namespace: e.LocalQueue.Namespace, Name: e.LocalQueue.Name}); o.resolved.Targets(key) {
			e.LocalQueue.Timing = o.timingOf(o.resolved.LocalQueue(key))
		}
		return e
	case admission.CohortChanged:
		e.Cohort.Policy = capacityPolicies[o.resolved.Cohort(e.Cohort.Name).Text(policy.Capacity)]
		return e
	}
	return event
}

// timingOf is the timing of preemption that policies ask for; nil: none does.
func (o *Objects) timingOf(s policy.Settings) *admission.Timing {
	if !slices.ContainsFunc(s, func(v v1alpha1.Value) bool {
		return strings.HasPrefix(v.Field, "preemption.") && v.Field != policy.NeverPreempt
	}) {
		return nil
	}
	without := &o.Timing
	return &admission.Timing{
		Delay:    s.Duration(policy.Delay, without.Delay),
		Cooldown: s.Duration(policy.Cooldown, without.Cooldown),
		MinRuntime: admission.MinRuntime{
			WithinQueue: s.Duration(policy.MinWithin, without.MinRuntime.WithinQueue),
			Reclaim:     s.Duration(policy.MinReclaim, without.MinRuntime.Reclaim),
			Borrowed:    s.Duration(policy.MinBorrowed, without.MinRuntime.Borrowed),
		},
	}
}

var capacityPolicies = map[string]admission.CapacityPolicy{
	string(v1alpha1.CapacityFIFO): admission.PolicyFIFO, string(v1alpha1.CapacityDRF): admission.PolicyDRF, string(v1alpha1.CapacityMaxMin): admission.PolicyMaxMin,
}

// UndescribedCohorts are those that a policy says something of, although there is no object: others name them.
func (o *Objects) UndescribedCohorts() []admission.Cohort {
	var list []admission.Cohort
	if !o.resolved.Any() {
		return nil
	}
	for name := range o.CohortNames() {
		if capacity := o.resolved.Cohort(name).Text(policy.Capacity); capacity != "" && o.Cohorts[name] == nil {
			list = append(list, admission.Cohort{Name: name, Policy: capacityPolicies[capacity]})
		}
	}
	return list
}

// SharesFairly says whether shares decide who borrows in the tree of a ClusterQueue or Cohort, unless a policy says
// otherwise as by default.
func (o *Objects) SharesFairly(clusterQueue, cohort string, byDefault bool) bool {
	if !o.resolved.Any() {
		return byDefault
	}
	settings := o.resolved.Cohort(cohort)
	if clusterQueue != "" {
		settings = o.resolved.ClusterQueue(clusterQueue)
	}
	switch v1alpha1.Capacity(settings.Text(policy.Capacity)) {
	case v1alpha1.CapacityDRF, v1alpha1.CapacityMaxMin:
		return true
	case v1alpha1.CapacityFIFO:
		return false
	}
	return byDefault
}
