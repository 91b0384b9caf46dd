package webhooks

import (
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
	"github.com/elastic-ai/elastic/internal/jobs/managed"
)

// handler is the webhook over a cluster that contains these objects; change sets what a test needs.
func handler(t *testing.T, change func(*defaulter), objects ...client.Object) *defaulter {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	inUse := &kinds.InUse{}
	inUse.Set(kinds.Table())
	h := &defaulter{validator: &validator{
		kinds: inUse, gatedBy: true, topology: true,
		filter: &managed.Filter{Cached: reader, Direct: reader, Kinds: inUse, Namespaces: labels.Everything()},
	}}
	if change != nil {
		change(h)
	}
	return h
}

// request is one to create the object written in YAML, or to change it from before.
func request(t *testing.T, before, after string) admission.Request {
	t.Helper()
	raw := func(text string) []byte {
		data, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	meta := &metav1.TypeMeta{}
	if err := yaml.Unmarshal([]byte(after), meta); err != nil {
		t.Fatal(err)
	}
	r := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Kind:      metav1.GroupVersionKind(schema.FromAPIVersionAndKind(meta.APIVersion, meta.Kind)),
		Namespace: "ns", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw(after)},
	}}
	if before != "" {
		r.Operation, r.OldObject = admissionv1.Update, runtime.RawExtension{Raw: raw(before)}
	}
	return r
}

const (
	queuedJob = `
apiVersion: batch/v1
kind: Job
metadata: {name: job, labels: {kueue.x-k8s.io/queue-name: main}, annotations: {a: b}}
spec: {parallelism: 4, completions: 4, template: {metadata: {annotations: {c: d}}, spec: {containers: [{name: main}]}}}
`
	queuedRayJob = `
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: job, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  shutdownAfterJobFinishes: true
  rayClusterSpec:
    headGroupSpec: {template: {spec: {containers: [{name: head}]}}}
    workerGroupSpecs: [{groupName: workers, replicas: 1, template: {spec: {containers: [{name: worker}]}}}]
`
	queuedDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: job, labels: {kueue.x-k8s.io/queue-name: main}}
spec: {template: {spec: {containers: [{name: main}]}}}
status: {readyReplicas: 0}
`
	queuedJobSet = `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: job, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  replicatedJobs:
  - {name: leader, replicas: 1, template: {spec: {parallelism: 1, template: {metadata: {annotations: {kueue.x-k8s.io/podset-required-topology: rack, kueue.x-k8s.io/podset-group-name: g}}, spec: {containers: [{name: main}]}}}}}
  - {name: workers, replicas: 2, template: {spec: {parallelism: 3, template: {metadata: {annotations: {kueue.x-k8s.io/podset-required-topology: rack, kueue.x-k8s.io/podset-group-name: g}}, spec: {containers: [{name: main}]}}}}}
`
	queuedPod = `
