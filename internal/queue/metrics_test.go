package queue

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/admission"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

var update = flag.Bool("update", false, "write generated files")

// play is a shell without an API server: what it writes comes back to it as if
// it had been written, and time stands still unless it is told to pass.
type play struct {
	*Shell
	t        *testing.T
	time     time.Time
	version  int
	registry *prometheus.Registry
	world    map[string]*kueue.Workload
}

func newPlay(t *testing.T) *play {
	p := &play{t: t, time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), registry: prometheus.NewRegistry(), world: map[string]*kueue.Workload{}}
	p.Shell = New(nil, nil, Options{
		Engine:   admission.Options{Policy: admission.PolicyDRF, UsageHalfLife: time.Hour, UsageSampling: time.Hour},
		Recorder: events.NewFakeRecorder(1000), Log: logr.Discard(),
		Metrics: NewMetrics(p.registry, MetricsOptions{
			Role: "leader", Resources: true, Cohorts: true, Unadmitted: true, CreationLatency: true,
			LocalQueue: func(lq *kueue.LocalQueue) bool { return lq.Name != "dark" },
		}),
	})
	p.now = func() time.Time { return p.time }
	p.leading.Store(true)
	return p
}

// see shows objects to the shell and lets it work until nothing is left to do.
func (p *play) see(objects ...client.Object) {
	var messages []message
	for _, o := range objects {
		if wl, ok := o.(*kueue.Workload); ok {
			p.version++
			wl.ResourceVersion = strconv.Itoa(p.version)
			p.world[wl.Name] = wl
		}
		messages = append(messages, message{object: o})
	}
	for {
		p.turn(messages)
		messages = nil
		for ; len(p.workloadWrites.waiting) > 0; p.workloadWrites.waiting = p.workloadWrites.waiting[1:] {
			sent := p.workloadWrites.waiting[0]
			p.version++
			written := sent.workload.DeepCopy()
			written.ResourceVersion = strconv.Itoa(p.version)
			p.world[written.Name] = written
			messages = append(messages, message{result: &writeResult{sent: sent, written: written}})
		}
		p.statusWrites.waiting = nil
		if len(messages) == 0 {
			return
		}
	}
}

// change is somebody else's write to a workload's status.
func (p *play) change(name string, how func(wl *kueue.Workload)) {
	wl := p.world[name].DeepCopy()
	how(wl)
	p.see(wl)
}

func (p *play) submit(name, queue, class string, priority int32, cpus string) {
	p.see(p.workload(name, queue, class, priority, cpus))
}

func (p *play) workload(name, queue, class string, priority int32, cpus string) *kueue.Workload {
	wl := &kueue.Workload{}
	wl.Namespace, wl.Name, wl.UID, wl.CreationTimestamp = "ns", name, types.UID(name), metav1.NewTime(p.time)
	wl.Spec.QueueName, wl.Spec.Priority = kueue.LocalQueueName(queue), ptr.To(priority)
	wl.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef(class)
	pod := corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpus)}}}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{pod}}}}}
	return wl
}

// scrape reads the metrics as Prometheus would, by name and labels.
func (p *play) scrape() map[string]float64 {
	done := make(chan []*dto.MetricFamily)
	go func() {
		families, err := p.registry.Gather()
		if err != nil {
			p.t.Error(err)
		}
		done <- families
	}()
	for {
		ctx, cancel := context.WithCancel(context.Background())
		messages := make(chan []message, 1)
		go func() {
			if m, err := p.inbox.Take(ctx, time.Time{}); err == nil {
				messages <- m
			}
		}()
		select {
		case m := <-messages:
			cancel()
			for _, one := range m {
				p.handle(one)
			}
		case families := <-done:
			cancel()
			return flatten(families)
		}
	}
}

func flatten(families []*dto.MetricFamily) map[string]float64 {
	out := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.Metric {
			var labels []string
			for _, label := range metric.Label {
				if label.GetName() != "replica_role" && label.GetValue() != "" {
					labels = append(labels, label.GetName()+"="+label.GetValue())
				}
			}
			slices.Sort(labels)
			value := metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + metric.GetHistogram().GetSampleSum()
			out[family.GetName()+"{"+strings.Join(labels, ",")+"}"] = value
		}
	}
	return out
}

func queueObject(name, cohort string, check string) *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{}
	cq.Name, cq.UID = name, types.UID(name)
	cq.Spec.CohortName = kueue.CohortReference(cohort)
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{"cpu"},
		Flavors: []kueue.FlavorQuotas{{Name: "default", Resources: []kueue.ResourceQuota{{
			Name: "cpu", NominalQuota: resource.MustParse("4"), BorrowingLimit: ptr.To(resource.MustParse("2")), LendingLimit: ptr.To(resource.MustParse("500m")),
		}}}},
	}}
	if check != "" {
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: kueue.AdmissionCheckReference(check)}}}
	}
	return cq
}

