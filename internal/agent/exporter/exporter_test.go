package exporter_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/elastic-ai/elastic/internal/agent/backend/conformance"
	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/exporter"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
	"github.com/elastic-ai/elastic/internal/panics"
)

// node has one card, of which one container has a share and another the rest without a library.
type node struct {
	grants    []slots.Grant
	processes []gpushare.Process
	now       time.Time
}

func (n *node) exporter() *exporter.Exporter {
	return &exporter.Exporter{
		Node: "n1", Log: logr.Discard(),
		Cards: func(context.Context) ([]discovery.Card, error) {
			c := conformance.Card(0)
			c.UsedMB, c.Load = 700, &discovery.Load{Core: 40, Power: 250}
			return []discovery.Card{c}, nil
		},
		Grants: func() ([]slots.Grant, error) {
			for _, g := range n.grants {
				g.Cards[0].Card.MemoryMB = 0 // a grant that was written down has what the container got, not what the card has
			}
			return n.grants, nil
		},
		Processes: func(context.Context, *share.Share) ([]gpushare.Process, error) { return n.processes, nil },
		Now:       func() time.Time { return n.now },
		Pod: func(context.Context, types.NamespacedName) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
				"batch.kubernetes.io/job-name": "train", "kueue.x-k8s.io/local-queue-name": "main", "kueue.x-k8s.io/cluster-queue-name": "team",
			}}}
		},
	}
}

func process(socket string, busy, waited int64) gpushare.Process {
	return gpushare.Process{Socket: socket, PID: len(socket), Age: time.Minute, Devices: []gpushare.Device{{
		UUID: conformance.Card(0).UUID, Used: 600 << 20, Swapped: 100 << 20, BusyNS: busy, WaitedNS: waited,
	}}}
}

func TestWhatIsReported(t *testing.T) {
	n := &node{
		grants:    []slots.Grant{{Backend: "gpushare", Share: *conformance.Subject{}.Share("3", 0)}, {Backend: "mps", Share: *conformance.Subject{}.Share("4", 0)}},
		processes: []gpushare.Process{process("a", 2e9, 5e8), process("b", 1e9, 0)},
	}
	const card = `{card="0",model="A100-40G",node="n1",uuid="GPU-00000000-0000-0000-0000-000000000000"}`
	const share = `{backend="gpushare",card="0",cluster_queue="team",container="main",job="train",namespace="team",node="n1",pod="pod-3",queue="main",uuid="GPU-00000000-0000-0000-0000-000000000000"}`
	want := `
# HELP elastic_gpu_card_core_allocated_ratio Part of the card's compute that containers here were given; without limits each counts as 1.
# TYPE elastic_gpu_card_core_allocated_ratio gauge
elastic_gpu_card_core_allocated_ratio` + card + ` 0.6
# HELP elastic_gpu_card_memory_allocated_bytes Memory that containers here were given.
# TYPE elastic_gpu_card_memory_allocated_bytes gauge
elastic_gpu_card_memory_allocated_bytes` + card + ` 2.097152e+09
# HELP elastic_gpu_card_utilization_ratio Part of the time in which the card did something.
# TYPE elastic_gpu_card_utilization_ratio gauge
elastic_gpu_card_utilization_ratio` + card + ` 0.4
# HELP elastic_gpu_container_compute_seconds_total Time that it had the card.
# TYPE elastic_gpu_container_compute_seconds_total counter
elastic_gpu_container_compute_seconds_total` + share + ` 3
# HELP elastic_gpu_container_memory_swapped_bytes Of that, what is on the host.
# TYPE elastic_gpu_container_memory_swapped_bytes gauge
elastic_gpu_container_memory_swapped_bytes` + share + ` 2.097152e+08
# HELP elastic_gpu_container_memory_used_bytes Memory that it uses.
# TYPE elastic_gpu_container_memory_used_bytes gauge
elastic_gpu_container_memory_used_bytes` + share + ` 6.291456e+08
# HELP elastic_gpu_container_throttled_seconds_total Time that its launches waited for their turn.
# TYPE elastic_gpu_container_throttled_seconds_total counter
elastic_gpu_container_throttled_seconds_total` + share + ` 0.5
`
	if err := testutil.CollectAndCompare(n.exporter(), strings.NewReader(want),
		"elastic_gpu_card_core_allocated_ratio", "elastic_gpu_card_memory_allocated_bytes", "elastic_gpu_card_utilization_ratio",
		"elastic_gpu_container_compute_seconds_total", "elastic_gpu_container_memory_swapped_bytes",
		"elastic_gpu_container_memory_used_bytes", "elastic_gpu_container_throttled_seconds_total"); err != nil {
		t.Error(err)
	}
}

