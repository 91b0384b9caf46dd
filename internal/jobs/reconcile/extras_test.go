package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/api/queuepolicy/v1alpha1"
	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/queue/workload"
)

// rangedJob has two pods at least and five at most.
var rangedJob = strings.NewReplacer("kueue.x-k8s.io/job-min-parallelism: \"1\"", v1alpha1.PodsAnnotation+": 2-5", "completions: 6", "completions: 20").Replace(queuedJob)

// extras are the workloads of the job's extra pods, in order.
func (w *world) extras() []kueue.Workload {
	w.t.Helper()
	list := &kueue.WorkloadList{}
	if err := w.client.List(w.t.Context(), list); err != nil {
		w.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(wl kueue.Workload) bool { return !workload.IsExtra(&wl) })
}

func (w *world) jobPods() int64 {
	w.t.Helper()
	pods, _, err := unstructured.NestedInt64(w.settle("job").Object, "spec", "parallelism")
	if err != nil {
		w.t.Fatal(err)
	}
	return pods
}

// startRanged starts the job with its least number of pods, and returns its workload.
func startRanged(t *testing.T) (*world, *kueue.Workload) {
	t.Helper()
	w := newWorld(t, parse(t, rangedJob))
	wl := w.workloadOf(w.settle("job"))
	if set := wl.Spec.PodSets[0]; set.Count != 2 || set.MinCount != nil {
		t.Fatalf("its workload has %d pods, at least %v", set.Count, set.MinCount)
	}
	admission := oneOf("cq", 2)
	admission.PodSetAssignments[0].Flavors = map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "f"}
	if err := w.client.Create(t.Context(), &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "f"}}); err != nil {
		t.Fatal(err)
	}
	w.admit(wl, admission)
	if n := w.jobPods(); n != 2 {
		t.Fatalf("it was started with %d pods", n)
	}
	gates, _, _ := unstructured.NestedSlice(w.settle("job").Object, "spec", "template", "spec", "schedulingGates")
	if !strings.Contains(fmt.Sprint(gates), v1alpha1.AvoidNodesGate) {
		t.Fatalf("its pods do not wait for the nodes to avoid: %v", gates)
	}
	return w, wl
}

// Pods that another cluster makes are not marked: their admission here adds nothing to them.
func TestPodsOfOtherClustersAreNotMarked(t *testing.T) {
	w, _ := startRanged(t)
	infos := make([]kinds.PodSetInfo, 1)
	labelRanged(w.kind.Object(w.settle("job")), infos)
	if len(infos[0].Labels) != 0 {
		t.Errorf("labels %v", infos[0].Labels)
	}
}

// A job grows with each of its extras that is admitted, and shrinks when one is evicted, whose quota is released then.
func TestJobGrowsAndShrinks(t *testing.T) {
	w, wl := startRanged(t)
	extras := w.extras()
	if len(extras) != 3 {
		t.Fatalf("it has %d extras", len(extras))
	}
	for i := range extras {
		x := &extras[i]
		if workload.ExtraOf(x) != workload.KeyOf(wl) || x.Annotations[v1alpha1.FlavorsAnnotation] != "f" || x.Spec.PodSets[0].Count != 1 || x.Spec.QueueName != wl.Spec.QueueName || *x.Spec.Priority >= 0 {
			t.Errorf("extra %s: %+v, priority %d", x.Name, x.Annotations, *x.Spec.Priority)
		}
	}
	w.admit(&extras[0], oneOf("cq", 1))
	w.admit(&extras[2], oneOf("cq", 1))
	if n := w.jobPods(); n != 4 {
		t.Errorf("with two extras it has %d pods", n)
	}
	gone := &kueue.Workload{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(&extras[0]), gone); err != nil {
		t.Fatal(err)
	}
	workload.Evict(gone, kueue.WorkloadEvictedByPreemption, "", "", time.Now())
	if err := w.client.Status().Update(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if n := w.jobPods(); n != 3 {
		t.Errorf("with one evicted it has %d pods", n)
	}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(gone), gone); err != nil {
		t.Fatal(err)
	}
	if workload.HasReservation(gone) {
		t.Error("the one evicted has its quota still")
	}
	events := strings.Join(w.recorded(), "\n")
	for _, event := range []string{"Grown grew from 2 to", "Shrunk shrank from 4 to 3 pods"} {
		if !strings.Contains(events, event) {
			t.Errorf("no event %q:\n%s", event, events)
		}
	}
}

// With few pods left to finish there are fewer extras, and the job's own workload loses no quota before them.
func TestExtrasOfFinishedPodsGo(t *testing.T) {
	w, _ := startRanged(t)
	extras := w.extras()
	for i := range extras {
		w.admit(&extras[i], oneOf("cq", 1))
	}
	if n := w.jobPods(); n != 5 {
		t.Fatalf("it has %d pods", n)
	}
	job := w.settle("job")
	job.Object["status"] = map[string]any{"succeeded": int64(17), "active": int64(3)}
	if err := w.client.Status().Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if n := w.jobPods(); n != 3 {
		t.Errorf("with three pods left it has %d", n)
	}
	if n := len(w.extras()); n != 1 {
		t.Errorf("it has %d extras", n)
	}
	if left := w.workloadOf(job).Status.ReclaimablePods; len(left) > 0 {
		t.Errorf("its own workload gave up %v", left)
	}
}

