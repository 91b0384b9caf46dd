package queue

import (
	"context"
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
	"github.com/elastic-ai/elastic/internal/features"
	"github.com/elastic-ai/elastic/internal/queue/metrics"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// harness is a shell without an API server: what it writes comes back to it as if
// it had been written, and time stands still unless advance is called.
type harness struct {
	*Shell
	t        *testing.T
	time     time.Time
	version  int
	registry *prometheus.Registry
	written  map[string]*kueue.Workload
}

func newHarness(t *testing.T) *harness {
	p := &harness{t: t, time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), registry: prometheus.NewRegistry(), written: map[string]*kueue.Workload{}}
	granular, err := features.New(map[string]bool{string(features.UnadmittedWorkloadsObservability): true})
	if err != nil {
		t.Fatal(err)
	}
	p.Shell = New(nil, nil, Options{
		Features: granular, Lifecycle: workload.Settings{GranularReasons: true},
		Engine:   admission.Options{Policy: admission.PolicyDRF, UsageHalfLife: time.Hour, UsageSampling: time.Hour},
		Recorder: events.NewFakeRecorder(1000), Log: logr.Discard(),
		Metrics: metrics.New(p.registry, metrics.Options{
			Role: "leader", Resources: true, Cohorts: true, Unadmitted: true, CreationLatency: true,
			LocalQueue: func(lq *kueue.LocalQueue) bool { return lq.Name != "dark" },
		}),
	})
	p.now = func() time.Time { return p.time }
	p.leading.Store(true)
	return p
}

// see shows objects to the shell and lets it work until nothing is left to do.
func (p *harness) see(objects ...client.Object) {
	var messages []message
	for _, o := range objects {
		if wl, ok := o.(*kueue.Workload); ok {
			p.version++
			wl.ResourceVersion = strconv.Itoa(p.version)
			p.written[wl.Name] = wl
		}
		messages = append(messages, message{object: o})
	}
	for turns := 0; ; turns++ {
		if turns > 300 {
			recorded := p.recordedEvents()
			p.t.Fatalf("it does not come to rest: %q", recorded[max(0, len(recorded)-12):])
		}
		p.turn(messages)
		messages = nil
		for ; len(p.workloadWrites.waiting) > 0; p.workloadWrites.waiting = p.workloadWrites.waiting[1:] {
			sent := p.workloadWrites.waiting[0]
			p.version++
			written := sent.workload.DeepCopy()
			written.ResourceVersion = strconv.Itoa(p.version)
			p.written[written.Name] = written
			messages = append(messages, message{written: &writeResult{sent: sent, written: written}})
		}
		for ; len(p.variantWrites.waiting) > 0; p.variantWrites.waiting = p.variantWrites.waiting[1:] {
			created := p.variantWrites.waiting[0].DeepCopy()
			p.version++
			created.ResourceVersion, created.UID, created.CreationTimestamp = strconv.Itoa(p.version), types.UID(created.Name), metav1.NewTime(p.time)
			p.written[created.Name] = created
			messages = append(messages, message{created: &variantCreated{asked: p.variantWrites.waiting[0], object: created}})
		}
		p.statusWrites.waiting = nil
		if len(messages) == 0 {
			return
		}
	}
}

// change is another client's write to a workload's status.
func (p *harness) change(name string, how func(wl *kueue.Workload)) {
	wl := p.written[name].DeepCopy()
	how(wl)
	p.see(wl)
}

func (p *harness) submit(name, queue, class string, priority int32, cpus string) {
	p.see(p.workload(name, queue, class, priority, cpus))
}

func (p *harness) workload(name, queue, class string, priority int32, cpus string) *kueue.Workload {
	wl := &kueue.Workload{}
	wl.Namespace, wl.Name, wl.UID, wl.CreationTimestamp = "ns", name, types.UID(name), metav1.NewTime(p.time)
	wl.Spec.QueueName, wl.Spec.Priority = kueue.LocalQueueName(queue), ptr.To(priority)
	wl.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef(class)
	pod := corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpus)}}}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{pod}}}}}
	return wl
}

// scrape reads the metrics as Prometheus would, by name and labels.
func (p *harness) scrape() map[string]float64 {
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

func (p *harness) advance(d time.Duration) { p.time = p.time.Add(d) }

// recordedEvents takes the events recorded since the last call.
func (p *harness) recordedEvents() []string {
	var all []string
	for recorded := p.options.Recorder.(*events.FakeRecorder).Events; ; {
		select {
		case e := <-recorded:
			all = append(all, e)
		default:
			return all
		}
	}
}

func (p *harness) oneQueue() {
	namespace, flavor, lq := &corev1.Namespace{}, &kueue.ResourceFlavor{}, &kueue.LocalQueue{}
	namespace.Name, flavor.Name = "ns", "default"
	lq.Namespace, lq.Name, lq.UID, lq.Spec.ClusterQueue = "ns", "main", "main", "cq"
	p.see(namespace, flavor, queueObject("cq", "", ""), lq)
}

func named[T client.Object](obj T, name string) T {
	obj.SetName(name)
	return obj
}

func check(name, controller string, active bool) *kueue.AdmissionCheck {
	ac := named(&kueue.AdmissionCheck{Spec: kueue.AdmissionCheckSpec{ControllerName: controller}}, name)
	if active {
		ac.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
	}
	return ac
}