apiVersion: v1
kind: Pod
metadata: {name: pod, labels: {kueue.x-k8s.io/queue-name: main}, annotations: {a: b}}
spec: {containers: [{name: main}]}
`
)

// What a new job may not be like. Each case replaces text of a valid job.
func TestValidateCreate(t *testing.T) {
	const (
		annotation = "metadata.annotations[kueue.x-k8s.io/"
		podSet     = "podSets[main].template.metadata.annotations"
	)
	for name, tc := range map[string]struct {
		of, replace, by, want string
	}{
		"a valid job":        {of: queuedJob},
		"a valid RayJob":     {of: queuedRayJob},
		"a valid Deployment": {of: queuedDeployment},
		"a valid JobSet":     {of: queuedJobSet},
		"a valid pod":        {of: queuedPod},

		"queue name":          {of: queuedJob, replace: "main}, ann", by: "a_b}, ann", want: `metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: "a_b": a lowercase RFC 1123 subdomain`},
		"prebuilt workload":   {of: queuedJob, replace: "a: b", by: "kueue.x-k8s.io/prebuilt-workload-name: a_b", want: annotation + `prebuilt-workload-name]: Invalid value: "a_b"`},
		"time that is none":   {of: queuedJob, replace: "main}, ann", by: "main, kueue.x-k8s.io/max-exec-time-seconds: soon}, ann", want: `max-exec-time-seconds]: Invalid value: "soon"`},
		"no time":             {of: queuedJob, replace: "main}, ann", by: `main, kueue.x-k8s.io/max-exec-time-seconds: "0"}, ann`, want: "max-exec-time-seconds]: Invalid value: 0: should be greater than 0"},
		"a deadline":          {of: queuedJob, replace: "a: b", by: `elasticai.io/deadline: "2026-11-18T12:00:00Z", elasticai.io/delay-price: "1.5", elasticai.io/checkpoint: 30m`},
		"no deadline":         {of: queuedJob, replace: "a: b", by: "elasticai.io/deadline: soon", want: `metadata.annotations[elasticai.io/deadline]: Invalid value: "soon": want a time as in 2026-01-02T15:04:05Z`},
		"no price of delay":   {of: queuedJob, replace: "a: b", by: `elasticai.io/delay-price: "-1"`, want: `metadata.annotations[elasticai.io/delay-price]: Invalid value: "-1"`},
		"gates":               {of: queuedJob, replace: "a: b", by: "kueue.x-k8s.io/admission-gated-by: plain", want: annotation + `admission-gated-by]: Invalid value: "plain"`},
		"elastic RayJob":      {of: queuedRayJob, replace: "main}}\nspec:\n  shutdownAfterJobFinishes: true\n  rayClusterSpec:", by: "main}, annotations: {kueue.x-k8s.io/elastic-job: \"true\"}}\nspec:\n  shutdownAfterJobFinishes: true\n  rayClusterSpec:\n    enableInTreeAutoscaling: true"},
		"elastic Deployment":  {of: queuedDeployment, replace: "main}", by: `main}, annotations: {kueue.x-k8s.io/elastic-job: "true"}`, want: `elastic job is not supported for "apps/v1, Kind=Deployment"`},
		"pod with a bad name": {of: queuedPod, replace: "main}, ann", by: "a_b}, ann", want: `queue-name]: Invalid value: "a_b"`},
		"pod says it is not":  {of: queuedPod, replace: "main}, ann", by: `main, kueue.x-k8s.io/managed: "no"}, ann`, want: "managed label value can only be 'true'"},
		"pod of no group":     {of: queuedPod, replace: "a: b", by: `kueue.x-k8s.io/pod-group-total-count: "2"`, want: "metadata.labels[kueue.x-k8s.io/pod-group-name]: Required value: both"},
		"group of no size":    {of: queuedPod, replace: "main}, ann", by: "main, kueue.x-k8s.io/pod-group-name: g}, ann", want: annotation + "pod-group-total-count]: Required value: both"},
		"group too large":     {of: queuedPod, replace: "main}, annotations: {", by: `main, kueue.x-k8s.io/pod-group-name: g}, annotations: {kueue.x-k8s.io/pod-group-total-count: "9999999999", `, want: annotation + `pod-group-total-count]: Invalid value: "9999999999"`},

		"smallest size is no number":   {of: queuedJob, replace: "a: b", by: "kueue.x-k8s.io/job-min-parallelism: a", want: annotation + `job-min-parallelism]: Invalid value: "a"`},
		"smallest size is the size":    {of: queuedJob, replace: "a: b", by: `kueue.x-k8s.io/job-min-parallelism: "4"`, want: annotation + "job-min-parallelism]: Invalid value"},
		"smallest size is smaller":     {of: queuedJob, replace: "a: b", by: `kueue.x-k8s.io/job-min-parallelism: "3"`},
		"two ways to grow":             {of: queuedJob, replace: "a: b", by: `kueue.x-k8s.io/job-min-parallelism: "3", kueue.x-k8s.io/elastic-job: "true"`, want: "partial admission and elastic job cannot be used together"},
		"pods at least and at most":    {of: queuedJob, replace: "a: b", by: "elasticai.io/pods: 2-4"},
		"pods of a set":                {of: queuedJob, replace: "a: b", by: "elasticai.io/pods: Main=2-4"},
		"more pods than it can have":   {of: queuedJob, replace: "a: b", by: "elasticai.io/pods: 2-8", want: "pod set main cannot have 8 pods"},
		"pods of no set":               {of: queuedJob, replace: "a: b", by: "elasticai.io/pods: Worker=2-8", want: `metadata.annotations[elasticai.io/pods]: Invalid value: "Worker=2-8": "Worker=2-8" should name one of the pod sets main, as in main=2-16`},
		"pods that are no range":       {of: queuedJob, replace: "a: b", by: "elasticai.io/pods: 8-2", want: "should be the least and the most number of pods, as in 2-16"},
		"no pods at least":             {of: queuedJob, replace: "a: b", by: "elasticai.io/pods: 0-2", want: "should be the least and the most number of pods, as in 2-16"},
		"pods beyond number":           {of: queuedJob, replace: "a: b", by: "elasticai.io/pods: 1-99999999999", want: "should be the least and the most number of pods, as in 2-16"},
		"two ranges of pods":           {of: queuedJob, replace: "a: b", by: `elasticai.io/pods: 2-8, kueue.x-k8s.io/job-min-parallelism: "3"`, want: "elasticai.io/pods says what kueue.x-k8s.io/job-min-parallelism does, and more: use one of them"},
		"a size of its own as well":    {of: queuedJob, replace: "a: b", by: `elasticai.io/pods: 2-8, kueue.x-k8s.io/elastic-job: "true"`, want: "a job with kueue.x-k8s.io/elastic-job changes its size itself"},
		"pods of a RayJob":             {of: queuedRayJob, replace: "main}}", by: "main}, annotations: {elasticai.io/pods: workers=2-8}}"},
		"the only workers of a RayJob": {of: queuedRayJob, replace: "main}}", by: "main}, annotations: {elasticai.io/pods: 2-8}}"},
		"the head of a RayJob":         {of: queuedRayJob, replace: "main}}", by: "main}, annotations: {elasticai.io/pods: head=2-8}}", want: `should name one of the pod sets workers, as in workers=2-16`},
		"pods of a RayService": {of: strings.NewReplacer("kind: RayJob", "kind: RayService", "  shutdownAfterJobFinishes: true\n", "", "rayClusterSpec", "rayClusterConfig", "main}}", "main}, annotations: {elasticai.io/pods: 2-8}}").Replace(queuedRayJob),
			want: "the number of pods of a RayService cannot be changed while it runs"},
		"completions follow no index": {of: queuedJob, replace: "a: b", by: `kueue.x-k8s.io/job-completions-equal-parallelism: "true"`,
			want: "should not be enabled for NonIndexed jobs"},

		"RayJob keeps its cluster":    {of: queuedRayJob, replace: "Finishes: true", by: "Finishes: false", want: "spec.shutdownAfterJobFinishes: Invalid value: false: a kueue managed job should delete the cluster after finishing"},
		"RayJob in two clusters":      {of: queuedRayJob, replace: "shutdown", by: "clusterSelector: {a: b}\n  shutdown", want: "spec.clusterSelector: Invalid value"},
		"RayJob in none":              {of: queuedRayJob, replace: "rayClusterSpec", by: "other", want: "rayClusterSpec is required"},
		"RayJob scales outside quota": {of: queuedRayJob, replace: "headGroupSpec", by: "enableInTreeAutoscaling: true\n    headGroupSpec", want: "should only use autoscaling when workload slicing is enabled"},
		"RayService scales outside quota": {of: strings.NewReplacer("kind: RayJob", "kind: RayService", "  shutdownAfterJobFinishes: true\n", "", "rayClusterSpec", "rayClusterConfig").Replace(queuedRayJob),
			replace: "headGroupSpec", by: "enableInTreeAutoscaling: true\n    headGroupSpec", want: "should only use autoscaling when workload slicing is enabled"},
		"RayJob's workers are the head": {of: queuedRayJob, replace: "groupName: workers", by: "groupName: head", want: "reserved for the head group"},

		"two topologies":         {of: queuedJob, replace: "c: d", by: "kueue.x-k8s.io/podset-required-topology: rack, kueue.x-k8s.io/podset-preferred-topology: rack", want: podSet + ": Invalid value: must not contain more than one topology annotation"},
		"two topologies, a pod":  {of: queuedPod, replace: "a: b", by: "kueue.x-k8s.io/podset-required-topology: rack, kueue.x-k8s.io/podset-preferred-topology: rack", want: "must not contain more than one topology annotation"},
		"no level":               {of: queuedJob, replace: "c: d", by: `kueue.x-k8s.io/podset-required-topology: "a b"`, want: podSet + `[kueue.x-k8s.io/podset-required-topology]: Invalid value: "a b"`},
		"not unconstrained":      {of: queuedJob, replace: "c: d", by: "kueue.x-k8s.io/podset-unconstrained-topology: maybe", want: "must be a boolean value"},
		"slices of no size":      {of: queuedJob, replace: "c: d", by: "kueue.x-k8s.io/podset-slice-required-topology: rack", want: podSet + "[kueue.x-k8s.io/podset-slice-size]: Required value"},
		"slices of no level":     {of: queuedJob, replace: "c: d", by: `kueue.x-k8s.io/podset-slice-size: "2"`, want: "may not be set when 'kueue.x-k8s.io/podset-slice-required-topology' is not specified"},
		"slices too large":       {of: queuedJob, replace: "c: d", by: `kueue.x-k8s.io/podset-slice-required-topology: rack, kueue.x-k8s.io/podset-slice-size: "5"`, want: `Invalid value: "5": must not be greater than pod set count 4`},
		"slices that fit":        {of: queuedJob, replace: "c: d", by: `kueue.x-k8s.io/podset-slice-required-topology: rack, kueue.x-k8s.io/podset-slice-size: "4"`},
		"slices of nothing":      {of: queuedJob, replace: "c: d", by: `kueue.x-k8s.io/podset-slice-required-topology: rack, kueue.x-k8s.io/podset-slice-size: "0"`, want: "must be greater than or equal to 1"},
		"group of two workers":   {of: queuedJobSet, replace: "replicas: 1", by: "replicas: 2", want: "can only define groups where at least one pod set has only 1 replica, got: 2 replica(s) and 6 replica(s)"},
		"group of one":           {of: queuedJobSet, replace: "group-name: g", by: "group-name: h", want: "can only define groups of exactly 2 pod sets, got: 1 pod set(s)"},
		"group of a number":      {of: queuedJobSet, replace: "group-name: g", by: `group-name: "7"`, want: "must not be a number"},
		"group in two places":    {of: queuedJobSet, replace: "topology: rack", by: "topology: block", want: "topology consistent with 'podSets[workers].template.metadata.annotations' in group 'g'"},
		"group without topology": {of: queuedJobSet, replace: "kueue.x-k8s.io/podset-required-topology: rack, ", by: "", want: "may not be set when neither"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(tc.of, tc.replace, tc.by, 1)
			if text == tc.of && tc.replace != "" {
				t.Fatalf("%q is not in the job", tc.replace)
			}
			answer := handler(t, nil).Handle(t.Context(), request(t, "", text))
			switch {
			case tc.want == "" && !answer.Allowed:
				t.Fatalf("refused: %s", answer.Result.Message)
			case tc.want != "" && answer.Allowed:
				t.Fatal("not refused")
			case tc.want != "" && (answer.Result.Code != http.StatusForbidden || !strings.Contains(answer.Result.Message, tc.want)):
				t.Fatalf("%d %s\nwant %s", answer.Result.Code, answer.Result.Message, tc.want)
			}
		})
	}
}

// What a change may not make of a job, and that mistakes from before a rule do not hold up changes.
func TestValidateChanges(t *testing.T) {
	ready := strings.Replace(queuedDeployment, "readyReplicas: 0", "readyReplicas: 1", 1)
	running := strings.Replace(strings.Replace(queuedJob, "parallelism: 4", "suspend: false, parallelism: 4", 1), "a: b", `kueue.x-k8s.io/job-min-parallelism: "3"`, 1)
	scaling := strings.Replace(queuedRayJob, "headGroupSpec", "enableInTreeAutoscaling: true\n    headGroupSpec", 1)
	gated := strings.Replace(queuedJob, "a: b", "kueue.x-k8s.io/admission-gated-by: example.com/a", 1)
	rayCluster := `
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: job, labels: {kueue.x-k8s.io/queue-name: main}}
spec: {headGroupSpec: {template: {spec: {containers: [{name: head}]}}}}
`
	mayLeave := func(h *defaulter) { h.rayAndSparkMayLeave = true }
	for name, tc := range map[string]struct {
		before, replace, by, want string
		change                    func(*defaulter)
	}{
		"a Deployment leaves its queue":        {before: queuedDeployment, replace: "{kueue.x-k8s.io/queue-name: main}", by: "{}", want: "queue-name]: Invalid value"},
		"a ready Deployment changes its queue": {before: ready, replace: "name: main}}", by: "name: other}}", want: `queue-name]: Invalid value: "other": field is immutable`},
		"one that waits does":                  {before: queuedDeployment, replace: "name: main}}", by: "name: other}}"},
		"fewer pods of a running job":          {before: running, replace: "parallelism: 4", by: "parallelism: 3", want: "cannot change when partial admission is enabled and the job is not suspended"},
		"fewer pods of a job as it starts":     {before: strings.Replace(running, "suspend: false", "suspend: true", 1), replace: "suspend: true, parallelism: 4", by: "suspend: false, parallelism: 3"},
		"a cluster begins to scale":            {before: queuedRayJob, replace: "headGroupSpec", by: "enableInTreeAutoscaling: true\n    headGroupSpec", want: "autoscaling"},
		"one that scales already":              {before: scaling, replace: "replicas: 1", by: "replicas: 2"},
		"a gate comes late":                    {before: queuedJob, replace: "a: b", by: "kueue.x-k8s.io/admission-gated-by: example.com/a", want: "cannot add admission gate after creation"},
		"a gate goes":                          {before: gated, replace: "kueue.x-k8s.io/admission-gated-by: example.com/a", by: "a: b"},
		"a cluster leaves its queue":           {before: rayCluster, replace: "{kueue.x-k8s.io/queue-name: main}", by: "{}", want: "queue-name]: Invalid value"},
		"a cluster may":                        {before: rayCluster, replace: "{kueue.x-k8s.io/queue-name: main}", by: "{}", change: mayLeave},
		"a job may not":                        {before: running, replace: "{kueue.x-k8s.io/queue-name: main}", by: "{}", change: mayLeave, want: "queue-name]: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			after := strings.Replace(tc.before, tc.replace, tc.by, 1)
			if after == tc.before {
				t.Fatalf("%q is not in the job", tc.replace)
			}
			answer := handler(t, tc.change).Handle(t.Context(), request(t, tc.before, after))
			got := ""
			if !answer.Allowed {
				got = answer.Result.Message
			}
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Fatalf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// With MultiKueue, a job that names no queue is suspended like any other where all jobs are managed.
func TestJobsWithoutQueueWithMultiKueue(t *testing.T) {
	h := handler(t, func(h *defaulter) { h.multiKueue, h.filter.WithoutQueueName = true, true })
	text := strings.Replace(queuedJob, "{kueue.x-k8s.io/queue-name: main}", "{}", 1)
	if answer := h.Handle(t.Context(), request(t, "", text)); !answer.Allowed || len(answer.Patches) == 0 {
		t.Fatalf("%+v", answer)
	}
}

// Jobs that name no WorkloadPriorityClass get the default one, where the gate says so.
func TestDefaultPriorityClass(t *testing.T) {
	class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Value: 7}
	on := func(h *defaulter) { h.defaultPriorityClass = true }
	for name, tc := range map[string]struct {
		job     string
		change  func(*defaulter)
		objects []client.Object
		want    bool
	}{
		"there is one":     {job: queuedJob, change: on, objects: []client.Object{class}, want: true},
		"there is none":    {job: queuedJob, change: on},
		"the gate is off":  {job: queuedJob, objects: []client.Object{class}},
		"one is named":     {job: strings.Replace(queuedJob, "main}, ann", "main, kueue.x-k8s.io/priority-class: mine}, ann", 1), change: on, objects: []client.Object{class}},
		"of a pod":         {job: queuedPod, change: on, objects: []client.Object{class}, want: true},
		"of pods' owners":  {job: queuedDeployment, change: on, objects: []client.Object{class}, want: true},
		"of no queued job": {job: strings.Replace(queuedJob, "{kueue.x-k8s.io/queue-name: main}", "{}", 1), change: on, objects: []client.Object{class}},
	} {
		t.Run(name, func(t *testing.T) {
			answer := handler(t, tc.change, tc.objects...).Handle(t.Context(), request(t, "", tc.job))
			if !answer.Allowed {
				t.Fatal(answer.Result.Message)
			}
			got := false
			for _, patch := range answer.Patches {
				got = got || strings.Contains(patch.Path, "labels/kueue.x-k8s.io~1priority-class") && patch.Value == "default"
			}
			if got != tc.want {
				t.Fatalf("%v, want %v: %v", got, tc.want, answer.Patches)
			}
		})
	}
}

// Every pod in a queue is gated for a topology too, as its flavor may have one; without topologies none is.
func TestPodsAreGatedForTopologies(t *testing.T) {
	indexed := strings.Replace(queuedPod, "annotations: {a: b}", "annotations: {kueue.x-k8s.io/pod-group-pod-index-label: rank}", 1)
	indexed = strings.Replace(indexed, "name: main}", `name: main, rank: "3"}`, 1)
	for topology, gates := range map[bool]int{true: 2, false: 1} {
		answer := handler(t, func(h *defaulter) { h.topology = topology }).Handle(t.Context(), request(t, "", indexed))
		if !answer.Allowed {
			t.Fatal(answer.Result.Message)
		}
		got, rank := 0, any(nil)
		for _, patch := range answer.Patches {
			switch patch.Path {
			case "/spec/schedulingGates":
				got = len(patch.Value.([]any))
			case "/metadata/labels/kueue.x-k8s.io~1pod-group-pod-index":
				rank = patch.Value
			}
		}
		if got != gates || (rank == "3") != topology {
			t.Errorf("topologies %t: %d gates, rank %v", topology, got, rank)
		}
	}
}
