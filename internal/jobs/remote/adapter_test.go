package remote

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/elastic-ai/elastic/internal/jobs/kinds"
)

func fromYAML(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &obj.Object); err != nil {
		t.Fatal(err)
	}
	return obj
}

// A copy has what the user wrote, and nothing that is true only of the original.
func TestCopy(t *testing.T) {
	job := fromYAML(t, `
apiVersion: batch/v1
kind: Job
metadata:
  namespace: ns
  name: train
  uid: "1234"
  resourceVersion: "5"
  ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: nightly, uid: "77"}]
  finalizers: [example.com/mine]
  labels: {kueue.x-k8s.io/queue-name: main, team: a}
  annotations: {note: b}
spec:
  suspend: false
  managedBy: kueue.x-k8s.io/multikueue
  selector: {matchLabels: {batch.kubernetes.io/controller-uid: "1234"}}
  template:
    metadata: {labels: {controller-uid: "1234", batch.kubernetes.io/controller-uid: "1234", job-name: train, mine: c}}
    spec: {containers: [{name: main, env: [{name: ID, value: d}]}]}
status: {active: 1}
`)
	want := fromYAML(t, `
apiVersion: batch/v1
kind: Job
metadata:
  namespace: ns
  name: train
  labels: {kueue.x-k8s.io/queue-name: main, team: a, kueue.x-k8s.io/prebuilt-workload-name: job-train, kueue.x-k8s.io/multikueue-origin: here}
  annotations: {note: b, kueue.x-k8s.io/multikueue-origin-uid: "1234", kueue.x-k8s.io/prebuilt-workload-name: job-train}
spec:
  suspend: true
  selector: {matchLabels: {}}
  template:
    metadata: {labels: {job-name: train, mine: c}}
    spec: {containers: [{name: main, env: [{name: ID, value: d}]}]}
`)
	adapter := &Adapter{kinds.Table()[0]}
	if why := adapter.WhyNotHandedOver(job); why != "" {
		t.Errorf("it is handed over, and yet: %s", why)
	}
	got, err := adapter.Copy(job, "job-train", "here")
	if err != nil {
		t.Fatal(err)
	}
	if a, b := asYAML(t, got), asYAML(t, want); a != b {
		t.Errorf("the copy is\n%s\nwant\n%s", a, b)
	}
	if got := adapter.WhyNotHandedOver(got); got != `Expecting spec.managedBy to be "kueue.x-k8s.io/multikueue" not ""` {
		t.Errorf("a job that is not handed over: %s", got)
	}
}

func asYAML(t *testing.T, obj *unstructured.Unstructured) string {
	t.Helper()
	text, err := yaml.Marshal(obj.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The status of the copy is written onto the original; counters never become smaller.
func TestSyncStatus(t *testing.T) {
	adapter := &Adapter{kinds.Table()[0]}
	for name, test := range map[string]struct {
		here, there, want string
		waits             bool
	}{
		"while it runs":                  {here: "{active: 1}", there: "{active: 2, ready: 1}", want: "{active: 2, ready: 1}"},
		"started again":                  {here: "{active: 1, failed: 2, succeeded: 1}", there: "{active: 1, failed: 1}", want: "{active: 1, failed: 2, succeeded: 1}"},
		"before it is started here":      {here: "{} #suspended", there: "{active: 1}", want: "{}", waits: true},
		"ended before it is started":     {here: "{} #suspended", there: "{conditions: [{lastProbeTime: null, lastTransitionTime: null, status: 'True', type: Complete}]}", want: "{conditions: [{lastProbeTime: null, lastTransitionTime: null, status: 'True', type: Complete}]}"},
		"stopped there and to stop here": {here: "{active: 1} #suspended", there: "{conditions: [{lastProbeTime: null, lastTransitionTime: null, status: 'True', type: Suspended}]} #suspended", want: "{conditions: [{lastProbeTime: null, lastTransitionTime: null, status: 'True', type: Suspended}]}"},
	} {
		t.Run(name, func(t *testing.T) {
			job := func(status string) *unstructured.Unstructured {
				obj := fromYAML(t, "apiVersion: batch/v1\nkind: Job\nmetadata: {namespace: ns, name: train}\nspec: {suspend: "+strconv.FormatBool(strings.HasSuffix(status, "#suspended"))+"}\nstatus: "+status)
				data, err := obj.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				if err := obj.UnmarshalJSON(data); err != nil { // numbers as the API server's clients read them
					t.Fatal(err)
				}
				return obj
			}
			c := fake.NewClientBuilder().WithObjects(job(test.here)).WithStatusSubresource(job(test.here)).Build()
			here := job(test.here)
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(here), here); err != nil {
				t.Fatal(err)
			}
			waits, err := adapter.SyncStatus(t.Context(), c, here, job(test.there))
			if err != nil || waits != test.waits {
				t.Fatalf("it waits: %t, %v", waits, err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(here), here); err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(here.Object["status"])
			if err != nil {
				t.Fatal(err)
			}
			if want := job(test.want); strings.TrimSpace(string(got)) != strings.TrimSpace(asYAML(t, &unstructured.Unstructured{Object: want.Object["status"].(map[string]any)})) {
				t.Errorf("the status is %s, want %s", got, test.want)
			}
		})
	}
}

// Only the fields that may change while a job runs in another cluster are forwarded.
func TestForward(t *testing.T) {
	inUse := &kinds.InUse{}
	inUse.Set(kinds.Table())
	adapter := &Adapter{inUse.ByName("ray.io/rayservice")}
	service := func(config string) *unstructured.Unstructured {
		return fromYAML(t, "apiVersion: ray.io/v1\nkind: RayService\nmetadata: {namespace: ns, name: serve}\nspec: "+config)
	}
	for name, test := range map[string]struct{ here, there, want string }{
		"changed":   {here: "{serveConfigV2: b, a: here}", there: "{serveConfigV2: a, a: there}", want: "{serveConfigV2: b, a: there}"},
		"gone":      {here: "{a: here}", there: "{serveConfigV2: a, a: there}", want: "{a: there}"},
		"unchanged": {here: "{serveConfigV2: a, a: here}", there: "{serveConfigV2: a, a: there}", want: "{serveConfigV2: a, a: there}"},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithObjects(service(test.there)).Build()
			there := service(test.there)
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(there), there); err != nil {
				t.Fatal(err)
			}
			before := there.GetResourceVersion()
			if err := adapter.Forward(t.Context(), c, service(test.here), there); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(there), there); err != nil {
				t.Fatal(err)
			}
			if want := service(test.want); !equality.Semantic.DeepEqual(there.Object["spec"], want.Object["spec"]) {
				t.Errorf("it is %v, want %s", there.Object["spec"], test.want)
			}
			if written := there.GetResourceVersion() != before; written != (test.there != test.want) {
				t.Errorf("it was written: %t", written)
			}
		})
	}
}

