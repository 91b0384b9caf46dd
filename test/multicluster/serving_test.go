package multicluster

import (
	"context"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/test/sandbox"
)

// up waits until a namespace has so many pods, and all run.
func up(t *testing.T, c *sandbox.Cluster, ns string, pods int, which ...client.ListOption) {
	t.Helper()
	sandbox.Eventually(t, fmt.Sprintf("%d pods in %s", pods, ns), func(ctx context.Context) error {
		list := &corev1.PodList{}
		if err := c.List(ctx, list, append(which, client.InNamespace(ns))...); err != nil {
			return err
		}
		running := 0
		for i := range list.Items {
			if list.Items[i].Status.Phase == corev1.PodRunning && list.Items[i].DeletionTimestamp == nil {
				running++
			}
		}
		if len(list.Items) != pods || running != pods {
			return fmt.Errorf("there are %d, of which %d run", len(list.Items), running)
		}
		return nil
	})
}

// stayGated checks that pods are held.
func stayGated(t *testing.T, c *sandbox.Cluster, which ...client.ListOption) {
	t.Helper()
	pods := &corev1.PodList{}
	if err := c.List(t.Context(), pods, which...); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) == 0 {
		t.Error("there are no pods")
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; len(pod.Spec.SchedulingGates) == 0 || pod.Spec.NodeName != "" {
			t.Errorf("pod %s is on %q with gates %v", pod.Name, pod.Spec.NodeName, pod.Spec.SchedulingGates)
		}
	}
}

// A StatefulSet runs there while its pods here keep their gates. It is scaled
// here, and what becomes of its pods there is no concern of the queue's.
func TestStatefulSet(t *testing.T) {
	ns := arena(t, "4", "0", "east", "west")
	object := samples(t, ns, "statefulset")[0]
	manager.Make(t, object)
	wl := runsIn(t, manager.WorkloadOf(t, object), "east")
	stayGated(t, manager, client.InNamespace(ns))
	up(t, east, ns, 2)
	there := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: object.GetName()}}
	there = wait(t, east, there, "its pods", func(set *appsv1.StatefulSet) error {
		if set.Status.ReadyReplicas != 2 {
			return fmt.Errorf("status is %+v", set.Status)
		}
		return nil
	})
	if there.Labels[kueue.MultiKueueOriginLabel] != "multikueue" || there.Annotations[kueue.MultiKueueOriginUIDAnnotation] != string(object.GetUID()) {
		t.Errorf("the one there has labels %v and annotations %v", there.Labels, there.Annotations)
	}

	patch(t, manager, object, `{"spec":{"replicas":1}}`)
	up(t, east, ns, 1)
	wait(t, manager, wl, "what it needs no more", func(wl *kueue.Workload) error {
		if given := wl.Status.ReclaimablePods; len(given) != 1 || given[0].Count != 1 {
			return fmt.Errorf("it gave back %+v", given)
		}
		return nil
	})
	first := podsIn(t, east, ns)[0]
	if err := east.Delete(t.Context(), &first); err != nil {
		t.Fatal(err)
	}
	sandbox.Eventually(t, "another pod", func(context.Context) error {
		pods := podsIn(t, east, ns)
		if len(pods) != 1 || contains(pods, first.UID) || pods[0].Status.Phase != corev1.PodRunning {
			return fmt.Errorf("there are %d", len(pods))
		}
		return nil
	})
	if now := runsIn(t, wl, "east"); now.UID != wl.UID || now.Status.SchedulingStats != nil {
		t.Errorf("a pod that is replaced there queues it again: %+v", now.Status)
	}

	patch(t, manager, object, `{"spec":{"replicas":3}}`) // more than it was admitted with
	wait(t, manager, wl, "being queued again", func(wl *kueue.Workload) error {
		if wl.Spec.PodSets[0].Count != 3 || ptr.Deref(wl.Status.ClusterName, "") != "east" {
			return fmt.Errorf("it has %d pods, status is %+v", wl.Spec.PodSets[0].Count, wl.Status)
		}
		return nil
	})
	up(t, east, ns, 3)
	runsIn(t, wl, "east")

	patch(t, west, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: ns}}, quotaOf(ns, "4"))
	patch(t, east, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: ns}}, `{"spec":{"stopPolicy":"HoldAndDrain"}}`)
	runsIn(t, wl, "west")
	up(t, west, ns, 3)
	gone(t, east, ns, &kueue.WorkloadList{}, &appsv1.StatefulSetList{}, &corev1.PodList{})
	stayGated(t, manager, client.InNamespace(ns))

	if err := manager.Delete(t.Context(), object, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	cleared(t, ns)
	gone(t, west, ns, &appsv1.StatefulSetList{})
	gone(t, manager, ns, &kueue.WorkloadList{}, &corev1.PodList{})
}

