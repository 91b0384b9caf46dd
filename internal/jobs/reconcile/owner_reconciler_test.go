package reconcile

import (
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

const servingSet = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: set, namespace: ns, uid: set, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  replicas: 2
  template:
    spec: {containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]}
`

// ownerOf is the controller of StatefulSets in a world.
func ownerOf(t *testing.T, w *world) *ownerReconciler {
	t.Helper()
	sets, err := kinds.BuiltIn([]string{"statefulset"})
	if err != nil {
		t.Fatal(err)
	}
	return &ownerReconciler{&podReconciler{controller: w.controller, reader: w.client, kinds: w.filter.Kinds, kind: podKind()}, sets[0]}
}

func settleSet(t *testing.T, c *ownerReconciler) {
	t.Helper()
	key := types.NamespacedName{Namespace: "ns", Name: "set"}
	for range 5 {
		if _, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *world) scaleSet(replicas int64) {
	w.t.Helper()
	set := parse(w.t, servingSet)
	if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
		w.t.Fatal(err)
	}
	if err := unstructured.SetNestedField(set.Object, replicas, "spec", "replicas"); err != nil {
		w.t.Fatal(err)
	}
	if err := w.client.Update(w.t.Context(), set); err != nil {
		w.t.Fatal(err)
	}
}

// A StatefulSet has its workload before its pods. Scaled to zero it gives its quota back, and its workload waits
// for it.
func TestStatefulSetHasItsWorkloadWithoutPods(t *testing.T) {
	set := parse(t, servingSet)
	w := newWorld(t, set)
	c := ownerOf(t, w)
	settleSet(t, c)
	wl := w.workloadOf(set)
	if wl.Name != kinds.WorkloadName(set.GroupVersionKind(), "set", "set") || wl.Spec.QueueName != "main" || wl.Spec.PodSets[0].Count != 2 ||
		wl.Annotations[kinds.IsGroupAnnotation] != "true" {
		t.Fatalf("%s in %s: %v", wl.Name, wl.Spec.QueueName, wl.Spec.PodSets)
	}
	w.admit(wl, oneOf("cq", 2))
	settleSet(t, c)
	if wl = w.workloadOf(set); !workload.HasReservation(wl) {
		t.Fatal("it lost its quota without pods")
	}
	w.scaleSet(0)
	settleSet(t, c)
	if wl = w.workloadOf(set); !workload.IsOnHold(wl) || workload.IsAdmitted(wl) {
		t.Fatalf("scaled to zero: %v", wl.Status.Conditions)
	}
	// The group's own reconciliation, without pods, leaves it alone.
	for _, request := range requestForWorkload(wl) {
		if _, err := c.podReconciler.Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	w.scaleSet(3)
	settleSet(t, c)
	if wl = w.workloadOf(set); workload.IsOnHold(wl) || wl.Spec.PodSets[0].Count != 3 {
		t.Errorf("scaled up: %v, %d pods", wl.Status.Conditions, wl.Spec.PodSets[0].Count)
	}
	w.scaleSet(0) // before it has quota again
	settleSet(t, c)
	if wl = w.workloadOf(set); !workload.IsOnHold(wl) || wl.Spec.PodSets[0].Count != 3 {
		t.Errorf("scaled to zero while it waits: %v, %d pods", wl.Status.Conditions, wl.Spec.PodSets[0].Count)
	}
	if err := w.client.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	settleSet(t, c)
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("its workload is left: %v", err)
	}
}

// A workload with the name that a StatefulSet's had before goes on; one of another set of that name does not.
func TestStatefulSetGoesOnWithItsFormerWorkload(t *testing.T) {
	set := parse(t, servingSet)
	gvk := set.GroupVersionKind()
	for owner, want := range map[string]string{"": kinds.WorkloadName(gvk, "set", ""), "set": kinds.WorkloadName(gvk, "set", ""), "other": kinds.WorkloadName(gvk, "set", "set")} {
		former := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: kinds.WorkloadName(gvk, "set", ""), Annotations: map[string]string{kinds.IsGroupAnnotation: "true"}}}
		former.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 2}}
		if owner != "" {
			by := set.DeepCopy()
			by.SetUID(types.UID(owner))
			former.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(by, gvk)}
		}
		w := newWorld(t, parse(t, servingSet), former)
		settleSet(t, ownerOf(t, w))
		if got := w.workloadOf(set).Name; got != want {
			t.Errorf("owned by %q: it has %s, want %s", owner, got, want)
		}
	}
}

// Whoever counts is told of each pod that is started.
func TestRemovedGatesAreReported(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "pod", Labels: map[string]string{kinds.ManagedLabel: "true", kinds.QueueNameLabel: "main"}}}
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kinds.AdmissionGate}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	w := newWorld(t, pod)
	var gates []string
	w.gateRemoved = func(gate string, wl *kueue.Workload, group bool) {
		if apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted) && !group {
			gates = append(gates, gate)
		}
	}
	c := ownerOf(t, w).podReconciler
	for range 2 {
		for range 5 {
			if _, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)}); err != nil {
				t.Fatal(err)
			}
		}
		if wl := w.workloadOf(pod); !workload.HasReservation(wl) {
			w.admit(wl, oneOf("cq", 1))
		}
	}
	if len(gates) != 1 || gates[0] != kinds.AdmissionGate {
		t.Errorf("reported: %v", gates)
	}
}

// A StatefulSet with a least and a most number of pods has its least as its workload, however many replicas it has; of fewer
// replicas than that, all. Each pod beyond is a workload of the lowest priority, which names it.
func TestRangedStatefulSet(t *testing.T) {
	set := parse(t, strings.Replace(servingSet, "  template:\n", "  template:\n    metadata: {annotations: {elasticai.io/pods: 2-8}}\n", 1))
	w := newWorld(t, set)
	c := ownerOf(t, w)
	for replicas, want := range map[int64]int32{8: 2, 5: 2, 2: 2, 1: 1} {
		w.scaleSet(replicas)
		settleSet(t, c)
		if n := w.workloadOf(set).Spec.PodSets[0].Count; n != want {
			t.Errorf("%d replicas: a workload of %d pods, want %d", replicas, n, want)
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "set-2", UID: "set-2", Labels: map[string]string{kinds.ManagedLabel: "true", kinds.QueueNameLabel: "main"},
		Annotations: map[string]string{kinds.ParentAnnotation: "statefulset", v1alpha1.ExtraOfAnnotation: w.workloadOf(set).Name},
	}}
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kinds.AdmissionGate}}
	pod.Spec.Containers = []corev1.Container{{Name: "c"}}
	if err := w.client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for _, request := range requestForPod(pod) {
		for range 3 {
			if _, err := c.podReconciler.Reconcile(t.Context(), request); err != nil {
				t.Fatal(err)
			}
		}
	}
	extras := w.extras()
	if len(extras) != 1 || workload.ExtraOf(&extras[0]) != workload.KeyOf(w.workloadOf(set)) || *extras[0].Spec.Priority != math.MinInt32 || !workload.IsOfPod(&extras[0]) {
		t.Errorf("extras: %+v", extras)
	}
}