// Only kinds that can be handed over have an adapter.
func TestAdapterFor(t *testing.T) {
	external, err := externalKinds([]string{"Train.v1.examplecorp.com"})
	if err != nil {
		t.Fatal(err)
	}
	inUse := &kinds.InUse{}
	inUse.Set(kinds.Table())
	adapters := &Adapters{kinds: inUse, external: external}
	for owner, want := range map[string]string{
		"batch/v1 Job":               "",
		"v1 Pod":                     "",
		"kubeflow.org/v1 PyTorchJob": "",
		"examplecorp.com/v1 Train":   "",
		"apps/v1 StatefulSet":        "",
		"leaderworkerset.x-k8s.io/v1 LeaderWorkerSet":   "",
		"sparkoperator.k8s.io/v1beta2 SparkApplication": `No multikueue adapter found for owner kind "sparkoperator.k8s.io/v1beta2, Kind=SparkApplication"`,
		"apps/v1 Deployment":                            `No multikueue adapter found for owner kind "apps/v1, Kind=Deployment"`,
		"kueue.x-k8s.io/v1beta2 Workload":               `No multikueue adapter found for owner kind "kueue.x-k8s.io/v1beta2, Kind=Workload"`, // a variant
		"":                                              "No multikueue adapter found",
	} {
		wl := &kueue.Workload{}
		if version, kind, found := strings.Cut(owner, " "); found {
			wl = ownedBy(version, kind)
		}
		kind, why := adapters.For(wl)
		if why != want || (kind == nil) != (want != "") {
			t.Errorf("%s: %q, want %q", owner, why, want)
		}
	}
	for _, names := range [][]string{{"Train"}, {"Train.v1.examplecorp.com", "Train.v2.examplecorp.com"}} {
		if _, err := externalKinds(names); err == nil {
			t.Errorf("%v was accepted", names)
		}
	}
}

func ownedBy(version, kind string) *kueue.Workload {
	wl := &kueue.Workload{}
	wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "it"}}
	return wl
}

// A pod's addresses in another cluster do not become those of the pod here: they would send the traffic of Services there.
func TestAddressesStayInTheirCluster(t *testing.T) {
	at := slices.IndexFunc(kinds.Table(), func(k *kinds.Kind) bool { return k.IsPod() })
	pod := func(status string) *unstructured.Unstructured {
		return fromYAML(t, "apiVersion: v1\nkind: Pod\nmetadata: {namespace: ns, name: web}\nspec: {nodeName: node-1, containers: []}\nstatus: "+status)
	}
	here := pod("{phase: Pending}")
	c := fake.NewClientBuilder().WithObjects(here).WithStatusSubresource(here).Build()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(here), here); err != nil {
		t.Fatal(err)
	}
	there := pod("{phase: Running, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}], hostIP: 10.1.1.1, hostIPs: [{ip: 10.1.1.1}], conditions: [{type: Ready, status: 'True'}]}")
	if _, err := (&Adapter{kinds.Table()[at]}).SyncStatus(t.Context(), c, here, there); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(here), here); err != nil {
		t.Fatal(err)
	}
	status, _, _ := unstructured.NestedMap(here.Object, "status")
	if status["phase"] != "Running" {
		t.Errorf("the status is %v", status)
	}
	for _, name := range []string{"podIP", "podIPs", "hostIP", "hostIPs"} {
		if _, found := status[name]; found {
			t.Errorf("%s came along: %v", name, status[name])
		}
	}
}