// A StatefulSet that a manager with Kueue sends here is run: its pods are those of
// the workload that it names.
func TestStatefulSetOfKueues(t *testing.T) {
	ns := arena(t, "4", "0", "east")
	object := samples(t, ns, "statefulset")[0]
	object.SetLabels(with(object.GetLabels(), kueue.MultiKueueOriginLabel, "another"))
	object.SetAnnotations(with(object.GetAnnotations(), "kueue.x-k8s.io/prebuilt-workload-name", "sent"))
	set := &appsv1.StatefulSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, set); err != nil {
		t.Fatal(err)
	}
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: "sent", Labels: map[string]string{kueue.MultiKueueOriginLabel: "another"},
			Annotations: map[string]string{"kueue.x-k8s.io/is-group-workload": "true"},
		},
		Spec: kueue.WorkloadSpec{QueueName: "main", PodSets: []kueue.PodSet{{Name: "main", Count: 2, Template: corev1.PodTemplateSpec{Spec: set.Spec.Template.Spec}}}},
	}
	wl.Spec.PodSets[0].Template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	east.Make(t, wl)
	condition(t, east, wl, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	east.Make(t, object)
	if wl = condition(t, east, wl, kueue.WorkloadPodsReady, metav1.ConditionTrue); !metav1.IsControlledBy(wl, object) {
		t.Errorf("the workload belongs to %+v", wl.OwnerReferences)
	}
	up(t, east, ns, 2)
	all := &kueue.WorkloadList{}
	if err := east.List(t.Context(), all, client.InNamespace(ns)); err != nil || len(all.Items) != 1 {
		t.Errorf("there are %d workloads, %v", len(all.Items), err)
	}
}

var leaderWorkerSet = schema.GroupVersionKind{Group: "leaderworkerset.x-k8s.io", Version: "v1", Kind: "LeaderWorkerSet"}

const groupIndex = "leaderworkerset.sigs.k8s.io/group-index"

// makeGroup makes the pods of one group of a LeaderWorkerSet as its controller
// does, and returns the workload that is theirs.
func makeGroup(t *testing.T, c *sandbox.Cluster, set *unstructured.Unstructured, group string) *kueue.Workload {
	t.Helper()
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: set.GetNamespace()}}
	for i, template := range []string{"leaderTemplate", "workerTemplate", "workerTemplate"} {
		pod := &corev1.Pod{}
		fields, _ := at(set, "spec.leaderWorkerTemplate."+template).(map[string]any)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, pod); err != nil {
			t.Fatal(err)
		}
		pod.Namespace, pod.Name = set.GetNamespace(), fmt.Sprintf("%s-%s-%d", set.GetName(), group, i)
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, leaderWorkerSet)}
		pod.Labels = with(pod.Labels, groupIndex, group)
		pod.Labels["leaderworkerset.sigs.k8s.io/name"] = set.GetName()
		pod.Labels["leaderworkerset.sigs.k8s.io/worker-index"] = fmt.Sprint(i)
		pod.Annotations = with(pod.Annotations, sandbox.RunFor, "forever")
		c.Make(t, pod)
		wl.Name = pod.Labels["kueue.x-k8s.io/pod-group-name"]
	}
	return wl
}

func removeGroup(t *testing.T, c *sandbox.Cluster, ns, group string) {
	t.Helper()
	if err := c.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(ns), client.MatchingLabels{groupIndex: group}); err != nil {
		t.Fatal(err)
	}
}

