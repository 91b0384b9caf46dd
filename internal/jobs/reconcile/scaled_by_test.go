package reconcile

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/internal/queue/workload"
)

const clusterOfRayJob = `
apiVersion: ray.io/v1
kind: RayCluster
metadata: {namespace: ns, name: made, uid: made, ownerReferences: [{apiVersion: ray.io/v1, kind: RayJob, name: ray, uid: ray, controller: true}]}
spec:
  headGroupSpec: {template: {spec: {containers: [{name: head}]}}}
  workerGroupSpecs: [{groupName: workers, replicas: 1, template: {spec: {containers: [{name: worker}]}}}]
`

// scaleCluster is what Ray's autoscaler does.
func (w *world) scaleCluster(replicas int64) {
	w.t.Helper()
	cluster := parse(w.t, clusterOfRayJob)
	if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
		w.t.Fatal(err)
	}
	groups, _, _ := unstructured.NestedSlice(cluster.Object, "spec", "workerGroupSpecs")
	groups[0].(map[string]any)["replicas"] = replicas
	if err := unstructured.SetNestedSlice(cluster.Object, groups, "spec", "workerGroupSpecs"); err != nil {
		w.t.Fatal(err)
	}
	if err := w.client.Update(w.t.Context(), cluster); err != nil {
		w.t.Fatal(err)
	}
}

// slicesOf are the workers that a job's unfinished workloads ask for, and whether each has quota.
func (w *world) slicesOf(job client.Object) map[int32]bool {
	w.t.Helper()
	wls, err := w.workloadsOf(w.t.Context(), job)
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[int32]bool{}
	for i := range wls {
		if !workload.IsFinished(&wls[i]) {
			at := slices.IndexFunc(wls[i].Spec.PodSets, func(set kueue.PodSet) bool { return set.Name == "workers" })
			out[wls[i].Spec.PodSets[at].Count] = workload.HasReservation(&wls[i])
		}
	}
	return out
}

// What Ray's autoscaler adds to the cluster of an elastic RayJob or RayService waits for quota of its own; what it takes
// away is given back.
func TestElasticRayJobFollowsItsCluster(t *testing.T) {
	annotated := strings.NewReplacer("queue-name: main}", `queue-name: main}, annotations: {kueue.x-k8s.io/elastic-job: "true"}`,
		"    headGroupSpec", "    enableInTreeAutoscaling: true\n    workerGroupSpecs: [{groupName: workers, replicas: 1, template: {spec: {containers: [{name: worker}]}}}]\n    headGroupSpec")
	for name, tc := range map[string]struct {
		job     string
		suspend []string
		status  map[string]any
	}{
		"RayJob": {job: queuedRayJob, suspend: []string{"spec", "suspend"},
			status: map[string]any{"jobDeploymentStatus": "Running", "rayClusterName": "made"}},
		"RayService": {
			job: strings.NewReplacer("kind: RayJob", "kind: RayService", "  suspend: true\n  shutdownAfterJobFinishes: true\n  submissionMode: HTTPMode\n  rayClusterSpec:\n",
				"  rayClusterConfig:\n    suspend: true\n").Replace(queuedRayJob),
			suspend: []string{"spec", "rayClusterConfig", "suspend"},
			status:  map[string]any{"activeServiceStatus": map[string]any{"rayClusterName": "made"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := rayWorld(t, parse(t, annotated.Replace(tc.job)))
			w.admit(w.workloadOf(w.settle("ray")), &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{
				{Name: "head", Count: ptr.To(int32(1))}, {Name: "workers", Count: ptr.To(int32(1))},
			}})
			job := w.settle("ray")
			if suspended, _, _ := unstructured.NestedBool(job.Object, tc.suspend...); suspended {
				t.Fatal("it was not started")
			}
			if err := w.client.Create(t.Context(), parse(t, clusterOfRayJob)); err != nil {
				t.Fatal(err)
			}
			job.Object["status"] = tc.status
			if err := w.client.Update(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			w.followsItsCluster(job)
		})
	}
}

func (w *world) followsItsCluster(job client.Object) {
	w.t.Helper()
	for _, step := range []struct {
		replicas int64
		want     map[int32]bool
	}{
		{1, map[int32]bool{1: true}},
		{3, map[int32]bool{1: true, 3: false}}, // another slice waits
		{4, map[int32]bool{1: true, 4: false}}, // which follows
		{1, map[int32]bool{1: true}},           // and is not needed any more
		{2, map[int32]bool{1: true, 2: false}},
		{0, map[int32]bool{0: true}},
	} {
		w.scaleCluster(step.replicas)
		w.settle("ray")
		if got := w.slicesOf(job); !maps.Equal(got, step.want) {
			w.t.Fatalf("%d workers: %v, want %v", step.replicas, got, step.want)
		}
	}
}

// clusterWorkers are the workers of the cluster that Ray's operator made.
func (w *world) clusterWorkers() int64 {
	w.t.Helper()
	w.settle("ray")
	cluster := parse(w.t, clusterOfRayJob)
	if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
		w.t.Fatal(err)
	}
	groups, _, _ := unstructured.NestedSlice(cluster.Object, "spec", "workerGroupSpecs")
	return groups[0].(map[string]any)["replicas"].(int64)
}

