package operators

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/elastic-ai/elastic/test/sandbox"
)

const elasticJobSet = `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: elastic
  labels: {kueue.x-k8s.io/queue-name: main}
  annotations: {kueue.x-k8s.io/elastic-job: "true"}
spec:
  network: {enableDNSHostnames: false}
  successPolicy: {operator: All}
  startupPolicy: {startupPolicyOrder: AnyOrder}
  replicatedJobs:
  - name: workers
    replicas: 1
    template:
      spec:
        completionMode: Indexed
        parallelism: 1
        completions: 1
        template:
          metadata:
            annotations: {sandbox.elasticai.io/run-for: forever}
          spec:
            restartPolicy: Never
            containers:
            - {name: main, image: example.com/train:1, resources: {limits: {nvidia.com/gpu: "1"}}}
`

// TestJobSet: the real operator makes the jobs of an admitted JobSet, stops them
// when it is preempted, makes them again, and its end is the workload's.
func TestJobSet(t *testing.T) {
	installCRDs(t)
	operator(t, "jobset", "--config", configFile(t, `apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
internalCertManagement: {enable: false}
leaderElection: {leaderElect: false}
featureGates: {ElasticJobSet: true}
health: {healthProbeBindAddress: "127.0.0.1:0"}
metrics: {bindAddress: "127.0.0.1:0"}
webhook: {host: 127.0.0.1, port: 29443}
`))
	ns := queue(t, "4")
	jobset := read(t, `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: train
  labels: {kueue.x-k8s.io/queue-name: main}
spec:
  network: {enableDNSHostnames: false}
  successPolicy: {operator: All}
  startupPolicy: {startupPolicyOrder: AnyOrder}
  replicatedJobs:
  - name: workers
    replicas: 2
    template:
      spec:
        completionMode: Indexed
        parallelism: 2
        completions: 2
        backoffLimit: 0
        template:
          metadata:
            annotations: {sandbox.elasticai.io/run-for: forever}
          spec:
            restartPolicy: Never
            containers:
            - {name: main, image: example.com/train:1, resources: {limits: {nvidia.com/gpu: "1"}}}
`)
	jobset.SetNamespace(ns)
	cluster.Make(t, jobset)
	lifeWithAnOperator(t, ns, jobset, 4)

	// An elastic one is scaled while it runs, by the operator too.
	elastic := read(t, elasticJobSet)
	ns = queue(t, "4")
	elastic.SetNamespace(ns)
	cluster.Make(t, elastic)
	waitPods(t, ns, 1)
	first := cluster.WorkloadOf(t, elastic)
	sandbox.Eventually(t, "it can be scaled", func(ctx context.Context) error {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(elastic), elastic); err != nil {
			return err
		}
		jobs, _, _ := unstructured.NestedSlice(elastic.Object, "spec", "replicatedJobs")
		spec, _, _ := unstructured.NestedMap(jobs[0].(map[string]any), "template", "spec")
		spec["parallelism"], spec["completions"] = int64(3), int64(3)
		if err := unstructured.SetNestedMap(jobs[0].(map[string]any), spec, "template", "spec"); err != nil {
			return err
		}
		if err := unstructured.SetNestedSlice(elastic.Object, jobs, "spec", "replicatedJobs"); err != nil {
			return err
		}
		return cluster.Update(ctx, elastic)
	})
	if replaced := wait(t, first, kueue.WorkloadFinished); replaced.Reason != kueue.WorkloadSliceReplaced {
		t.Fatalf("its first workload finished as %s", replaced.Reason)
	}
	waitPods(t, ns, 3)
	rangedJobSet(t)
}

// rangedJobSet: one that says how many pods it has at least and at most grows into idle quota, and gives it back.
func rangedJobSet(t *testing.T) {
	t.Helper()
	ns := queue(t, "3")
	cluster.Make(t, read(t, `apiVersion: elasticai.io/v1alpha1
kind: QueuePolicy
metadata: {name: `+ns+`}
spec: {targetRefs: [{kind: ClusterQueue, name: `+ns+`}], elasticJobs: {growAfter: 1s}}`))
	ranged := read(t, strings.Replace(elasticJobSet, `kueue.x-k8s.io/elastic-job: "true"`, "elasticai.io/pods: 1-8", 1))
	ranged.SetNamespace(ns)
	cluster.Make(t, ranged)
	waitPods(t, ns, 3)
	other := sandbox.Job(ns, "other", "main", 1, "2")
	other.Spec.Template.Annotations[sandbox.RunFor] = "forever"
	cluster.Make(t, other)
	wait(t, cluster.WorkloadOf(t, other), kueue.WorkloadPodsReady)
	waitPods(t, ns, 2) // its own, and that of the other
	if err := cluster.Delete(t.Context(), other, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	waitPods(t, ns, 3)
}
