package multicluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/deploy"
	"github.com/elastic-ai/elastic/test/crds"
	"github.com/elastic-ai/elastic/test/sandbox"
)

// install brings the kinds of other projects' jobs into all clusters.
func install(ctx context.Context, names ...string) error {
	objects, err := crds.All()
	if err != nil {
		return err
	}
	for _, object := range objects {
		if !slices.Contains(names, object.GetName()) {
			continue
		}
		unstructured.RemoveNestedField(object.Object, "spec", "conversion") // its webhook is not here
		unstructured.RemoveNestedField(object.Object, "status")
		for _, cluster := range []*sandbox.Cluster{manager, east, west} {
			if err := cluster.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.FieldOwner("test"), client.ForceOwnership); err != nil {
				return err
			}
		}
	}
	return nil
}

// known waits until all clusters hold back objects like this one: a field that
// they then have is there.
func known(t *testing.T, object *unstructured.Unstructured, field string) {
	t.Helper()
	for _, cluster := range []*sandbox.Cluster{manager, east, west} {
		sandbox.Eventually(t, "being held back", func(ctx context.Context) error {
			held := object.DeepCopy()
			if err := cluster.Create(ctx, held, client.DryRunAll); err != nil {
				return err
			}
			if at(held, field) == nil {
				return fmt.Errorf("it is %v", held.Object["spec"])
			}
			return nil
		})
	}
}

func samples(t *testing.T, ns, name string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(sandbox.Root(), "deploy/samples/jobs", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := deploy.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		object.SetNamespace(ns)
	}
	return objects
}

