package migration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/checks/provisioning"
	"github.com/elastic-ai/elastic/test/sandbox"
)

const (
	nodes = "1x8:H100-80G"
	ns    = "default"
)

// From Kueue to Elastic and back: no running job is stopped, no waiting one
// is lost, and each of the two starts what the other left waiting.
func TestThereAndBack(t *testing.T) {
	if os.Getenv(folderVariable) == "" {
		t.Fatal("it needs Kueue's manager: run 'make test-migration'")
	}
	commands := steps(t)
	var before *sandbox.Snapshot
	var asked *provisioning.ProvisioningRequest
	cluster := sandbox.StartFor(t, sandbox.Options{Nodes: nodes, Scheme: []func(*runtime.Scheme) error{provisioning.AddToScheme}, Before: func(kubeconfig string) error {
		c, err := sandbox.Connect(kubeconfig, provisioning.AddToScheme)
		if err != nil {
			return err
		}
		letNodesBeAskedFor(t, c)
		manager := installKueue(t, c, kubeconfig)
		makeWork(t, c)
		asked = asks(t, c, "grown")
		if before, err = sandbox.TakeSnapshot(t.Context(), c, ns); err != nil {
			return err
		}
		for _, command := range commands[:len(commands)-2] {
			step(t, kubeconfig, command)
			if strings.Contains(command, "--replicas 0") {
				manager.stop() // as the kubelet does
			}
		}
		return letProcessesIn(t.Context(), c)
	}})
	// What the page says to look at last: the one that cannot fit is a problem, and nothing else is.
	said := ""
	sandbox.Eventually(t, "Elastic has everything but what cannot fit", func(context.Context) error {
		said = step(t, cluster.Kubeconfig, commands[len(commands)-2]+" || true")
		if strings.Count(said, "problem ") != 1 || !strings.Contains(said, "job/huge in default can never start") {
			return errors.New(said)
		}
		return nil
	})
	before.MustHold(t, cluster)
	said = step(t, cluster.Kubeconfig, commands[len(commands)-1])
	if !regexp.MustCompile(`first +RUNNING`).MatchString(said) || !regexp.MustCompile(`next +QUEUING`).MatchString(said) {
		t.Errorf("list:\n%s", said)
	}

	// What Kueue left waiting starts here, and what it started ends here.
	end(t, cluster, "first")
	runs(t, cluster, "next")
	before.MustHold(t, cluster)
	sandbox.Eventually(t, "the one that has ended is finished", func(ctx context.Context) error {
		return condition(ctx, cluster, "first", kueue.WorkloadFinished)
	})
	create(t, cluster, job("later", 4))
	waits(t, cluster, "later")
	provision(t, cluster, "grown", asked)
	asked = asks(t, cluster, "grown-later")
	after, err := sandbox.TakeSnapshot(t.Context(), cluster, ns)
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Stop(); err != nil {
		t.Fatal(err)
	}

	backToKueue(t, cluster.Dir, after, asked)
}

// backToKueue takes Elastic out of the cluster and puts Kueue in.
func backToKueue(t *testing.T, dir string, after *sandbox.Snapshot, asked *provisioning.ProvisioningRequest) {
	t.Helper()
	kubeconfig, stop, err := sandbox.Bare(filepath.Join(dir, "test", "sandbox"), nodes)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	c, err := sandbox.Connect(kubeconfig, provisioning.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	step(t, kubeconfig, "elastic uninstall --dry-run=false")
	manager := installKueue(t, c, kubeconfig)
	defer manager.stop()
	after.MustHold(t, c)
	end(t, c, "next")
	runs(t, c, "later")
	provision(t, c, "grown-later", asked)
	after.MustHold(t, c)
}

// letProcessesIn takes out where the installed webhooks are called: here Elastic's
// programs are processes with addresses of their own, and a webhook has one.
func letProcessesIn(ctx context.Context, c client.Client) error {
	for kind, version := range map[string]string{
		"MutatingWebhookConfigurationList": "admissionregistration.k8s.io/v1", "ValidatingWebhookConfigurationList": "admissionregistration.k8s.io/v1", "ServiceList": "v1",
	} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(version)
		list.SetKind(kind)
		if err := c.List(ctx, list, client.HasLabels{"elasticai.io/webhooks-of"}); err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return fmt.Errorf("the file installed no %s", kind)
		}
		for i := range list.Items {
			if err := c.Delete(ctx, &list.Items[i]); err != nil {
				return err
			}
		}
	}
	crds := &unstructured.UnstructuredList{}
	crds.SetAPIVersion("apiextensions.k8s.io/v1")
	crds.SetKind("CustomResourceDefinitionList")
	if err := c.List(ctx, crds); err != nil {
		return err
	}
	for i := range crds.Items {
		patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op": "replace", "path": "/spec/conversion", "value": {"strategy": "None"}}]`))
		if err := c.Patch(ctx, &crds.Items[i], patch); err != nil {
			return err
		}
	}
	return nil
}

// steps are the commands of the page, in their order.
func steps(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(sandbox.Root(), "docs", "operations", "migrate-from-kueue.md"))
	if err != nil {
		t.Fatal(err)
	}
	list, _, _ := strings.Cut(string(page), "| before | after |")
	var commands []string
	for _, match := range regexp.MustCompile("`((?:kubectl|elastic) [^`]+)`").FindAllStringSubmatch(list, -1) {
		commands = append(commands, match[1])
	}
	if len(commands) != 6 {
		t.Fatalf("the page has %d commands, the test knows 6: %q", len(commands), commands)
	}
	return commands
}