// Processes come and go; what they did stays counted, and a pid that is used again counts from zero.
func TestCountersNeverGoBack(t *testing.T) {
	n := &node{grants: []slots.Grant{{Backend: "gpushare", Share: *conformance.Subject{}.Share("3", 0)}}}
	e := n.exporter()
	for i, step := range []struct {
		processes []gpushare.Process
		want      float64
	}{
		{[]gpushare.Process{process("a", 2e9, 0)}, 2},
		{[]gpushare.Process{process("a", 3e9, 0), process("b", 1e9, 0)}, 4},
		{[]gpushare.Process{process("b", 2e9, 0)}, 5},
		{nil, 5},
		{[]gpushare.Process{process("b", 1e9, 0)}, 6},
	} {
		n.processes, n.now = step.processes, n.now.Add(time.Minute)
		if got := value(t, e, "elastic_gpu_container_compute_seconds_total"); got != step.want {
			t.Errorf("step %d: %g seconds, want %g", i, got, step.want)
		}
	}
	// One that does not answer once goes on from where it was.
	for i, step := range []struct {
		p    gpushare.Process
		want float64
	}{
		{gpushare.Process{Socket: "b", Silent: true}, 6},
		{process("b", 3e9, 0), 8},
	} {
		n.processes, n.now = []gpushare.Process{step.p}, n.now.Add(time.Minute)
		if got := value(t, e, "elastic_gpu_container_compute_seconds_total"); got != step.want {
			t.Errorf("silent, step %d: %g seconds, want %g", i, got, step.want)
		}
	}
	// Another pod in the same slot begins at zero.
	n.grants[0].UID, n.processes = "another", nil
	if got := value(t, e, "elastic_gpu_container_compute_seconds_total"); got != 0 {
		t.Errorf("another pod begins with %g seconds", got)
	}
}

// A count that is forged is at most that of a container which has its card all the time, and never leaps.
func TestForgedCountsAreBoundedByTime(t *testing.T) {
	n := &node{grants: []slots.Grant{{Backend: "gpushare", Share: *conformance.Subject{}.Share("3", 0)}}}
	n.now = time.Now()
	e := n.exporter()
	forged := func(socket string, age time.Duration) gpushare.Process {
		p := process(socket, math.MaxInt64, math.MaxInt64)
		p.Age = age
		p.Devices[0].Used, p.Devices[0].Swapped = math.MaxInt64, math.MaxInt64
		p.Devices = append(p.Devices, gpushare.Device{UUID: "GPU-of-another", BusyNS: math.MaxInt64})
		return p
	}
	n.processes = []gpushare.Process{forged("a", time.Minute), forged("b", 2*time.Minute)}
	if got := value(t, e, "elastic_gpu_container_compute_seconds_total"); got != 120 {
		t.Errorf("processes of at most two minutes had the card for %g seconds", got)
	}
	if got := value(t, e, "elastic_gpu_container_memory_used_bytes"); got != 40960<<20 {
		t.Errorf("it uses %g bytes of a card", got)
	}
	if got := value(t, e, "elastic_gpu_container_memory_swapped_bytes"); got != 40960<<20 {
		t.Errorf("%g bytes of a card are on the host", got)
	}
	for _, step := range []struct {
		passes time.Duration
		want   float64
	}{{15 * time.Second, 135}, {0, 135}, {-time.Hour, 135}, {time.Second, 136}} {
		n.now = n.now.Add(step.passes)
		if got := value(t, e, "elastic_gpu_container_compute_seconds_total"); got != step.want {
			t.Errorf("%s later: %g seconds, want %g", step.passes, got, step.want)
		}
	}
}