// A RayJob with a least and a most number of workers grows and shrinks where its operator leaves that alone: in its cluster.
// One that somebody else made is not touched.
func TestRangedRayJobResizesItsCluster(t *testing.T) {
	w := rayWorld(t, parse(t, strings.NewReplacer("queue-name: main}", "queue-name: main}, annotations: {elasticai.io/pods: workers=2-4}",
		"    headGroupSpec", "    workerGroupSpecs: [{groupName: workers, replicas: 1, template: {spec: {containers: [{name: worker}]}}}]\n    headGroupSpec").Replace(queuedRayJob)))
	workers := func() any {
		groups, _, _ := unstructured.NestedSlice(w.settle("ray").Object, "spec", "rayClusterSpec", "workerGroupSpecs")
		return groups[0].(map[string]any)["replicas"]
	}
	w.admit(w.workloadOf(w.settle("ray")), &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{
		{Name: "head", Count: ptr.To(int32(1))}, {Name: "workers", Count: ptr.To(int32(2))},
	}})
	if n := workers(); n != int64(2) {
		t.Fatalf("it was started with %v workers", n)
	}
	extras := w.extras()
	if len(extras) != 2 {
		t.Fatalf("it has %d extras", len(extras))
	}
	w.admit(&extras[0], &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{Name: "workers", Count: ptr.To(int32(1))}}})
	cluster := parse(t, strings.NewReplacer("name: ray, uid: ray", "name: other, uid: other", "replicas: 1", "replicas: 2").Replace(clusterOfRayJob))
	if err := w.client.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	job := w.settle("ray")
	job.Object["status"] = map[string]any{"jobDeploymentStatus": "Running", "rayClusterName": "made"}
	if err := w.client.Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if n := w.clusterWorkers(); n != 2 {
		t.Errorf("another's cluster has %d workers", n)
	}
	cluster.SetOwnerReferences(parse(t, clusterOfRayJob).GetOwnerReferences())
	if err := w.client.Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	if n := w.clusterWorkers(); n != 3 {
		t.Errorf("with an extra its cluster has %d workers", n)
	}
	gone := &kueue.Workload{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(&extras[0]), gone); err != nil {
		t.Fatal(err)
	}
	workload.Evict(gone, kueue.WorkloadEvictedByPreemption, "", "", time.Now())
	if err := w.client.Status().Update(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if n := w.clusterWorkers(); n != 2 {
		t.Errorf("after its eviction its cluster has %d workers", n)
	}
	if n := workers(); n != int64(2) {
		t.Errorf("the job itself says %v workers", n)
	}
}
