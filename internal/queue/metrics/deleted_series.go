package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue/engineview"
)

// ObjectChanged drops the counters and histograms of a queue or cohort that no longer exists; gauges
// are those of what exists at a scrape. It was as given, nil if it is new; objects have it as it is.
func (m *Metrics) ObjectChanged(objects *engineview.Objects, was, changed client.Object) {
	is := objects.Known(changed)
	m.custom.note(changed, is == nil)
	if cq, ok := is.(*kueue.ClusterQueue); ok && changesCohort(was, cq) {
		delete(m.hidden, string(cq.Spec.CohortName))
	}
	if was == nil {
		return
	}
	gone := is == nil || is.GetUID() != was.GetUID()
	switch was := was.(type) {
	case *kueue.ClusterQueue:
		if gone {
			m.drop(prometheus.Labels{"cluster_queue": was.Name})
			m.drop(prometheus.Labels{"preempting_cluster_queue": was.Name})
			for _, queues := range m.uncounted {
				delete(queues, was.Name)
			}
		}
		if gone || is.(*kueue.ClusterQueue).Spec.CohortName != was.Spec.CohortName {
			m.dropEmptyCohort(objects, string(was.Spec.CohortName))
		}
	case *kueue.Cohort:
		m.cohortChanged(objects, was, is)
	case *kueue.LocalQueue:
		if gone || m.hasMetrics(was) && !m.hasMetrics(is.(*kueue.LocalQueue)) {
			m.drop(prometheus.Labels{"name": was.Name, "namespace": was.Namespace})
		}
	}
}

// changesCohort says whether a change of a ClusterQueue is one of what there is in its cohort. What its status says of the
// queue alone, such as the condition of one that was just created, may come after its cohort was deleted.
func changesCohort(was client.Object, is *kueue.ClusterQueue) bool {
	before, known := was.(*kueue.ClusterQueue)
	return !known || before.UID != is.UID || !equality.Semantic.DeepEqual(before.Spec, is.Spec) ||
		before.Status.ReservingWorkloads != is.Status.ReservingWorkloads || before.Status.AdmittedWorkloads != is.Status.AdmittedWorkloads
}

// cohortChanged handles a Cohort that is nil, if it was deleted, or has another parent.
func (m *Metrics) cohortChanged(objects *engineview.Objects, was *kueue.Cohort, is client.Object) {
	now, exists := is.(*kueue.Cohort)
	same := exists && now.UID == was.UID
	if !same {
		m.drop(prometheus.Labels{"cohort": was.Name})
		delete(m.hidden, was.Name)
		delete(m.uncounted, was.Name)
		if !exists && objects.CohortNames()[was.Name] {
			m.hidden[was.Name] = true
			m.uncount(objects, was.Name, was.Name)
		}
	}
	if same && now.Spec.ParentName == was.Spec.ParentName {
		return
	}
	m.dropEmptyCohort(objects, string(was.Spec.ParentName))
	if same {
		for _, above := range objects.CohortPath(string(now.Spec.ParentName)) {
			m.uncount(objects, was.Name, above)
		}
	}
}

// uncount leaves what is admitted below one cohort out of the count of another, until the next admission there.
func (m *Metrics) uncount(objects *engineview.Objects, below, of string) {
	if m.uncounted[of] == nil {
		m.uncounted[of] = map[string]bool{}
	}
	for queue := range objects.ClusterQueues {
		if slices.Contains(objects.CohortsAbove(queue), below) {
			m.uncounted[of][queue] = true
		}
	}
}

// dropEmptyCohort drops the series of a cohort that existed only because something was in it.
func (m *Metrics) dropEmptyCohort(objects *engineview.Objects, name string) {
	if name != "" && !objects.CohortNames()[name] {
		m.drop(prometheus.Labels{"cohort": name})
		delete(m.hidden, name)
		delete(m.uncounted, name)
	}
}

// drop removes the series with these labels; a metric without one of the labels has none.
func (m *Metrics) drop(labels prometheus.Labels) {
	for _, counter := range m.counters {
		counter.DeletePartialMatch(labels)
	}
	for _, histogram := range m.histograms {
		histogram.DeletePartialMatch(labels)
	}
}
