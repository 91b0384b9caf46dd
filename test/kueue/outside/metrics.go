package outside

import (
	"maps"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/kueue/pkg/metrics"
)

// collecting is a registry that only notes what is registered.
type collecting struct {
	ctrlmetrics.RegistererGatherer
	all []prometheus.Collector
}

func (c *collecting) MustRegister(vectors ...prometheus.Collector) { c.all = append(c.all, vectors...) }

// vectors are those of Kueue's metrics, as Kueue registers them.
func vectors() []prometheus.Collector {
	real := ctrlmetrics.Registry
	defer func() { ctrlmetrics.Registry = real }()
	c := &collecting{RegistererGatherer: real}
	ctrlmetrics.Registry = c
	metrics.Register()
	metrics.RegisterLQMetrics()
	return c.all
}

// served are the series that each program which runs now served last, by its address. Suites of several clusters have several
// programs and one process for their metrics: what one does not serve, another may.
var served = struct {
	sync.Mutex

	by map[string]map[string]bool
}{by: map[string]map[string]bool{}}

// forget a program that ends.
func forget(url string) {
	served.Lock()
	defer served.Unlock()
	delete(served.by, url)
}

// isServed says that some program serves a series. Who asks holds the lock.
func isServed(series string) bool {
	for _, by := range served.by {
		if by[series] {
			return true
		}
	}
	return false
}

// copied is what the program served last of each counter and histogram, by labels. Only what was added since is copied,
// as a spec may have reset its own.
type copied map[prometheus.Collector]map[string]float64

// added is how much a series has grown since it was last asked for.
func (c copied) added(vector prometheus.Collector, labels []string, now float64) float64 {
	if c[vector] == nil {
		c[vector] = map[string]float64{}
	}
	key := strings.Join(labels, "\x00")
	before := c[vector][key]
	if c[vector][key] = now; now < before { // the program started again
		return now
	}
	return now - before
}

// copyMetrics sets Kueue's vectors in this process to what the program serves.
func (c copied) copyMetrics(url string, into []prometheus.Collector) {
	response, err := http.Get(url)
	if err != nil {
		return // it is just being started
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return
	}
	served.Lock()
	defer served.Unlock()
	mine := map[string]bool{}
	served.by[url] = mine
	for _, vector := range into {
		switch v := vector.(type) {
		case *prometheus.GaugeVec:
			c.copyVector(v, mine, v.DeleteLabelValues, families, func(labels []string, m *dto.Metric) {
				v.WithLabelValues(labels...).Set(m.GetGauge().GetValue())
			})
		case *prometheus.CounterVec:
			c.copyVector(v, mine, v.DeleteLabelValues, families, func(labels []string, m *dto.Metric) {
				v.WithLabelValues(labels...).Add(c.added(v, labels, m.GetCounter().GetValue()))
			})
		case *prometheus.HistogramVec: // the suites look at the number of samples alone
			c.copyVector(v, mine, v.DeleteLabelValues, families, func(labels []string, m *dto.Metric) {
				for range int(c.added(v, labels, float64(m.GetHistogram().GetSampleCount()))) {
					v.WithLabelValues(labels...).Observe(0)
				}
			})
		}
	}
}

var description = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)

// copyVector sets the series of a vector to those of its family, notes them, and deletes those that no program serves.
func (c copied) copyVector(vector prometheus.Collector, mine map[string]bool, drop func(...string) bool, families map[string]*dto.MetricFamily, set func([]string, *dto.Metric)) {
	described := make(chan *prometheus.Desc, 1)
	vector.Describe(described)
	parts := description.FindStringSubmatch((<-described).String())
	if parts == nil {
		return
	}
	names := strings.FieldsFunc(parts[2], func(r rune) bool { return r == ',' })
	series := func(labels []string) string { return parts[1] + "\x00" + strings.Join(labels, "\x00") }
	for _, m := range families[parts[1]].GetMetric() {
		values := labelsOf(m, names)
		mine[series(values)] = true
		set(values, m)
	}
	maps.DeleteFunc(c[vector], func(key string, _ float64) bool { return !mine[parts[1]+"\x00"+key] })
	all := make(chan prometheus.Metric)
	go func() {
		vector.Collect(all)
		close(all)
	}()
	var stale [][]string
	for m := range all {
		if values := labelsOf(read(m), names); !isServed(series(values)) {
			stale = append(stale, values)
		}
	}
	for _, values := range stale {
		drop(values...)
	}
}

func labelsOf(m *dto.Metric, names []string) []string {
	values := make([]string, len(names))
	for i, name := range names {
		for _, label := range m.GetLabel() {
			if label.GetName() == name {
				values[i] = label.GetValue()
			}
		}
	}
	return values
}

func read(m prometheus.Metric) *dto.Metric {
	into := &dto.Metric{}
	_ = m.Write(into)
	return into
}