// Extras of a job that is stopped go with its last pod.
func TestExtrasGoWithTheJob(t *testing.T) {
	w, wl := startRanged(t)
	extras := w.extras()
	w.admit(&extras[0], oneOf("cq", 1))
	job := w.settle("job")
	job.Object["status"] = map[string]any{"active": int64(3)}
	if err := w.client.Status().Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); err != nil {
		t.Fatal(err)
	}
	apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: kueue.WorkloadEvictedByPreemption})
	if err := w.client.Status().Update(t.Context(), wl); err != nil {
		t.Fatal(err)
	}
	if job = w.settle("job"); len(w.extras()) != 3 {
		t.Error("extras went before the pods")
	}
	job.Object["status"] = map[string]any{}
	if err := w.client.Status().Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if n := w.jobPods(); n != 2 || len(w.extras()) != 0 {
		t.Errorf("stopped, it has %d pods and %d extras", n, len(w.extras()))
	}
}

// Variants of a workload belong to it, too, and are no extras.
func TestVariantsAreNoExtras(t *testing.T) {
	w := newWorld(t, parse(t, queuedJob))
	wl := w.workloadOf(w.settle("job"))
	variant := workload.NewVariant(wl, "f")
	if err := w.client.Create(t.Context(), variant); err != nil {
		t.Fatal(err)
	}
	w.admit(wl, oneOf("cq", 2))
	w.settle("job")
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(variant), variant); err != nil {
		t.Error(err)
	}
}

const queuedMPIJob = `
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata:
  namespace: ns
  name: job
  uid: job-uid
  labels: {kueue.x-k8s.io/queue-name: main}
  annotations: {elasticai.io/pods: Worker=2-4}
spec:
  runPolicy: {suspend: true}
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template: {spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}
    Worker:
      replicas: 2
      template: {spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}
`

const queuedRayCluster = `
apiVersion: ray.io/v1
kind: RayCluster
metadata:
  namespace: ns
  name: job
  uid: job-uid
  labels: {kueue.x-k8s.io/queue-name: main}
  annotations: {elasticai.io/pods: small=2-4}
spec:
  suspend: true
  headGroupSpec:
    template: {spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}
  workerGroupSpecs:
  - groupName: small
    replicas: 2
    minReplicas: 0
    maxReplicas: 8
    template: {spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}
`

// Jobs of several pod sets grow in the one that they name, and in no other.
func TestKindsGrow(t *testing.T) {
	for kind, test := range map[string]struct {
		job string
		set kueue.PodSetReference
	}{"MPIJob": {queuedMPIJob, "worker"}, "RayCluster": {queuedRayCluster, "small"}} {
		t.Run(kind, func(t *testing.T) {
			job := parse(t, test.job)
			w := newWorld(t, job)
			for _, row := range kinds.Table() {
				if row.GVK == job.GroupVersionKind() {
					w.kind = row
				}
			}
			wl := w.workloadOf(w.settle("job"))
			admission := &kueue.Admission{ClusterQueue: "cq"}
			for _, set := range wl.Spec.PodSets {
				admission.PodSetAssignments = append(admission.PodSetAssignments, kueue.PodSetAssignment{
					Name: set.Name, Count: ptr.To(set.Count), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "f"},
				})
			}
			if err := w.client.Create(t.Context(), &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "f"}}); err != nil {
				t.Fatal(err)
			}
			w.admit(wl, admission)
			pods := func() map[kueue.PodSetReference]int32 {
				counts, err := w.kind.Object(w.settle("job")).Counts()
				if err != nil {
					t.Fatal(err)
				}
				return counts
			}
			before := pods()
			extras := w.extras()
			if len(extras) != 2 || extras[0].Spec.PodSets[0].Name != test.set || before[test.set] != 2 {
				t.Fatalf("%v pods, %d extras", before, len(extras))
			}
			for i := range extras {
				w.admit(&extras[i], &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: test.set, Count: ptr.To[int32](1)}}})
				after := pods()
				if want := int32(3 + i); after[test.set] != want {
					t.Errorf("with %d extras %d pods of %s", i+1, after[test.set], test.set)
				}
				for set, n := range before {
					if set != test.set && after[set] != n {
						t.Errorf("%s has %d pods, and had %d", set, after[set], n)
					}
				}
			}
		})
	}
}

// Each pod of a Deployment, and each group of a LeaderWorkerSet, is queued by itself: they have no range to ask for.
func TestKindsThatNeedNoRange(t *testing.T) {
	found := 0
	for _, row := range kinds.Table() {
		if row.GVK.Kind == "Deployment" || row.GVK.Kind == "LeaderWorkerSet" {
			if found++; row.CanRange() {
				t.Errorf("a %s may ask for a range", row.GVK.Kind)
			}
		}
	}
	if found != 2 {
		t.Errorf("found %d of the two kinds", found)
	}
}