// The groups of a LeaderWorkerSet have a workload each, and run in one cluster,
// which has one LeaderWorkerSet for all of them.
func TestLeaderWorkerSet(t *testing.T) {
	ns := arena(t, "2", "2", "east", "west") // a group's worth each
	object := samples(t, ns, "leaderworkerset")[0]
	object.Object["spec"].(map[string]any)["replicas"] = int64(2)
	known(t, object, "spec.leaderWorkerTemplate.workerTemplate.metadata.labels")
	manager.Make(t, object)
	sent := func(wl *kueue.Workload, clusters ...string) string {
		t.Helper()
		return *wait(t, manager, wl, "a cluster", func(wl *kueue.Workload) error {
			if !slices.Contains(clusters, ptr.Deref(wl.Status.ClusterName, "")) {
				return fmt.Errorf("status is %+v", wl.Status)
			}
			return nil
		}).Status.ClusterName
	}
	first := makeGroup(t, manager, object, "0")
	name := sent(first, "east", "west")
	worker, other := east, west
	if name == "west" {
		worker, other = west, east
	}
	second := makeGroup(t, manager, object, "1")
	condition(t, worker, second, kueue.WorkloadQuotaReserved, metav1.ConditionFalse)
	if nominated := wait(t, manager, second, "its status", func(*kueue.Workload) error { return nil }).Status.NominatedClusterNames; !slices.Equal(nominated, []string{name}) {
		t.Errorf("it may go to %v, the first is in %s", nominated, name)
	}
	there := wait(t, worker, object, "being there", func(*unstructured.Unstructured) error { return nil })
	makeGroup(t, worker, there, "0")
	makeGroup(t, worker, there, "1")
	runsIn(t, first, name)
	up(t, worker, ns, 3, client.MatchingLabels{groupIndex: "0"})
	stayGated(t, worker, client.InNamespace(ns), client.MatchingLabels{groupIndex: "1"})
	patch(t, worker, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: ns}}, quotaOf(ns, "4"))
	runsIn(t, second, name)
	up(t, worker, ns, 6)
	stayGated(t, manager, client.InNamespace(ns))
	gone(t, other, ns, &kueue.WorkloadList{}, listOf(object))

	// One group stops, and comes back to where the other is.
	patch(t, manager, second, `{"spec":{"active":false}}`)
	worker.WaitGone(t, second.DeepCopy())
	up(t, worker, ns, 3) // of the first
	makeGroup(t, worker, there, "1")
	patch(t, manager, second, `{"spec":{"active":true}}`)
	runsIn(t, second, name)
	up(t, worker, ns, 6)

	patch(t, manager, object, `{"spec":{"replicas":1}}`)
	removeGroup(t, manager, ns, "1")
	worker.WaitGone(t, second.DeepCopy())
	wait(t, worker, there, "one group", func(now *unstructured.Unstructured) error {
		if now.GetUID() != there.GetUID() {
			t.Fatal("it is another LeaderWorkerSet")
		}
		if replicas := at(now, "spec.replicas"); replicas != int64(1) {
			return fmt.Errorf("there are %v", replicas)
		}
		return nil
	})
	removeGroup(t, worker, ns, "1")
	up(t, worker, ns, 3)
	if now := runsIn(t, first, name); now.Status.SchedulingStats != nil {
		t.Errorf("the group that stays was evicted: %+v", now.Status.SchedulingStats)
	}

	if err := manager.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	removeGroup(t, manager, ns, "0")
	worker.WaitGone(t, there)
	cleared(t, ns)
	gone(t, manager, ns, &kueue.WorkloadList{})
}

func listOf(object *unstructured.Unstructured) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(object.GroupVersionKind().GroupVersion().WithKind(object.GetKind() + "List"))
	return list
}

// served is a RayService that west runs.
func served(t *testing.T, clusters ...string) (here, there *unstructured.Unstructured) {
	t.Helper()
	ns := arena(t, "0", "8", clusters...)
	here = samples(t, ns, "rayservice")[0]
	here.Object["spec"].(map[string]any)["serveConfigV2"] = "first"
	known(t, here, "spec.rayClusterConfig.suspend")
	manager.Make(t, here)
	wait(t, manager, manager.WorkloadOf(t, here), "a cluster", func(wl *kueue.Workload) error {
		if ptr.Deref(wl.Status.ClusterName, "") != "west" {
			return fmt.Errorf("status is %+v", wl.Status)
		}
		return nil
	})
	there = wait(t, west, here, "being started there", func(there *unstructured.Unstructured) error {
		if at(there, "spec.rayClusterConfig.suspend") == true || at(there, "spec.serveConfigV2") != "first" {
			return fmt.Errorf("it is %v", there.Object["spec"])
		}
		return nil
	})
	return here, there
}

// What a RayService serves can be changed here while it runs there.
func TestForwarded(t *testing.T) {
	here, there := served(t, "east", "west")
	patch(t, manager, here, `{"spec":{"serveConfigV2":"second"}}`)
	wait(t, west, there, "what is to be served", func(there *unstructured.Unstructured) error {
		if config := at(there, "spec.serveConfigV2"); config != "second" {
			return fmt.Errorf("it is %v", config)
		}
		return nil
	})
}
