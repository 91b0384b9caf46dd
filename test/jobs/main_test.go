// Package jobs takes every kind of job through the queue, on a real API server
// with the kinds' own CRDs. Their operators do not run: the test writes the
// status they would.
package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/controller-runtime/pkg/client"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	jobsv1alpha1 "github.com/elastic-ai/elastic/api/jobs/v1alpha1"
	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/internal/checks/provisioning"
	"github.com/elastic-ai/elastic/test/crds"
	"github.com/elastic-ai/elastic/test/sandbox"
)

var cluster *sandbox.Cluster

func TestMain(m *testing.M) {
	os.Exit(sandbox.Run(m, &cluster, sandbox.Options{
		Nodes:  "24x8:H100-80G",
		Queue:  configure,
		Scheme: []func(*runtime.Scheme) error{apiextensionsv1.AddToScheme, jobsv1alpha1.AddToScheme, egpu.AddToScheme, provisioning.AddToScheme},
	}))
}

// installed applies the CRDs long after elastic-queue was started: their kinds must be
// queued without a restart.
var installed = sync.OnceValue(func() error {
	objects, err := crds.All()
	if err != nil {
		return err
	}
	return install(context.Background(), append(objects, crds.Unchecked("kai.alibabacloud.com", "TrainingJob")))
})

// install applies CRDs and waits until they are served.
func install(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		unstructured.RemoveNestedField(object.Object, "spec", "conversion") // its webhook does not run here
		unstructured.RemoveNestedField(object.Object, "status")
		if err := cluster.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("test"), client.ForceOwnership); err != nil {
			return fmt.Errorf("%s: %w", object.GetName(), err)
		}
	}
	for _, object := range objects {
		if object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if err := established(ctx, object.GetName()); err != nil {
			return err
		}
	}
	if resettable, ok := cluster.RESTMapper().(apimeta.ResettableRESTMapper); ok {
		resettable.Reset()
	}
	return nil
}

func established(ctx context.Context, name string) error {
	return poll(ctx, func(ctx context.Context) error {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := cluster.Get(ctx, types.NamespacedName{Name: name}, crd); err != nil {
			return err
		}
		for _, c := range crd.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("the CRD %s is not established", name)
	})
}

// samples reads the objects of an example.
func samples(t *testing.T, name string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "deploy", "samples", "jobs", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := deploy.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// mark is a toleration that only our flavors bring: where it is in an object,
// an admission was injected.
const mark = "elastic-conformance"

// arena is a namespace with a queue of its own.
type arena struct {
	namespace string
	queue     *kueue.ClusterQueue
}

// newArena makes a queue that is stopped until it is opened.
func newArena(t *testing.T) *arena {
	t.Helper()
	ns := cluster.Namespace(t)
	flavor := sandbox.Flavor(ns, map[string]string{"kubernetes.io/arch": "amd64"})
	flavor.Spec.Tolerations = []corev1.Toleration{{Key: mark, Operator: corev1.TolerationOpExists}}
	queue := sandbox.ClusterQueue(ns, ns, "8")
	queue.Spec.StopPolicy = ptr.To(kueue.Hold)
	queue.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	group := &queue.Spec.ResourceGroups[0]
	group.CoveredResources = append(group.CoveredResources, corev1.ResourceCPU, corev1.ResourceMemory)
	group.Flavors[0].Resources = append(group.Flavors[0].Resources,
		kueue.ResourceQuota{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse("20")},
		kueue.ResourceQuota{Name: corev1.ResourceMemory, NominalQuota: resource.MustParse("1Ti")},
	)
	cluster.Make(t, flavor, queue, sandbox.LocalQueue(ns, "main", ns))
	t.Cleanup(func() { emptyOut(t, ns) })
	return &arena{ns, queue}
}

// emptyOut waits until nothing is queued in a namespace any more, so that no workload
// loses its queue.
func emptyOut(t *testing.T, ns string) {
	ctx := context.Background()
	err := poll(ctx, func(ctx context.Context) error {
		list := &kueue.WorkloadList{}
		if err := cluster.List(ctx, list, client.InNamespace(ns)); err != nil {
			return err
		}
		for i := range list.Items {
			if err := cluster.Delete(ctx, &list.Items[i]); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("%d workloads are left in %s", len(list.Items), ns)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// open lets workloads be admitted.
func (a *arena) open(t *testing.T) {
	t.Helper()
	before := a.queue.DeepCopy()
	a.queue.Spec.StopPolicy = ptr.To(kueue.None)
	if err := cluster.Patch(t.Context(), a.queue, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// require adds an admission check to the queue.
func (a *arena) require(t *testing.T, check string) {
	t.Helper()
	before := a.queue.DeepCopy()
	a.queue.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{
		AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: kueue.AdmissionCheckReference(check)}},
	}
	if err := cluster.Patch(t.Context(), a.queue, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// intruder takes all quota and preempts everyone.
func (a *arena) intruder(t *testing.T) *kueue.Workload {
	t.Helper()
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "intruder"},
		Spec: kueue.WorkloadSpec{QueueName: "main", Priority: ptr.To(int32(1000)), PodSets: []kueue.PodSet{{
			Name: "main", Count: 1,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "main", Image: "example.com/train:1",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20")},
					Limits: corev1.ResourceList{sandbox.GPU: resource.MustParse("8")},
				},
			}}}},
		}}},
	}
	cluster.Make(t, wl)
	return wl
}

