package outside

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Suites of several clusters have several programs. What one serves is not dropped because another does not serve it, and
// goes when it ends.
func TestMetricsOfSeveralPrograms(t *testing.T) {
	serve := func(text string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }))
		t.Cleanup(server.Close)
		return server.URL
	}
	manager := serve("# TYPE sent_total counter\nsent_total{queue=\"q\",cluster=\"east\"} 3\n")
	worker := serve("# TYPE other gauge\nother 1\n")
	sent := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sent_total"}, []string{"queue", "cluster"})
	here, there := copied{}, copied{}
	count := func() (values []float64) {
		all := make(chan prometheus.Metric, 8)
		sent.Collect(all)
		close(all)
		for m := range all {
			values = append(values, read(m).GetCounter().GetValue())
		}
		return values
	}
	for range 2 {
		here.copyMetrics(manager, []prometheus.Collector{sent})
		there.copyMetrics(worker, []prometheus.Collector{sent})
	}
	if got := count(); len(got) != 1 || got[0] != 3 {
		t.Errorf("while both run: %v", got)
	}
	forget(manager)
	there.copyMetrics(worker, []prometheus.Collector{sent})
	if got := count(); len(got) != 0 {
		t.Errorf("after the first has ended: %v", got)
	}
}
