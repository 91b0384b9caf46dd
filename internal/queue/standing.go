package queue

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// scrapePatience is how long a scrape waits for the loop.
const scrapePatience = 5 * time.Second

// Collect is part of prometheus.Collector: how things stand, from the loop. A
// replica that does not lead knows nothing.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	to <- prometheus.MustNewConstMetric(m.gauges["kueue_build_info"], prometheus.GaugeValue, 1, buildInfo()...)
	if m.source == nil {
		return
	}
	var taken []prometheus.Metric
	ctx, cancel := context.WithTimeout(context.Background(), scrapePatience)
	defer cancel()
	err := m.source.ask(ctx, func() {
		g := gauging{m.source, func(name string, value float64, labels ...string) {
			taken = append(taken, prometheus.MustNewConstMetric(m.gauges[name], prometheus.GaugeValue, value, m.labels(nil, labels)...))
		}}
		g.all()
	})
	if err != nil {
		return
	}
	for _, metric := range taken {
		to <- metric
	}
}

// gauging looks at everything once.
type gauging struct {
	*Shell
	set func(name string, value float64, labels ...string)
}

func (g gauging) all() {
	g.set("elastic_reasons_waiting", float64(len(g.reasons.parks)))
	tally := g.tallyUp()
	admittedBelow := map[string]int32{}
	for name, cq := range g.statuses.clusterQueues {
		a := g.statuses.ledger.clusterQueue(name)
		status, exists := g.engine.Status(name)
		if !exists {
			continue
		}
		g.set("kueue_pending_workloads", float64(status.Active), name, "active")
		g.set("kueue_pending_workloads", float64(status.Pending-status.Active), name, "inadmissible")
		g.set("kueue_reserving_active_workloads", float64(a.reserving), name)
		g.set("kueue_admitted_active_workloads", float64(a.admitted), name)
		g.set("kueue_finished_workloads", float64(tally.finished[name]), name)
		g.clusterQueueStatus(name, cq)
		above := g.cohortsAbove(name)
		for _, cohort := range above {
			admittedBelow[cohort] += a.admitted
		}
		if g.options.Metrics.options.Cohorts {
			parent, root := ends(above)
			g.set("kueue_cluster_queue_info", 1, name, parent, root)
		}
		if g.statuses.fair {
			g.set("kueue_cluster_queue_weighted_share", status.FairShare, name, string(cq.Spec.CohortName))
		}
		if g.options.Metrics.options.Resources {
			g.resources(name, cq, a, status, tally)
		}
	}
	g.cohorts(admittedBelow)
	for key, lq := range g.statuses.localQueues {
		if g.hasMetrics(lq) {
			g.localQueue(key, lq, tally)
		}
	}
	if g.options.Metrics.options.Unadmitted {
		for at, n := range tally.unadmitted {
			g.set("kueue_unadmitted_workloads", float64(n), at.clusterQueue, at.reason, at.cause)
		}
		for at, n := range tally.unadmittedLocal {
			g.set("kueue_local_queue_unadmitted_workloads", float64(n), at.localQueue.Name, at.localQueue.Namespace, at.clusterQueue, at.reason, at.cause)
		}
	}
}

func (g gauging) clusterQueueStatus(name string, cq *kueue.ClusterQueue) {
	now := "pending"
	switch {
	case cq.DeletionTimestamp != nil:
		now = "terminating"
	case g.statuses.active(cq).Status == metav1.ConditionTrue:
		now = "active"
	}
	for _, status := range []string{"pending", "active", "terminating"} {
		value := 0.0
		if status == now {
			value = 1
		}
		g.set("kueue_cluster_queue_status", value, name, status)
	}
}

func (g gauging) resources(name string, cq *kueue.ClusterQueue, a *account, status admission.QueueStatus, tally *tally) {
	cohort := string(cq.Spec.CohortName)
	for _, u := range status.Usage {
		res := corev1.ResourceName(u.Resource)
		g.set("kueue_cluster_queue_resource_reservation", plain(res, u.Used), cohort, name, u.Flavor, u.Resource)
		g.set("kueue_cluster_queue_resource_usage", plain(res, a.used[flavorResource{kueue.ResourceFlavorReference(u.Flavor), res}]), cohort, name, u.Flavor, u.Resource)
	}
	for _, group := range cq.Spec.ResourceGroups {
		for _, flavor := range group.Flavors {
			for _, quota := range flavor.Resources {
				labels := []string{cohort, name, string(flavor.Name), string(quota.Name)}
				g.set("kueue_cluster_queue_nominal_quota", quota.NominalQuota.AsApproximateFloat64(), labels...)
				g.set("kueue_cluster_queue_borrowing_limit", orZero(quota.BorrowingLimit), labels...)
				g.set("kueue_cluster_queue_lending_limit", orZero(quota.LendingLimit), labels...)
			}
		}
	}
	for res, amount := range tally.asked[name] {
		g.set("kueue_cluster_queue_resource_pending", plain(corev1.ResourceName(res), amount), name, res)
	}
}

