package metrics

import (
	"context"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/engineview"
	"github.com/elastic-ai/elastic/internal/queue/status"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// scrapeTimeout is how long a scrape waits for the loop.
const scrapeTimeout = 5 * time.Second

// Source is the loop, which gauges are computed in.
type Source interface {
	// View calls f with the loop's state, which does not change meanwhile. It is an error if the
	// loop does not run, as on a replica that does not lead.
	View(ctx context.Context, f func(View)) error
}

// View is the loop's state.
type View struct {
	Engine    *admission.Engine
	Objects   *engineview.Objects
	Statuses  *status.Publisher
	Workloads iter.Seq[*kueue.Workload]
	// ForEngine is a workload as the engine sees it.
	ForEngine func(*kueue.Workload) admission.Workload
	// ReasonsUnwritten is how many workloads' reasons to wait are not in their status yet.
	ReasonsUnwritten int
	// Budgets are how much is used of them.
	Budgets func() []Budget
}

// Budget is how much is used of one, in its unit.
type Budget struct {
	Target, Period, Unit     string
	Amount, Spent, Committed float64
}

// CollectFrom has gauges computed in the loop. Call it before the first scrape.
func (m *Metrics) CollectFrom(source Source) { m.source = source }

// CountNodesFrom has bought nodes counted by what calls report with how many there are. Call it before the first scrape.
func (m *Metrics) CountNodesFrom(count func(report func(flavor, state string, nodes int))) {
	m.countNodes = count
}

// Collect is part of prometheus.Collector: it computes the gauges. A replica that does not lead has
// none but its build.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	to <- prometheus.MustNewConstMetric(m.gauges["kueue_build_info"], prometheus.GaugeValue, 1, buildInfo()...)
	if m.source == nil {
		return
	}
	var taken []prometheus.Metric
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	err := m.source.View(ctx, func(view View) {
		g := gauges{view, m, func(name string, value float64, labels ...string) {
			taken = append(taken, prometheus.MustNewConstMetric(m.gauges[name], prometheus.GaugeValue, value, m.labels(name, nil, labels)...))
		}}
		g.all()
	})
	if err != nil {
		return
	}
	if m.countNodes != nil {
		m.countNodes(func(flavor, state string, nodes int) {
			taken = append(taken, prometheus.MustNewConstMetric(m.gauges["elastic_bought_nodes"], prometheus.GaugeValue, float64(nodes), m.labels("elastic_bought_nodes", nil, []string{flavor, state})...))
		})
	}
	for _, metric := range taken {
		to <- metric
	}
}

// gauges computes all gauges once.
type gauges struct {
	View
	metrics *Metrics
	set     func(name string, value float64, labels ...string)
}

func (g gauges) all() {
	g.set("elastic_reasons_waiting", float64(g.ReasonsUnwritten))
	for _, b := range g.Budgets() {
		g.set("elastic_budget_amount", b.Amount, b.Target, b.Period, b.Unit)
		g.set("elastic_budget_spent", b.Spent, b.Target, b.Period, b.Unit)
		g.set("elastic_budget_committed", b.Committed, b.Target, b.Period, b.Unit)
	}
	tally := g.countWorkloads()
	admittedBelow := map[string]int32{}
	for name, cq := range g.Objects.ClusterQueues {
		a := g.Statuses.Usage().ClusterQueue(name)
		status, exists := g.Engine.Status(name)
		if !exists {
			continue
		}
		active := 0
		for local, n := range g.Engine.Active(name) {
			tally.active[local] = n
			active += n
		}
		g.set("kueue_pending_workloads", float64(active), name, "active")
		g.set("kueue_pending_workloads", float64(status.Pending-active), name, "inadmissible")
		g.set("kueue_reserving_active_workloads", float64(a.WithQuota), name)
		g.admittedActive(name, a.Admitted, tally)
		g.set("kueue_finished_workloads", float64(tally.finished[name]), name)
		g.clusterQueueStatus(name, cq)
		above := g.Objects.CohortsAbove(name)
		for _, cohort := range above {
			if !g.metrics.uncounted[cohort][name] {
				admittedBelow[cohort] += a.Admitted
			}
		}
		if g.metrics.options.Cohorts {
			parent, root := ends(above)
			g.set("kueue_cluster_queue_info", 1, name, parent, root)
		}
		if g.Statuses.FairShares(name, "") {
			g.set("kueue_cluster_queue_weighted_share", weightedShare(status.FairShare), name, string(cq.Spec.CohortName))
		}
		if g.metrics.options.Resources {
			g.resources(name, cq, a, status, tally)
		}
	}
	g.cohorts(admittedBelow)
	for key, lq := range g.Objects.LocalQueues {
		if g.metrics.hasMetrics(lq) {
			g.localQueue(key, lq, tally)
		}
	}
	if g.metrics.options.Unadmitted {
		for at, n := range tally.unadmitted {
			g.set("kueue_unadmitted_workloads", float64(n), at.clusterQueue, at.reason, at.cause)
		}
		for at, n := range tally.unadmittedLocal {
			g.set("kueue_local_queue_unadmitted_workloads", float64(n), at.localQueue.Name, at.localQueue.Namespace, at.clusterQueue, at.reason, at.cause)
		}
	}
}