// makeWork fills a queue of eight cards: a job and a pod that run, a job that
// has ended, one that waits, and one that can never fit.
func makeWork(t *testing.T, c client.Client) {
	t.Helper()
	for _, object := range []client.Object{
		sandbox.Flavor("h100", map[string]string{"elasticgpu.io/gpu-model": "H100-80G"}),
		sandbox.ClusterQueue("team", "h100", "8"), sandbox.LocalQueue(ns, "main", "team"),
	} {
		sandbox.Eventually(t, "Kueue's webhooks let "+object.GetName()+" in", func(ctx context.Context) error {
			return client.IgnoreAlreadyExists(c.Create(ctx, object))
		})
	}
	over := job("over", 1)
	over.Spec.Template.Annotations[sandbox.RunFor] = "0s"
	create(t, c, over)
	sandbox.Eventually(t, "the short job has ended", func(ctx context.Context) error {
		return condition(ctx, c, "over", kueue.WorkloadFinished)
	})
	create(t, c, job("first", 4))
	runs(t, c, "first")
	create(t, c, pod("alone", 2))
	runs(t, c, "alone")
	for _, member := range pair() {
		create(t, c, member)
	}
	runs(t, c, "leads")
	runs(t, c, "follows")
	create(t, c, job("next", 4))
	waits(t, c, "next")
	create(t, c, job("huge", 16))
	waits(t, c, "huge")
}

func job(name string, cards int) *batchv1.Job {
	j := sandbox.Job(ns, name, "main", 1, fmt.Sprint(cards))
	j.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	j.Spec.Template.Labels = map[string]string{"test": name}
	return j
}

// pod is one of its own: what holds it back is a gate, and not a job.
func pod(name string, cards int) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
		Name: "main", Image: "example.com/train:1",
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{sandbox.GPU: *resource.NewQuantity(int64(cards), resource.DecimalSI)}},
	}}}}
	p.Namespace, p.Name = ns, name
	p.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "main", "test": name}
	p.Annotations = map[string]string{sandbox.RunFor: "forever"}
	return p
}

// pair is a group of two pods that are not alike: their workload has a pod set for each, named after what it is made of.
func pair() []*corev1.Pod {
	pods := []*corev1.Pod{pod("leads", 1), pod("follows", 1)}
	for _, p := range pods {
		p.Labels["kueue.x-k8s.io/pod-group-name"], p.Annotations["kueue.x-k8s.io/pod-group-total-count"] = "pair", "2"
	}
	pods[1].Spec.Tolerations = []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}
	return pods
}

// create waits for webhooks that are just starting, too.
func create(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	sandbox.Eventually(t, object.GetName()+" can be created", func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(c.Create(ctx, object))
	})
}

func podsOf(ctx context.Context, c client.Client, name string) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	err := c.List(ctx, pods, client.InNamespace(ns), client.MatchingLabels{"test": name})
	return pods.Items, err
}

func runs(t *testing.T, c client.Client, name string) {
	t.Helper()
	sandbox.Eventually(t, name+" runs", func(ctx context.Context) error {
		pods, err := podsOf(ctx, c, name)
		if err != nil {
			return err
		}
		if len(pods) != 1 || pods[0].Status.Phase != corev1.PodRunning {
			return fmt.Errorf("%d pods", len(pods))
		}
		return condition(ctx, c, name, kueue.WorkloadAdmitted)
	})
}

// waits until the queue has said no.
func waits(t *testing.T, c client.Client, name string) {
	t.Helper()
	sandbox.Eventually(t, name+" is told to wait", func(ctx context.Context) error {
		wl, err := workloadOf(ctx, c, name)
		if err != nil {
			return err
		}
		if !apimeta.IsStatusConditionFalse(wl.Status.Conditions, kueue.WorkloadQuotaReserved) {
			return fmt.Errorf("its conditions are %v", wl.Status.Conditions)
		}
		return nil
	})
}

// end has a job's pod end well.
func end(t *testing.T, c client.Client, name string) {
	t.Helper()
	sandbox.Eventually(t, name+" can be told to end", func(ctx context.Context) error {
		pods, err := podsOf(ctx, c, name)
		if err != nil || len(pods) != 1 {
			return errors.Join(err, fmt.Errorf("%d pods", len(pods)))
		}
		pods[0].Annotations[sandbox.RunFor] = "0s"
		return c.Update(ctx, &pods[0])
	})
}

// workloadOf is that of a job or a pod, by its owner.
func workloadOf(ctx context.Context, c client.Client, name string) (*kueue.Workload, error) {
	list := &kueue.WorkloadList{}
	if err := c.List(ctx, list, client.InNamespace(ns)); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list.Items, func(wl kueue.Workload) bool {
		return slices.ContainsFunc(wl.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.Name == name })
	})
	if i < 0 {
		return nil, fmt.Errorf("%s has no workload", name)
	}
	return &list.Items[i], nil
}

func condition(ctx context.Context, c client.Client, name, kind string) error {
	wl, err := workloadOf(ctx, c, name)
	if err != nil {
		return err
	}
	if !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kind) {
		return fmt.Errorf("%s is not %s: %v", name, kind, wl.Status.Conditions)
	}
	return nil
}
