package deploy

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// installed is the file people apply, by kind and name.
func installed(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile("install/elastic.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*unstructured.Unstructured{}
	for _, object := range objects {
		key := keyOf(object)
		if out[key] != nil {
			t.Errorf("%s is in the file twice", key)
		}
		out[key] = object
	}
	return out
}

func keyOf(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// What "elastic up" and the tests put into a cluster is what people install:
// the rendered chart, but for the workloads, which are processes there, and
// what belongs to them.
func TestUpInstallsTheChart(t *testing.T) {
	file := installed(t)
	var ours []*unstructured.Unstructured
	crds, err := CRDs()
	if err != nil {
		t.Fatal(err)
	}
	ours = append(ours, crds...)
	for _, folder := range []string{"queue", "gpu-scheduler", "gpu-agent"} {
		objects, err := Program(folder)
		if err != nil {
			t.Fatal(err)
		}
		ours = append(ours, objects...)
	}
	for _, object := range ours {
		key := keyOf(object)
		there := file[key]
		if there == nil {
			t.Errorf("%s is not in install/elastic.yaml: run 'make generate'", key)
			continue
		}
		if !reflect.DeepEqual(object.Object, there.Object) {
			t.Errorf("%s differs in install/elastic.yaml: run 'make generate'", key)
		}
		delete(file, key)
	}
	var rest []string
	for key := range file {
		rest = append(rest, key)
	}
	slices.Sort(rest)
	want := []string{
		"ConfigMap elastic-queue/elastic-gpu-agent-configuration", "ConfigMap elastic-queue/elastic-gpu-scheduler-configuration",
		"ConfigMap elastic-queue/elastic-queue-configuration", "DaemonSet elastic-queue/elastic-gpu-agent",
		"Deployment elastic-queue/elastic-gpu-scheduler", "Deployment elastic-queue/elastic-queue-controller-manager",
		"NetworkPolicy elastic-queue/elastic-gpu-scheduler",
		"PodDisruptionBudget elastic-queue/elastic-gpu-scheduler", "PodDisruptionBudget elastic-queue/elastic-queue",
		"Service elastic-queue/elastic-gpu-scheduler",
	}
	if !slices.Equal(rest, want) {
		t.Errorf("the file has more than the folders:\n%s\nwant\n%s", strings.Join(rest, "\n"), strings.Join(want, "\n"))
	}
}

// Whom the pods run as, and what they may do there.
func TestPodsAreRestricted(t *testing.T) {
	for key, object := range installed(t) {
		pod, found, _ := unstructured.NestedMap(object.Object, "spec", "template", "spec")
		if !found || object.GetKind() == "CustomResourceDefinition" {
			continue
		}
		account, _, _ := unstructured.NestedString(pod, "serviceAccountName")
		if account == "" || account == "default" {
			t.Errorf("%s has no service account of its own", key)
		}
		// The agent works on the node's files, and with no more rights than that takes.
		if nonRoot, _, _ := unstructured.NestedBool(pod, "securityContext", "runAsNonRoot"); !nonRoot && !strings.HasSuffix(key, "gpu-agent") {
			t.Errorf("%s may run as root", key)
		}
		containers, _, _ := unstructured.NestedSlice(pod, "containers")
		for _, c := range containers {
			container := c.(map[string]any)
			if readOnly, _, _ := unstructured.NestedBool(container, "securityContext", "readOnlyRootFilesystem"); !readOnly {
				t.Errorf("%s may write to its image", key)
			}
			// The agent mounts for its node, which Kubernetes allows to privileged containers alone.
			if privileged, _, _ := unstructured.NestedBool(container, "securityContext", "privileged"); privileged {
				if container["name"] != "agent" {
					t.Errorf("%s: container %s is privileged", key, container["name"])
				}
				continue
			}
			if escalate, found, _ := unstructured.NestedBool(container, "securityContext", "allowPrivilegeEscalation"); escalate || !found {
				t.Errorf("%s may become more than it is", key)
			}
			if drop, _, _ := unstructured.NestedStringSlice(container, "securityContext", "capabilities", "drop"); !slices.Equal(drop, []string{"ALL"}) {
				t.Errorf("%s keeps capabilities", key)
			}
			_, asked, _ := unstructured.NestedMap(container, "readinessProbe", "httpGet")
			_, run, _ := unstructured.NestedMap(container, "readinessProbe", "exec") // the arbiter listens to nobody
			if !asked && !run {
				t.Errorf("%s does not say when it is ready", key)
			}
		}
	}
}

// Without a webhook no job can be created: one node, or one drain, must not take the last replica.
func TestReplicasSurviveADrain(t *testing.T) {
	file := installed(t)
	for key, object := range file {
		if object.GetKind() != "Deployment" {
			continue
		}
		if replicas, _, _ := unstructured.NestedInt64(object.Object, "spec", "replicas"); replicas < 2 {
			t.Errorf("%s has %d replicas", key, replicas)
		}
		spread, found, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "affinity", "podAntiAffinity", "preferredDuringSchedulingIgnoredDuringExecution")
		if !found || len(spread) == 0 {
			t.Errorf("%s does not spread over nodes", key)
		}
		labels, _, _ := unstructured.NestedStringMap(object.Object, "spec", "template", "metadata", "labels")
		budget := file["PodDisruptionBudget "+object.GetNamespace()+"/"+labels["app"]]
		if budget == nil {
			t.Errorf("%s has no disruption budget", key)
			continue
		}
		selected, _, _ := unstructured.NestedStringMap(budget.Object, "spec", "selector", "matchLabels")
		if !reflect.DeepEqual(selected, labels) {
			t.Errorf("the budget of %s selects %v, its pods have %v", key, selected, labels)
		}
		if most, _, _ := unstructured.NestedInt64(budget.Object, "spec", "maxUnavailable"); most != 1 {
			t.Errorf("a drain may take %d pods of %s", most, key)
		}
	}
}

// No program of ours may do everything with anything.
func TestRolesNameWhatTheyGrant(t *testing.T) {
	for key, object := range installed(t) {
		rules, _, _ := unstructured.NestedSlice(object.Object, "rules")
		for _, r := range rules {
			rule := r.(map[string]any)
			for _, field := range []string{"apiGroups", "resources", "verbs"} {
				values, _, _ := unstructured.NestedStringSlice(rule, field)
				if slices.Contains(values, "*") {
					t.Errorf("%s grants all %s", key, field)
				}
				if len(values) == 0 && rule["nonResourceURLs"] == nil {
					t.Errorf("%s grants no %s", key, field)
				}
			}
		}
	}
}
