package exporter

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/elastic-ai/elastic/internal/agent/backend/gpushare"
	"github.com/elastic-ai/elastic/internal/agent/discovery"
	"github.com/elastic-ai/elastic/internal/agent/share"
	"github.com/elastic-ai/elastic/internal/agent/slots"
	"github.com/elastic-ai/elastic/internal/kueuelabels"
	"github.com/elastic-ai/elastic/internal/panics"
)

// Exporter collects when it is asked.
type Exporter struct {
	Node string
	// Cards of the node.
	Cards func(ctx context.Context) ([]discovery.Card, error)
	// Grants are what containers have.
	Grants func() ([]slots.Grant, error)
	// Processes of a share under the library. They are the tenant's, and what they say is bounded here.
	Processes func(ctx context.Context, s *share.Share) ([]gpushare.Process, error)
	// Pod is found for its labels; nil if it is not there.
	Pod func(ctx context.Context, key types.NamespacedName) *corev1.Pod
	Log logr.Logger
	// Now is the clock; time.Now where it is nil.
	Now func() time.Time

	mu     sync.Mutex
	meters map[string]*meter // by slot
}

var (
	cardLabels      = []string{"node", "card", "uuid", "model"}
	containerLabels = []string{"node", "namespace", "pod", "container", "job", "queue", "cluster_queue", "backend", "card", "uuid"}
)

func cardMetric(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("elastic_gpu_card_"+name, help, cardLabels, nil)
}

func containerMetric(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("elastic_gpu_container_"+name, help, containerLabels, nil)
}

var (
	cardHealthy         = cardMetric("healthy", "1 if the card may be used.")
	cardMemory          = cardMetric("memory_bytes", "Memory of the card.")
	cardMemoryUsed      = cardMetric("memory_used_bytes", "Memory in use, by whomever.")
	cardMemoryAllocated = cardMetric("memory_allocated_bytes", "Memory that containers here were given.")
	cardBusy            = cardMetric("utilization_ratio", "Part of the time in which the card did something.")
	cardAllocated       = cardMetric("core_allocated_ratio", "Part of the card's compute that containers here were given; without limits each counts as 1.")
	cardPower           = cardMetric("power_watts", "Power drawn.")
	cardInstances       = cardMetric("instances", "MIG instances that the card is divided into.")

	containerCore    = containerMetric("core_ratio", "Part of the card's compute that the container was given.")
	containerMemory  = containerMetric("memory_bytes", "Memory that the container was given.")
	containerUsed    = containerMetric("memory_used_bytes", "Memory that it uses.")
	containerSwapped = containerMetric("memory_swapped_bytes", "Of that, what is on the host.")
	containerBusy    = containerMetric("compute_seconds_total", "Time that it had the card.")
	containerWaited  = containerMetric("throttled_seconds_total", "Time that its launches waited for their turn.")
	containerRunning = containerMetric("processes", "Its processes that use the card.")
)

// Describe lists the metrics.
func (e *Exporter) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		cardHealthy, cardMemory, cardMemoryUsed, cardMemoryAllocated, cardBusy, cardAllocated, cardPower, cardInstances,
		containerCore, containerMemory, containerUsed, containerSwapped, containerBusy, containerWaited, containerRunning,
	} {
		out <- d
	}
}

// Collect asks the driver and the containers.
func (e *Exporter) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	e.mu.Lock()
	defer e.mu.Unlock()
	grants, err := e.Grants()
	if err != nil {
		e.Log.Error(err, "reading what containers have")
	}
	var cards []discovery.Card
	if err := panics.Contain(e.Log, "export", "the cards of node "+e.Node, func() (err error) {
		cards, err = e.Cards(ctx)
		return err
	}); err != nil {
		e.Log.Error(err, "reading the cards")
	}
	core, memory, most := map[string]float64{}, map[string]int64{}, map[string]int64{}
	for _, c := range cards {
		most[c.UUID] = c.MemoryMB << 20
	}
	processes := e.ask(ctx, grants)
	now := e.now()
	for i := range grants {
		for _, c := range grants[i].Cards {
			core[c.UUID] += c.Percent / 100
			memory[c.UUID] += c.MemoryMB
		}
		// One that cannot be reported is not there; the others are.
		_ = panics.Contain(e.Log, "export", grants[i].Pod.String(), func() error {
			e.container(ctx, out, &grants[i], reported{processes[i], now, most})
			return nil
		})
	}
	e.forget(grants)
	for _, c := range cards {
		report := func(d *prometheus.Desc, value float64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, e.Node, strconv.Itoa(c.Index), c.UUID, c.Model)
		}
		healthy := 1.0
		if c.Problem != "" {
			healthy = 0
		}
		report(cardHealthy, healthy)
		report(cardMemory, float64(c.MemoryMB<<20))
		report(cardMemoryUsed, float64(c.UsedMB<<20))
		report(cardMemoryAllocated, float64(memory[c.UUID]<<20))
		report(cardAllocated, core[c.UUID])
		report(cardInstances, float64(len(c.Instances)))
		if c.Load != nil {
			if c.Load.Core != discovery.Unknown {
				report(cardBusy, float64(c.Load.Core)/100)
			}
			report(cardPower, float64(c.Load.Power))
		}
	}
}