func (g gauging) cohorts(admittedBelow map[string]int32) {
	names := map[string]bool{}
	for name := range admittedBelow {
		names[name] = true
	}
	for name := range g.statuses.cohorts {
		names[name] = true
	}
	for name := range names {
		status, exists := g.engine.CohortStatus(name)
		if exists && g.statuses.fair {
			g.set("kueue_cohort_weighted_share", status.FairShare, name)
		}
		if !exists || !g.options.Metrics.options.Cohorts {
			continue
		}
		above := []string{}
		if cohort := g.statuses.cohorts[name]; cohort != nil {
			above = g.cohortsOf(string(cohort.Spec.ParentName))
		}
		parent, root := ends(above)
		if root == "" {
			root = name
		}
		g.set("kueue_cohort_info", 1, name, parent, root)
		g.set("kueue_cohort_subtree_admitted_active_workloads", float64(admittedBelow[name]), name)
		for _, u := range status.Subtree {
			res := corev1.ResourceName(u.Resource)
			g.set("kueue_cohort_subtree_quota", plain(res, u.Quota), name, u.Flavor, u.Resource)
			g.set("kueue_cohort_subtree_resource_reservations", plain(res, u.Used), name, u.Flavor, u.Resource)
		}
	}
}

func (g gauging) localQueue(key client.ObjectKey, lq *kueue.LocalQueue, tally *tally) {
	a := g.statuses.ledger.localQueue(key)
	active := tally.active[key]
	g.set("kueue_local_queue_pending_workloads", float64(active), key.Name, key.Namespace, "active")
	g.set("kueue_local_queue_pending_workloads", float64(max(0, a.pending-active)), key.Name, key.Namespace, "inadmissible")
	g.set("kueue_local_queue_reserving_active_workloads", float64(a.reserving), key.Name, key.Namespace)
	g.set("kueue_local_queue_admitted_active_workloads", float64(a.admitted), key.Name, key.Namespace)
	g.set("kueue_local_queue_finished_workloads", float64(tally.finishedLocal[key]), key.Name, key.Namespace)
	condition := apimeta.FindStatusCondition(lq.Status.Conditions, kueue.LocalQueueActive)
	for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
		value := 0.0
		if condition != nil && condition.Status == status || condition == nil && status == metav1.ConditionUnknown {
			value = 1
		}
		g.set("kueue_local_queue_status", value, key.Name, key.Namespace, string(status))
	}
	for _, fr := range sorted(a.reserved) {
		labels := []string{key.Name, key.Namespace, string(fr.flavor), string(fr.resource)}
		g.set("kueue_local_queue_resource_reservation", plain(fr.resource, a.reserved[fr]), labels...)
		g.set("kueue_local_queue_resource_usage", plain(fr.resource, a.used[fr]), labels...)
	}
	if g.statuses.sample > 0 {
		if status, exists := g.engine.LocalStatus(admission.Key{Namespace: key.Namespace, Name: key.Name}); exists {
			g.set("kueue_local_queue_admission_fair_sharing_usage", status.Share, key.Name, key.Namespace, string(lq.Spec.ClusterQueue))
		}
	}
}

// unadmittedAt is what waiting workloads are counted by.
type unadmittedAt struct {
	clusterQueue, reason, cause string
	localQueue                  client.ObjectKey
}

// tally is what only the workloads themselves can tell.
type tally struct {
	finished                    map[string]int32
	finishedLocal, active       map[client.ObjectKey]int32
	asked                       map[string]admission.Requests
	unadmitted, unadmittedLocal map[unadmittedAt]int
}

func (g gauging) tallyUp() *tally {
	t := &tally{
		finished: map[string]int32{}, finishedLocal: map[client.ObjectKey]int32{}, active: map[client.ObjectKey]int32{},
		asked: map[string]admission.Requests{}, unadmitted: map[unadmittedAt]int{}, unadmittedLocal: map[unadmittedAt]int{},
	}
	for _, w := range g.workloads {
		wl := w.object
		local := client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}
		queue := ""
		lq := g.statuses.localQueues[local]
		if lq != nil {
			queue = string(lq.Spec.ClusterQueue)
		}
		switch {
		case workload.IsFinished(wl):
			if wl.Status.Admission != nil {
				t.finished[string(wl.Status.Admission.ClusterQueue)]++
				t.finishedLocal[local]++
			}
		case !workload.IsActive(wl) || workload.IsAdmitted(wl):
		default:
			g.tallyWaiting(t, wl, unadmittedAt{clusterQueue: queue, localQueue: local}, g.hasMetrics(lq))
		}
	}
	return t
}

func (g gauging) tallyWaiting(t *tally, wl *kueue.Workload, at unadmittedAt, local bool) {
	at.reason = string(admission.ReasonPending)
	condition := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	if condition != nil {
		at.reason = condition.Reason
	}
	if workload.HasReservation(wl) {
		at.reason = "UnsatisfiedAdmissionChecks"
	} else {
		if at.reason == string(admission.ReasonPending) || at.reason == string(admission.ReasonWaitingForPreemptedWorkloads) {
			t.active[at.localQueue]++
		}
		sums := t.asked[at.clusterQueue]
		if sums == nil {
			sums = admission.Requests{}
			t.asked[at.clusterQueue] = sums
		}
		engine := g.forEngine(wl)
		for i := range engine.PodSets {
			for name, amount := range engine.PodSets[i].Requests {
				sums[name] += amount * int64(engine.PodSets[i].Count)
			}
		}
	}
	if local {
		t.unadmittedLocal[at]++
	}
	at.localQueue = client.ObjectKey{}
	t.unadmitted[at]++
}

// ends of a chain of cohorts: the nearest and the root.
func ends(above []string) (parent, root string) {
	if len(above) == 0 {
		return "", ""
	}
	return above[0], above[len(above)-1]
}

// plain is an amount in the unit people count in: cores, bytes, cards.
func plain(name corev1.ResourceName, amount int64) float64 {
	q := workload.Quantity(name, amount)
	return q.AsApproximateFloat64()
}

func orZero(q *resource.Quantity) float64 {
	if q == nil {
		return 0
	}
	return q.AsApproximateFloat64()
}
