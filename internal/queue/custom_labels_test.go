package queue

import (
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/internal/features"
	"github.com/elastic-ai/elastic/internal/queue/metrics"
)

// Metrics carry what the objects they are about say now; what was counted before stays as it was.
func TestCustomMetricLabels(t *testing.T) {
	from := func(name, key string, kind kueueconfig.SourceKind, tracked ...string) kueueconfig.ControllerMetricsCustomLabel {
		return kueueconfig.ControllerMetricsCustomLabel{Name: name, SourceLabelKey: key, SourceKind: &kind, TrackedValues: tracked}
	}
	cfg := &v1alpha1.QueueConfiguration{}
	cfg.QueueMetrics.LocalQueues = &kueueconfig.LocalQueueMetrics{Enable: true}
	cfg.QueueMetrics.CustomLabels = []kueueconfig.ControllerMetricsCustomLabel{
		from("team", "example.com/team", kueueconfig.SourceKindClusterQueue),
		{Name: "note", SourceAnnotationKey: "example.com/note", SourceKind: ptr.To(kueueconfig.SourceKindLocalQueue)},
		from("size", "size", kueueconfig.SourceKindWorkload, "big"),
	}
	gates, err := features.New(map[string]bool{string(features.CustomMetricLabels): true})
	if err != nil {
		t.Fatal(err)
	}
	options, err := metrics.OptionsFrom(cfg, gates)
	if err != nil {
		t.Fatal(err)
	}
	p := newHarness(t)
	p.registry = prometheus.NewRegistry()
	shell := New(nil, nil, Options{Features: gates, Recorder: events.NewFakeRecorder(1000), Log: logr.Discard(), Metrics: metrics.New(p.registry, options)})
	shell.now = p.now
	p.Shell = shell
	p.leading.Store(true)
	p.oneQueue()
	team := func(name string) {
		cq := queueObject("cq", "", "")
		cq.Labels = map[string]string{"example.com/team": name}
		p.see(cq)
	}
	team("red")
	lq := named(&kueue.LocalQueue{}, "main")
	lq.Namespace, lq.Spec.ClusterQueue, lq.Annotations = "ns", "cq", map[string]string{"example.com/note": "hello"}
	p.see(lq)
	for name, size := range map[string]string{"one": "big", "two": "huge"} {
		wl := p.workload(name, "main", "batch", 1, "1")
		wl.Labels = map[string]string{"size": size}
		p.see(wl)
	}
	expect := func(want map[string]float64) {
		t.Helper()
		got := p.scrape()
		for series, value := range want {
			if have, there := got[series]; have != value || there != (value > 0) {
				t.Errorf("%s is %v, want %v", series, have, value)
			}
		}
		if t.Failed() {
			for series, value := range got {
				if strings.Contains(series, "custom_") && value > 0 {
					t.Log(series, value)
				}
			}
		}
	}
	expect(map[string]float64{
		"kueue_admitted_workloads_total{cluster_queue=cq,custom_team=red,priority_class=batch}":                                       2,
		"kueue_reserving_active_workloads{cluster_queue=cq,custom_team=red}":                                                          2,
		"kueue_local_queue_reserving_active_workloads{custom_note=hello,name=main,namespace=ns}":                                      2,
		"kueue_admitted_active_workloads{cluster_queue=cq,custom_size=big,custom_team=red}":                                           1,
		"kueue_admitted_active_workloads{cluster_queue=cq,custom_size=" + kueueconfig.UntrackedCustomLabelValue + ",custom_team=red}": 1,
		"kueue_local_queue_admitted_workloads_total{custom_note=hello,name=main,namespace=ns,priority_class=batch}":                   2,
	})
	team("blue")
	expect(map[string]float64{
		"kueue_admitted_workloads_total{cluster_queue=cq,custom_team=red,priority_class=batch}": 2,
		"kueue_reserving_active_workloads{cluster_queue=cq,custom_team=blue}":                   2,
		"kueue_reserving_active_workloads{cluster_queue=cq,custom_team=red}":                    0,
		"kueue_admitted_active_workloads{cluster_queue=cq,custom_size=big,custom_team=blue}":    1,
	})
}

// Every value is a series of its own: their number has bounds.
func TestCustomMetricLabelsAreValidated(t *testing.T) {
	kind := func(k kueueconfig.SourceKind) *kueueconfig.SourceKind { return &k }
	for name, test := range map[string]struct {
		labels []kueueconfig.ControllerMetricsCustomLabel
		want   string
	}{
		"good":                 {labels: []kueueconfig.ControllerMetricsCustomLabel{{Name: "team"}}},
		"no name":              {labels: []kueueconfig.ControllerMetricsCustomLabel{{Name: "a-b"}}, want: "does not match"},
		"a name twice":         {labels: []kueueconfig.ControllerMetricsCustomLabel{{Name: "a"}, {Name: "a", SourceKind: kind("LocalQueue")}}, want: "is taken"},
		"two sources":          {labels: []kueueconfig.ControllerMetricsCustomLabel{{Name: "a", SourceLabelKey: "x", SourceAnnotationKey: "y"}}, want: "mutually exclusive"},
		"no key":               {labels: []kueueconfig.ControllerMetricsCustomLabel{{Name: "a", SourceLabelKey: "x y"}}, want: "x y"},
		"of no kind":           {labels: []kueueconfig.ControllerMetricsCustomLabel{{Name: "a", SourceKind: kind("Pod")}}, want: "unknown source kind"},
		"any value of a pod's": {labels: []kueueconfig.ControllerMetricsCustomLabel{{Name: "a", SourceKind: kind("Workload")}}, want: "must not be empty"},
		"too many of a kind":   {labels: []kueueconfig.ControllerMetricsCustomLabel{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e"}, {Name: "f"}, {Name: "g"}}, want: "too many"},
		"a value twice":        {labels: []kueueconfig.ControllerMetricsCustomLabel{{Name: "a", TrackedValues: []string{"x", "x"}}}, want: "twice"},
	} {
		cfg := &v1alpha1.QueueConfiguration{}
		cfg.QueueMetrics.CustomLabels = test.labels
		_, err := metrics.OptionsFrom(cfg, features.Set{})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