// Every metric is there after a day in the life of two queues, with the values
// a person would count.
func TestMetrics(t *testing.T) {
	p := newPlay(t)
	namespace, flavor := &corev1.Namespace{}, &kueue.ResourceFlavor{}
	namespace.Name, flavor.Name = "ns", "default"
	check := &kueue.AdmissionCheck{}
	check.Name = "check"
	check.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
	org, team := &kueue.Cohort{}, &kueue.Cohort{}
	org.Name, team.Name, team.Spec.ParentName = "org", "team", "org"
	objects := []client.Object{namespace, flavor, check, org, team, queueObject("cq", "team", ""), queueObject("checked", "", "check")}
	for name, queue := range map[string]string{"main": "cq", "quiet": "checked", "dark": "cq"} {
		lq := &kueue.LocalQueue{}
		lq.Namespace, lq.Name, lq.UID, lq.Spec.ClusterQueue = "ns", name, types.UID(name), kueue.ClusterQueueReference(queue)
		objects = append(objects, lq)
	}
	p.see(objects...)

	// One is admitted, its pods come up, and a better one displaces it.
	p.submit("low", "main", "batch", 1, "3")
	p.pass(10 * time.Second)
	p.change("low", func(wl *kueue.Workload) { workload.PodsReady(wl, true, kueue.WorkloadStarted, "", p.time) })
	p.pass(20 * time.Second)
	p.submit("high", "main", "urgent", 9, "4")
	p.pass(2 * time.Second)
	p.change("low", func(wl *kueue.Workload) { workload.Release(wl, "stopped", p.time) })
	// A third waits behind the first, which waits again.
	p.submit("third", "main", "batch", 1, "2")
	// In the other queue a check takes five seconds.
	p.submit("slow", "quiet", "batch", 1, "1")
	p.pass(5 * time.Second)
	p.change("slow", func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady })
	p.submit("waits", "quiet", "batch", 1, "1")
	// One ends, one is replaced by a bigger one of the same job.
	p.submit("done", "quiet", "batch", 1, "500m")
	p.change("done", func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady })
	p.change("done", func(wl *kueue.Workload) { workload.Finish(wl, "Succeeded", "", p.time) })
	p.submit("small", "quiet", "batch", 1, "500m")
	p.change("small", func(wl *kueue.Workload) { workload.Finish(wl, kueue.WorkloadSliceReplaced, "", p.time) })
	p.options.Metrics.JobQueued("Job", 250*time.Millisecond)
	p.options.Metrics.Dispatched("cq", "east")
	p.options.Metrics.AdmittedElsewhere("cq", "east")
	p.options.Metrics.inc("elastic_explanations_total", "why")
	p.options.Metrics.inc("elastic_writes_total", "workload", "done")
	p.options.Metrics.inc("elastic_events_left_out_total", "Admitted")

	got := p.scrape()
	for _, d := range Definitions() {
		there := false
		for key := range got {
			there = there || strings.HasPrefix(key, d.Name+"{")
		}
		if !there {
			t.Errorf("%s is not there", d.Name)
		}
	}
	for key, want := range map[string]float64{
		"kueue_admitted_workloads_total{cluster_queue=cq,priority_class=batch}":                         1,
		"kueue_local_queue_admitted_workloads_total{name=main,namespace=ns,priority_class=batch}":       1,
		"kueue_quota_reserved_workloads_total{cluster_queue=checked,priority_class=batch}":              4,
		"kueue_admission_wait_time_seconds{cluster_queue=checked,priority_class=batch}":                 5,
		"kueue_admission_checks_wait_time_seconds{cluster_queue=checked,priority_class=batch}":          5,
		"kueue_ready_wait_time_seconds{cluster_queue=cq,priority_class=batch}":                          10,
		"kueue_admitted_until_ready_wait_time_seconds{cluster_queue=cq,priority_class=batch}":           10,
		"kueue_evicted_workloads_total{cluster_queue=cq,priority_class=batch,reason=Preempted}":         1,
		"kueue_evicted_workloads_once_total{cluster_queue=cq,priority_class=batch,reason=Preempted}":    1,
		"kueue_preempted_workloads_total{preempting_cluster_queue=cq,reason=InClusterQueue}":            1,
		"kueue_pods_ready_to_evicted_time_seconds{cluster_queue=cq,reason=Preempted}":                   20,
		"kueue_workload_eviction_latency_seconds{cluster_queue=cq,reason=Preempted}":                    2,
		"kueue_finished_workloads_total{cluster_queue=checked,priority_class=batch}":                    2,
		"kueue_finished_workloads{cluster_queue=checked}":                                               2,
		"kueue_replaced_workload_slices_total{cluster_queue=checked}":                                   1,
		"kueue_cohort_subtree_admitted_workloads_total{cohort=org,priority_class=batch}":                1,
		"kueue_cohort_info{cohort=team,parent_cohort=org,root_cohort=org}":                              1,
		"kueue_cluster_queue_info{cluster_queue=cq,parent_cohort=team,root_cohort=org}":                 1,
		"kueue_cluster_queue_status{cluster_queue=cq,status=active}":                                    1,
		"kueue_cluster_queue_status{cluster_queue=cq,status=pending}":                                   0,
		"kueue_reserving_active_workloads{cluster_queue=checked}":                                       2,
		"kueue_admitted_active_workloads{cluster_queue=checked}":                                        1,
		"kueue_cluster_queue_resource_reservation{cluster_queue=checked,flavor=default,resource=cpu}":   2,
		"kueue_cluster_queue_resource_usage{cluster_queue=checked,flavor=default,resource=cpu}":         1,
		"kueue_cluster_queue_nominal_quota{cluster_queue=cq,cohort=team,flavor=default,resource=cpu}":   4,
		"kueue_cluster_queue_borrowing_limit{cluster_queue=cq,cohort=team,flavor=default,resource=cpu}": 2,
		"kueue_cluster_queue_lending_limit{cluster_queue=cq,cohort=team,flavor=default,resource=cpu}":   0.5,
		"kueue_cluster_queue_resource_pending{cluster_queue=cq,resource=cpu}":                           5,
		"kueue_local_queue_resource_reservation{flavor=default,name=main,namespace=ns,resource=cpu}":    4,
		"kueue_cohort_subtree_admitted_active_workloads{cohort=org}":                                    1,
		"kueue_unadmitted_workloads{cluster_queue=checked,reason=UnsatisfiedAdmissionChecks}":           1,
		"kueue_unadmitted_workloads{cluster_queue=cq,reason=WaitingForQuota}":                           2,
		"kueue_workload_creation_latency_seconds{job_kind=Job}":                                         0.25,
		"kueue_pending_workloads{cluster_queue=cq,status=inadmissible}":                                 2,
		"kueue_local_queue_pending_workloads{name=main,namespace=ns,status=inadmissible}":               2,
	} {
		if value, there := got[key]; !there || value != want {
			t.Errorf("%s is %v (there: %t), want %v", key, value, there, want)
		}
	}
	for key := range got {
		if strings.Contains(key, "local_queue") && strings.Contains(key, "name=dark") {
			t.Errorf("%s: that LocalQueue has no metrics of its own", key)
		}
	}
	if t.Failed() {
		for _, key := range slices.Sorted(keysOf(got)) {
			t.Logf("%s %v", key, got[key])
		}
	}
}

