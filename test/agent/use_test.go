package agent

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/cli/local"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// metricOf is a metric of the agent about a pod, or about a card where the pod is nil.
func metricOf(ctx context.Context, name string, p *corev1.Pod) (float64, error) {
	c, err := local.Open("test")
	if err != nil {
		return 0, err
	}
	state, err := c.State()
	if err != nil {
		return 0, err
	}
	address := ""
	for _, program := range state.Programs {
		if strings.HasSuffix(program.Name, local.NodeName) {
			address = program.Metrics
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return 0, err
	}
	for _, m := range families[name].GetMetric() {
		if p == nil || label(m, "pod") == p.Name && label(m, "namespace") == p.Namespace {
			return m.GetGauge().GetValue(), nil
		}
	}
	return 0, fmt.Errorf("%s is not reported for pod %v", name, p)
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func eventuallyMetric(t *testing.T, name string, p *corev1.Pod, is func(float64) bool) {
	t.Helper()
	sandbox.Eventually(t, name, func(ctx context.Context) error {
		value, err := metricOf(ctx, name, p)
		if err == nil && !is(value) {
			err = fmt.Errorf("it is %g", value)
		}
		return err
	})
}

// What a container has and uses is reported to Prometheus.
func TestExporter(t *testing.T) {
	ns := cluster.Namespace(t)
	p := pod(ns, "busy", []string{"stay", "200"}, egpu.ResourceCore, 30, egpu.ResourceMemory, 1000)
	cluster.Make(t, p)
	probed(t, p)
	eventuallyMetric(t, "elastic_gpu_container_core_ratio", p, func(v float64) bool { return v == 0.3 })
	eventuallyMetric(t, "elastic_gpu_container_memory_bytes", p, func(v float64) bool { return v == 1000<<20 })
	eventuallyMetric(t, "elastic_gpu_container_memory_used_bytes", p, func(v float64) bool { return v >= 200<<20 && v <= 1000<<20 })
	eventuallyMetric(t, "elastic_gpu_container_processes", p, func(v float64) bool { return v == 1 })
	eventuallyMetric(t, "elastic_gpu_card_memory_bytes", nil, func(v float64) bool { return v == cardMB<<20 })
}

// swapping is a pod of a class that may be swapped, with 200 MiB on its card.
func swapping(t *testing.T, ns string) *corev1.Pod {
	t.Helper()
	class := &egpu.ElasticGPUClass{ObjectMeta: metav1.ObjectMeta{Name: ns}, Provisioner: egpu.ProvisionerShare, Parameters: map[string]string{"swap": "on"}}
	claim := &egpu.ElasticGPUClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mine"}}
	claim.Spec.ElasticGPUClassName = &class.Name
	claim.Spec.Resources.Requests = corev1.ResourceList{egpu.ResourceCore: resource.MustParse("30"), egpu.ResourceMemory: resource.MustParse("1000")}
	cluster.Make(t, class, claim)
	p := pod(ns, "moves", []string{"stay", "200"})
	p.Annotations = map[string]string{egpu.ClaimPrefix + "main": "mine"}
	return p
}

// On command a pod's memory leaves the card and comes back, and the pod says so.
func TestSwapOnCommand(t *testing.T) {
	ns := cluster.Namespace(t)
	p := swapping(t, ns)
	cluster.Make(t, p)
	probed(t, p)
	eventuallyMetric(t, "elastic_gpu_container_memory_swapped_bytes", p, func(v float64) bool { return v == 0 })
	say(t, p, "out", "MovedOut")
	eventuallyMetric(t, "elastic_gpu_container_memory_swapped_bytes", p, func(v float64) bool { return v >= 200<<20 })
	say(t, p, "in", "MovedIn")
	eventuallyMetric(t, "elastic_gpu_container_memory_swapped_bytes", p, func(v float64) bool { return v == 0 })
}

// say where a pod's memory shall be, and wait for the reason its condition then has.
func say(t *testing.T, p *corev1.Pod, where, reason string) {
	t.Helper()
	before := p.DeepCopy()
	p.Annotations[egpu.SwapAnnotation] = where
	if err := cluster.Patch(t.Context(), p, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "the pod is moved "+where, func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == egpu.SwappedOut && c.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", p.Status.Conditions)
	})
}
