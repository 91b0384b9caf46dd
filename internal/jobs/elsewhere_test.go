package jobs

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"
)

func fromYAML(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &obj.Object); err != nil {
		t.Fatal(err)
	}
	return obj
}

// A copy has what the user wrote, and nothing that only holds of the original.
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
  annotations: {note: b, kueue.x-k8s.io/multikueue-origin-uid: "1234"}
spec:
  suspend: true
  selector: {matchLabels: {}}
  template:
    metadata: {labels: {job-name: train, mine: c}}
    spec: {containers: [{name: main, env: [{name: ID, value: d}]}]}
`)
	kind := Table()[0]
	if why := kind.NotHandedOver(job); why != "" {
		t.Errorf("it is handed over, and yet: %s", why)
	}
	got, err := kind.Copy(job, "job-train", "here")
	if err != nil {
		t.Fatal(err)
	}
	if a, b := asYAML(t, got), asYAML(t, want); a != b {
		t.Errorf("the copy is\n%s\nwant\n%s", a, b)
	}
	if got := kind.NotHandedOver(got); got != `Expecting spec.managedBy to be "kueue.x-k8s.io/multikueue" not ""` {
		t.Errorf("of one that is not handed over it is said: %s", got)
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

// Kinds that can be handed over are sent, and others are not.
func TestKindsThatAreSent(t *testing.T) {
	foreign, err := foreignKinds([]string{"Train.v1.examplecorp.com"})
	if err != nil {
		t.Fatal(err)
	}
	inUse := &kinds{}
	inUse.set(Table())
	copies := &Copies{kinds: inUse, foreign: foreign}
	for owner, want := range map[string]string{
		"batch/v1 Job":               "",
		"v1 Pod":                     "",
		"kubeflow.org/v1 PyTorchJob": "",
		"examplecorp.com/v1 Train":   "",
		"sparkoperator.k8s.io/v1beta2 SparkApplication": `No multikueue adapter found for owner kind "sparkoperator.k8s.io/v1beta2, Kind=SparkApplication"`,
		"apps/v1 StatefulSet":                           `No multikueue adapter found for owner kind "apps/v1, Kind=StatefulSet"`,
		"":                                              "No multikueue adapter found",
	} {
		wl := &kueue.Workload{}
		if version, kind, found := strings.Cut(owner, " "); found {
			wl = ownedBy(version, kind)
		}
		kind, why := copies.KindOf(wl)
		if why != want || (kind == nil) != (want != "") {
			t.Errorf("%s: %q, want %q", owner, why, want)
		}
	}
	for _, names := range [][]string{{"Train"}, {"Train.v1.examplecorp.com", "Train.v2.examplecorp.com"}} {
		if _, err := foreignKinds(names); err == nil {
			t.Errorf("%v was taken", names)
		}
	}
}

func ownedBy(version, kind string) *kueue.Workload {
	wl := &kueue.Workload{}
	wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "it"}}
	return wl
}
