package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue/engineview"
)

// ObjectChanged drops the counters and histograms of a queue or cohort that no longer exists; gauges
// are those of what exists at a scrape. It was as given, nil if it is new; objects have it as it is.
func (m *Metrics) ObjectChanged(objects *engineview.Objects, was, changed client.Object) {
	is := objects.Known(changed)
	m.custom.note(changed, is == nil)
	if cq, ok := is.(*kueue.ClusterQueue); ok {
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
		}
		if gone || is.(*kueue.ClusterQueue).Spec.CohortName != was.Spec.CohortName {
			m.dropEmptyCohort(objects, string(was.Spec.CohortName))
		}
	case *kueue.Cohort:
		if gone {
			m.drop(prometheus.Labels{"cohort": was.Name})
			implied := is == nil && objects.CohortNames()[was.Name]
			setOrDelete(m.hidden, was.Name, implied)
			setOrDelete(m.uncounted, was.Name, implied)
		}
		if gone || is.(*kueue.Cohort).Spec.ParentName != was.Spec.ParentName {
			m.dropEmptyCohort(objects, string(was.Spec.ParentName))
		}
	case *kueue.LocalQueue:
		if gone || m.hasMetrics(was) && !m.hasMetrics(is.(*kueue.LocalQueue)) {
			m.drop(prometheus.Labels{"name": was.Name, "namespace": was.Namespace})
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

func setOrDelete(names map[string]bool, name string, in bool) {
	if delete(names, name); in {
		names[name] = true
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
