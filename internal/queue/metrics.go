package queue

import "github.com/prometheus/client_golang/prometheus"

// Metrics of the queue: Kueue's names where it has the metric, elastic_ where
// it has not.
type Metrics struct {
	admitted, evicted *prometheus.CounterVec
	wait              *prometheus.HistogramVec
	decisions         prometheus.Histogram
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		admitted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kueue_admitted_workloads_total",
			Help: "Workloads admitted, per ClusterQueue.",
		}, []string{"cluster_queue"}),
		evicted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kueue_evicted_workloads_total",
			Help: "Workloads evicted, per ClusterQueue and reason.",
		}, []string{"cluster_queue", "reason"}),
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kueue_admission_wait_time_seconds",
			Help:    "From a workload's creation to its admission, per ClusterQueue.",
			Buckets: prometheus.ExponentialBuckets(1, 2.5, 14),
		}, []string{"cluster_queue"}),
		decisions: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "elastic_decision_duration_seconds",
			Help:    "Time the engine took to decide once.",
			Buckets: prometheus.ExponentialBuckets(0.00001, 4, 12),
		}),
	}
	registry.MustRegister(m.admitted, m.evicted, m.wait, m.decisions)
	return m
}