// ask all containers at once: one that takes its time costs the others none.
func (e *Exporter) ask(ctx context.Context, grants []slots.Grant) [][]gpushare.Process {
	answers := make([][]gpushare.Process, len(grants))
	var asking sync.WaitGroup
	for i := range grants {
		g := &grants[i]
		if g.Backend != "gpushare" {
			continue
		}
		asking.Go(func() {
			if err := panics.Contain(e.Log, "ask", g.Pod.String(), func() (err error) {
				answers[i], err = e.Processes(ctx, &g.Share)
				return err
			}); err != nil {
				e.Log.Error(err, "asking a container", "pod", g.Pod.String(), "container", g.Container)
			}
		})
	}
	asking.Wait()
	return answers
}

func (e *Exporter) now() time.Time {
	if e.Now == nil {
		return time.Now()
	}
	return e.Now()
}

// reported is what the processes of a container say, when, and the memory that each card has.
type reported struct {
	processes []gpushare.Process
	at        time.Time
	most      map[string]int64
}

// container reports one container, card by card.
func (e *Exporter) container(ctx context.Context, out chan<- prometheus.Metric, g *slots.Grant, now reported) {
	job, queue, clusterQueue := e.workload(ctx, g.Pod)
	m := e.meter(g)
	m.read(g.Cards, now.processes, now.at)
	for _, card := range g.Cards {
		labels := []string{e.Node, g.Pod.Namespace, g.Pod.Name, g.Container, job, queue, clusterQueue, g.Backend, strconv.Itoa(card.Index), card.UUID}
		report := func(d *prometheus.Desc, kind prometheus.ValueType, value float64) {
			out <- prometheus.MustNewConstMetric(d, kind, value, labels...)
		}
		report(containerCore, prometheus.GaugeValue, card.Percent/100)
		report(containerMemory, prometheus.GaugeValue, float64(card.MemoryMB<<20))
		if g.Backend != "gpushare" {
			continue // nothing is in between that counts
		}
		used, swapped, count := memoryOf(card.UUID, max(now.most[card.UUID], card.MemoryMB<<20), now.processes)
		report(containerUsed, prometheus.GaugeValue, float64(used))
		report(containerSwapped, prometheus.GaugeValue, float64(swapped))
		report(containerRunning, prometheus.GaugeValue, float64(count))
		total := m.total[card.UUID]
		report(containerBusy, prometheus.CounterValue, total.busy.Seconds())
		report(containerWaited, prometheus.CounterValue, total.waited.Seconds())
	}
}

// workload of a pod, from the labels that the queue gives it.
func (e *Exporter) workload(ctx context.Context, key types.NamespacedName) (job, queue, clusterQueue string) {
	pod := e.Pod(ctx, key)
	if pod == nil {
		return "", "", ""
	}
	for _, label := range []string{"batch.kubernetes.io/job-name", "training.kubeflow.org/job-name", "jobset.sigs.k8s.io/jobset-name", "ray.io/cluster"} {
		if job = pod.Labels[label]; job != "" {
			break
		}
	}
	if job == "" {
		for _, owner := range pod.OwnerReferences {
			job = owner.Name
		}
	}
	return job, pod.Labels[kueuelabels.LocalQueue], pod.Labels[kueuelabels.ClusterQueue]
}

func (e *Exporter) meter(g *slots.Grant) *meter {
	if e.meters == nil {
		e.meters = map[string]*meter{}
	}
	m := e.meters[g.ID]
	if m == nil || m.uid != g.UID {
		m = &meter{uid: g.UID}
		e.meters[g.ID] = m
	}
	return m
}

// forget slots that are empty.
func (e *Exporter) forget(grants []slots.Grant) {
	filled := map[string]bool{}
	for _, g := range grants {
		filled[g.ID] = true
	}
	for id := range e.meters {
		if !filled[id] {
			delete(e.meters, id)
		}
	}
}
