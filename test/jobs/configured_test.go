package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/config/v1alpha1"
	jobsv1alpha1 "github.com/elastic-ai/elastic/api/jobs/v1alpha1"
	"github.com/elastic-ai/elastic/internal/features"
	"github.com/elastic-ai/elastic/test/sandbox"
)

const (
	leftAlone = "example.com/left-alone" // a label of namespaces that are not managed
	teamLabel = "example.com/team"       // a label that is copied to workloads
)

// configure is the configuration all tests here run with: beside the defaults,
// a kind of job that is declared in it.
func configure(cfg *v1alpha1.QueueConfiguration) {
	cfg.ManagedJobsNamespaceSelector = &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: leftAlone, Operator: metav1.LabelSelectorOpDoesNotExist}},
	}
	cfg.Integrations = &kueueconfig.Integrations{LabelKeysToCopy: []string{teamLabel}}
	data, err := os.ReadFile(filepath.Join("..", "..", "deploy", "samples", "jobs", "declared", "jobkind.yaml"))
	if err != nil {
		panic(err)
	}
	cfg.FeatureGates = map[string]bool{string(features.CleanUpProvisioningRequests): false}
	first, _, _ := strings.Cut(string(data), "\n---")
	var kind jobsv1alpha1.JobKind
	if err := yaml.Unmarshal([]byte(asFerry(first)), &kind); err != nil {
		panic(err)
	}
	cfg.JobKinds = map[string]jobsv1alpha1.JobKindSpec{"examplecorp.com/ferry": kind.Spec}
}

// asFerry makes ferries of trains: the same kind under another name.
func asFerry(text string) string {
	return strings.NewReplacer("Train", "Ferry", "trains", "ferries", "train.", "ferry.", `"train"`, `"ferry"`).Replace(text)
}

func ferries(t *testing.T, objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for _, object := range objects {
		data, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		ferry := &unstructured.Unstructured{}
		if err := ferry.UnmarshalJSON([]byte(asFerry(string(data)))); err != nil {
			t.Fatal(err)
		}
		out = append(out, ferry)
	}
	return out
}

func queueLog(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(cluster.Dir, "test", "programs", "elastic-queue", "log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// queueStarts is how often elastic-queue was started: on a busy computer it can lose
// its lease.
func queueStarts(t *testing.T) int {
	t.Helper()
	return strings.Count(queueLog(t), "msg=starting program=elastic-queue")
}

// TestConfiguredKind: a kind declared in the configuration file is queued once its
// CRD is installed, without a restart, and logs nothing until then.
func TestConfiguredKind(t *testing.T) {
	starts := queueStarts(t)
	sample := ferries(t, samples(t, "declared/train"))[0]
	// The role stays, as the kind does: it is in the configuration.
	if err := install(t.Context(), append(ferries(t, samples(t, "declared/jobkind"))[1:], ferries(t, samples(t, "declared/crd"))...)); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "ferries wait in the queue", func(ctx context.Context) error {
		probe := sample.DeepCopy()
		probe.SetNamespace("default")
		if err := cluster.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if paused, _, _ := unstructured.NestedBool(probe.Object, "spec", "paused"); !paused {
			return fmt.Errorf("a new ferry is not paused")
		}
		return nil
	})
	a := newArena(t)
	a.open(t)
	sample.SetNamespace(a.namespace)
	cluster.Make(t, sample)
	if got, want := podSetsOf(cluster.WorkloadOf(t, sample)), "driver:1 stokers:3"; got != want {
		t.Fatalf("its pod sets are %q, want %q", got, want)
	}
	sandbox.Eventually(t, "it is started", func(ctx context.Context) error {
		now, err := fetch(ctx, sample)
		if err != nil {
			return err
		}
		if paused, _, _ := unstructured.NestedBool(now.Object, "spec", "paused"); paused {
			return fmt.Errorf("it is paused")
		}
		return nil
	})

	if now := queueStarts(t); now != starts {
		t.Errorf("elastic-queue was started again, %d times", now-starts)
	}
	for line := range strings.Lines(queueLog(t)) {
		for _, noise := range []string{"no matches for kind", "could not find the requested resource", "failed to get informer"} {
			if strings.Contains(line, noise) {
				t.Errorf("a kind that is not installed made noise: %s", line)
			}
		}
	}
}

// TestNamespacesThatAreNotManaged: jobs there are left alone, even with a queue name.
func TestNamespacesThatAreNotManaged(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "alone-", Labels: map[string]string{leftAlone: "true"}}}
	cluster.Make(t, ns)
	cluster.Make(t, sandbox.LocalQueue(ns.Name, "main", a.queue.Name), sandbox.LocalQueue(ns.Name, "default", a.queue.Name))
	for _, queue := range []string{"main", ""} {
		job := sandbox.Job(ns.Name, "job-"+queue+"x", queue, 1, "1")
		job.Spec.ManagedBy = ptr.To("example.com/conformance")
		if queue == "" {
			job.Labels = nil
		}
		cluster.Make(t, job)
		if ptr.Deref(job.Spec.Suspend, false) {
			t.Errorf("a job with the queue %q was suspended", queue)
		}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "pod", Labels: map[string]string{"kueue.x-k8s.io/queue-name": "main"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/train:1"}}},
	}
	cluster.Make(t, pod)
	if len(pod.Spec.SchedulingGates) > 0 {
		t.Errorf("a pod was gated: %v", pod.Spec.SchedulingGates)
	}
}

// TestLabelsToCopy: workloads can be found by the labels of their jobs.
func TestLabelsToCopy(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	job := newJob(a, "job", 1)
	job.Labels[teamLabel], job.Labels["example.com/other"] = "vision", "x"
	cluster.Make(t, job)
	if labels := cluster.WorkloadOf(t, job).Labels; labels[teamLabel] != "vision" || labels["example.com/other"] != "" {
		t.Fatalf("its workload's labels are %v", labels)
	}
}
