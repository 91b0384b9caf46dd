package metrics

import (
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	build "github.com/elastic-ai/elastic/internal/version"
)

// Metrics of the queue. Counters and histograms are updated as things happen; gauges are computed at
// each scrape, so they cost decisions nothing.
type Metrics struct {
	options    Options
	counters   map[string]*prometheus.CounterVec
	histograms map[string]*prometheus.HistogramVec
	gauges     map[string]*prometheus.Desc
	source     Source
	countNodes func(report func(flavor, state string, nodes int))
	// hidden are cohorts whose object was deleted. As in Kueue, what is in them shows again when one of
	// their ClusterQueues changes.
	hidden map[string]bool
	// uncounted are, for a cohort, the ClusterQueues whose admitted workloads it does not count: those that were in it when
	// its object was deleted, or came with a Cohort. Kueue counts below a cohort with the next admission only.
	uncounted map[string]map[string]bool
	custom    *customLabels
	abouts    map[string]about // what each metric is about
}

// New makes the metrics and registers them.
func New(registry prometheus.Registerer, options Options) *Metrics {
	m := &Metrics{
		options: options, counters: map[string]*prometheus.CounterVec{}, histograms: map[string]*prometheus.HistogramVec{},
		gauges: map[string]*prometheus.Desc{}, hidden: map[string]bool{}, uncounted: map[string]map[string]bool{},
		custom: newCustomLabels(options.Custom), abouts: map[string]about{},
	}
	for _, d := range Definitions() {
		if strings.HasPrefix(d.Name, "kueue_") {
			m.abouts[d.Name] = aboutOf(d.Labels)
		}
		d.Labels = append(d.Labels, m.custom.names(m.kindsOf(d.Name)...)...)
		switch d.Type {
		case "counter":
			m.counters[d.Name] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.Labels)
			registry.MustRegister(m.counters[d.Name])
		case "histogram":
			m.histograms[d.Name] = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: d.buckets}, d.Labels)
			registry.MustRegister(m.histograms[d.Name])
		case "gauge":
			m.gauges[d.Name] = prometheus.NewDesc(d.Name, d.Help, d.Labels, nil)
		}
	}
	registry.MustRegister(m)
	return m
}

// Describe is part of prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range m.gauges {
		to <- desc
	}
}

// count and observe take a name without "kueue_", and the labels between the queue's and the role.
func (m *Metrics) count(name string, q queueLabels, labels ...string) {
	m.counters["kueue_"+name].WithLabelValues(m.labels("kueue_"+name, []string{q.clusterQueue}, labels)...).Inc()
	if local := m.counters["kueue_local_queue_"+name]; local != nil && q.local {
		local.WithLabelValues(m.labels("kueue_local_queue_"+name, []string{q.localQueue.Name, q.localQueue.Namespace}, labels)...).Inc()
	}
}

func (m *Metrics) observe(name string, q queueLabels, value time.Duration, labels ...string) {
	m.histograms["kueue_"+name].WithLabelValues(m.labels("kueue_"+name, []string{q.clusterQueue}, labels)...).Observe(value.Seconds())
	if local := m.histograms["kueue_local_queue_"+name]; local != nil && q.local {
		local.WithLabelValues(m.labels("kueue_local_queue_"+name, []string{q.localQueue.Name, q.localQueue.Namespace}, labels)...).Observe(value.Seconds())
	}
}

// labels are all values of a metric's labels, from those that its definition names.
func (m *Metrics) labels(name string, first, rest []string) []string {
	given := append(first, rest...)
	var ofWorkload []string
	if name == admittedActive {
		given, ofWorkload = given[:1], given[1:]
	}
	all := append(slices.Clip(given), m.options.Role)
	if a := m.abouts[name]; a.kind != "" {
		all = append(all, m.custom.get(a.source(given))...)
	}
	return append(all, ofWorkload...)
}

// kindsOf are the kinds whose custom labels a metric carries.
func (m *Metrics) kindsOf(name string) []kueueconfig.SourceKind {
	kind := m.abouts[name].kind
	if name == admittedActive {
		return []kueueconfig.SourceKind{kind, kueueconfig.SourceKindWorkload}
	}
	return []kueueconfig.SourceKind{kind}
}

// admittedActive is the one metric of queues that custom labels of workloads divide.
const admittedActive = "kueue_admitted_active_workloads"

// Inc counts something that belongs to no queue.
func (m *Metrics) Inc(name string, labels ...string) {
	m.counters[name].WithLabelValues(m.labels(name, nil, labels)...).Inc()
}

// Observe adds to a histogram of something that belongs to no queue.
func (m *Metrics) Observe(name string, value float64, labels ...string) {
	m.histograms[name].WithLabelValues(m.labels(name, nil, labels)...).Observe(value)
}

// JobQueued observes how long it took until the workload of a job was created.
func (m *Metrics) JobQueued(kind string, after time.Duration) {
	if m.options.CreationLatency {
		m.Observe("kueue_workload_creation_latency_seconds", after.Seconds(), kind)
	}
}

// GateRemoved observes how long after its workload's admission a pod lost a scheduling gate.
func (m *Metrics) GateRemoved(gate string, wl *kueue.Workload, group bool) {
	admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted)
	if admitted == nil || admitted.Status != metav1.ConditionTrue || wl.Status.Admission == nil {
		return
	}
	m.Observe("kueue_pod_scheduling_gate_removal_seconds", time.Since(admitted.LastTransitionTime.Time).Seconds(),
		gate, string(wl.Status.Admission.ClusterQueue), strconv.FormatBool(group))
}

// Dispatched counts a copy of a workload in another cluster.
func (m *Metrics) Dispatched(queue, cluster string) {
	m.Inc("multikueue_workloads_dispatched_total", queue, cluster)
}

// AdmittedRemotely counts a workload that another cluster runs.
func (m *Metrics) AdmittedRemotely(queue, cluster string) {
	m.Inc("multikueue_workloads_admitted_total", queue, cluster)
}

// queueLabels are the queues of a workload, as labels.
type queueLabels struct {
	clusterQueue string
	localQueue   client.ObjectKey
	local        bool // the LocalQueue has metrics of its own
}

func buildInfo() []string {
	commit, date := "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			switch setting.Key {
			case "vcs.revision":
				commit = setting.Value
			case "vcs.time":
				date = setting.Value
			}
		}
	}
	return []string{build.String(), commit, date, runtime.Version(), runtime.Compiler, runtime.GOOS + "/" + runtime.GOARCH}
}
