// Package upgrade tests that no workload is lost when Elastic comes to a cluster
// in which Kueue was, when another version of it comes, and when it goes.
package upgrade

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/test/sandbox"
)

const (
	nodes = "1x8:H100-80G"
	ns    = "default"
)

// One cluster's life: Kueue, Elastic in its place, an upgrade, and the end.
func TestNothingIsLost(t *testing.T) {
	var before *sandbox.Snapshot
	cluster := sandbox.StartFor(t, sandbox.Options{Nodes: nodes, Before: func(kubeconfig string) error {
		c, err := sandbox.Connect(kubeconfig)
		if err != nil {
			return err
		}
		if err := withKueue(t, c); err != nil {
			return err
		}
		before, err = sandbox.TakeSnapshot(t.Context(), c, ns)
		return err
	}})

	// In Kueue's place: what was admitted still is, what waited is decided.
	sandbox.Eventually(t, "the waiting job that fits is started, and the other is told why not", func(ctx context.Context) error {
		if err := is(ctx, cluster, "small", kueue.WorkloadAdmitted, metav1.ConditionTrue); err != nil {
			return err
		}
		return is(ctx, cluster, "huge", kueue.WorkloadQuotaReserved, metav1.ConditionFalse)
	})
	before.MustHold(t, cluster)
	after, err := sandbox.TakeSnapshot(t.Context(), cluster, ns)
	if err != nil {
		t.Fatal(err)
	}

	// Another version: its manifests are applied over the older one's.
	upgrade(t, cluster)
	after.MustHold(t, cluster)
	if err := cluster.Stop(); err != nil {
		t.Fatal(err)
	}

	// Without Elastic: jobs run on, and nothing waits for a program that is gone.
	kubeconfig, stop, err := sandbox.Bare(filepath.Join(cluster.Dir, "test", "sandbox"), nodes)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	c, err := sandbox.Connect(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	uninstall(t, c, kubeconfig)
	after.MustHold(t, c)
	workloads := &kueue.WorkloadList{}
	if err := c.List(t.Context(), workloads); err != nil || len(workloads.Items) != 3 {
		t.Fatalf("%d workloads are left, want 3: %v", len(workloads.Items), err)
	}
	if err := c.DeleteAllOf(t.Context(), &kueue.Workload{}, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "workloads can be deleted", func(ctx context.Context) error {
		if err := c.List(ctx, workloads); err != nil || len(workloads.Items) == 0 {
			return err
		}
		return fmt.Errorf("%d are left", len(workloads.Items))
	})
	fresh := job("fresh", 1, false)
	fresh.Labels = nil
	if err := c.Create(t.Context(), fresh); err != nil {
		t.Errorf("a job can be made without Elastic: %v", err)
	}
}

func job(name string, cards int, suspended bool) *batchv1.Job {
	j := sandbox.Job(ns, name, "main", 1, fmt.Sprint(cards))
	j.Spec.Suspend = ptr.To(suspended)
	j.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	return j
}

// withKueue makes the cluster what Kueue leaves when it is stopped: its CRDs, a
// queue of eight cards, a job it has admitted, and two that wait.
func withKueue(t *testing.T, c client.Client) error {
	ctx := t.Context()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue").Output()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "config/components/crd/bases/*.yaml"))
	if err != nil || len(files) < 10 {
		return fmt.Errorf("%d CRDs of Kueue: %w", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		objects, err := deploy.Decode(data)
		if err != nil {
			return err
		}
		if err := apply(ctx, c, "helm", objects...); err != nil {
			return err
		}
	}
	sandbox.Eventually(t, "the kinds are served", func(ctx context.Context) error {
		return errors.Join(c.List(ctx, &kueue.WorkloadList{}), c.List(ctx, &kueue.ClusterQueueList{}), c.List(ctx, &kueue.LocalQueueList{}), c.List(ctx, &kueue.ResourceFlavorList{}))
	})
	running := job("running", 4, false)
	// What Kueue adds when it starts a job.
	running.Spec.Template.Annotations[kueue.WorkloadAnnotation] = "job-running-0a1b2"
	running.Spec.Template.Labels = map[string]string{"kueue.x-k8s.io/podset": "main"}
	running.Spec.Template.Spec.NodeSelector = map[string]string{"elasticgpu.io/gpu-model": "H100-80G"}
	objects := []client.Object{
		sandbox.Flavor("h100", map[string]string{"elasticgpu.io/gpu-model": "H100-80G"}), sandbox.ClusterQueue("team", "h100", "8"), sandbox.LocalQueue(ns, "main", "team"),
		running, job("small", 2, true), job("huge", 16, true),
	}
	for _, object := range objects {
		if strings.HasPrefix(fmt.Sprintf("%T", object), "*v1beta2") {
			object.SetFinalizers([]string{kueue.ResourceInUseFinalizerName})
		}
		if err := c.Create(ctx, object); err != nil {
			return err
		}
		if j, ok := object.(*batchv1.Job); ok {
			if err := describe(ctx, c, j); err != nil {
				return err
			}
		}
	}
	sandbox.Eventually(t, "the admitted job's pod runs", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := c.List(ctx, pods, client.InNamespace(ns)); err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].Status.Phase != corev1.PodRunning {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		return nil
	})
	return nil
}

// describe makes a job's workload as Kueue does, with the admission its field
// manager wrote where the job runs.
func describe(ctx context.Context, c client.Client, j *batchv1.Job) error {
	wl := &kueue.Workload{}
	wl.Namespace, wl.Name = ns, "job-"+j.Name+"-0a1b2"
	wl.Finalizers, wl.Labels = []string{kueue.ResourceInUseFinalizerName}, map[string]string{"kueue.x-k8s.io/job-uid": string(j.UID)}
	wl.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job"))}
	wl.Spec = kueue.WorkloadSpec{QueueName: "main", Priority: ptr.To[int32](0), Active: ptr.To(true), PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: *j.Spec.Template.Spec.DeepCopy()}}}}
	if err := c.Create(ctx, wl, client.FieldOwner("kueue-job-controller")); err != nil {
		return err
	}
	status := map[string]any{"conditions": []any{map[string]any{
		"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": oldMessage, "lastTransitionTime": "2026-01-01T00:00:00Z",
	}}}
	if !*j.Spec.Suspend {
		conditions := []any{}
		for _, name := range []string{"QuotaReserved", "Admitted"} {
			conditions = append(conditions, map[string]any{"type": name, "status": "True", "reason": name, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
		}
		status = map[string]any{"conditions": conditions, "admission": map[string]any{"clusterQueue": "team", "podSetAssignments": []any{map[string]any{
			"name": "main", "count": int64(1), "flavors": map[string]any{"nvidia.com/gpu": "h100"}, "resourceUsage": map[string]any{"nvidia.com/gpu": "4"},
		}}}}
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kueue.SchemeGroupVersion.String(), "kind": "Workload", "metadata": map[string]any{"namespace": ns, "name": wl.Name}, "status": status,
	}}
	return c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kueue-admission"), client.ForceOwnership)
}

func apply(ctx context.Context, c client.Client, manager string, objects ...*unstructured.Unstructured) error {
	for _, object := range objects {
		unstructured.RemoveNestedField(object.Object, "status")
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(manager), client.ForceOwnership); err != nil {
			return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// oldMessage is what the older version wrote of a workload that waits.
const oldMessage = "couldn't assign flavors"

// is says whether a condition is as wanted, by this version's own word.
func is(ctx context.Context, c client.Client, name, condition string, want metav1.ConditionStatus) error {
	wl := &kueue.Workload{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "job-" + name + "-0a1b2"}, wl); err != nil {
		return err
	}
	got := apimeta.FindStatusCondition(wl.Status.Conditions, condition)
	if got == nil || got.Status != want || got.Message == oldMessage {
		return fmt.Errorf("%s has no such condition %s: %v", name, condition, wl.Status.Conditions)
	}
	return nil
}

// upgrade applies the programs of an older version, then those of this one, as
// the installation file has them. The CRDs and what goes with them are taken in
// a dry run: here the programs are processes, and webhooks must go on to them.
func upgrade(t *testing.T, c client.Client) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(sandbox.Root(), "deploy", "install", "elastic.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	image := ""
	for _, version := range []string{"v0.0.1", "v0.0.2"} {
		objects, err := deploy.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			switch object.GetKind() {
			case "Deployment", "DaemonSet":
				containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
				first := containers[0].(map[string]any)
				name, _, _ := strings.Cut(first["image"].(string), ":")
				first["image"] = name + ":" + version
				if err := unstructured.SetNestedSlice(object.Object, containers, "spec", "template", "spec", "containers"); err != nil {
					t.Fatal(err)
				}
				err = apply(t.Context(), c, "kubectl", object)
				image = name + ":" + version
			case "ConfigMap":
				err = apply(t.Context(), c, "kubectl", object)
			case "CustomResourceDefinition":
				unstructured.RemoveNestedField(object.Object, "spec", "conversion")
				err = c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("kubectl"), client.ForceOwnership, client.DryRunAll)
			}
			if err != nil {
				t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
			}
		}
	}
	agent := &unstructured.Unstructured{}
	agent.SetAPIVersion("apps/v1")
	agent.SetKind("Deployment")
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "elastic-queue", Name: "elastic-queue-controller-manager"}, agent); err != nil {
		t.Fatal(err)
	}
	containers, _, _ := unstructured.NestedSlice(agent.Object, "spec", "template", "spec", "containers")
	if got := containers[0].(map[string]any)["image"]; !strings.HasSuffix(fmt.Sprint(got), ":v0.0.2") || image == "" {
		t.Errorf("the program's image is %v after the upgrade", got)
	}
}

// uninstall runs the command, first as a rehearsal that must change nothing.
func uninstall(t *testing.T, c client.Client, kubeconfig string) {
	t.Helper()
	webhooks := func() int {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("admissionregistration.k8s.io/v1")
		list.SetKind("ValidatingWebhookConfigurationList")
		if err := c.List(t.Context(), list, client.HasLabels{"elasticai.io/webhooks-of"}); err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	for _, step := range []struct {
		flag string
		left bool
	}{{"--dry-run", true}, {"--dry-run=false", false}} {
		out, err := exec.Command("elastic", "uninstall", step.flag, "--kubeconfig", kubeconfig).CombinedOutput()
		if err != nil {
			t.Fatalf("uninstall %s: %v\n%s", step.flag, err, out)
		}
		if left := webhooks() > 0; left != step.left || !strings.Contains(string(out), "deployment/elastic-queue-controller-manager deleted") || !strings.Contains(string(out), "finalizers of Workload taken off") {
			t.Errorf("after uninstall %s webhooks are left: %v\n%s", step.flag, left, out)
		}
	}
}
