package simulate

import (
	"bytes"
	"io"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	egpu "github.com/elastic-ai/elastic/api/elasticgpu/v1alpha1"
	"github.com/elastic-ai/elastic/internal/simulate/world"
)

const manifests = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: h100}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team}
spec:
  namespaceSelector: {}
  queueingStrategy: StrictFIFO
  admissionChecksStrategy: {admissionChecks: [{name: approval}]}
  resourceGroups:
  - coveredResources: [cpu, nvidia.com/gpu]
    flavors:
    - name: h100
      resources: [{name: cpu, nominalQuota: 64}, {name: nvidia.com/gpu, nominalQuota: 8}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: ns}
spec: {clusterQueue: team}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status:
  allocatable: {cpu: "32", memory: 256Gi, nvidia.com/gpu: "8"}
`

func TestManifests(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("cluster.yaml", manifests)
	write("jobs.csv", "job_id,queue,submit_s,duration_s,gpus,cpus\na,team,0,100,4,8\nb,lq,0,100,8,8\nc,ns/lq,0,100,1,40\n")
	// b waits for a; c asks for more CPU than a node has, behind the head of a strict queue.
	got := run(t, "--trace", "jobs.csv", "--manifests", "cluster.yaml")
	if !strings.Contains(got, "2 of 3") {
		t.Error(got)
	}
	got = run(t, "--trace", "jobs.csv", "--manifests", "cluster.yaml", "--nodes", "2x8:H100")
	if !strings.Contains(got, "as it is  3 ") {
		t.Error(got)
	}
	// Who has used least goes first, by a QueuePolicy: the explanation says so.
	write("policy.yaml", "apiVersion: elasticai.io/v1alpha1\nkind: QueuePolicy\nmetadata: {name: p}\nspec: {order: LeastAttainedService, targetRefs: [{kind: ClusterQueue, name: team}]}\n")
	got = run(t, "explain", "b", "--at", "50s", "--trace", "jobs.csv", "--manifests", "cluster.yaml,policy.yaml")
	for _, want := range []string{
		"\nOrder      who has used least goes first", "\nMissing    4 nvidia.com/gpu of quota in flavor h100, at ClusterQueue team (pod set main)\n", "\nHeld by    a (ClusterQueue team, priority 0)\n",
		"\nPolicy     order LeastAttainedService (QueuePolicy p on ClusterQueue/team)\n", "\nStarts     nobody knows",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nlacks %s", got, want)
		}
	}
	// A setting of a variant takes the place of the policy's; a job that runs has its nodes.
	explainSet := []string{"--at", "50s", "--trace", "jobs.csv", "--manifests", "cluster.yaml,policy.yaml", "--set", "queue/team.order=Age"}
	if got := run(t, append([]string{"explain", "b"}, explainSet...)...); !strings.Contains(got, "\nPolicy     order Age (QueuePolicy --set on ClusterQueue/team)\n") || strings.Contains(got, "LeastAttained") {
		t.Error(got)
	}
	if got := run(t, append([]string{"explain", "a"}, explainSet...)...); !strings.Contains(got, "runs, after 0s of waiting\n") || !strings.Contains(got, "\nNodes      1 on n1 (cards ") {
		t.Error(got)
	}
	// What the policy is about has other settings in a variant.
	got = run(t, "--trace", "jobs.csv", "--manifests", "cluster.yaml,policy.yaml", "--set", "policy/p.queueingStrategy=StrictFIFO,policy/p.backfill=on")
	if !strings.Contains(got, "policy/p.backfill=on") {
		t.Error(got)
	}
	if _, err := try("--trace", "jobs.csv", "--manifests", "cluster.yaml,policy.yaml", "--set", "policy/x.backfill=on"); err == nil || !strings.Contains(err.Error(), "there is no policy x") {
		t.Error(err)
	}
	// elastic-queue's own settings count as they do in a cluster.
	write("queue.yaml", "apiVersion: elasticai.io/v1alpha1\nkind: QueueConfiguration\npreemptAfter: 2h\n")
	if _, err := try("--trace", "jobs.csv", "--manifests", "cluster.yaml", "--config", "queue.yaml"); err == nil || !strings.Contains(err.Error(), "queue.yaml: preemptAfter: 2h0m0s must be") {
		t.Error(err)
	}
	write("old.yaml", strings.ReplaceAll(manifests, "v1beta2", "v1alpha1"))
	write("broken.yaml", strings.Replace(manifests, "queueingStrategy", "queuingStrategy", 1))
	write("none.yaml", strings.ReplaceAll(manifests, "nvidia.com/gpu, nominalQuota: 8", "nvidia.com/gpu, nominalQuota: 0"))
	for file, want := range map[string]string{
		"old.yaml": "document 1: ResourceFlavor of kueue.x-k8s.io/v1alpha1: want", "broken.yaml": "document 2: ClusterQueue", "none.yaml": "no ClusterQueue has quota",
	} {
		if _, err := try("--trace", "jobs.csv", "--manifests", file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", file, err, want)
		}
	}
}

// LocalQueues of one name in two namespaces are told apart, or asked about.
func TestLocalQueuesOfOneName(t *testing.T) {
	t.Chdir(t.TempDir())
	other := strings.Replace(manifests[strings.Index(manifests, "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue"):strings.Index(manifests, "---\napiVersion: v1\nkind: ConfigMap")], "{name: team}", "{name: other}", 1)
	other = strings.Replace(strings.Replace(other, "namespace: ns", "namespace: ns2", 1), "clusterQueue: team", "clusterQueue: other", 1)
	if err := os.WriteFile("cluster.yaml", []byte(manifests+"---\n"+other), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("jobs.csv", []byte("job_id,queue,submit_s,duration_s,gpus\na,lq,0,100,4\nb,ns2/lq,0,100,4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--trace", "jobs.csv", "--manifests", "cluster.yaml"}
	if _, err := try(args...); err == nil || !strings.Contains(err.Error(), "queue lq, which may be any of ns/lq, ns2/lq: they belong to different ClusterQueues") {
		t.Error(err)
	}
	if got := run(t, append(args, "--map", "lq=team")...); !strings.Contains(got, "as it is  2 ") {
		t.Error(got)
	}
}

// The ages of what is in manifests are by the date of --start, or it is told that they are not.
func TestAgesInManifests(t *testing.T) {
	t.Chdir(t.TempDir())
	waits := "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: Workload\nmetadata: {name: w, namespace: ns, creationTimestamp: \"2026-01-01T00:00:00Z\"}\nspec:\n  queueName: lq\n" +
		"  podSets: [{name: main, count: 1, template: {spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 8}}}]}}}]\n"
	if err := os.WriteFile("cluster.yaml", []byte(manifests+waits), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("jobs.csv", []byte("job_id,queue,submit_s,duration_s,gpus\na,team,0,100,4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--trace", "jobs.csv", "--manifests", "cluster.yaml"}
	if got := run(t, args...); !strings.Contains(got, "is as old as it is today") {
		t.Error(got)
	}
	if got := run(t, append(args, "--start", "2026-01-01T08:00")...); strings.Contains(got, "is as old as it is today") {
		t.Error(got)
	}
}

// What is recorded is a trace that can be simulated.
func TestRecord(t *testing.T) {
	at := func(minutes int) metav1.Time {
		return metav1.NewTime(time.Date(2026, 1, 1, 0, minutes, 0, 0, time.UTC))
	}
	past, limit, priority := int32(30), int32(7200), int32(-5)
	ran := kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "train", Namespace: "ns", CreationTimestamp: at(10)}}
	ran.Spec.Priority, ran.Spec.MaximumExecutionTimeSeconds = &priority, &limit
	ran.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 2, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{corev1.ResourceName(world.CardResource): resource.MustParse("4")},
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1250m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
		},
	}}}}}}
	ran.Status.Admission = &kueue.Admission{ClusterQueue: "team"}
	ran.Status.AccumulatedPastExecutionTimeSeconds = &past
	ran.Status.Conditions = []metav1.Condition{
		{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, LastTransitionTime: at(20)},
		{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, LastTransitionTime: at(25), Reason: kueue.WorkloadFinishedReasonFailed},
	}
	first := *ran.DeepCopy()
	first.Name, first.CreationTimestamp = "first", at(5)
	first.Status.Conditions[1].Reason = kueue.WorkloadFinishedReasonSucceeded
	first.Annotations = map[string]string{"elasticai.io/submitted-by": "ann@example.com"}
	waits := kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "waits", Namespace: "ns", CreationTimestamp: at(0)}}
	var b bytes.Buffer
	variant, replaced, part := *ran.DeepCopy(), *ran.DeepCopy(), *ran.DeepCopy()
	variant.OwnerReferences = []metav1.OwnerReference{{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "Workload", Name: "train", Controller: ptr.To(true)}}
	replaced.Status.Conditions[1].Reason = kueue.WorkloadSliceReplaced
	part.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{egpu.ResourceCore: resource.MustParse("50")}
	never := *waits.DeepCopy()
	never.Status.Conditions = ran.Status.Conditions[1:]
	leftOut, err := writeTrace(&b, []kueue.Workload{ran, waits, never, first, variant, replaced, part, part}, &hashes{})
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]int{"has not finished": 1, "never ran": 1, "a variant of another workload": 1, "another slice took its place": 1, "asks for part of a card": 2}; !maps.Equal(leftOut, want) {
		t.Errorf("left out: %v", leftOut)
	}
	if _, err := writeTrace(io.Discard, []kueue.Workload{part}, &hashes{}); err == nil || !strings.Contains(err.Error(), "asks for part of a card (1)") {
		t.Error(err)
	}
	trace, err := world.ReadTrace(bytes.NewReader(b.Bytes()), "recorded")
	if err != nil {
		t.Fatal(err)
	}
	want := world.Job{ID: "ns/train", User: "ns", Queue: "team", Submit: 300, Duration: 330, Limit: 7200, Cards: 8, CPU: 3000, Memory: 2 << 30, Priority: -5, Outcome: world.Fails}
	if len(trace.Jobs) != 2 || trace.Jobs[0].ID != "ns/first" || trace.Jobs[0].User != "ann@example.com" || trace.Jobs[0].Outcome != world.Succeeds || trace.Jobs[1] != want {
		t.Errorf("%+v", trace.Jobs)
	}
	// Names are replaced by others each time, the same one by the same; queues if that is asked for.
	hashed := func(h *hashes) *world.Trace {
		var b bytes.Buffer
		if _, err := writeTrace(&b, []kueue.Workload{ran, first}, h); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"train", "ns", "first", "ann"} {
			if strings.Contains(b.String(), name) {
				t.Errorf("%s is in %s", name, b.String())
			}
		}
		trace, err := world.ReadTrace(&b, "hashed")
		if err != nil {
			t.Fatal(err)
		}
		return trace
	}
	one, other := hashed(&hashes{jobs: true, salt: []byte("1")}), hashed(&hashes{queues: true, salt: []byte("2")})
	if one.Jobs[0].ID == one.Jobs[1].ID || one.Jobs[0].ID == other.Jobs[0].ID || one.Jobs[0].Queue != "team" || other.Jobs[0].Queue == "team" || other.Jobs[0].Queue != other.Jobs[1].Queue {
		t.Errorf("%+v, %+v", one.Jobs, other.Jobs)
	}
	if _, err := writeTrace(&b, []kueue.Workload{waits}, &hashes{}); err == nil || !strings.Contains(err.Error(), "has not finished (1)") {
		t.Error(err)
	}
}
