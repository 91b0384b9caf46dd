package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/webhooks"
	"github.com/elastic-ai/elastic/internal/program"
	"github.com/elastic-ai/elastic/test/crds"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// Everything but the workloads of deploy/install/elastic.yaml is in this cluster
// already, with its roles, webhooks and certificates in force (deploy's own test
// says so). The workloads are accepted under the namespace's pod security, and
// each gets its pods; what runs in those is simulated.
func TestInstalledWorkloads(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(sandbox.Root(), "deploy", "install", "elastic.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := deploy.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"elastic-queue": 2, "elastic-gpu-scheduler": 2, "elastic-gpu-agent": 3}
	for _, object := range objects {
		switch object.GetKind() {
		case "ConfigMap":
			readable(t, object)
			fallthrough
		case "Deployment", "DaemonSet":
			cluster.Make(t, object)
		}
	}
	sandbox.Eventually(t, "the programs' pods run", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := cluster.List(ctx, pods, client.InNamespace("elastic-queue")); err != nil {
			return err
		}
		up := map[string]int{}
		for i := range pods.Items {
			if pods.Items[i].Status.Phase == corev1.PodRunning {
				up[pods.Items[i].Labels["app"]]++
			}
		}
		if fmt.Sprint(up) != fmt.Sprint(want) {
			return fmt.Errorf("%v run, want %v", up, want)
		}
		return nil
	})
}

// With cert-manager the chart's certificates and issuers are such as its own
// CRDs accept, to the last field.
func TestInstalledWithCertManager(t *testing.T) {
	certManager, err := crds.CertManager()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range certManager {
		unstructured.RemoveNestedField(crd.Object, "status")
		cluster.Make(t, crd)
	}
	objects := sandbox.Render(t, "elastic-queue", "certManager: {enabled: true}", "../../deploy/chart")
	strict := client.WithFieldValidation(cluster.Client, metav1.FieldValidationStrict)
	made := map[string]int{}
	for _, object := range objects {
		if object.GroupVersionKind().Group != "cert-manager.io" {
			continue
		}
		made[object.GetKind()]++
		t.Cleanup(func() { _ = cluster.Delete(context.Background(), object) })
		sandbox.Eventually(t, object.GetKind()+" "+object.GetName()+" is accepted", func(ctx context.Context) error {
			return client.IgnoreAlreadyExists(strict.Create(ctx, object))
		})
	}
	if made["Issuer"] == 0 || made["Certificate"] < 2 {
		t.Errorf("the chart has %v, a certificate for each program with webhooks is expected, and their issuer", made)
	}
}

// The chart's webhooks of jobs are what elastic-queue makes of its configuration: it has nothing to change, and no tool
// that compares the cluster with the chart finds a difference.
func TestChartAndQueueAgreeOnWebhooks(t *testing.T) {
	objects := sandbox.Render(t, "elsewhere", `
queue:
  configuration:
    manageJobsWithoutQueueName: true
    integrations: {frameworks: [batch/job, pod]}
    managedJobsNamespaceSelector:
      matchLabels: {queues: "yes"}
      matchExpressions:
      - {key: team, operator: Exists}
`, "../../deploy/chart")
	at := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "MutatingWebhookConfiguration" && o.GetName() == "elastic-queue-jobs"
	})
	if at < 0 {
		t.Fatal("the chart has no webhooks for jobs")
	}
	installed := &admissionregv1.MutatingWebhookConfiguration{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[at].Object, installed); err != nil {
		t.Fatal(err)
	}
	before := installed.DeepCopy()
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(installed).Build()
	scope := webhooks.Scope{AllPods: true, Namespaces: &metav1.LabelSelector{
		MatchLabels:      map[string]string{"queues": "yes"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpExists}},
	}}
	if err := webhooks.Publish(t.Context(), c, c, kinds.Table(), scope); err != nil {
		t.Fatal(err)
	}
	after := &admissionregv1.MutatingWebhookConfiguration{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(before), after); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(before.Webhooks, after.Webhooks) {
		t.Errorf("elastic-queue would change the chart's webhooks:\n%+v\nto\n%+v", before.Webhooks, after.Webhooks)
	}
	selector := after.Webhooks[0].NamespaceSelector
	if names := selector.MatchExpressions[0].Values; !slices.Equal(names, []string{"kube-system", "elsewhere"}) || selector.MatchLabels["queues"] != "yes" {
		t.Errorf("the selector is %+v", selector)
	}
}

// readable checks that the program reads its configuration, every field of it.
func readable(t *testing.T, config *unstructured.Unstructured) {
	t.Helper()
	files, _, _ := unstructured.NestedStringMap(config.Object, "data")
	for name, text := range files {
		var into any
		switch name {
		case "queue.yaml":
			into = v1alpha1.NewQueueConfiguration()
		case "gpu-scheduler.yaml":
			into = v1alpha1.NewGPUSchedulerConfiguration()
		case "gpu-agent.yaml":
			into = v1alpha1.NewGPUAgentConfiguration()
		}
		doc, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := program.DecodeStrict(doc, into); err != nil {
			t.Errorf("%s of %s: %v", name, config.GetName(), err)
		}
		if cfg, ok := into.(*v1alpha1.QueueConfiguration); ok {
			want := *cfg
			want.Recommend()
			if !reflect.DeepEqual(*cfg, want) {
				t.Errorf("the chart does not set what is recommended: %s", text)
			}
		}
	}
}