func keysOf(m map[string]float64) func(func(string) bool) {
	return func(yield func(string) bool) {
		for key := range m {
			if !yield(key) {
				return
			}
		}
	}
}

func (p *play) pass(d time.Duration) { p.time = p.time.Add(d) }

// The reference is made from the definitions.
func TestMetricsReference(t *testing.T) {
	const file = "../../docs/reference/metrics.md"
	var b strings.Builder
	b.WriteString(`# Metrics of elastic-queue

Served at ` + "`metrics.bindAddress`" + `. Kueue's metrics have Kueue's names and labels; all carry ` + "`replica_role`" + ` (` + "`leader`, or `standalone`" + `
without leader election). What happens is counted as it happens; how things stand is looked up at each scrape, by the
replica that leads.

Of Kueue's, these are not there: ` + "`kueue_admission_cycle_preemption_skips`" + ` (there are no cycles),
` + "`kueue_pod_scheduling_gate_removal_seconds`" + `, and MultiKueue's.

Made from internal/queue/metrics.go by: ` + "`go test ./internal/queue -run Reference -update`" + `

| metric | type | labels | what it is | there with |
|---|---|---|---|---|
`)
	for _, d := range Definitions() {
		labels := slices.DeleteFunc(slices.Clone(d.Labels), func(l string) bool { return l == "replica_role" })
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", d.Name, d.Type, strings.Join(labels, ", "), d.Help, d.When)
	}
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != b.String() {
		t.Errorf("%s is not what the definitions say: run go test ./internal/queue -run Reference -update", file)
	}
}