// What a process did is counted in full, also where a reading came a moment early.
func TestHonestCountsAreComplete(t *testing.T) {
	n := &node{grants: []slots.Grant{{Backend: "gpushare", Share: *conformance.Subject{}.Share("3", 0)}}, now: time.Now()}
	e := n.exporter()
	p := process("a", 60e9, 0)
	for _, step := range []struct {
		passes time.Duration
		busy   int64
		want   float64
	}{{0, 60e9, 60}, {10 * time.Second, 70_100e6, 70}, {10 * time.Second, 79_900e6, 79.9}} {
		n.now = n.now.Add(step.passes)
		p.Devices[0].BusyNS = step.busy
		n.processes = []gpushare.Process{p}
		if got := value(t, e, "elastic_gpu_container_compute_seconds_total"); got != step.want {
			t.Errorf("%s later: %g seconds, want %g", step.passes, got, step.want)
		}
	}
}

// A container that does not answer costs the others nothing: they are asked at the same time.
func TestContainersAreAskedAtOnce(t *testing.T) {
	n := &node{grants: []slots.Grant{{Backend: "gpushare", Share: *conformance.Subject{}.Share("3", 0)}, {Backend: "gpushare", Share: *conformance.Subject{}.Share("4", 0)}}}
	e := n.exporter()
	asked := make(chan struct{})
	e.Processes = func(_ context.Context, s *share.Share) ([]gpushare.Process, error) {
		if s.ID == "4" {
			close(asked)
		}
		<-asked // the first one says nothing until the second is asked
		return nil, nil
	}
	if got := value(t, e, "elastic_gpu_container_processes"); got != 0 {
		t.Errorf("%g processes", got)
	}
}

// A defect concerns one container, which is not reported in full; the others are.
func TestDefectConcernsOneContainer(t *testing.T) {
	for _, stage := range []string{"ask", "export"} {
		n := &node{grants: []slots.Grant{{Backend: "gpushare", Share: *conformance.Subject{}.Share("3", 0)}, {Backend: "gpushare", Share: *conformance.Subject{}.Share("4", 0)}}}
		e := n.exporter()
		before := testutil.ToFloat64(panics.Total.WithLabelValues(stage))
		processes, pod := e.Processes, e.Pod
		e.Processes = func(ctx context.Context, s *share.Share) ([]gpushare.Process, error) {
			if stage == "ask" && s.ID == "3" {
				panic("no such thing")
			}
			return processes(ctx, s)
		}
		e.Pod = func(ctx context.Context, key types.NamespacedName) *corev1.Pod {
			if stage == "export" && key.Name == "pod-3" {
				panic("no such thing")
			}
			return pod(ctx, key)
		}
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(e)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		reported := false
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					reported = reported || l.GetValue() == "pod-4"
				}
			}
		}
		if n := testutil.ToFloat64(panics.Total.WithLabelValues(stage)) - before; !reported || n != 1 {
			t.Errorf("%s: the other container is reported: %v; %g defects counted", stage, reported, n)
		}
	}
}

// value of a metric that there is one of.
func value(t *testing.T, e *exporter.Exporter, name string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(e)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

// Every metric that the dashboard draws is reported here, and it draws all of them but those that count.
func TestDashboardDrawsWhatIsReported(t *testing.T) {
	data, err := os.ReadFile("../../../deploy/monitoring/gpu-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(data) {
		t.Fatal("it is not JSON")
	}
	drawn := map[string]bool{}
	for _, name := range regexp.MustCompile(`elastic_gpu_\w+`).FindAllString(string(data), -1) {
		drawn[name] = true
	}
	out := make(chan *prometheus.Desc, 100)
	(&exporter.Exporter{}).Describe(out)
	close(out)
	for d := range out {
		name := regexp.MustCompile(`elastic_gpu_\w+`).FindString(d.String())
		if !drawn[name] && name != "elastic_gpu_card_instances" && name != "elastic_gpu_container_processes" {
			t.Errorf("%s is not in the dashboard", name)
		}
		delete(drawn, name)
	}
	for name := range drawn {
		t.Errorf("the dashboard draws %s, which is not reported", name)
	}
}
