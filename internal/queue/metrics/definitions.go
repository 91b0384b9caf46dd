package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Definition describes a metric: with Kueue's name and labels where Kueue has it, with the prefix
// elastic_ where it does not.
type Definition struct {
	Name, Help string
	Type       string // counter, histogram or gauge
	Labels     []string
	// When says what must be switched on for it to exist; "" for nothing.
	When string

	buckets []float64
}

// What must be switched on for a metric to exist.
const (
	withResources   = "queueMetrics.clusterQueueResources"
	withLocalQueues = "queueMetrics.localQueues"
	withCohorts     = "gate MetricsForCohorts"
	withUnadmitted  = "gate UnadmittedWorkloadsObservability"
	withLatency     = "gate MetricForWorkloadCreationLatency"
	withFairSharing = "fair sharing"
	withBudgets     = "budgets of QueuePolicies"
	withPurchases   = "a check that buys nodes"
)

// seconds are Kueue's buckets for waits: 1 s, 2.5 s, and on by doubling.
func seconds(n int) []float64 {
	return append([]float64{1}, prometheus.ExponentialBuckets(2.5, 2, n-1)...)
}

// Definitions lists every metric of the queue, sorted by name.
func Definitions() []Definition {
	var all []Definition
	add := func(kind, when, name, help string, labels ...string) *Definition {
		all = append(all, Definition{Name: name, Help: help, Type: kind, Labels: append(labels, "replica_role"), When: when})
		return &all[len(all)-1]
	}
	// both is a metric of ClusterQueues with a twin of LocalQueues.
	both := func(kind, name, help string, n int, labels ...string) {
		add(kind, "", "kueue_"+name, help+", per ClusterQueue.", append([]string{"cluster_queue"}, labels...)...).buckets = seconds(max(2, n))
		if n == 16 {
			n = 14
		}
		add(kind, withLocalQueues, "kueue_local_queue_"+name, help+", per LocalQueue.", append([]string{"name", "namespace"}, labels...)...).buckets = seconds(max(2, n))
	}
	add("counter", "", "kueue_admission_attempts_total", "Decisions, by whether they admitted a workload; those that tried again in vain count once a second.", "result")
	add("histogram", "", "kueue_admission_attempt_duration_seconds", "How long a decision took, by whether it admitted a workload.", "result").buckets = prometheus.DefBuckets
	add("histogram", "", "kueue_pod_scheduling_gate_removal_seconds", "From a workload's admission to the removal of a scheduling gate from one of its pods.",
		"name", "cluster_queue", "is_group").buckets = prometheus.DefBuckets
	both("counter", "quota_reserved_workloads_total", "Workloads that had quota reserved", 0, "priority_class")
	both("counter", "admitted_workloads_total", "Workloads admitted", 0, "priority_class")
	both("counter", "finished_workloads_total", "Workloads that finished", 0, "priority_class")
	both("counter", "evicted_workloads_total", "Evictions", 0, "reason", "underlying_cause", "priority_class")
	add("counter", "", "kueue_evicted_workloads_once_total", "Workloads evicted for the first time for a reason, per ClusterQueue.", "cluster_queue", "reason", "underlying_cause", "priority_class")
	add("counter", "", "kueue_preempted_workloads_total", "Workloads preempted, per ClusterQueue of the preemptor.", "preempting_cluster_queue", "reason")
	add("counter", "", "kueue_replaced_workload_slices_total", "Workloads replaced by the same job in another size.", "cluster_queue")
	add("counter", withCohorts, "kueue_cohort_subtree_admitted_workloads_total", "Workloads admitted below a cohort.", "cohort", "priority_class")
	both("histogram", "quota_reserved_wait_time_seconds", "From queueing to quota", 14, "priority_class")
	both("histogram", "admission_wait_time_seconds", "From queueing to admission", 16, "priority_class")
	both("histogram", "admission_checks_wait_time_seconds", "From quota to admission, where there are checks", 14, "priority_class")
	both("histogram", "ready_wait_time_seconds", "From queueing to all pods ready", 14, "priority_class")
	both("histogram", "admitted_until_ready_wait_time_seconds", "From admission to all pods ready", 14, "priority_class")
	add("counter", "", "multikueue_workloads_dispatched_total", "Copies of workloads made in other clusters.", "cluster_queue", "cluster")
	add("counter", "", "multikueue_workloads_admitted_total", "Workloads that another cluster admitted, and runs.", "cluster_queue", "cluster")
	add("histogram", "", "kueue_pods_ready_to_evicted_time_seconds", "From all pods ready to eviction.", "cluster_queue", "reason", "underlying_cause").buckets = seconds(14)
	add("histogram", "", "kueue_workload_eviction_latency_seconds", "From eviction to the quota being free.", "cluster_queue", "reason").buckets = seconds(14)
	add("histogram", withLatency, "kueue_workload_creation_latency_seconds", "From a job's creation to that of its workload.", "job_kind").buckets = prometheus.ExponentialBuckets(0.01, 2, 11)

	both("gauge", "pending_workloads", "Pending workloads; inadmissible ones wait for something to change", 0, "status")
	both("gauge", "reserving_active_workloads", "Workloads with quota reserved", 0)
	both("gauge", "admitted_active_workloads", "Workloads that are admitted and not finished", 0)
	both("gauge", "finished_workloads", "Finished workloads that are retained", 0)
	add("gauge", "", "kueue_cluster_queue_status", "1 for the status a ClusterQueue has: pending, active or terminating.", "cluster_queue", "status")
	add("gauge", withLocalQueues, "kueue_local_queue_status", "1 for the status a LocalQueue has: True, False or Unknown.", "name", "namespace", "active")
	add("gauge", withCohorts, "kueue_cluster_queue_info", "Where a ClusterQueue is in the tree of cohorts; always 1.", "cluster_queue", "parent_cohort", "root_cohort")
	add("gauge", withCohorts, "kueue_cohort_info", "Where a cohort is in the tree; always 1.", "cohort", "parent_cohort", "root_cohort")
	add("gauge", withUnadmitted, "kueue_unadmitted_workloads", "Workloads that are not admitted, by the reason of their condition Admitted and, without quota, of QuotaReserved.", "cluster_queue", "reason", "underlying_cause")
	add("gauge", withUnadmitted+", "+withLocalQueues, "kueue_local_queue_unadmitted_workloads", "The same per LocalQueue.", "name", "namespace", "cluster_queue", "reason", "underlying_cause")
	quota := []string{"cohort", "cluster_queue", "flavor", "resource"}
	add("gauge", withResources, "kueue_cluster_queue_resource_reservation", "Quota reserved.", quota...)
	add("gauge", withResources, "kueue_cluster_queue_resource_usage", "Quota used by admitted workloads.", quota...)
	add("gauge", withResources, "kueue_cluster_queue_nominal_quota", "Quota of the ClusterQueue.", quota...)
	add("gauge", withResources, "kueue_cluster_queue_borrowing_limit", "How much it may borrow; 0 where there is no limit.", quota...)
	add("gauge", withResources, "kueue_cluster_queue_lending_limit", "How much it lends; 0 where there is no limit.", quota...)
	add("gauge", withResources, "kueue_cluster_queue_resource_pending", "What pending workloads ask for.", "cluster_queue", "resource")
	add("gauge", withLocalQueues, "kueue_local_queue_resource_reservation", "Quota reserved, per LocalQueue.", "name", "namespace", "flavor", "resource")
	add("gauge", withLocalQueues, "kueue_local_queue_resource_usage", "Quota used by admitted workloads, per LocalQueue.", "name", "namespace", "flavor", "resource")
	add("gauge", withFairSharing, "kueue_cluster_queue_weighted_share", "Weighted share of a ClusterQueue; NaN for one of weight zero that borrows.", "cluster_queue", "cohort")
	add("gauge", withFairSharing, "kueue_cohort_weighted_share", "Weighted share of a cohort; NaN for one of weight zero that borrows.", "cohort")
	add("gauge", withLocalQueues+", "+withFairSharing, "kueue_local_queue_admission_fair_sharing_usage", "What a LocalQueue's recent usage weighs.", "name", "namespace", "cluster_queue")
	add("gauge", withCohorts, "kueue_cohort_subtree_quota", "Quota of a cohort with all below it.", "cohort", "flavor", "resource")
	add("gauge", withCohorts, "kueue_cohort_subtree_resource_reservations", "Quota reserved in a cohort with all below it, guaranteed quota included.", "cohort", "flavor", "resource")
	add("gauge", withCohorts, "kueue_cohort_subtree_admitted_active_workloads", "Workloads admitted and not finished, in a cohort with all below it.", "cohort")

	add("histogram", "", "elastic_decision_duration_seconds", "How long the engine took to decide once.").buckets = prometheus.ExponentialBuckets(0.00001, 4, 12)
	add("histogram", "", "elastic_plan_size", "How many workloads one decision is about: to admit, to evict, or to say why they wait.", "item").buckets = prometheus.ExponentialBuckets(1, 4, 8)
	add("counter", "", "elastic_contained_panics_total", "Defects that concerned one object, which was set aside while the others went on, by stage.", "stage")
	add("counter", "", "elastic_events_left_out_total", "Events not recorded because decisions had to be written; the status says the same.", "reason")
	add("counter", "", "elastic_writes_total", "Writes to workloads and queues, by how they ended; over kueue_admitted_workloads_total they are the cost of an admission.", "object", "result")
	add("counter", "", "elastic_explanations_total", "Questions answered by the engine: why a workload waits (why), whether one would start (plan), which ones are pending in a queue (line), how much is used of budgets (budget).", "question")
	of := []string{"target", "period", "unit"}
	add("gauge", withBudgets, "elastic_budget_amount", "A budget's amount, in its unit.", of...)
	add("gauge", withBudgets, "elastic_budget_spent", "What is spent of a budget in its period.", of...)
	add("gauge", withBudgets, "elastic_budget_committed", "What workloads with quota will still spend of a budget in its period, as far as their run times are known.", of...)
	add("gauge", withPurchases, "elastic_bought_nodes", "Nodes that were bought, by what they do: starting, ready, idle, ending, or unowned, which is to say paid for by mistake.", "flavor", "state")
	add("gauge", "", "elastic_reasons_waiting", "Workloads whose reason to wait is not in their status yet.")

	all = append(all, Definition{Name: "kueue_build_info", Help: "Which build this is; always 1.", Type: "gauge",
		Labels: []string{"git_version", "git_commit", "build_date", "go_version", "compiler", "platform"}})
	slices.SortFunc(all, func(a, b Definition) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all
}