// Jobs of kinds that know nothing of each other go the same way. No controller runs
// them there but the test, which writes what their operators would.
func TestOtherKinds(t *testing.T) {
	for name, test := range map[string]struct{ suspend, managedBy, running, ended string }{
		"pytorchjob": {
			suspend:   "spec.runPolicy.suspend",
			managedBy: "spec.runPolicy.managedBy",
			running:   `{"conditions":[{"type":"Running","status":"True","reason":"r","message":"m"}],"replicaStatuses":{"Master":{"active":1}}}`,
			ended:     `{"conditions":[{"type":"Succeeded","status":"True","reason":"r","message":"it went well"}],"replicaStatuses":{"Master":{"active":0,"succeeded":1}}}`,
		},
		"jobset": {
			suspend:   "spec.suspend",
			managedBy: "spec.managedBy",
			running:   `{"replicatedJobsStatus":[{"name":"leader","ready":1,"succeeded":0,"failed":0,"active":1,"suspended":0},{"name":"workers","ready":2,"succeeded":0,"failed":0,"active":2,"suspended":0}]}`,
			ended:     `{"conditions":[{"type":"Completed","status":"True","reason":"AllJobsCompleted","message":"it went well","lastTransitionTime":"2026-11-15T12:00:00Z"}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := arena(t, "0", "8", "east", "west")
			job := samples(t, ns, name)[0]
			known(t, job, test.suspend)
			manager.Make(t, job)
			if by := at(job, test.managedBy); by != kueue.MultiKueueControllerName {
				t.Fatalf("it is managed by %v", by)
			}
			wl := manager.WorkloadOf(t, job)
			wait(t, manager, wl, "a cluster", func(wl *kueue.Workload) error {
				if ptr.Deref(wl.Status.ClusterName, "") != "west" {
					return fmt.Errorf("status is %+v", wl.Status)
				}
				return nil
			})
			there := wait(t, west, job, "being started there", func(there *unstructured.Unstructured) error {
				if at(there, test.suspend) == true || at(there, test.managedBy) != nil {
					return fmt.Errorf("it is %v", there.Object["spec"])
				}
				return nil
			})
			status(t, west, there, test.running)
			runsIn(t, wl, "west")
			wait(t, manager, job, "the status from there", same(test.running))
			status(t, west, there, test.ended)
			end := apimeta.FindStatusCondition(condition(t, manager, wl, kueue.WorkloadFinished, metav1.ConditionTrue).Status.Conditions, kueue.WorkloadFinished)
			if end.Reason != kueue.WorkloadFinishedReasonSucceeded || end.Message != "it went well" {
				t.Errorf("it ended with %s: %s", end.Reason, end.Message)
			}
			wait(t, manager, job, "the last status from there", same(test.ended))
			gone(t, west, ns, &kueue.WorkloadList{}, listOf(job))
		})
	}
}

// at is the value at a path.
func at(obj *unstructured.Unstructured, path string) any {
	var value any = obj.Object
	for name := range strings.SplitSeq(path, ".") {
		fields, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = fields[name]
	}
	return value
}

// same checks that a status has all that is in a text.
func same(text string) func(*unstructured.Unstructured) error {
	return func(obj *unstructured.Unstructured) error {
		var want map[string]any
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			return err
		}
		got, _ := obj.Object["status"].(map[string]any)
		for field := range want {
			a, _ := json.Marshal(got[field])
			b, _ := json.Marshal(want[field])
			if string(a) != string(b) {
				return fmt.Errorf("%s is %s, there it is %s", field, a, b)
			}
		}
		return nil
	}
}

func status(t *testing.T, c client.Client, obj client.Object, text string) {
	t.Helper()
	if err := c.Status().Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(`{"status":`+text+`}`))); err != nil {
		t.Fatal(err)
	}
}

// Pods, alone and in a group, run there while the originals keep their gate.
func TestPods(t *testing.T) {
	for name, finish := range map[string]string{"pod": "1", "pod-group": "2"} {
		t.Run(name, func(t *testing.T) {
			ns := arena(t, "4", "0", "east", "west")
			var owners []client.Object
			for _, pod := range samples(t, ns, name) {
				pod.SetAnnotations(with(pod.GetAnnotations(), sandbox.RunFor, "forever"))
				manager.Make(t, pod)
				owners = append(owners, pod)
			}
			wl := workloadWith(t, ns)
			runsIn(t, wl, "east")
			for _, pod := range owners {
				here := wait(t, manager, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: pod.GetName()}}, "running", func(pod *corev1.Pod) error {
					if pod.Status.Phase != corev1.PodRunning {
						return fmt.Errorf("status is %+v", pod.Status)
					}
					return nil
				})
				if len(here.Spec.SchedulingGates) == 0 || here.Spec.NodeName != "" {
					t.Errorf("pod %s is on %q with gates %v: it is to run elsewhere", here.Name, here.Spec.NodeName, here.Spec.SchedulingGates)
				}
				patch(t, east, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: pod.GetName()}}, `{"metadata":{"annotations":{"`+sandbox.RunFor+`":"0s"}}}`)
			}
			end := apimeta.FindStatusCondition(condition(t, manager, wl, kueue.WorkloadFinished, metav1.ConditionTrue).Status.Conditions, kueue.WorkloadFinished)
			if end.Reason != kueue.WorkloadFinishedReasonSucceeded || name == "pod-group" && end.Message != "Pods succeeded: "+finish+"/"+finish+"." {
				t.Errorf("it ended with %s: %s", end.Reason, end.Message)
			}
			cleared(t, ns)
		})
	}
}

func with(values map[string]string, key, value string) map[string]string {
	if values == nil {
		values = map[string]string{}
	}
	values[key] = value
	return values
}

// workloadWith waits for the only workload of a namespace.
func workloadWith(t *testing.T, ns string) *kueue.Workload {
	t.Helper()
	list := &kueue.WorkloadList{}
	sandbox.Eventually(t, "a workload in "+ns, func(ctx context.Context) error {
		if err := manager.List(ctx, list, client.InNamespace(ns)); err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return errors.New("there is none, or there are several")
		}
		return nil
	})
	return &list.Items[0]
}

// What cannot be handed over is refused, and says why.
func TestNotHandedOver(t *testing.T) {
	ns := arena(t, "4", "4", "east", "west")
	job := sandbox.Job(ns, "mine", "main", 1, "1")
	job.Spec.ManagedBy = ptr.To("example.com/mine")
	manager.Make(t, job)
	wl := wait(t, manager, manager.WorkloadOf(t, job), "being refused", func(wl *kueue.Workload) error {
		if ptr.Deref(wl.Spec.Active, true) || !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadEvicted) {
			return fmt.Errorf("status is %+v", wl.Status)
		}
		return nil
	})
	evicted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted)
	want := `The workload is deactivated due to AdmissionCheck in Rejected state: "` + ns + `" (The owner is not managed by Kueue: Expecting spec.managedBy to be "kueue.x-k8s.io/multikueue" not "example.com/mine", Previously: "Pending")`
	if evicted.Reason != "DeactivatedDueToAdmissionCheck" || evicted.Message != want {
		t.Errorf("it was refused with %s: %s", evicted.Reason, evicted.Message)
	}
	cleared(t, ns)
}
