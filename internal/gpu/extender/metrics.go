package extender

import "github.com/prometheus/client_golang/prometheus"

// Metrics of the extender.
type Metrics struct {
	seconds *prometheus.HistogramVec
	binds   *prometheus.CounterVec
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "elastic_gpu_extender_duration_seconds",
			Help:    "Time to answer kube-scheduler, by verb.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 12),
		}, []string{"verb"}),
		binds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "elastic_gpu_binds_total",
			Help: "Pods bound with cards, by result.",
		}, []string{"result"}),
	}
	registry.MustRegister(m.seconds, m.binds)
	return m
}