// fetch reads an object again.
func fetch(ctx context.Context, like *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	now := &unstructured.Unstructured{}
	now.SetGroupVersionKind(like.GroupVersionKind())
	return now, cluster.Get(ctx, client.ObjectKeyFromObject(like), now)
}

// marks counts what admissions have injected into an object.
func marks(object any) int {
	data, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return strings.Count(string(data), mark)
}

// waitCondition waits until a workload's condition has the status.
func waitCondition(t *testing.T, wl *kueue.Workload, name string, want metav1.ConditionStatus) *metav1.Condition {
	t.Helper()
	var found *metav1.Condition
	sandbox.Eventually(t, fmt.Sprintf("%s %s of %s", name, want, wl.Name), func(ctx context.Context) error {
		now := &kueue.Workload{}
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(wl), now); err != nil {
			return err
		}
		if found = apimeta.FindStatusCondition(now.Status.Conditions, name); found == nil || found.Status != want {
			return fmt.Errorf("conditions are %s", describe(now))
		}
		return nil
	})
	return found
}

func describe(wl *kueue.Workload) string {
	var out []string
	for _, c := range wl.Status.Conditions {
		out = append(out, fmt.Sprintf("%s=%s (%s: %s)", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(out, ", ")
}

// setStatus writes what the job's operator would.
func setStatus(t *testing.T, job *unstructured.Unstructured, text string) {
	t.Helper()
	var status map[string]any
	if err := yaml.Unmarshal([]byte(text), &status); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "the status can be written", func(ctx context.Context) error {
		now, err := fetch(ctx, job)
		if err != nil {
			return err
		}
		now.Object["status"] = status
		return cluster.Status().Update(ctx, now)
	})
}

func podSetsOf(wl *kueue.Workload) string {
	var out []string
	for _, set := range wl.Spec.PodSets {
		out = append(out, fmt.Sprintf("%s:%d", set.Name, set.Count))
	}
	return strings.Join(out, " ")
}

func poll(ctx context.Context, check func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, sandbox.Timeout)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// difference names the first place where two JSON values differ.
func difference(a, b any) string {
	x, y := flatten("spec", a), flatten("spec", b)
	for path, value := range x {
		if y[path] != value {
			return fmt.Sprintf("%s was %v and is %v", path, value, y[path])
		}
	}
	for path, value := range y {
		if _, found := x[path]; !found {
			return fmt.Sprintf("%s is new: %v", path, value)
		}
	}
	return ""
}

func flatten(path string, value any) map[string]any {
	out := map[string]any{}
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			for p, leaf := range flatten(path+"."+key, v[key]) {
				out[p] = leaf
			}
		}
	case []any:
		for i := range v {
			for p, leaf := range flatten(fmt.Sprintf("%s[%d]", path, i), v[i]) {
				out[p] = leaf
			}
		}
	default:
		out[path] = v
	}
	return out
}

func clientKey(obj client.Object) client.ObjectKey { return client.ObjectKeyFromObject(obj) }