// admittedActive are divided by what their workloads' custom labels say, if there are any.
func (g gauges) admittedActive(queue string, all int32, tally *tally) {
	if len(g.metrics.custom.names(kueueconfig.SourceKindWorkload)) == 0 {
		g.set(admittedActive, float64(all), queue)
		return
	}
	for _, group := range tally.admitted[queue] {
		g.set(admittedActive, float64(group.workloads), append([]string{queue}, group.labels...)...)
	}
}

func (g gauges) clusterQueueStatus(name string, cq *kueue.ClusterQueue) {
	now := "pending"
	switch {
	case cq.DeletionTimestamp != nil:
		now = "terminating"
	case g.Objects.ActiveCondition(cq).Status == metav1.ConditionTrue:
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

func (g gauges) resources(name string, cq *kueue.ClusterQueue, a *status.QueueUsage, engine admission.QueueStatus, tally *tally) {
	cohort := string(cq.Spec.CohortName)
	for _, u := range engine.Usage {
		res := corev1.ResourceName(u.Resource)
		g.set("kueue_cluster_queue_resource_reservation", plain(res, u.Used), cohort, name, u.Flavor, u.Resource)
		g.set("kueue_cluster_queue_resource_usage", plain(res, a.Used[status.FlavorResource{Flavor: kueue.ResourceFlavorReference(u.Flavor), Resource: res}]), cohort, name, u.Flavor, u.Resource)
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

func (g gauges) cohorts(admittedBelow map[string]int32) {
	for name := range g.Objects.CohortNames() {
		status, exists := g.Engine.CohortStatus(name)
		exists = exists && !g.metrics.hidden[name]
		if exists && g.Statuses.FairShares("", name) {
			g.set("kueue_cohort_weighted_share", weightedShare(status.FairShare), name)
		}
		if !exists || !g.metrics.options.Cohorts {
			continue
		}
		above := []string{}
		if cohort := g.Objects.Cohorts[name]; cohort != nil {
			above = g.Objects.CohortPath(string(cohort.Spec.ParentName))
		}
		parent, root := ends(above)
		if root == "" {
			root = name
		}
		g.set("kueue_cohort_info", 1, name, parent, root)
		if admittedBelow[name] > 0 || len(g.metrics.uncounted[name]) == 0 {
			g.set("kueue_cohort_subtree_admitted_active_workloads", float64(admittedBelow[name]), name)
		}
		for _, u := range status.Subtree {
			res := corev1.ResourceName(u.Resource)
			if u.Quota > 0 {
				g.set("kueue_cohort_subtree_quota", plain(res, u.Quota), name, u.Flavor, u.Resource)
			}
			if u.Used > 0 {
				g.set("kueue_cohort_subtree_resource_reservations", plain(res, u.Used), name, u.Flavor, u.Resource)
			}
		}
	}
}

func (g gauges) localQueue(key client.ObjectKey, lq *kueue.LocalQueue, tally *tally) {
	a := g.Statuses.Usage().LocalQueue(key)
	local := admission.Key{Namespace: key.Namespace, Name: key.Name}
	engine, _ := g.Engine.LocalStatus(local)
	g.set("kueue_local_queue_pending_workloads", float64(tally.active[local]), key.Name, key.Namespace, "active")
	g.set("kueue_local_queue_pending_workloads", float64(engine.Pending-tally.active[local]), key.Name, key.Namespace, "inadmissible")
	g.set("kueue_local_queue_reserving_active_workloads", float64(a.WithQuota), key.Name, key.Namespace)
	g.set("kueue_local_queue_admitted_active_workloads", float64(a.Admitted), key.Name, key.Namespace)
	g.set("kueue_local_queue_finished_workloads", float64(tally.finishedLocal[key]), key.Name, key.Namespace)
	condition := apimeta.FindStatusCondition(lq.Status.Conditions, kueue.LocalQueueActive)
	for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
		value := 0.0
		if condition != nil && condition.Status == status || condition == nil && status == metav1.ConditionUnknown {
			value = 1
		}
		g.set("kueue_local_queue_status", value, key.Name, key.Namespace, string(status))
	}
	for _, fr := range status.Offered(g.Objects.ClusterQueues[string(lq.Spec.ClusterQueue)]) {
		labels := []string{key.Name, key.Namespace, string(fr.Flavor), string(fr.Resource)}
		g.set("kueue_local_queue_resource_reservation", plain(fr.Resource, a.Reserved[fr]), labels...)
		g.set("kueue_local_queue_resource_usage", plain(fr.Resource, a.Used[fr]), labels...)
	}
	if g.Statuses.SamplesUsage() {
		g.set("kueue_local_queue_admission_fair_sharing_usage", engine.Share, key.Name, key.Namespace, string(lq.Spec.ClusterQueue))
	}
}

// unadmittedAt is what workloads that are not admitted are counted by.
type unadmittedAt struct {
	clusterQueue, reason, cause string
	localQueue                  client.ObjectKey
}

// tally is what has to be counted from the workloads themselves.
type tally struct {
	finished                    map[string]int32
	finishedLocal               map[client.ObjectKey]int32
	active                      map[admission.Key]int // of the pending ones, by LocalQueue
	asked                       map[string]admission.Requests
	unadmitted, unadmittedLocal map[unadmittedAt]int
	admitted                    map[string][]labelled // by ClusterQueue, where workloads have custom labels
}

// labelled is a number of workloads with the same custom labels.
type labelled struct {
	labels    []string
	workloads int
}

func (t *tally) countAdmitted(queue string, labels []string) {
	groups := t.admitted[queue]
	i := slices.IndexFunc(groups, func(g labelled) bool { return slices.Equal(g.labels, labels) })
	if i < 0 {
		i, groups = len(groups), append(groups, labelled{labels: labels})
	}
	groups[i].workloads++
	t.admitted[queue] = groups
}

func (g gauges) countWorkloads() *tally {
	t := &tally{
		finished: map[string]int32{}, finishedLocal: map[client.ObjectKey]int32{}, active: map[admission.Key]int{},
		asked: map[string]admission.Requests{}, unadmitted: map[unadmittedAt]int{}, unadmittedLocal: map[unadmittedAt]int{},
		admitted: map[string][]labelled{},
	}
	for wl := range g.Workloads {
		local := client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}
		queue := ""
		lq := g.Objects.LocalQueues[local]
		if lq != nil {
			queue = string(lq.Spec.ClusterQueue)
		}
		switch {
		case workload.IsFinished(wl):
			if wl.Status.Admission != nil {
				t.finished[string(wl.Status.Admission.ClusterQueue)]++
				t.finishedLocal[local]++
			}
		case workload.IsAdmitted(wl) && wl.Status.Admission != nil:
			if labels := g.metrics.custom.of(kueueconfig.SourceKindWorkload, wl); len(labels) > 0 {
				t.countAdmitted(string(wl.Status.Admission.ClusterQueue), labels)
			}
		case !workload.IsAdmitted(wl) && wl.DeletionTimestamp == nil:
			t.countUnadmitted(wl, unadmittedAt{clusterQueue: queue, localQueue: local}, g.metrics.hasMetrics(lq))
			if workload.IsActive(wl) && !workload.HasReservation(wl) {
				g.countAsked(t, queue, wl)
			}
		}
	}
	return t
}

// countUnadmitted counts a workload by why it is not admitted and, if it has no quota, why.
func (t *tally) countUnadmitted(wl *kueue.Workload, at unadmittedAt, local bool) {
	if at.clusterQueue == "" {
		return
	}
	at.reason, at.cause = kueue.WorkloadAdmittedReasonNoReservation, kueue.WorkloadQuotaReservedReasonPendingEvaluation
	if admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted); admitted != nil {
		at.reason = admitted.Reason
	}
	if reserved := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved); reserved != nil {
		at.cause = reserved.Reason
		if reserved.Status == metav1.ConditionTrue {
			at.cause = ""
		}
	}
	if local {
		t.unadmittedLocal[at]++
	}
	at.localQueue = client.ObjectKey{}
	t.unadmitted[at]++
}

// countAsked adds what a pending workload asks for.
func (g gauges) countAsked(t *tally, queue string, wl *kueue.Workload) {
	sums := t.asked[queue]
	if sums == nil {
		sums = admission.Requests{}
		t.asked[queue] = sums
	}
	engine := g.ForEngine(wl)
	for i := range engine.PodSets {
		for name := range engine.PodSets[i].Requests {
			sums[name] = min(sums[name]+engine.PodSets[i].Asked(name), math.MaxInt64/4) // as Asked saturates
		}
	}
}

// weightedShare is a share as a metric shows it: no number for a queue of weight zero that borrows.
func weightedShare(share float64) float64 {
	if math.IsInf(share, 1) {
		return math.NaN()
	}
	return share
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
